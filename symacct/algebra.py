"""Algebra of sizes: quotients, remainders and bounds of expressions in positive integers.

SymPy is asked for expansions, cancellations and polynomial coefficients; nothing here
calls a general simplifier. What is known to be divisible is passed in as pairs (dividend, divisor).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import sympy

Pairs = Collection[tuple[sympy.Expr, sympy.Expr]]

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_ROUNDED = (sympy.floor, sympy.ceiling, sympy.Mod)
_MOST_RESIDUES = 64


def exact(expr: sympy.Expr) -> bool:
    """Whether an expression is a whole number."""
    return bool(expr.is_Integer)


# -- quotients ---------------------------------------------------------------------


@lru_cache(maxsize=100_000)
def quotient(a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Expr, bool]:
    """a/b in lowest terms, and whether it is a polynomial with integer coefficients."""
    lowest = sympy.cancel(a / b)
    return sympy.expand(lowest), sympy.fraction(sympy.together(lowest))[1] == 1


@lru_cache(maxsize=100_000)
def long_division(a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """(q, r) with a == q*b + r and 0 <= r < b for all sizes, where dividing polynomials in one dim shows it."""
    symbols = a.free_symbols | b.free_symbols
    if len(symbols) != 1 or not b.free_symbols or not (a.is_polynomial(*symbols) and b.is_polynomial(*symbols)):
        return None
    q, r = sympy.div(a, b, *symbols)
    if not all(c.is_Integer for c in sympy.Poly(q, *symbols).coeffs()):
        return None
    if always("<", r, 0):
        q, r = q - 1, sympy.expand(r + b)
    return (q, r) if always(">=", r, 0) and always("<", r, b) else None


def floor_divide(a: sympy.Expr, b: sympy.Expr, divisible: Pairs = ()) -> sympy.Expr:
    """``a // b``, without a floor where b is known to divide a."""
    result, whole = quotient(a, b)
    if whole or modulo(a, b, divisible) == 0:
        return result
    divided = long_division(a, b)
    return divided[0] if divided is not None else simplify(sympy.floor(result), divisible)


def modulo(a: sympy.Expr, b: sympy.Expr, divisible: Pairs = ()) -> sympy.Expr:
    """``a % b``, 0 where b is known to divide a."""
    if quotient(a, b)[1]:
        return sympy.Integer(0)
    divided = long_division(a, b)
    if divided is not None:
        return divided[1]
    try:
        remainder = sympy.Mod(a, b)
    except RecursionError:  # SymPy's own, on (D**2 + D - 1) % (D + 1) for one
        remainder = sympy.Mod(a, b, evaluate=False)
    stripped = strip_factor(remainder)
    if isinstance(stripped, sympy.Mod) and stripped.args in divisible:
        return sympy.Integer(0)
    return simplify(remainder, divisible)


def simplify(expr: sympy.Expr, divisible: Iterable[tuple[sympy.Expr, sympy.Expr]]) -> sympy.Expr:
    """Use that dims are multiples of numbers to resolve floor, ceiling and Mod."""
    for dim, divisor in divisible:
        if expr.has(*_ROUNDED) and dim.is_Symbol and divisor.is_Integer and dim in expr.free_symbols:
            part = sympy.Dummy(integer=True, positive=True)
            inside = expr.xreplace({dim: divisor * part})
            resolved = inside.xreplace({r: r.func(*(sympy.expand(x) for x in r.args)) for r in inside.atoms(*_ROUNDED)})
            expr = sympy.expand(resolved.subs(part, dim / divisor))
    return expr


def extreme(a: sympy.Expr, b: sympy.Expr, otherwise: Any, relation: str) -> sympy.Expr:
    """Max or Min of two expressions, one of them alone where it always wins."""
    if always(relation, a, b):
        return a
    return b if always(relation, b, a) else otherwise(a, b)


# -- comparisons -------------------------------------------------------------------


@lru_cache(maxsize=200_000)
def always(relation: str, left: sympy.Expr, right: sympy.Expr) -> bool | None:
    """Whether a relation is true (or false) for all positive sizes; None when it depends on them."""
    difference = sympy.expand(left - right)
    if difference.is_number:
        return bool(RELATIONS[relation](difference, 0))
    low, high = lower_bound(difference), lower_bound(-difference)
    if low is not None and low > 0:
        return bool(RELATIONS[relation](1, 0))
    if high is not None and high > 0:
        return bool(RELATIONS[relation](-1, 0))
    if low == 0 and relation in ("<", ">="):
        return relation == ">="
    if high == 0 and relation in (">", "<="):
        return relation == "<="
    return None


def lower_bound(expr: sympy.Expr) -> int | None:
    """A number that an expression in positive integers never falls below, if its shifted coefficients show one."""
    expr = _without_rounding(expr)
    symbols = sorted(expr.free_symbols, key=str)
    if not symbols:
        return int(sympy.ceiling(expr))
    if not expr.is_polynomial(*symbols):
        return None
    coefficients = dict(sympy.Poly(expr.subs({s: s + 1 for s in symbols}), *symbols).terms())
    constant = coefficients.pop((0,) * len(symbols), sympy.Integer(0))
    return int(sympy.ceiling(constant)) if all(c >= 0 for c in coefficients.values()) else None


