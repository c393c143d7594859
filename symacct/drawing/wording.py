"""What stands in the boxes of a picture: formulas on a few lines, values, and text that Graphviz takes as it is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import sympy

from symacct.drawing.model import Box
from symacct.drawing.shares import Amounts
from symacct.printing import formula, multiple, quantity, text
from symacct.units import show

WIDTH = 34  # characters of a line in a box
LINES = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_PIECE = re.compile(r"(?:[^\s*,.]|\*\*|\.\.\.)*[*,.]?\s*")  # what no line is broken within


def plain(words: str) -> str:
    """Text without characters that neither DOT nor SVG can have; they are shown as Python writes them."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), words)


def escaped(words: str) -> str:
    """Text for an HTML-like label."""
    return html.escape(plain(words), quote=True)


def quoted(words: str) -> str:
    """A string of DOT, which keeps backslashes and quotes."""
    return '"' + plain(words).replace("\\", "\\\\").replace('"', '\\"') + '"'


def tooltip(lines: list[str]) -> str:
    """A string of DOT of several lines. Graphviz takes HTML's entities in it for what they stand for."""
    return '"' + "\\n".join(quoted(line)[1:-1].replace("&", "&amp;") for line in lines if line) + '"'


def written(expr: Any, times: Any = 1) -> str:
    """A cost as a formula, "12*(...)" where a box stands for so many equal modules."""
    expr = sympy.sympify(expr)
    if isinstance(times, int) and times > 1 and expr.free_symbols and not expr.has(sympy.Max):
        coefficients = sympy.expand(expr).as_coefficients_dict().values()
        if all((c / times).is_Integer for c in coefficients):
            return multiple(times, expr)
    if expr.is_Integer:
        return formula(int(expr))
    return text(expr) if expr.has(sympy.Max) else formula(expr)


def amount(value: Any, unit: str) -> str:
    """A value with its unit, as people read it."""
    return show(value, "s") if unit == "s" else quantity(value, unit)


def wrapped(words: str, width: int = WIDTH, lines: int = LINES) -> list[str]:
    """Text on a few lines, broken behind operators where they are too long, and cut with "..." where there are more."""
    found = [""]
    for piece in (part for whole in _PIECE.findall(words) for part in _parts(whole, width)):
        if found[-1] and len(found[-1]) + len(piece.rstrip()) > width:
            found.append("")
        found[-1] += piece if found[-1] else piece.lstrip()
    found = [line.rstrip() for line in found]
    if len(found) > lines:
        found = [*found[: lines - 1], found[lines - 1][: width - 4].rstrip() + " ..."]
    return found


def _parts(word: str, width: int) -> Iterator[str]:
    """A word, or of one that is longer than a line the parts that fit, broken behind underscores where it has any."""
    while len(word.rstrip()) > width:
        end = word.rfind("_", 1, width) + 1 or width
        yield word[:end]
        word = word[end:]
    yield word


def shared(share: float) -> str:
    """A share in percent."""
    if share == 0:
        return "0%"
    return "<0.1%" if share < 0.001 else f"{100 * share:.1f}%"


def described(box: Box, amounts: Amounts) -> list[str]:
    """All about a box, line by line: what is shown when the pointer is over it."""
    lines = [box.path or "(top level)" if box.kind not in ("input", "output") else box.label, box.shape]
    if box.parts:
        lines.append(f"{amounts.cost}: {written(amounts.formulas[box.id], box.times)}")
        name = "at the sizes" if amounts.given else "at the trial sizes"
        lines.append(f"{name}: {amount(amounts.values[box.id], amounts.unit)}, {shared(amounts.share(box))} of all")
        lines.append("ops: " + ", ".join(box.ops[:12]) + (", ..." if len(box.ops) > 12 else ""))
    if box.unknown:
        lines.append("no rule for some of its ops: its costs are incomplete")
    return [*lines, *box.sources]
