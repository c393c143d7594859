"""Crossings: at which size of a dim two costs are equal, and which is larger on either side.

Roots are exact: rational, radicals or roots of a polynomial, and formulas where other dims have no sizes.
A floor or a ceiling is taken as what is inside, and the result says so in its notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy

from symacct.dim import check_size, point, symbol
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.dominance import formula_of, settled, smoothed
from symacct.formulas.expressions import changed
from symacct.printing import formula
from symacct.shown import Shown


@dataclass(frozen=True)
class Region:
    """A range of a dim between two crossings, and which is larger in it: "a", "b", "equal", or "" where it depends."""

    low: sympy.Expr
    high: sympy.Expr
    larger: str


@dataclass(frozen=True)
class Crossover(Shown):
    """Where two costs are equal, by one dim: all positive roots, and which is larger between them.

    ``roots`` are exact: rational, radicals, or roots of a polynomial; formulas where other dims have no sizes. `names`
    are what the two are called where they have names, as parts of an account do.
    """

    dim: str
    roots: tuple[sympy.Expr, ...]
    regions: tuple[Region, ...]
    notes: tuple[str, ...] = ()
    names: tuple[str, str] = ("a", "b")

    @property
    def first(self) -> int | None:
        """The first whole size beyond the last crossing, if that is a number: from there on nothing changes."""
        if not self.roots or self.roots[-1].free_symbols:
            return None
        return int(sympy.floor(self.roots[-1])) + 1

    def __str__(self) -> str:
        a, b = self.names
        lines = []
        for region in self.regions:
            where = _range(region, self.dim)
            said = {"a": f"{a} is larger", "b": f"{b} is larger", "equal": f"{a} equals {b}"}
            lines.append(f"{where}: {said.get(region.larger, 'which is larger depends on the other sizes')}")
        return "\n".join([*lines, *self.notes])


def _range(region: Region, dim: str) -> str:
    low, high = _shown(region.low), _shown(region.high)
    if region.high == sympy.oo:
        return f"every {dim}" if region.low == 0 else f"{dim} > {low}"
    return f"{dim} < {high}" if region.low == 0 else f"{low} < {dim} < {high}"


def _shown(expr: sympy.Expr) -> str:
    return formula(expr) if expr.is_Rational or expr.free_symbols else f"{float(expr):.6g}"


def crossover(a: Any, b: Any, dim: str, /, *, of: str = "flops", **sizes: int) -> Crossover:
    """At which sizes of a dim two costs are equal, and which is larger on either side.

    ``a`` and ``b``: expressions, phases, or other parts of an account, by the quantity ``of``. ``sizes``: of the other
    dims. With all of them the costs may be any polynomials or quotients, and Max of such, in the dim, and
    every positive root is found. Where other dims have no size, the roots are formulas in them, if
    the equation is linear or quadratic in the dim. Raises `UnknownDimError` where neither cost depends on the dim,
    and `SpecError` where the equation has no such solution.
    """
    notes: dict[str, None] = {}
    x = symbol(dim)
    given = {name: check_size(name, size) for name, size in sizes.items() if name != dim}
    difference = formula_of(a, of) - formula_of(b, of)
    known = sorted(s.name for s in difference.free_symbols)
    if dim not in known:
        raise UnknownDimError(
            f"crossover(): the costs differ by nothing that depends on {dim!r}; "
            f"the dims of their difference are {', '.join(known) or 'none'}"
        )
    at = {s: n for s, n in point(given).items() if s != x}
    difference = changed(smoothed(difference, notes), lambda part: at.get(part, part))
    if difference.has(sympy.Mod):
        raise SpecError(f"crossover(): {formula(difference)} jumps with a remainder; give sizes that resolve it")
    solve = _by_formula if difference.free_symbols - {x} else _by_number
    roots, regions, more = solve(difference, x)
    names = [getattr(each, "name", "") or other for each, other in ((a, "a"), (b, "b"))]
    return Crossover(dim, tuple(roots), tuple(regions), (*notes, *more), (names[0], names[1]))


Solution = tuple[list[sympy.Expr], list[Region], list[str]]


def _by_number(difference: sympy.Expr, x: sympy.Symbol) -> Solution:
    """All positive roots of an expression in one dim."""
    marks: list[sympy.Expr] = []
    signs: list[tuple[sympy.Expr, sympy.Expr, int]] = []
    for low, high, piece in _pieces(difference, x, sympy.Integer(0), sympy.oo):
        inside = [r for r in _roots(piece, x) if low < r < high]
        ends = [low, *inside, high]
        signs += [(lo, hi, _sign_at(piece, x, _between(lo, hi))) for lo, hi in pairwise(ends)]
        marks += inside
        marks += [low] if low != 0 and piece.subs(x, low).equals(0) else []
    roots = sorted(dict.fromkeys(marks), key=lambda r: sympy.N(r, 30))
    regions: list[Region] = []
    for low, high, sign in signs:
        larger = {1: "a", -1: "b", 0: "equal"}[sign]
        joined = regions.pop().low if regions and regions[-1].larger == larger and low not in roots else low
        regions.append(Region(joined, high, larger))
    return roots, regions, []


def _pieces(
    expr: sympy.Expr, x: sympy.Symbol, low: sympy.Expr, high: sympy.Expr
) -> Iterator[tuple[sympy.Expr, sympy.Expr, sympy.Expr]]:
    """An expression as pieces without Max and Min: from where, to where, which."""
    inner = [m for m in expr.atoms(sympy.Max, sympy.Min) if not any(a.has(sympy.Max, sympy.Min) for a in m.args)]
    if not inner:
        yield low, high, expr
        return
    pairs = {a - b for m in inner for i, a in enumerate(m.args) for b in m.args[i + 1 :]}
    breaks = {r for pair in pairs for r in _roots(pair, x) if low < r < high}
    ends = [low, *sorted(breaks, key=lambda r: sympy.N(r, 30)), high]
    for lo, hi in pairwise(ends):
        wins = settled(expr, {x: _between(lo, hi)}, {})
        yield from _pieces(wins, x, lo, hi)


def _roots(expr: sympy.Expr, x: sympy.Symbol) -> list[sympy.Expr]:
    """The positive roots of a polynomial or a quotient of such, each once, in order."""
    top = sympy.fraction(sympy.together(expr))[0]
    if not top.is_polynomial(x):
        raise SpecError(f"crossover(): {formula(top)} is no polynomial in {x}")
    polynomial = sympy.Poly(top, x)
    if polynomial.degree() < 1:
        return []
    return [r for r in dict.fromkeys(polynomial.real_roots()) if r > 0]


def _between(low: sympy.Expr, high: sympy.Expr) -> sympy.Rational:
    """A rational number between two numbers."""
    if high == sympy.oo:
        return sympy.floor(low) + 1
    digits = 15
    while True:
        middle = sympy.Rational(str(sympy.N((low + high) / 2, digits)))
        if low < middle < high:
            return middle
        digits *= 2


def _sign_at(expr: sympy.Expr, x: sympy.Symbol, at: sympy.Expr) -> int:
    return int(sympy.sign(expr.subs(x, at)))


def _by_formula(difference: sympy.Expr, x: sympy.Symbol) -> Solution:
    """The positive roots of a linear or quadratic equation whose coefficients are formulas."""
    if difference.has(sympy.Max, sympy.Min):
        raise SpecError("crossover(): with a Max in it, the other dims need sizes")
    top, below = sympy.fraction(sympy.together(difference))
    if not top.is_polynomial(*top.free_symbols) or _sign(below) != 1:
        raise SpecError(f"crossover(): {formula(difference)} is no polynomial in {x}; give sizes for the other dims")
    common = sympy.gcd_terms(top).as_coeff_mul()[1]
    for part in common:  # positive factors cross nothing
        if part.is_positive and not part.is_Add:
            top = sympy.cancel(top / part)
    coefficients = sympy.Poly(top, x).all_coeffs()
    while coefficients and coefficients[-1] == 0:
        coefficients.pop()
    if len(coefficients) > 3:
        raise SpecError(
            f"crossover(): the equation is of degree {len(coefficients) - 1} in {x}; give sizes for the other dims"
        )
    roots, notes, turns = _solved(coefficients, [_sign(c) for c in coefficients])
    side = _sign(coefficients[0])
    ends = [sympy.Integer(0), *roots, sympy.oo]
    regions: list[Region] = []
    for low, high in zip(ends[-2::-1], ends[:0:-1], strict=True):  # from the right, where the highest power decides
        regions.insert(0, Region(low, high, {1: "a", -1: "b", None: ""}[side]))
        side = -side if turns and side is not None else side
    return roots, regions, notes


def _solved(coefficients: list[sympy.Expr], signs: list[int | None]) -> tuple[list[sympy.Expr], list[str], bool]:
    """The roots that can be positive, in order; what must hold for those that may not be; whether signs turn there."""
    known = None not in signs
    if len(coefficients) == 1 or (known and len(set(signs) - {0}) == 1):
        return [], [], False
    if len(coefficients) == 2:
        root = sympy.cancel(-coefficients[1] / coefficients[0])
        return [root], [] if known else [f"where {formula(root)} > 0; else there is no crossing"], True
    a, b, c = coefficients
    square = sympy.factor(b**2 - 4 * a * c)
    if _sign(square) == -1:
        return [], [], False
    if _sign(square) == 0:
        root = sympy.cancel(-b / (2 * a))
        return [root], [] if known else [f"where {formula(root)} > 0; else they never meet"], False
    pair = [sympy.factor_terms((-b + sign * sympy.sqrt(square)) / (2 * a)) for sign in (-1, 1)]
    if signs[0] == -1:
        pair.reverse()
    if signs[0] is not None and signs[2] == -signs[0]:
        return pair[1:], [], True
    needed = [f"{formula(square)} > 0"] if _sign(square) is None else []
    needed += [] if known else [f"{formula(root)} > 0" for root in pair]
    return pair, [f"where {' and '.join(needed)}; else there are fewer crossings"] if needed else [], True


def _sign(expr: sympy.Expr) -> int | None:
    """1 or -1 where all coefficients say so, 0 for zero, None where it depends on sizes."""
    expr = sympy.expand(expr)
    if expr == 0:
        return 0
    if expr.is_number:
        return 1 if expr > 0 else -1
    signs = {1 if c > 0 else -1 for c in sympy.Poly(expr, *sorted(expr.free_symbols, key=str)).coeffs()}
    return signs.pop() if len(signs) == 1 else None
