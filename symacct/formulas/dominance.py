"""What dominates: the shares of a cost's parts, and how it grows with each dim.

Numbers are exact: values are whole, shares and elasticities fractions. At given sizes a Max is its winning
argument. A floor or a ceiling has no slope of its own: it is taken as what is inside, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from symacct.assumptions import require
from symacct.cost import COST_FIELDS
from symacct.dim import check_size, point
from symacct.errors import MissingSizeError, SpecError, UnknownDimError
from symacct.formulas.expressions import Opened, changed, expanded
from symacct.printing import formula, quantity, text
from symacct.shown import Shown

MEASURES = (*COST_FIELDS, "bytes")
_GROUPS = ("term", "module", "op", "phase")

# -- what is asked about -----------------------------------------------------------------


def formula_of(what: Any, of: str, phase: str | None = None) -> sympy.Expr:
    """The expression of an account, of a part of one, or the expression itself."""
    if isinstance(what, (int, sympy.Basic)):
        return sympy.sympify(what)
    what = getattr(what, "symbolic", what)
    if hasattr(what, "phases") and of in MEASURES:
        if phase is not None and phase not in what.phases:
            raise SpecError(f"phase: {phase!r} is none of {', '.join(what.phases)}")
        what = what.total if phase is None else what.phases[phase]
    found = getattr(what, of, None)
    if not isinstance(found, (int, sympy.Basic)):
        raise SpecError(
            f"of: {of!r} is no quantity of an account; flops, pointwise, bytes, params, peak_bytes are some"
        )
    return sympy.sympify(found)


def _sizes_for(what: Any, expr: sympy.Expr, sizes: Mapping[str, int], verb: str) -> dict[str, int]:
    """The sizes, checked: each dim of the formula has one, and the account's assumptions hold."""
    given = {name: check_size(name, size) for name, size in (sizes or getattr(what, "sizes", None) or {}).items()}
    dims: tuple[str, ...] = getattr(what, "dims", ())
    for name in given if hasattr(what, "dims") else ():
        if name not in dims and name not in what.trial_sizes:
            raise UnknownDimError(f"{verb}(): there is no dim {name!r}; the account's dims are {', '.join(dims)}")
    missing = sorted(s.name for s in expr.free_symbols if s.name not in given)
    if missing:
        raise MissingSizeError(f"{verb}(): no size for {', '.join(missing)}, which the formula depends on")
    require(getattr(what, "assumptions", ()), point(given))
    return given


def _number(expr: sympy.Expr, sizes: Mapping[sympy.Symbol, sympy.Expr]) -> Fraction:
    value = expr.xreplace(dict(sizes))
    return Fraction(int(value.p), int(value.q))


def settled(expr: sympy.Expr, sizes: Mapping[sympy.Symbol, sympy.Expr], notes: dict[str, None]) -> sympy.Expr:
    """An expression with the argument that wins at these sizes in place of each Max and Min."""

    def settle(part: sympy.Expr) -> sympy.Expr:
        if not isinstance(part, (sympy.Max, sympy.Min)):
            return part
        best = max if isinstance(part, sympy.Max) else min
        values = [_number(a, sizes) for a in part.args]
        winners = [a for a, value in zip(part.args, values, strict=True) if value == best(values)]
        winner = min(winners, key=text)
        notes[f"{part.func.__name__} of {len(part.args)}: {formula(winner)} wins at these sizes"] = None
        if len(winners) > 1:
            notes[f"{len(winners)} of its arguments are equal there: the growth is that of the one shown"] = None
        return winner

    return changed(expr, settle)


def smoothed(expr: sympy.Expr, notes: dict[str, None]) -> sympy.Expr:
    """An expression with what is inside in place of each floor and ceiling."""

    def smooth(part: sympy.Expr) -> sympy.Expr:
        if isinstance(part, (sympy.floor, sympy.ceiling)):
            notes[f"{text(part)} is taken as {text(part.args[0])}"] = None
            return part.args[0]
        if isinstance(part, sympy.Mod):
            notes[f"{text(part)} is taken as constant"] = None
        return part

    return changed(expr, smooth)


# -- shares ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """A part of a cost: its name (a term's is its formula), its formula, its value at the sizes, its share."""

    name: str
    formula: sympy.Expr
    value: Fraction
    share: Fraction


@dataclass(frozen=True)
class Shares(Shown):
    """The parts of a cost at given sizes, largest first. ``str()`` is a table; ``shares["name"]`` a row."""

    of: str
    sizes: Mapping[str, int]
    rows: tuple[Share, ...]
    total: Fraction
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Share]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Share:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r} is none of {', '.join(row.name for row in self.rows)}")

    def __str__(self) -> str:
        at = ", ".join(f"{name}={size:,}" for name, size in self.sizes.items())
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [f"{self.of} at {at}: {_quantity(self.total)}"]
        lines += [
            f"{float(row.share):7.2%}  {row.name:{width}}  {_quantity(row.value):>9}".rstrip() for row in self.rows
        ]
        return "\n".join([*lines, *self.notes])


