"""docs/napkin.md: every result of the napkin-math reference with where it comes out, and what its sources got wrong.

    python tests/napkin_page.py --write

writes the page. ``data/napkin.csv`` has the results by id, ``data/napkin_slips.csv`` what its sources got wrong. Which
test has an id is read from the tests themselves: from their names, their docstrings, what they say and the tables that
they run over.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from published.entries import ENTRIES

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "napkin.md"
IDS = tuple(f"N{i:03}" for i in range(1, 125))
_ID = re.compile(r"(?<![A-Za-z0-9])(?:N\d{3}|[EX]\d{2})(?!\d)")
_RANGE = re.compile(r"(?<![A-Za-z0-9])N(\d{3}) (?:to|TO) N(\d{3})(?!\d)")
_PAGES = ("test_napkin_page", "test_published")  # their tables are of all ids

HEAD = """# Napkin math

The numbers that people work out on a napkin, from lecture notes, papers and tools, and where they come out of symacct.
The ids (N001 to N124) are those of the napkin-math reference that the tests follow. This page is what

```
python tests/napkin_page.py --write
```

writes, and a test compares. "Published" is a section of [published.md](published.md), where a formula is proven by a
trace. All else are tests of that name in `tests/`. FLOP counts multiplications and additions, GB is 1e9 bytes and GiB
`2**30`, a year has 365.25 days, and peaks are dense, without 2:4 sparsity.
"""

NOT_HERE: dict[str, str] = {}  # ids that no test has, and why


def results() -> dict[str, tuple[str, str]]:
    """What each id is, and its value."""
    return {row["id"]: (row["what"], row["value"]) for row in _rows("napkin")}


def slips() -> dict[str, tuple[str, str]]:
    """What is right, and a sentence on what is wrong, by E and X id."""
    return {row["id"]: (row["right"], row["wrong"]) for row in _rows("napkin_slips")}


def _rows(name: str) -> list[dict[str, str]]:
    with (TESTS / "data" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published() -> set[str]:
    """The ids that have a section of docs/published.md, or are named in one."""
    found = {each for entry in ENTRIES for each in entry.ids.split(", ")}
    for path in sorted((TESTS / "published").glob("*.py")):
        if path.stem != "page":
            strings = " ".join(_strings(ast.parse(path.read_text(encoding="utf-8"))))
            found |= {each for each in ids_in(strings) if each in slips()}
    return found


def in_tests() -> dict[str, list[str]]:
    """The tests of each id, of N, E and X, as "test_file: test_function"."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        if path.stem in _PAGES:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tables = _tables(tree)
        for test in tree.body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                for each in ids_of(test, tables):
                    found.setdefault(each, []).append(f"{path.stem}: {test.name}")
    return found


def ids_in(text: str) -> set[str]:
    """The ids that a text has: "N016 to N019" are four, "E12" is a slip."""
    found = set(_ID.findall(text))
    for first, last in _RANGE.findall(text):
        found |= {f"N{number:03}" for number in range(int(first), int(last) + 1)}
    return found


def _tables(tree: ast.Module) -> dict[str, ast.AST]:
    """What the names of a file at its top stand for."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node.value for target in targets if isinstance(target, ast.Name)}
    return found


def ids_of(test: ast.FunctionDef, tables: dict[str, ast.AST]) -> set[str]:
    """The ids of a test: in its name ("test_n016_to_n019"), in what it says, and in the tables that it runs over."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    parts = [test.name.upper().replace("_", " "), *_strings(test)]
    parts += [text for name in names & set(tables) for text in _strings(tables[name])]
    return {each for part in parts for each in ids_in(part)}


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def page() -> str:
    """The whole page."""
    by_id, sections = in_tests(), published()

    def where(each: str) -> str:
        found = [*(["Published"] if each in sections else []), *_listed(by_id.get(each, []))]
        return "; ".join(found)

    lines = [HEAD, "## Results", "", "| id | what | value | where it comes out |", "| --- | --- | --- | --- |"]
    for each, (what, value) in results().items():
        shown = where(each) or f"not here: {NOT_HERE.get(each, 'nothing yet')}"
        lines.append(f"| {each} | {_cell(what)} | {_cell(value)} | {shown} |")
    lines += [
        "", "## Errors and slips", "", "E: in the lecture notes that this began with. X: in published references.", "",
        "| id | right | what is wrong | tested in |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for each, (right, wrong) in slips().items():
        lines.append(f"| {each} | {_cell(right)} | {_cell(wrong)} | {where(each)} |")
    return "\n".join([*lines, ""])


def _listed(found: list[str]) -> list[str]:
    """The tests by file: "`test_a`: `test_x`, `test_y`"."""
    by_file: dict[str, list[str]] = {}
    for each in found:
        file, test = each.split(": ")
        by_file.setdefault(file, []).append(f"`{test}`")
    return [f"{file}: {', '.join(names)}" for file, names in by_file.items()]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
