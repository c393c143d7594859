"""Whether a formula in one dim only grows, or only falls, as the dim does: what a search by bisection rests on."""

from __future__ import annotations

import sympy

from symacct.formulas.expressions import Opened, Terms

_STEADY = (sympy.Max, sympy.Min, sympy.floor, sympy.ceiling)  # they grow where what is inside does


def direction(expr: sympy.Expr, x: sympy.Symbol, least: int) -> int | None:
    """1 where a formula never falls from ``least`` on, -1 where it never grows, 0 without x, None if nothing shows it.

    It is asked of real sizes, not of whole ones alone, so that rounding changes nothing.
    """
    if not expr.free_symbols:
        return 0
    if expr.free_symbols != {x}:
        return None
    if _grows(expr, x, least):
        return 1
    return -1 if _falls(expr, x, least) else None


def _grows(expr: sympy.Expr, x: sympy.Symbol, least: int) -> bool:
    """Whether it can be shown that an expression never falls from ``least`` on."""
    if not expr.free_symbols or expr == x:
        return True
    if isinstance(expr, _STEADY):
        return all(_grows(a, x, least) for a in expr.args)
    whole = expr.is_Add or expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0)
    return bool(whole) and _sum_grows(expr, x, least)


def _falls(expr: sympy.Expr, x: sympy.Symbol, least: int) -> bool:
    """Whether it can be shown that an expression never grows from ``least`` on."""
    if not expr.free_symbols:
        return True
    if isinstance(expr, _STEADY):
        return all(_falls(a, x, least) for a in expr.args)
    if expr.is_Pow and expr.exp.is_Integer and expr.exp < 0:
        return _grows(expr.base, x, least) and _never_below_0(expr.base, x)
    return bool(expr.is_Add or expr.is_Mul or expr.is_Pow) and _sum_grows(-expr, x, least)


def _sum_grows(expr: sympy.Expr, x: sympy.Symbol, least: int) -> bool:
    """A sum grows where its polynomial in x does, and each of its other terms; or where all grow beyond ``least``."""
    opened = Opened()
    terms = opened.terms(expr)
    polynomial, good = sympy.Integer(0), True
    for monomial, coefficient in terms.items():
        factors = [(opened.whole(base), power) for base, power in monomial]
        if all(base == x and power > 0 for base, power in factors):
            polynomial += coefficient * sympy.Mul(*(base**power for base, power in factors))
        else:
            good = good and _term_grows(coefficient, factors, x, least)
    return (good and _polynomial_grows(polynomial, x, least)) or _shifted_grows(opened, terms, x, least)


def _shifted_grows(opened: Opened, terms: Terms, x: sympy.Symbol, least: int) -> bool:
    """A polynomial in parts that grow, written in what each of them is above its value at ``least``."""
    steps: dict[sympy.Expr, sympy.Expr] = {}
    for base in dict.fromkeys(base for monomial in terms for base, _ in monomial):
        whole = opened.whole(base)
        at_least = whole.xreplace({x: sympy.Integer(least)})
        if not (at_least.is_Rational and _grows(whole, x, least)):
            return False
        steps[base] = at_least + sympy.Dummy()
    powers = [power for monomial in terms for _, power in monomial]
    if not steps or min(powers) < 0:
        return False
    shifted = sympy.Add(*(c * sympy.Mul(*(steps[b] ** p for b, p in monomial)) for monomial, c in terms.items()))
    coefficients = dict(sympy.Poly(shifted, *sorted(shifted.free_symbols, key=str)).terms())
    return all(c >= 0 for powers, c in coefficients.items() if any(powers))


def _polynomial_grows(polynomial: sympy.Expr, x: sympy.Symbol, least: int) -> bool:
    """By the real roots of its derivative, none of which may lie beyond ``least``."""
    slope = sympy.Poly(sympy.diff(polynomial, x), x)
    if slope.is_zero or all(c >= 0 for c in slope.coeffs()):
        return True
    if slope.LC() < 0 or slope.eval(least) < 0:
        return False
    return bool(slope.count_roots(least, None) == (slope.eval(least) == 0))


def _term_grows(coefficient: sympy.Expr, factors: list[tuple[sympy.Expr, int]], x: sympy.Symbol, least: int) -> bool:
    """A product of parts that are never below 0: all of them grow, or it is taken away and all of them fall."""
    if not all(_never_below_0(base, x) for base, _ in factors):
        return False
    if coefficient > 0:
        return all(_grows(base, x, least) if power > 0 else _falls(base, x, least) for base, power in factors)
    return all(_falls(base, x, least) if power > 0 else _grows(base, x, least) for base, power in factors)


def _never_below_0(expr: sympy.Expr, x: sympy.Symbol) -> bool:
    """Whether the form of an expression shows that it is at least 0 at positive sizes."""
    if expr.is_number:
        return bool(expr >= 0)
    if isinstance(expr, sympy.Max):
        return any(_never_below_0(a, x) for a in expr.args)
    if expr.is_Pow:
        return _never_below_0(expr.base, x)
    if expr.is_Add or expr.is_Mul or isinstance(expr, (sympy.Min, sympy.floor, sympy.ceiling)):
        return all(_never_below_0(a, x) for a in expr.args)
    return bool(expr == x)
