"""docs/napkin.md is what its generator writes, and has every id of the reference."""

from __future__ import annotations

import ast

import pytest
from napkin_page import IDS, NOT_HERE, PAGE, _tables, ids_in, ids_of, in_tests, page, published, results, slips


def test_the_page_is_what_the_tests_say() -> None:
    """The page is the generated one: python tests/napkin_page.py --write."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_id_comes_out_somewhere() -> None:
    """Each of N001 to N124 has a section of docs/published.md or a test, or a reason why it has none, not both."""
    assert tuple(results()) == IDS
    found = set(in_tests()) | published()
    assert [each for each in IDS if each not in found and each not in NOT_HERE] == []
    assert [each for each in NOT_HERE if each in found] == []
    assert all(what and value for what, value in results().values())


def test_every_slip_is_on_the_page() -> None:
    """The 24 errors of the notes and the 16 slips of references each have what is right, and a sentence."""
    assert list(slips()) == [f"E{i:02}" for i in range(1, 25)] + [f"X{i:02}" for i in range(1, 17)]
    assert all(right and wrong.endswith(".") for right, wrong in slips().values())


def test_no_test_has_an_id_that_is_none() -> None:
    """An id in a test that the reference does not have is a typo."""
    known = set(IDS) | set(slips())
    assert {each: where for each, where in in_tests().items() if each not in known} == {}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("N009: 70B", {"N009"}),
        ("N016 to N018, E08.", {"N016", "N017", "N018", "E08"}),
        ("TEST N065 N066 MEGATRON", {"N065", "N066"}),
        ("AN009, N0091, XE12, 1E10", set()),
        ("X15", {"X15"}),
    ],
)
def test_ids_in_a_text(text: str, ids: set[str]) -> None:
    """Ids are words, and ranges of them count in whole."""
    assert ids_in(text) == ids


def test_ids_of_a_test() -> None:
    """A test has the ids of its name, of its docstring and of the tables that it runs over, and no others."""
    tree = ast.parse(
        'ROWS = [("N001", 1)]\nOTHER = ["N005"]\n'
        '@pytest.mark.parametrize("row", ROWS)\ndef test_n002_to_n004(row):\n    """Also N009."""\n'
    )
    (test,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert ids_of(test, _tables(tree)) == {"N001", "N002", "N003", "N004", "N009"}
