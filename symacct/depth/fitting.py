"""Polynomials in a few whole numbers, exactly, from the values on a small lattice.

Newton's forward differences: a polynomial of degree d is its differences at one point, and those of a higher order
are all 0. So a lattice of order d + 1 gives a polynomial of degree d and proves it on the points that it did not need.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import sympy

Offset = tuple[int, ...]  # a point of the lattice, from its base
_Terms = Mapping[Any, Any]  # monomials with coefficients


class Lattice:
    """The points at most ``order`` steps away from a base, for each of some dims (symbols)."""

    def __init__(self, base: Mapping[sympy.Symbol, int], order: int) -> None:
        self.base = dict(base)
        self.order = order

    @property
    def names(self) -> str:
        """The dims, in words."""
        return ", ".join(symbol.name for symbol in self.base)

    @cached_property
    def offsets(self) -> list[Offset]:
        """The points, as steps from the base, nearest first."""
        axes = itertools.product(range(self.order + 1), repeat=len(self.base))
        return sorted((o for o in axes if sum(o) <= self.order), key=lambda o: (sum(o), o))

    def sizes(self, offset: Offset) -> dict[str, int]:
        """The sizes of the dims at a point."""
        return {symbol.name: size + n for (symbol, size), n in zip(self.base.items(), offset, strict=True)}

    def polynomial(self, values: Mapping[Offset, Any]) -> sympy.Expr | None:
        """The polynomial of a degree below the order that has these values, or None where there is none.

        ``values``: numbers or expressions in other dims, whose monomials' coefficients are the polynomials.
        """
        terms = {offset: _terms(values[offset]) for offset in self.offsets}
        found: dict[Any, Any] = {}
        for offset in self.offsets:
            differences = self._differences(terms, offset)
            if differences and sum(offset) == self.order:
                return None
            for monomial, difference in differences.items():
                found[monomial] = found.get(monomial, 0) + difference * self._basis[offset]
        return sympy.Add(*(sympy.expand(monomial * coefficient) for monomial, coefficient in found.items()))

    @cached_property
    def _basis(self) -> dict[Offset, sympy.Expr]:
        """The polynomial of each point that is 1 there in Newton's form: a product of binomial coefficients."""
        return {
            offset: sympy.expand(
                sympy.Mul(*(_binomial(s - b, n) for (s, b), n in zip(self.base.items(), offset, strict=True)))
            )
            for offset in self.offsets
        }

    def difference(self, values: Mapping[Offset, Sequence[Any]], offset: Offset) -> list[Any]:
        """The mixed forward difference of an order given by ``offset``, at the base, of vectors of numbers."""
        total = [0] * len(values[offset])
        for below, weight in _weights(offset):
            total = [t + weight * value for t, value in zip(total, values[below], strict=True)]
        return total

    def _differences(self, terms: Mapping[Offset, _Terms], offset: Offset) -> dict[Any, Any]:
        """The same, of every coefficient of a sum."""
        total: dict[Any, Any] = {}
        for below, weight in _weights(offset):
            for monomial, coefficient in terms[below].items():
                total[monomial] = total.get(monomial, 0) + weight * coefficient
        return {monomial: coefficient for monomial, coefficient in total.items() if coefficient != 0}


def _terms(value: Any) -> _Terms:
    if not isinstance(value, sympy.Basic):
        return {sympy.Integer(1): value}
    total: dict[Any, Any] = {}
    for term in sympy.Add.make_args(value):
        number, rest = term.as_coeff_Mul()
        for monomial, coefficient in _expanded(rest):
            total[monomial] = total.get(monomial, 0) + number * coefficient
    return total


@lru_cache(maxsize=10_000)
def _expanded(product: sympy.Expr) -> tuple[tuple[Any, Any], ...]:
    """Monomials with coefficients: at the points of a lattice sums are of the same products, with other numbers."""
    return tuple(sympy.expand(product).as_coefficients_dict().items())


@lru_cache(maxsize=1_000)
def _weights(offset: Offset) -> tuple[tuple[Offset, int], ...]:
    """The points that a mixed forward difference is made of, with their weights."""
    points = itertools.product(*(range(n + 1) for n in offset))
    return tuple((below, math.prod(map(_signed, offset, below))) for below in points)


def _signed(n: int, k: int) -> int:
    return -math.comb(n, k) if (n - k) % 2 else math.comb(n, k)


def _binomial(x: sympy.Expr, k: int) -> sympy.Expr:
    return sympy.Mul(*(x - i for i in range(k))) / math.factorial(k)