def _without_rounding(expr: sympy.Expr) -> sympy.Expr:
    """Something that an expression is never less than, without floor, ceiling, Mod and Max where possible."""
    for _ in range(16):  # they nest
        atoms = sorted(expr.atoms(*_ROUNDED, sympy.Max), key=str)
        if not atoms:
            break
        for atom in atoms:
            coefficient = sympy.expand(expr).coeff(atom)
            if coefficient == 0 or coefficient.has(*_ROUNDED, sympy.Max):
                continue
            symbolic = bool(coefficient.free_symbols)
            grows = all(c >= 0 for c in sympy.Poly(coefficient).coeffs()) if symbolic else coefficient > 0
            bound = _bound(atom, grows)
            if bound is not None:
                expr = sympy.expand(expr.xreplace({atom: bound}))
    return expr


def _bound(atom: sympy.Expr, below: bool) -> sympy.Expr | None:
    """What a rounded term is never below (or above)."""
    inside = atom.args[0]
    slack = 1 - 1 / sympy.fraction(sympy.together(inside))[1]
    if isinstance(atom, sympy.floor):
        return inside - slack if below else inside
    if isinstance(atom, sympy.ceiling):
        return inside if below else inside + slack
    if isinstance(atom, sympy.Mod):
        return sympy.Integer(0) if below else atom.args[1] - 1
    return atom.args[-1] if below else None


# -- one form for each relation ----------------------------------------------------


def strip_factor(expr: sympy.Expr) -> sympy.Expr:
    """Drop the positive factors of a product: they do not matter to a comparison with 0."""
    if isinstance(expr, sympy.Mul):
        kept = [f for f in expr.args if not f.is_positive]
        return sympy.Mul(*kept) if kept else expr
    return expr


def divisibility(difference: sympy.Expr) -> sympy.Expr | None:
    """``x % m`` if a difference with floors of one dim x is 0 just where m divides x.

    ``2*((x + 1)//2) == x`` is how rounding code says that x is even.
    """
    floors = difference.atoms(sympy.floor)
    symbols = difference.free_symbols
    if not floors or len(symbols) != 1:
        return None
    (x,) = symbols
    m = int(sympy.ilcm(1, *(sympy.fraction(sympy.together(f.args[0]))[1] for f in floors)))
    if not 1 < m <= _MOST_RESIDUES:
        return None
    part = sympy.Dummy(integer=True, positive=True)
    zero = []
    for residue in range(m):
        inside = difference.xreplace({x: m * part + residue})
        parts = {f: sympy.floor(sympy.expand(f.args[0])) for f in inside.atoms(sympy.floor)}
        if sympy.expand(inside.xreplace(parts)) == 0:
            zero.append(residue)
    return sympy.Mod(x, m) if zero == [0] else None


def normal_form(relation: str, left: sympy.Expr, right: sympy.Expr) -> tuple[str, sympy.Expr, sympy.Expr]:
    """One way to write a relation: common factors dropped, numbers on the right."""
    difference = sympy.factor_terms(left - right)
    if relation == "==" and (remainder := divisibility(sympy.expand(left - right))) is not None:
        return relation, remainder, sympy.Integer(0)
    stripped = strip_factor(difference)
    if isinstance(stripped, sympy.Mod):
        return relation, stripped, sympy.Integer(0)
    if stripped != difference:
        positive: list[sympy.Expr] = []
        negative: list[sympy.Expr] = []
        for term in sympy.Add.make_args(sympy.expand(stripped)):
            (negative if term.could_extract_minus_sign() else positive).append(term)
        left, right = sympy.Add(*positive), -sympy.Add(*negative)
    unordered = relation in ("==", "!=") and not right.is_number and str(left) > str(right)
    if left.is_number or unordered:
        return MIRRORED[relation], right, left
    if right.is_number and left.could_extract_minus_sign():
        return MIRRORED[relation], -left, -right
    return relation, left, right


# -- sums and values -----------------------------------------------------------------


def total_of(terms: Mapping[Any, Any]) -> Any:
    """The expanded sum of expressions times counts (numbers or expressions), coefficients added up in a dictionary."""
    total: dict[Any, Any] = {}
    for expr, times in terms.items():
        for term in sympy.Add.make_args(sympy.expand(expr)):
            coefficient, rest = term.as_coeff_Mul()
            total[rest] = total.get(rest, 0) + coefficient * times
    return sympy.Add(
        *(c * rest if getattr(c, "is_number", True) else sympy.expand(c * rest) for rest, c in total.items())
    )


def evaluate(expr: Any, sizes: Mapping[str, int]) -> Any:
    """The number that an expression is at given sizes: an int where it is whole, else a float."""
    if not isinstance(expr, sympy.Basic):
        return expr
    value = expr.xreplace({s: sympy.Integer(sizes[s.name]) for s in expr.free_symbols})
    return int(value) if value.is_Integer else float(value)
