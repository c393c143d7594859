"""Sizes that follow from one unknown: ``F="4*D"``, ``H=lambda D: D // 64``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from symacct.dim import check_size, symbol
from symacct.errors import DimError, SpecError
from symacct.formulas.compiled import Compiled, compile_expressions
from symacct.formulas.expressions import changed, read


@dataclass(frozen=True)
class Opaque:
    """A function of numbers alone, such as one that compares or rounds, with the names that it takes."""

    function: Callable[..., Any]
    names: tuple[str, ...]


class Line:
    """All sizes by one unknown: numbers, expressions in it, and functions that take numbers alone.

    ``sizes``: the numbers. ``ties``: texts, expressions or functions of the unknown and of names with sizes.
    Raises `SpecError` for a tie that cannot be read or goes in a circle.
    """

    def __init__(self, unknown: str, sizes: Mapping[str, int], ties: Mapping[str, Any]) -> None:
        self.x = symbol(unknown)
        self.sizes = {name: check_size(name, size) for name, size in sizes.items()}
        self.opaque: dict[str, Opaque] = {}
        values: dict[sympy.Symbol, sympy.Expr] = {symbol(n): sympy.Integer(s) for n, s in self.sizes.items()}
        for name, tie in ties.items():
            found = _read(name, tie)
            if isinstance(found, Opaque):
                self.opaque[name] = found
            else:
                values[symbol(name)] = found
        for _ in values:  # ties that speak of ties
            values = {s: _put(v, values) for s, v in values.items()}
        self.values = values
        letters = {self.x, *map(symbol, self.opaque)}
        for s, value in values.items():
            strange = sorted(str(each) for each in value.free_symbols - letters)
            if strange:
                circle = set(strange) & {str(s) for s in values}
                why = "goes in a circle" if circle else f"has no size for {', '.join(strange)}; give one"
                raise SpecError(f"{s}={ties.get(s.name, value)}: the rule {why}")
        for name, each in self.opaque.items():
            for needed in each.names:
                if needed != unknown and needed not in self.sizes:
                    raise SpecError(f"{name}: its function takes {needed!r}, which is neither {unknown} nor has a size")
        self._compiled: Compiled = compile_expressions(
            {s.name: v for s, v in values.items() if s.name not in self.sizes}
        )

    def of(self, expr: Any) -> sympy.Expr:
        """An expression in the unknown alone (and in the dims that functions of numbers give)."""
        return _put(sympy.sympify(expr), self.values)

    def letters(self, number: int) -> dict[str, int] | None:
        """The unknown and what functions of numbers give at it; None where that is no size."""
        found = {self.x.name: number}
        for name, each in self.opaque.items():
            given = each.function(**{n: number if n == self.x.name else self.sizes[n] for n in each.names})
            size = _whole(given)
            if size is None:
                return None
            found[name] = size
        return found

    def at(self, number: int) -> dict[str, int] | None:
        """All sizes where the unknown is a number; None where one of them is not whole, or is below 1."""
        found = self.letters(number)
        if found is None:
            return None
        for name, value in self._compiled(**found).items():
            size = _whole(value)
            if size is None:
                return None
            found[name] = size
        return {**self.sizes, **found}


def _put(expr: sympy.Expr, values: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    return changed(expr, lambda part: values.get(part, part))


def _whole(value: Any) -> int | None:
    try:
        return check_size("", int(value)) if value == int(value) else None
    except (DimError, TypeError, ValueError, OverflowError):
        return None


def _read(name: str, tie: Any) -> sympy.Expr | Opaque:
    if not callable(tie) or isinstance(tie, sympy.Basic):
        return read(tie)
    names = tuple(inspect.signature(tie).parameters)
    if not names:
        raise SpecError(f"{name}: a rule is a function of the unknown, as in {name}=lambda D: 4*D")
    try:
        return read(tie(*map(symbol, names)))
    except Exception:  # it compares, rounds, or takes numbers otherwise
        return Opaque(tie, names)
