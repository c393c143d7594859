"""Which moments can be the peak, whatever the sizes are.

Every size of memory is a sum of monomials in the dims. With each dim written as its
least value plus something that is not negative, a sum none of whose coefficients is
smaller than another's is never smaller: that moment dominates the other. A moment
below a mixture of two others cannot win either, which is what leaves a handful of
the thousands of moments of a deep model, where memory falls and rises by equal steps.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy

Vector = tuple[Any, ...]  # of ints, or of Fractions
_Monomial = tuple[tuple[Any, int], ...]
_SAMPLES = 100
_OPPOSITE = sympy.Symbol("-")


class Space:
    """Turns sizes into vectors whose order is an order for all dims at or above their least values."""

    def __init__(self, sizes: Iterable[Any], least: Mapping[str, int]) -> None:
        shifted = {size: _shifted(sympy.sympify(size), least) for size in sizes}
        self.monomials = sorted({m: None for terms in shifted.values() for m in terms}, key=str)
        self.vectors = {s: tuple(t.get(m, 0) for m in self.monomials) for s, t in shifted.items()}

    @staticmethod
    def spanned(monomials: Sequence[_Monomial]) -> Space:
        """A space whose vectors are coefficients of these monomials."""
        space = Space((), {})
        space.monomials = list(monomials)
        return space

    def candidates(self, vectors: Sequence[Vector]) -> list[int]:
        """The positions of the vectors that can be the largest: those that no others, or mixtures of two, cover.

        Those that are the largest for some sizes, found by trying, stay; the others must not be covered.
        """
        front = _front(vectors)
        kept = [front[i] for i in self._winners([vectors[i] for i in front])]
        added: list[int] = []
        for i in _from_both_ends(sorted(front)):  # equal layers lie between the first and the last of them
            if i not in kept and not _covered(vectors[i], [vectors[k] for k in (*kept, *added)]):
                added.append(i)
        for i in tuple(added):
            if _covered(vectors[i], [vectors[k] for k in (*kept, *added) if k != i]):
                added.remove(i)
        return sorted(kept + added)

    def _winners(self, vectors: Sequence[Vector]) -> list[int]:
        """The vectors that are the largest for some of a fixed set of sizes."""
        rng = random.Random(0)
        bases = {base: None for monomial in self.monomials for base, _ in monomial}
        columns = [[float(v[i]) for v in vectors] for i in range(len(self.monomials))]
        found: dict[int, None] = {}
        for _ in range(_SAMPLES):
            at = {base: 10 ** rng.uniform(0, 5) for base in bases} | {_OPPOSITE: 0}
            sums = [0.0] * len(vectors)
            for monomial, column in zip(self.monomials, columns, strict=True):
                weight = math.prod(at[base] ** power for base, power in monomial)
                sums = [s + weight * c for s, c in zip(sums, column, strict=True)]
            found[max(range(len(sums)), key=sums.__getitem__)] = None
        return sorted(found)


def _front(vectors: Sequence[Vector]) -> list[int]:
    """The vectors that no other one dominates; of equal ones the first. No later one can dominate in this order."""
    front: list[int] = []
    for i in sorted(range(len(vectors)), key=lambda i: (-sum(vectors[i]), i)):
        vector = vectors[i]
        if not any(all(map(operator.ge, vectors[k], vector)) for k in front):
            front.append(i)
    return front


def _from_both_ends(items: list[int]) -> list[int]:
    """The first, the last, the second, the last but one, ..."""
    half = (len(items) + 1) // 2
    return [i for pair in zip(items[:half], items[::-1][:half], strict=True) for i in dict.fromkeys(pair)]


def _covered(vector: Vector, others: Sequence[Vector]) -> bool:
    """Whether a vector is nowhere above a mixture of two others."""
    return any(_mixes(vector, a, b) for i, a in enumerate(others) for b in others[i + 1 :])


def _mixes(vector: Vector, a: Vector, b: Vector) -> bool:
    """Whether t*a + (1 - t)*b >= vector for one t between 0 and 1, in exact numbers."""
    low, high = (0, 1), (1, 1)  # bounds of t as (numerator, denominator)
    for wanted, x, y in zip(vector, a, b, strict=True):
        if wanted > x and wanted > y:
            return False
        slope, gap = x - y, wanted - y
        if slope > 0:
            if gap * low[1] > low[0] * slope:
                low = (gap, slope)
        elif slope < 0:
            if gap * high[1] > high[0] * slope:  # gap/slope < high, both sides times -slope * high[1]
                high = (-gap, -slope)
        elif gap > 0:
            return False
        if low[0] * high[1] > high[0] * low[1]:
            return False
    return True


# -- monomials ---------------------------------------------------------------------


def _shifted(expr: sympy.Expr, least: Mapping[str, int]) -> dict[_Monomial, Any]:
    """Coefficients of an expression in what its dims are above their least values; floors and such are kept whole.

    A monomial whose sign is not known also stands with the opposite sign, so that only equals compare.
    """
    terms: dict[_Monomial, Any] = {}
    for term in sympy.Add.make_args(sympy.expand(_rounded_up(expr))):
        coefficient, powers = _factors(term)
        parts: dict[_Monomial, Any] = {(): coefficient}
        for base, power in powers:
            start = least.get(base.name, 1) if base.is_Symbol else 0
            parts = _times_power(parts, base, power, start)
        unsure = any(not base.is_nonnegative for base, _ in powers)
        for monomial, value in parts.items():
            terms[monomial] = terms.get(monomial, 0) + value
            if unsure:
                opposite = ((_OPPOSITE, 1), *monomial)
                terms[opposite] = terms.get(opposite, 0) - value
    return {m: v for m, v in terms.items() if v != 0}


def _rounded_up(expr: sympy.Expr) -> sympy.Expr:
    """``-floor(-x)``, which is how Python code rounds up, as ``ceiling(x)``: a size, not the negative of one."""
    negative = {f: -sympy.ceiling(-f.args[0]) for f in expr.atoms(sympy.floor) if f.args[0].could_extract_minus_sign()}
    return expr.xreplace(negative)


def _factors(term: sympy.Expr) -> tuple[Any, list[tuple[Any, int]]]:
    coefficient, rest = term.as_coeff_Mul()
    powers: list[tuple[Any, int]] = []
    for base, power in rest.as_powers_dict().items():
        if base == 1:
            continue
        if power.is_Integer and power > 0:
            powers.append((base, int(power)))
        else:
            powers.append((base**power, 1))
    return _number(coefficient), powers


def _number(value: Any) -> Any:
    return int(value) if value.is_Integer else Fraction(int(value.p), int(value.q))


def _times_power(parts: dict[_Monomial, Any], base: Any, power: int, start: int) -> dict[_Monomial, Any]:
    """Multiply by (start + rest)**power, written in rest."""
    out: dict[_Monomial, Any] = {}
    for k in range(power + 1):
        factor = math.comb(power, k) * start ** (power - k)
        if factor:
            for monomial, value in parts.items():
                key = tuple(sorted((*monomial, (base, k)), key=str)) if k else monomial
                out[key] = out.get(key, 0) + value * factor
    return out
