"""What all napkin results share: counts as people write them, quotients that stay exact, and small tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import sympy

from symacct.printing import formula
from symacct.report import WIDTH
from symacct.units import read, show

# How `symacct.units.show` is told what an amount is of.
SIGNS = {
    "byte": "B", "FLOP": "FLOP", "second": "s", "USD": "USD", "token": "tokens", "FLOP/second": "FLOP/s",
    "byte/second": "B/s", "token/second": "tokens/s", "": "",
}  # fmt: skip


def count(value: Any, name: str, of: str = "params") -> Any:
    """How many parameters or tokens, from a number, an expression or a text such as "7B", "1.4T tokens" or "15e12".

    None stays None. Raises `UnitError` for a text that is something else.
    """
    if value is None:
        return None
    if isinstance(value, str) and of == "params":
        value = re.sub(r"\s*(params?|parameters?)\s*$", "", value)
    return read(value, "token" if of == "tokens" else "", name)


def over(dividend: Any, divisor: Any) -> Any:
    """A quotient: an int where it is whole, an expression where one of them is, else the nearest float."""
    if isinstance(dividend, sympy.Basic) or isinstance(divisor, sympy.Basic):
        return reduced(sympy.sympify(dividend) / sympy.sympify(divisor))
    found = Fraction(dividend) / Fraction(divisor)
    return int(found) if found.denominator == 1 else float(found)


def times(*factors: Any) -> Any:
    """A product: exact as far as its factors are, a plain number where no dim is left in it."""
    found: Any = Fraction(1)
    for factor in factors:
        if isinstance(factor, sympy.Basic) or isinstance(found, sympy.Basic):
            found = exact(found) * exact(factor)
        else:
            found *= Fraction(factor)
    return reduced(found)


def reduced(value: Any) -> Any:
    """An int or a float where a value is a number, else the value."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, sympy.Basic) and value.is_number:
        return int(value) if value.is_Integer else float(value)
    return value


def exact(value: Any) -> sympy.Expr:
    """A number as it is, not rounded; expressions stay."""
    if isinstance(value, sympy.Basic):
        return value
    fraction = Fraction(value)
    return sympy.Rational(fraction.numerator, fraction.denominator)


def shown(value: Any, unit: str = "") -> str:
    """A value for people: a number with its prefix and ``unit`` ("byte", "second", ...), or a formula as it stands."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, sympy.Basic):
        value = value.xreplace({number: sympy.Float(number, 4) for number in value.atoms(sympy.Float)})
        return f"{formula(value)} {SIGNS.get(unit, unit)}".strip()
    if isinstance(value, int) and unit == "":
        return f"{value:,}"
    return show(value, SIGNS.get(unit, unit))


def exactly(value: Any, unit: str = "") -> str:
    """A whole number with all its digits, as long as they can be read; else as `shown` has it."""
    if isinstance(value, int) and abs(value) < 10**18:
        return f"{value:,} {SIGNS.get(unit, unit)}".strip()
    return shown(value, unit)


def table(title: str, rows: Iterable[tuple[str, ...]], notes: Iterable[str] = ()) -> str:
    """A heading, rows whose first column is text and whose other columns stand to the right, and notes below."""
    rows = list(rows)
    columns = max((len(row) for row in rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(columns)]
    lines = [title]
    for row in rows:
        cells = [
            f"{row[0]:{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=False)),
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    for note in notes:
        lines += textwrap.wrap(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)
