"""The names people use: formulas and whole accounts in other names, D for H*Dh, P for all parameters.

Everything here is exact: a formula in new names, with each name put back to what it stands for,
is the formula that it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sympy

from symacct.dim import symbol
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.expressions import Monomial, Opened, Terms, changed, expanded, monomial_of, read
from symacct.printing import formula, text
from symacct.shown import Shown

# What an account's values may name, as in P="params".
QUANTITIES = (
    "params", "param_bytes", "grad_bytes", "optimizer_bytes", "buffer_bytes", "input_bytes",
    "checkpoint_bytes", "activation_bytes",
)  # fmt: skip


def express(expr: Any, /, **names: Any) -> Any:
    """A formula in other names, such as ``express(flops, D="H*Dh", F="4*D")``.

    A name that stands in the formula gives way to its value (F to 4*D; all at once). Any other name is
    new, and takes the place of its value wherever algebra allows (D of H*Dh, also in H**2*Dh**2); new names are
    worked in in the order given, and may use those before them. Where the value is a sum, such as all
    parameters, the formula becomes ``q*name + rest`` with a q that replaces more of the formula's
    terms than the rest brings in; the lower-order terms of the sum may come back with a minus sign. What cannot be
    replaced stays, and with each name put back the result is the formula again. Values are texts,
    numbers or expressions; Max and floor stay, and are worked on inside. Raises `SpecError` for a value that
    cannot be read, or a new name for a number.
    """
    if not isinstance(expr, sympy.Basic):
        return expr
    return Names(names, {s.name for s in expr.free_symbols})(expr)


class Names:
    """Values of names that a formula has, and new names for parts of it, as `express` takes them."""

    def __init__(self, names: Mapping[str, Any], known: Collection[str]) -> None:
        values = {name: read(value) for name, value in names.items()}
        self.values = {symbol(n): v for n, v in values.items() if n in known}
        self.parts: list[tuple[sympy.Symbol, sympy.Expr]] = []
        for name, value in values.items():
            if name not in known:
                if not value.free_symbols:
                    raise SpecError(
                        f"{name}={text(value)}: there is no dim {name!r} to give a size to, and a new name stands for "
                        f"an expression of dims; the dims are {', '.join(sorted(known)) or 'none'}"
                    )
                self.parts.append((symbol(name), self(value)))

    def __call__(self, expr: Any) -> Any:
        if not isinstance(expr, sympy.Basic):
            return expr
        expr = expanded(changed(expr, lambda part: self.values.get(part, part)))
        for name, value in self.parts:
            expr = _folded(expr, name, value)
        return expr


def _folded(expr: sympy.Expr, name: sympy.Symbol, value: sympy.Expr) -> sympy.Expr:
    """An expression with a new name in place of its value."""
    opened = Opened(lambda inside: _folded(inside, name, value))
    terms, wanted = opened.terms(expr), opened.terms(value)
    if len(wanted) == 1:
        ((monomial, coefficient),) = wanted.items()
        terms = _with_product(terms, name, dict(monomial), coefficient)
    else:
        terms = _with_sum(terms, name, wanted)
    return opened.closed(terms)


def _with_product(terms: Terms, name: sympy.Symbol, wanted: Mapping[Any, int], coefficient: Any) -> Terms:
    """Each monomial with as many factors of ``coefficient*wanted`` as it has (or is divided by) under a name."""
    out: Terms = {}
    for monomial, c in terms.items():
        powers = dict(monomial)
        times = [_toward_zero(powers.get(base, 0), p) for base, p in wanted.items()]
        k = min(times) if min(times) > 0 else min(max(times), 0)
        for base, p in wanted.items():
            powers[base] = powers.get(base, 0) - k * p
        powers[name] = powers.get(name, 0) + k
        key = monomial_of(powers)
        out[key] = out.get(key, 0) + c / coefficient**k
    return out


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


def _times(a: Monomial, b: Monomial, sign: int = 1) -> Monomial:
    powers = dict(a)
    for base, p in b:
        powers[base] = powers.get(base, 0) + sign * p
    return monomial_of(powers)


def _degree(monomial: Monomial) -> int:
    return sum(p for _, p in monomial)


def _with_sum(terms: Terms, name: sympy.Symbol, wanted: Terms) -> Terms:
    """``q*name + rest``, one term of q after another, while each takes more terms of highest degree than it brings.

    Every step lowers the number of terms of one degree and adds some of lower degree only, so there is an end.
    """
    top = max(map(_degree, wanted))
    heads = [m for m in wanted if _degree(m) == top]
    quotient: Terms = {}
    rest = dict(terms)
    while True:
        factors = {
            (_times(m, head, -1), c / wanted[head]): None
            for m, c in rest.items()
            for head in heads
            if all(p >= 0 or dict(m).get(b, 0) < 0 for b, p in _times(m, head, -1))
        }
        tried = [(_less(rest, factor, c, wanted), factor, c) for factor, c in factors]
        gains = [sum((m not in left) - (m not in rest) for m in _products(factor, heads)) for left, factor, _ in tried]
        good = [i for i, gain in enumerate(gains) if gain > 0]
        if not good:
            quotient = _with_sum(quotient, name, wanted) if quotient else {}
            return rest | {_times(factor, ((name, 1),)): c for factor, c in quotient.items()}
        best = min(good, key=lambda i: (-gains[i], len(tried[i][0]), str(tried[i][1:])))
        rest, factor, c = tried[best]
        quotient[factor] = quotient.get(factor, 0) + c


def _products(factor: Monomial, monomials: Iterable[Monomial]) -> list[Monomial]:
    return [_times(factor, m) for m in monomials]


def _less(terms: Terms, factor: Monomial, coefficient: Any, wanted: Terms) -> Terms:
    """Terms less ``coefficient*factor*wanted``."""
    left = dict(terms)
    for m, c in wanted.items():
        key = _times(factor, m)
        left[key] = left.get(key, 0) - coefficient * c
        if left[key] == 0:
            del left[key]
    return left


class Expressed(Shown):
    """An account, or a part of one, whose formulas are read in other names.

    It has the attributes and methods of what it is made from; expressions that come out of them are in
    the new names, in whatever dictionaries, lists or phases they stand. ``str()`` is that of the FLOP formula,
    where there is one.
    """

    def __init__(self, source: Any, names: Names) -> None:
        self._source = source
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._told(getattr(self._source, name))

    def _told(self, value: Any) -> Any:
        if isinstance(value, (int, float, str, type(None))):
            return value
        if isinstance(value, sympy.Basic):
            return self._names(value)
        if isinstance(value, Mapping):
            return {key: self._told(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._told(each) for each in value]
        if callable(value):
            return lambda *args, **options: self._told(value(*args, **options))
        return Expressed(value, self._names)

    def __str__(self) -> str:
        flops = getattr(self._source, "flops", None)
        return str(self._source) if flops is None else formula(self._names(flops))


def expressed(account: Any, /, **names: Any) -> Expressed:
    """An account in other names: ``expressed(account, D="H*Dh", P="params").forward.flops``.

    Names are as in `express`; those of the account's dims give way to their values. A value may also name a
    quantity of the account ("params", "param_bytes", ...). Raises `UnknownDimError` where a value speaks of a dim
    that the account does not have and that is not among the names, and what `express` raises.
    """
    dims = account.dims
    values = {
        name: getattr(account, value) if value in QUANTITIES and value not in dims else read(value)
        for name, value in names.items()
    }
    for name, value in values.items():
        for each in sorted(s.name for s in sympy.sympify(value).free_symbols):
            if each not in dims and each not in names:
                known = ", ".join(dims) or "none"
                raise UnknownDimError(f"{name}={text(value)}: there is no dim {each!r}; the account's dims are {known}")
    return Expressed(account, Names(values, dims))
