"""Assumptions: the relations between dims, and the stand-ins for data, that a traced program relied on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sympy

from symacct.algebra import RELATIONS, always, exact, normal_form, simplify
from symacct.errors import AssumptionError
from symacct.printing import text


@dataclass(frozen=True, slots=True)
class Assumption:
    """A relation between dims that the traced program relied on, or a value that it was given.

    ``relation`` with ``left`` and ``right`` is what the sizes must satisfy. For an answer
    that only data could give, ``relation`` is empty and ``note`` tells what was asked and
    what was answered.
    """

    relation: str
    left: sympy.Expr
    right: sympy.Expr
    note: str = ""
    doubtful: bool = False  # a number was taken where a size was asked: perhaps it does not matter

    def holds(self, sizes: Mapping[sympy.Symbol, Any]) -> bool | None:
        """Whether sizes satisfy the relation; None while a dim in it has no size."""
        if not self.relation:
            return True
        left, right = self.left.xreplace(sizes), self.right.xreplace(sizes)
        if left.free_symbols or right.free_symbols:
            return None
        return bool(RELATIONS[self.relation](left, right))

    @property
    def soft(self) -> bool:
        """Whether a run at sizes that break it may show that it does not matter."""
        return self.doubtful or self.relation not in ("", "==")

    @property
    def symbols(self) -> set[sympy.Symbol]:
        """The dims that it speaks of."""
        return self.left.free_symbols | self.right.free_symbols  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{text(self.left)} {self.relation} {text(self.right)}" if self.relation else self.note


@dataclass
class Scope:
    """Collects the assumptions of the code that runs in it, and what they make exact.

    ``lost`` maps numbers to what they were before Python's ``int`` took their symbol.
    """

    assumptions: dict[Any, Assumption] = field(default_factory=dict)
    divisible: dict[tuple[sympy.Expr, sympy.Expr], None] = field(default_factory=dict)  # in order
    cache: dict[Any, Any] = field(default_factory=dict)  # answers that depend on the scope
    lost: dict[int, sympy.Expr] = field(default_factory=dict)

    def record(self, relation: str, left: sympy.Expr, right: sympy.Expr, doubtful: bool = False) -> None:
        """Keep a relation, in a normal form so that each is kept once."""
        relation, left, right = normal_form(relation, left, right)
        if relation == "==" and right == 0 and isinstance(left, sympy.Mod):
            self.divisible[left.args] = None
            self.cache.clear()
        self.assumptions.setdefault((relation, left, right), Assumption(relation, left, right, "", doubtful))

    def note(self, what: str) -> None:
        """Keep an answer that was given in place of data."""
        zero = sympy.Integer(0)
        self.assumptions.setdefault(what, Assumption("", zero, zero, what))

    def forget_since(self, count: int) -> None:
        """Drop what was recorded after there were ``count`` assumptions."""
        if len(self.assumptions) > count:
            self.assumptions = dict(list(self.assumptions.items())[:count])
            self.cache.clear()


_BEYOND = 2**62  # no tensor has as many elements
_scopes: list[Scope] = []


@contextmanager
def scope(into: Scope) -> Iterator[Scope]:
    """Run code whose comparisons of dims are recorded in ``into``."""
    _scopes.append(into)
    try:
        yield into
    finally:
        _scopes.pop()


def current() -> Scope | None:
    """The scope of the code that is running, if there is one."""
    return _scopes[-1] if _scopes else None


def require(assumptions: Iterable[Assumption], sizes: Mapping[sympy.Symbol, Any]) -> None:
    """Raise `AssumptionError` for the first relation that these sizes break."""
    for assumption in assumptions:
        if assumption.holds(sizes) is False:
            given = ", ".join(f"{s}={sizes[s]}" for s in sorted(assumption.symbols, key=str) if s in sizes)
            raise AssumptionError(
                f"{given}: the traced program relied on {assumption}, so its formulas do not hold at these sizes; "
                "choose sizes that satisfy it, or trace again with trial sizes that do not"
            )


def settle(assumptions: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """The assumptions without repeats and without those that the others make certain."""
    unique = _strongest(dict.fromkeys(assumptions))
    divisible = [a.left.args for a in unique if a.relation == "==" and isinstance(a.left, sympy.Mod) and a.right == 0]
    firm = [a for a in unique if a.relation == "==" and not a.doubtful]
    fixed = {a.left: a.right for a in firm if a.left.is_Symbol and exact(a.right)}
    kept = []
    for each in unique:
        if any(abs(number) >= _BEYOND for side in (each.left, each.right) for number in side.atoms(sympy.Integer)):
            continue  # torch guards its 64 bits
        states_a_fact = each.left in fixed or (isinstance(each.left, sympy.Mod) and each.left.args in divisible)
        if each.relation and not (states_a_fact and each.relation == "=="):
            left, right = (simplify(side, divisible).xreplace(fixed) for side in (each.left, each.right))
            if always(each.relation, left, right):
                continue
        kept.append(each)
    return tuple(kept)


def _strongest(assumptions: Iterable[Assumption]) -> list[Assumption]:
    """Of several bounds on one expression keep the tightest on either side, and of "unequal" what no bound implies."""
    lowest: dict[sympy.Expr, Any] = {}
    highest: dict[sympy.Expr, Any] = {}
    for each in assumptions:
        if each.relation in (">", ">=") and exact(each.right):
            bound = int(each.right) + (each.relation == ">")
            lowest[each.left] = max(lowest.get(each.left, bound), bound)
        elif each.relation in ("<", "<=") and exact(each.right):
            bound = int(each.right) - (each.relation == "<")
            highest[each.left] = min(highest.get(each.left, bound), bound)
    kept = []
    for each in assumptions:
        low, high = lowest.get(each.left), highest.get(each.left)
        if each.relation and exact(each.right):
            number = int(each.right)
            implied_below = low is not None and number < low - (each.relation == ">")
            implied_above = high is not None and number > high + (each.relation == "<")
            if (each.relation in (">", ">=", "!=") and implied_below) or (
                each.relation in ("<", "<=", "!=") and implied_above
            ):
                continue
        kept.append(each)
    return kept
