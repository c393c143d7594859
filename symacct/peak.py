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
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, compress
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
        compared = dict(zip(front, _without_repeats([vectors[i] for i in front]), strict=True))
        added: list[int] = []
        for i in _from_both_ends(sorted(front)):  # equal layers lie between the first and the last of them
            if i not in kept and not _covered(compared[i], [compared[k] for k in (*kept, *added)]):
                added.append(i)
        for i in tuple(added):
            if _covered(compared[i], [compared[k] for k in (*kept, *added) if k != i]):
                added.remove(i)
        return sorted(kept + added)

    def _winners(self, vectors: Sequence[Vector]) -> list[int]:
        """The vectors that are the largest for some of a fixed set of sizes."""
        rng = random.Random(0)
        bases = {base: None for monomial in self.monomials for base, _ in monomial}
        rows = [list(map(float, vector)) for vector in vectors]
        found: dict[int, None] = {}
        for _ in range(_SAMPLES):
            at = {base: 10 ** rng.uniform(0, 5) for base in bases} | {_OPPOSITE: 0}
            weights = [math.prod(at[base] ** power for base, power in monomial) for monomial in self.monomials]
            sums = [sum(map(operator.mul, weights, row)) for row in rows]
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


def _without_repeats(vectors: Sequence[Vector]) -> list[Vector]:
    """The vectors without parts that rise and fall with an earlier part, or do not differ: they compare the same."""
    columns: dict[Vector, Vector] = {}
    for column in zip(*vectors, strict=True):
        low, high = min(column), max(column)
        if low < high:
            columns.setdefault(tuple(Fraction(value - low, high - low) for value in column), column)
    return list(zip(*columns.values(), strict=True)) or [()] * len(vectors)


def _from_both_ends(items: list[int]) -> list[int]:
    """The first, the last, the second, the last but one, ..."""
    half = (len(items) + 1) // 2
    return [i for pair in zip(items[:half], items[::-1][:half], strict=True) for i in dict.fromkeys(pair)]


def _covered(vector: Vector, others: Sequence[Vector]) -> bool:
    """Whether a vector is nowhere above a mixture of two others, where none of these alone is as large everywhere."""
    pairs = combinations([_Gap.between(vector, other) for other in others], 2)
    return any(not (a.falls & ~b.rises or b.falls & ~a.rises) and _mix(a, b) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class _Gap:
    """What leads from one vector to another, with the parts that fall and those that rise as bits of numbers."""

    parts: Vector
    falling: list[int]
    falls: int
    rises: int

    @staticmethod
    def between(vector: Vector, other: Vector) -> _Gap:
        parts = tuple(map(operator.sub, other, vector))
        falls, rises = bytes([part < 0 for part in parts]), bytes([part > 0 for part in parts])
        falling = list(compress(range(len(parts)), falls))
        return _Gap(parts, falling, int.from_bytes(falls, "little"), int.from_bytes(rises, "little"))


def _mix(a: _Gap, b: _Gap) -> bool:
    """Whether ``a + r*b`` is nowhere negative for one r > 0, in exact numbers. Where one falls, the other rises."""
    above, below = 0, 1  # r is at least above/below
    for n in a.falling:
        if -a.parts[n] * below > above * b.parts[n]:
            above, below = -a.parts[n], b.parts[n]
    return all(above * -b.parts[n] <= below * a.parts[n] for n in b.falling)


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