def _quantity(value: Fraction) -> str:
    return quantity(int(value) if value.denominator == 1 else float(value))


def shares(
    what: Any, /, *, of: str = "flops", by: str = "term", phase: str | None = None, depth: int | None = 1, **sizes: int
) -> Shares:
    """The parts of a cost with their shares at given sizes, largest first.

    ``what``: an account (at sizes, or with ``sizes`` given), a phase of one, or an expression. ``of``: which quantity
    of the account ("flops", "pointwise", "bytes", ..., "params", "activation_bytes", "peak_bytes"); ``phase``: of
    one phase alone. ``by``: "term" of the formula, or "module" (to a ``depth``), "op" or "phase" of the account.
    A Max counts as its winning argument. Raises `MissingSizeError`, `UnknownDimError`, `AssumptionError`, and
    `SpecError` for a quantity that is not split that way.
    """
    if by not in _GROUPS:
        raise SpecError(f"by: {by!r} is none of {', '.join(_GROUPS)}")
    whole = formula_of(what, of, phase)
    given = _sizes_for(what, whole, sizes, "shares")
    notes: dict[str, None] = {}
    if by == "term":
        opened = Opened(expanded)
        terms = opened.terms(settled(whole, point(given), notes))
        alone = [opened.closed({m: c}) for m, c in terms.items()]
        parts = {text(term): term for term in alone}
    else:
        parts = {name: formula_of(part, of) for name, part in _groups(what, of, by, phase, depth).items()}
    values = {name: _number(part, point(given)) for name, part in parts.items()}
    total = sum(values.values(), Fraction(0))
    if total == 0:
        raise SpecError(f"shares(): {of} is 0 at these sizes, so that nothing has a share of it")
    rows = [Share(name, parts[name], value, value / total) for name, value in values.items() if value != 0]
    rows.sort(key=lambda row: (-abs(row.value), row.name))
    used = {s.name for part in parts.values() for s in part.free_symbols}
    return Shares(of, {n: s for n, s in given.items() if n in used}, tuple(rows), total, tuple(notes))


def _groups(what: Any, of: str, by: str, phase: str | None, depth: int | None) -> Mapping[str, Any]:
    if not hasattr(what, "phases") or of not in MEASURES:
        raise SpecError(f"by: only flops, pointwise and bytes of a whole account are told by {by}, not {of} of this")
    account = what.symbolic
    if by == "phase":
        return {name: part for name, part in account.phases.items() if phase in (None, name)}
    groups = account.by_module(depth, phase=phase) if by == "module" else account.by_op(phase=phase)
    return {name or "(top level)": part for name, part in groups.items()}


# -- elasticities ------------------------------------------------------------------------


@dataclass(frozen=True)
class Elasticities(Shown):
    """How many percent a cost grows per percent of each dim, at given sizes; largest first. ``["L"]`` is a fraction."""

    of: str
    sizes: Mapping[str, int]
    values: Mapping[str, Fraction]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Fraction:
        return self.values.get(name, Fraction(0))

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __str__(self) -> str:
        at = ", ".join(f"{name}={size:,}" for name, size in self.sizes.items())
        width = max((len(name) for name in self.values), default=0)
        lines = [f"d log {self.of} / d log dim at {at}"]
        lines += [f"  {name:{width}}  {float(value):.4g}" for name, value in self.values.items()]
        return "\n".join([*lines, *self.notes])


def elasticities(what: Any, /, *, of: str = "flops", phase: str | None = None, **sizes: int) -> Elasticities:
    """d log cost / d log dim for each dim of a cost, at given sizes, exactly: 2 for D says that it goes as D**2 there.

    ``what``, ``of`` and ``phase`` are as in `shares`. A Max grows as its winning argument, a floor as what is
    inside, a remainder not at all; the notes name them. Raises as `shares` does.
    """
    whole = formula_of(what, of, phase)
    given = _sizes_for(what, whole, sizes, "elasticities")
    at = point(given)
    notes: dict[str, None] = {}
    smooth = smoothed(settled(whole, at, notes), notes)
    # A remainder is a constant to the slope, and a number to the value.
    still = {part: sympy.Dummy() for part in smooth.atoms(sympy.Mod)}
    moving = smooth.xreplace(still)
    at_rest = at | {letter: part.xreplace(at) for part, letter in still.items()}
    value = _number(whole, at)
    if value == 0:
        raise SpecError(f"elasticities(): {of} is 0 at these sizes, so that nothing grows by a percentage of it")
    found = {
        s.name: given[s.name] * _number(sympy.diff(moving, s), at_rest) / value
        for s in sorted(whole.free_symbols, key=str)
    }
    ordered = dict(sorted(found.items(), key=lambda item: (-abs(item[1]), item[0])))
    return Elasticities(of, {n: s for n, s in given.items() if n in found}, ordered, tuple(notes))
