"""Formulas without their lower-order terms, and ordered by chosen dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from symacct.dim import symbol
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.expressions import Opened, Terms, expanded, rebuilt
from symacct.printing import formula, text

# -- lower-order terms -----------------------------------------------------------------


def leading(expr: Any, /, *large: str, **powers: int) -> Any:
    """The terms of highest order as the named dims grow: ``leading(flops, "L")``, ``leading(flops, L=1, D=2)``.

    Every dim that is named grows at the same rate, or, where powers are given, as that power of one number that
    grows without bound; the other dims stay as they are. The order of a term is the sum of its exponents times these
    powers. What is dropped: from the sum, every term of lower order than the highest; from a Max that is kept,
    every argument of lower order, and the lower-order terms of the others. Otherwise terms that are kept stand as
    they were, with floors and remainders whole. A floor has the order of what is inside, a remainder at most that
    of its divisor.
    Raises `UnknownDimError` for a dim that is not in the expression.
    """
    return _top(expr, _rates("leading", expr, large, powers), as_is=True)


def asymptotic(expr: Any, /, *large: str, **powers: int) -> Any:
    """What an expression tends to as the named dims grow, as one expression: their quotient tends to 1.

    Dims grow as in `leading`. What is dropped beyond what `leading` drops: the rounding of a floor or ceiling that
    grows, and the lower-order terms inside of it and in sums below a fraction bar. Raises `UnknownDimError` for a
    dim that is not in the expression, `SpecError` where the terms of highest order cancel.
    """
    return _top(expr, _rates("asymptotic", expr, large, powers), as_is=False)


def _rates(verb: str, expr: Any, large: Iterable[str], powers: Mapping[str, int]) -> dict[sympy.Symbol, Any]:
    rates = {**dict.fromkeys(large, 1), **powers}
    known = sorted(s.name for s in getattr(expr, "free_symbols", ()))
    if not rates:
        raise SpecError(f"{verb}(): name the dims that grow, as in {verb}(expr, 'L') or {verb}(expr, L=1, D=2)")
    for name, rate in rates.items():
        if known and name not in known:
            raise UnknownDimError(
                f"{verb}(): there is no dim {name!r} in the expression; its dims are {', '.join(known)}"
            )
        if not isinstance(rate, int) or rate < 0:
            raise SpecError(f"{verb}(): {name}={rate!r}: the power by which a dim grows is a whole number >= 0")
    return {symbol(name): rate for name, rate in rates.items()}


def _top(expr: Any, rates: Mapping[sympy.Symbol, int], as_is: bool) -> Any:
    """The part of highest order, with its own lower-order terms dropped; as it stands, or what it tends to."""
    if not isinstance(expr, sympy.Basic):
        return expr
    opened = Opened()
    terms = opened.terms(expr)
    if not terms:
        return expr
    orders = {m: sum(p * _order(opened.whole(b), rates) for b, p in m) for m in terms}
    highest = max(orders.values())
    kept = [
        sympy.Mul(c, *(_factor(opened.whole(b), rates, as_is) ** p for b, p in m))
        for m, c in terms.items()
        if orders[m] == highest
    ]
    found = sympy.Add(*kept)
    if not as_is:
        found = expanded(found)
        if found == 0:
            raise SpecError(f"asymptotic(): the terms of highest order of {text(expr)} cancel")
    return found


def _order(part: sympy.Expr, rates: Mapping[sympy.Symbol, int]) -> Any:
    """The power of growth of a part: a dim, a rounding, a Max, one over a sum."""
    if not part.free_symbols & rates.keys():
        return 0
    if part.is_Symbol:
        return rates[part]
    if part.is_Pow:
        if part.exp.free_symbols & rates.keys():
            raise SpecError(f"{text(part)} grows faster than any power")
        return part.exp * _order(part.base, rates)
    if isinstance(part, sympy.Max):
        return _order(_winners(part, rates)[0], rates)
    if isinstance(part, (sympy.Min, sympy.Mod)):
        return min(_order(a, rates) for a in part.args)
    if isinstance(part, (sympy.floor, sympy.ceiling)):
        return max(_order(part.args[0], rates), 0)
    opened = Opened()
    return max((sum(p * _order(opened.whole(b), rates) for b, p in m) for m in opened.terms(part)), default=0)


def _winners(part: sympy.Max, rates: Mapping[sympy.Symbol, int]) -> list[sympy.Expr]:
    """The arguments of a Max that can be the largest in the end: of highest order, among those that do not sink."""
    rising = [a for a in part.args if not _sinks(_top(a, rates, as_is=True))]
    if not rising:
        lowest = min(_order(a, rates) for a in part.args)
        return [a for a in part.args if _order(a, rates) == lowest]
    highest = max(_order(a, rates) for a in rising)
    return [a for a in rising if _order(a, rates) == highest]


def _sinks(expr: sympy.Expr) -> bool:
    return all(term.could_extract_minus_sign() for term in sympy.Add.make_args(expr))


def _factor(part: sympy.Expr, rates: Mapping[sympy.Symbol, int], as_is: bool) -> sympy.Expr:
    """A part of a term that is kept."""
    if isinstance(part, sympy.Max):
        return rebuilt(part, (_top(a, rates, as_is) for a in _winners(part, rates)))
    if not as_is and isinstance(part, (sympy.floor, sympy.ceiling)) and _order(part, rates) > 0:
        return _top(part.args[0], rates, as_is)
    if not as_is and part.is_Pow and part.base.is_Add:
        return _top(part.base, rates, as_is) ** part.exp
    return part


# -- order -------------------------------------------------------------------------------


def collected(expr: Any, /, *by: str) -> str:
    """A formula as text, collected by chosen dims, highest powers of the first first.

    >>> from symacct.dim import symbol
    >>> B, L, D, V = map(symbol, "BLDV")
    >>> collected(24*B*L*D**2 + 4*B*L**2*D + 2*B*L*D*V, "L", "B")
    '4*L**2*B*D + 2*L*B*D*(12*D + V)'

    The chosen dims stand in front, in the order given; what is common to the rest of a group is drawn out of it.
    Without dims it is `symacct.formula`. The same expression gives the same text, however it was built.
    """
    if not by or not isinstance(expr, sympy.Basic):
        return formula(expr)
    opened = Opened(expanded)
    groups: dict[tuple[int, ...], Terms] = {}
    chosen = [symbol(name) for name in by]
    for monomial, c in opened.terms(expr).items():
        powers = dict(monomial)
        key = tuple(powers.get(s, 0) for s in chosen)
        rest = tuple((b, p) for b, p in monomial if b not in chosen)
        groups.setdefault(key, {})[rest] = c
    out = ""
    for key in sorted(groups, reverse=True):
        front = [text(s**p) for s, p in zip(chosen, key, strict=True) if p]
        written = _group(front, opened.closed(groups[key]))
        out += written if not out else f" - {written[1:]}" if written.startswith("-") else f" + {written}"
    return out or "0"


def _group(front: list[str], rest: sympy.Expr) -> str:
    """A product of what is chosen and the rest, a number first."""
    if not front:
        return text(rest)
    number, factors = sympy.gcd_terms(rest, clear=False).as_coeff_Mul()
    if factors.is_Add and factors.could_extract_minus_sign():
        number, factors = -number, -factors
    sign = "-" if number < 0 else ""
    head = [text(abs(number))] if abs(number) != 1 else []
    tail = [] if factors == 1 else [f"({text(factors)})" if factors.is_Add else text(factors)]
    return sign + "*".join([*head, *front, *tail])
