"""Published formulas and whole numbers, each proven by a trace of a real module: docs/published.md, by id."""

from __future__ import annotations

import ast
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from published.entries import ENTRIES
from published.entry import agrees, proof_of, rounded, symbols
from published.page import ELSEWHERE, HEAD, PAGE, heading, page, prose, recorded, section

from symacct.errors import SpecError

TESTS = Path(__file__).parent
EACH = [
    pytest.param(entry, id=entry.ids.replace(", ", "-"), marks=[pytest.mark.slow] if entry.slow else [])
    for entry in ENTRIES
]


@pytest.mark.parametrize("entry", EACH)
def test_traced_is_published_and_what_lies_beside_it(entry: Any) -> None:
    """The traced formula less the published one less each difference is 0, by algebra."""
    proof = proof_of(entry)
    assert proof.figures
    for figure in proof.figures:
        assert proof.left(figure) == 0, figure.name
        assert all(why for _, why in figure.differences)
        assert figure.account.unknown == []


@pytest.mark.parametrize("entry", EACH)
def test_numbers_come_out_of_the_account(entry: Any) -> None:
    """Each published whole number is the account's at its sizes, an exact int; printed digits are its rounding."""
    proof = proof_of(entry)
    for figure in proof.figures:
        for number in figure.numbers:
            assert type(figure.value(number.sizes)) is int, number.label
            assert agrees(proof.value(figure, number), number.published), (figure.name, number.label)


@pytest.mark.parametrize("entry", EACH)
def test_sections_are_what_the_traces_give(entry: Any) -> None:
    """The section of an entry in docs/published.md is the one that its traces write."""
    assert recorded(entry) == section(entry)


def test_formulas_were_checked() -> None:
    """The accounts of an entry were checked at other sizes, and at another depth where they have one."""
    for entry in ENTRIES:
        if not entry.slow:
            for figure in proof_of(entry).figures:
                assert figure.account.checked or not figure.account.dims, entry.ids


def test_the_page_is_whole() -> None:
    """The page has a section for every entry, in order, and the rest is what the lists say."""
    sections = [recorded(entry) for entry in ENTRIES]
    assert None not in sections
    assert PAGE.read_text() == page(sections)
    assert PAGE.read_text().startswith(HEAD)
    headings = [line for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert headings == [*map(heading, ENTRIES), "## Proven in other tests"]


def test_tests_that_the_page_names_exist() -> None:
    """What the page says is proven in another test names a test that is there."""
    for _, _, file, names in ELSEWHERE:
        tree = ast.parse((TESTS / f"{file}.py").read_text())
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(names) <= there, file


def test_a_wrong_formula_leaves_something() -> None:
    """A published formula with one more term, a number that is one more, and digits that differ are found."""
    entry = next(entry for entry in ENTRIES if "N030" in entry.ids)
    proof = proof_of(entry)
    figure = proof.figures[0]
    D, L = symbols("D L")
    wrong = replace(figure, published=figure.published + L * D)
    assert proof.left(wrong) == -L * D
    number = figure.numbers[0]
    assert not agrees(proof.value(wrong, number), number.published + 1)
    with pytest.raises(ValueError, match="no whole number"):
        replace(figure, per="B").value(number.sizes | {"B": 7})
    with pytest.raises(SpecError):
        replace(figure, account=figure.account.under("no such preset"))


def test_rounding() -> None:
    """Digits are compared as they are printed, half away from zero."""
    assert rounded(540354281472, "540.35e9") == "540.35e9"
    assert rounded(540355000000, "540.35e9") != "540.35e9"
    assert agrees(Fraction(739, 720), "1.03")
    assert not agrees(Fraction(739, 720), "1.02")
    assert agrees(7, 7)


def test_formulas_in_prose() -> None:
    """A formula in a sentence is put into backticks, whole, and what is in them stays."""
    assert prose("6*N + 12*L*H for each token, `2*x`") == "`6*N + 12*L*H` for each token, `2*x`"
    assert prose("(B*T*k/E), tied") == "`(B*T*k/E)`, tied"
    assert prose("no formula = none") == "no formula = none"
