"""The largest size that fits, or the least that is enough: whole, exact, and one that the account accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from symacct.account import Account
from symacct.assumptions import require
from symacct.dim import point
from symacct.errors import MissingSizeError, QuestionError
from symacct.formulas.compiled import Compiled, compile_expressions
from symacct.memory_report import CONVENTION
from symacct.napkin.admissible import Admissible
from symacct.napkin.amounts import exactly, shown, table
from symacct.napkin.figures import formula_of, parts_of, unit_of
from symacct.napkin.growth import direction
from symacct.napkin.question import Condition, at_depth, read_question
from symacct.napkin.search import BEYOND, last_size
from symacct.napkin.ties import Line
from symacct.shown import Shown

_SCANNED = 2**16  # so many sizes are tried one by one where nothing shows that a figure only grows


@dataclass(frozen=True)
class Found:
    """A figure at the answer, its amount, and the figure at the next size, which is one too many (or too few)."""

    condition: Condition
    value: Any
    beyond: Any


@dataclass(frozen=True)
class Answer(Shown):
    """The size of a dim that a question asks for. ``int(answer)`` is the size.

    ``kind``: "largest" or "least". ``sizes``: all sizes that go with it. ``next``: the neighbouring size that the
    account accepts and that breaks a condition, None where there is none.
    """

    dim: str
    size: int
    kind: str
    sizes: Mapping[str, int]
    next: int | None
    figures: tuple[Found, ...]
    notes: tuple[str, ...] = ()

    def __int__(self) -> int:
        return self.size

    def __index__(self) -> int:
        return self.size

    def __str__(self) -> str:
        given = ", ".join(f"{name}={size:,}" for name, size in self.sizes.items() if name != self.dim)
        rows = [("", f"{self.dim}={self.size:,}", f"{self.dim}={self.next:,}" if self.next else "")]
        for each in self.figures:
            unit = unit_of(each.condition.name)
            rows.append(
                (str(each.condition), exactly(each.value, unit), exactly(each.beyond, unit) if self.next else "")
            )
        title = f"the {self.kind} {self.dim} is {self.size:,}" + (f" at {given}" if given else "")
        return table(title, rows, self.notes)


def solve(
    account: Account, name: str, /, *, tied: Mapping[str, Any] | None = None, **conditions_and_sizes: Any
) -> Answer:
    """The largest whole size of a dim for which figures stay within amounts.

        solve(account, "D", peak_bytes="80 GB", B=8, L=4096, F="4*D")

    Conditions are figures of the account (`symacct.napkin.figures.NAMES`: "peak_bytes", "activation_bytes", "params",
    "forward_flops", ...; "flops" is that of all phases) with an amount, in text with its unit or in base units; a
    `Device` stands for its memory. ">= 7e9" asks for at least so much; with such conditions alone the answer is the
    least size. Sizes are those of the other dims; an account at sizes has them already. A dim given as text or function
    follows the unknown: ``F="4*D"``, ``H=lambda D: D // 64``, also in ``tied``. The unknown may be a name that only
    such rules speak of.

    The answer is one that the account accepts: all sizes whole, all relations kept that the trace relied on. The
    search bisects exact whole numbers. Figures that nothing shows to be growing are tried size by size, up to 65,536.

    Raises `QuestionError` where no size does (with what is too large), or where none is too large; `UnitError` for an
    amount of something else; `AssumptionError` for sizes that the account does not accept; `UnknownDimError`,
    `MissingSizeError`, `SpecError` for names and rules.
    """
    conditions, sizes, ties = read_question(account, name, {**conditions_and_sizes, **(tied or {})})
    return _Search(account, name, conditions, sizes, ties).answer()


# -- the search ------------------------------------------------------------------------------


class _Search:
    """One question: an account, its unknown, and what the figures are along the line of sizes."""

    def __init__(
        self, account: Account, name: str, conditions: list[Condition], sizes: dict[str, Any], ties: dict[str, Any]
    ) -> None:
        self.name = name
        self.notes = [c.note for c in conditions if c.note]
        self.account, sizes = at_depth(account.symbolic, name, sizes, ties)
        self.line = Line(name, sizes, ties)
        require(self.account.assumptions, point(self.line.sizes))
        formulas = {c.name: self.line.of(formula_of(self.account, c.name)) for c in conditions}
        known = {name, *self.line.opaque}
        missing = sorted({s.name for f in formulas.values() for s in f.free_symbols} - known)
        if missing:
            raise MissingSizeError(f"solve(): no size for {', '.join(missing)}, which {' and '.join(formulas)} need")
        self.admissible = Admissible(self.line, self.account.assumptions)
        self.compiled: Compiled = compile_expressions(formulas)
        self.conditions = self._that_matter(conditions, formulas)
        self.first = self._first()
        self.directions = {n: direction(f, self.line.x, self.first) for n, f in formulas.items()}

    def _that_matter(self, conditions: list[Condition], formulas: Mapping[str, sympy.Expr]) -> list[Condition]:
        """The conditions whose figures depend on the unknown; the others hold, or nothing can be done."""
        moving = [c for c in conditions if formulas[c.name].free_symbols]
        for each in conditions:
            if each in moving:
                continue
            value = self.compiled(**{self.name: 1})[each.name]
            where = f"{each.name} does not depend on {self.name}: it is {shown(value, unit_of(each.name))}"
            if not each.holds(value):
                raise QuestionError(f"{where} at any size, which is not {each.relation} {self._amount(each)}")
            self.notes.append(where)
        if not moving:
            raise QuestionError(f"{self.notes[-1]} at any size, so every {self.name} does")
        return moving

    def _amount(self, condition: Condition) -> str:
        return shown(condition.amount, unit_of(condition.name))

    def _first(self) -> int:
        found = self.admissible.next(1, 1)
        if found is None:
            raise QuestionError(f"no size of {self.name} is one that the model accepts beside the other sizes")
        return found

    def values(self, number: int) -> Mapping[str, Any]:
        """The figures at a size of the unknown."""
        letters = self.line.letters(number)
        if letters is None:
            raise QuestionError(f"{self.name}={number:,}: the rules give no whole sizes >= 1 there")
        return self.compiled(**letters)

    def answer(self) -> Answer:
        """The largest accepted size in the range that the conditions leave, or the least where none is too large."""
        if any(self.directions[c.name] is None for c in self.conditions):
            return self._scanned()
        low, high = self.first, None
        for each in self.conditions:
            rising = (self.directions[each.name] == 1) == (each.relation == "<=")
            if rising:
                last = self._last(each)
                high = last if high is None or (last is not None and last < high) else high
            else:
                low = max(low, self._start(each))
        if high is None and all(self._kind(c) == "least" for c in self.conditions):
            size = self.admissible.next(low, 1)
            return self._told(size, "least")
        if high is None and self.admissible.high is None:
            raise self._unlimited()
        size = self.admissible.next(BEYOND if high is None else high, -1)
        return self._told(size if size is not None and size >= low else None, "largest")

    def _kind(self, condition: Condition) -> str:
        rising = (self.directions[condition.name] == 1) == (condition.relation == "<=")
        return "largest" if rising else "least"

    def _last(self, condition: Condition, holds: bool = True) -> int | None:
        """The last size at which a condition holds (or breaks) that does so up to a size; None where it always does."""
        return last_size(lambda size: condition.holds(self.values(size)[condition.name]) == holds, self.first)

    def _start(self, condition: Condition) -> int:
        """The first size at which a condition holds that holds from a size on."""
        last = self._last(condition, holds=False)
        if last is None:
            raise QuestionError(f"{condition} at no size of {self.name}")
        return max(last + 1, self.first)

    def _scanned(self) -> Answer:
        """Size by size, where a figure may fall again."""
        self.notes.append(
            f"nothing shows that the figures only grow with {self.name}: every size to {_SCANNED:,} was tried"
        )
        good: int | None = None
        least = all(c.relation == ">=" for c in self.conditions)
        for number in range(self.first, _SCANNED + 1):
            if number in self.admissible and self._all_hold(number):
                good = number
                if least:
                    break
        if good is not None and not least:
            beyond = self.admissible.next(good + 1, 1)
            if beyond is not None and beyond > _SCANNED:
                raise QuestionError(f"{self.name}={good:,} still fits, and no larger size was tried: {self.notes[-1]}")
        return self._told(good, "least" if least else "largest")

    def _all_hold(self, number: int) -> bool:
        found = self.values(number)
        return all(c.holds(found[c.name]) for c in self.conditions)

    # -- words -----------------------------------------------------------------------------

    def _told(self, size: int | None, kind: str) -> Answer:
        if size is None:
            raise self._nothing()
        sizes = self.line.at(size)
        assert sizes is not None
        require(self.account.assumptions, point({n: s for n, s in sizes.items() if n in self.account.trial_sizes}))
        beyond = self.admissible.next(size + 1, 1) if kind == "largest" else self._before(size)
        value, further = self.values(size), self.values(beyond) if beyond is not None else {}
        figures = tuple(Found(c, value[c.name], further.get(c.name)) for c in self.conditions)
        if kind == "largest" and beyond is None:
            self.notes.append(f"the limit is what the trace relied on, not a figure: no larger {self.name} is accepted")
        relations = [str(a) for a in self.account.assumptions if a.relation]
        if relations:
            self.notes.append(f"sizes are among those for which {'; '.join(relations)}")
        if any(c.name == "peak_bytes" for c in self.conditions):
            self.notes.append(CONVENTION[self.account.allocator])
        return Answer(self.name, size, kind, sizes, beyond, figures, tuple(self.notes))

    def _before(self, size: int) -> int | None:
        return self.admissible.next(size - 1, -1) if size > self.first else None

    def _nothing(self) -> QuestionError:
        """Why no size does: the condition that the first one breaks, and the largest part of its figure."""
        values = self.values(self.first)
        broken = [c for c in self.conditions if not c.holds(values[c.name])]
        if not broken:
            return QuestionError(
                f"no size of {self.name} satisfies {' and '.join(map(str, self.conditions))} together, or it is not "
                "one that the model accepts"
            )
        first = broken[0]
        unit = unit_of(first.name)
        if first.relation == ">=":
            return QuestionError(f"{first} at no size of {self.name} that satisfies the other conditions")
        said = (
            f"even {self.name}={self.first} does not fit: {first.name} is {shown(values[first.name], unit)}, more than "
            f"{shown(first.amount, unit)}"
        )
        sizes = self.line.at(self.first) or {}
        parts = parts_of(self.account, first.name, sizes)
        if len(parts) > 1:
            largest = max(parts, key=lambda part: parts[part])
            said += f", of which {largest} is the largest part ({shown(parts[largest], unit)})"
        return QuestionError(said)

    def _unlimited(self) -> QuestionError:
        return QuestionError(
            f"{self.name} is not limited: {' and '.join(map(str, self.conditions))} holds however large it is"
        )
