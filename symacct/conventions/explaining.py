"""Why two conventions count an account differently, term by term."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from symacct.account import Account
from symacct.conventions.presets import SWITCHES, Convention, preset
from symacct.conventions.recounting import Recounted, under
from symacct.cost import Size
from symacct.printing import formula, quantity
from symacct.record import PHASES
from symacct.report import WIDTH, Column, Section, as_markdown, as_renderables, as_text
from symacct.shown import Shown

Differences = dict[tuple[str, str, str, str, str], Size]


@dataclass(frozen=True)
class Row:
    """One reason of a difference: the switch, its two positions in words, and what it does to one role in one phase.

    ``formula`` is what is added (negative: taken away), ``value`` the same at sizes, where the account has some.
    """

    switch: str
    before: str
    after: str
    phase: str
    role: str
    formula: Size
    value: Size | None = None


@dataclass(frozen=True)
class Explanation(Shown):
    """Why two conventions count an account differently. The rows add up to ``second - first``, exactly.

    ``conventions`` are the two, ``first`` and ``second`` the account under each.
    """

    conventions: tuple[Convention, Convention]
    first: Account
    second: Account
    rows: tuple[Row, ...]

    @property
    def difference(self) -> Size:
        """FLOP of the second less FLOP of the first."""
        found = self.second.total.flops - self.first.total.flops
        return sympy.expand(found) if isinstance(found, sympy.Basic) else found

    def __str__(self) -> str:
        return as_text(as_renderables(self._heading(), [self._section()], self._notes(), WIDTH), WIDTH)

    def to_markdown(self) -> str:
        """The same table in Markdown."""
        return as_markdown(self._heading(), [self._section()], self._notes())

    def _names(self) -> tuple[str, str]:
        first, second = self.conventions
        return first.name or "the first convention", second.name or "the second convention"

    def _heading(self) -> list[str]:
        first, second = self._names()
        return [f"{self.first.title}: FLOP under {first}, and what makes them those under {second}"]

    def _section(self) -> Section:
        first, second = self._names()
        columns = [Column("why", "name"), Column("phase", "word"), Column("what", "text"), Column("FLOP", "formula")]
        cells = [(f"under {first}", "", "", *_figures(self.first))]
        said = ""
        for row in self.rows:
            why = f"{row.before} -> {row.after}"
            shown = (
                (formula(row.formula),) if row.value is None else (formula(row.formula), quantity(row.value, "FLOP"))
            )
            cells.append((why if why != said else "", row.phase, row.role, *shown))
            said = why
        cells.append((f"under {second}", "", "", *_figures(self.second)))
        if self.first.sizes is not None:
            columns.append(Column("value", "value"))
        return Section("term by term", tuple(columns), tuple(cells), titled=True)

    def _notes(self) -> list[str]:
        notes = []
        for convention, account in zip(self.conventions, (self.first, self.second), strict=True):
            notes.append(f"convention {convention}; N = {formula(account.symbolic.params)}")
            notes += [f"{convention.name}: {convention.note}"] if convention.note else []
        return notes


def _figures(account: Account) -> tuple[str, ...]:
    """The total as a formula, and as a number where the account has sizes."""
    shown = formula(account.symbolic.total.flops)
    return (shown,) if account.sizes is None else (shown, quantity(account.total.flops, "FLOP"))


def explain(account: Account, first: str | Convention, second: str | Convention) -> Explanation:
    """Why two conventions, given themselves or by name, count an account differently, term by term.

    The switches of the first are set to those of the second one after the other, in the order of `SWITCHES` (from a
    convention that counts by parameters, in the reverse order); a row is what one of them changes in one role of one
    phase. Another order would share the difference out otherwise; the sum is the same. Raises as `under` does.
    """
    return explained(
        (first, second), under(account, first), under(account, second), differences(account, first, second)
    )


def explained(
    conventions: tuple[str | Convention, str | Convention], first: Account, second: Account, found: Differences
) -> Explanation:
    """The explanation that `differences` and the account under each convention make."""
    start, end = (preset(c) if isinstance(c, str) else c for c in conventions)
    at_sizes = first.sizes is not None
    rows = (Row(*key, changed, first._value(changed) if at_sizes else None) for key, changed in found.items())
    return Explanation((start, end), first, second, tuple(rows))


def differences(account: Account, first: str | Convention, second: str | Convention) -> Differences:
    """What each switch changes, in formulas, by (switch, before, after, phase, role): the rows of `explain`."""
    now, end = (preset(c) if isinstance(c, str) else c for c in (first, second))
    symbolic = account.symbolic
    here = _by_phase(under(symbolic, now))
    found: Differences = {}
    for switch in SWITCHES if now.weights == "products" else reversed(SWITCHES):
        if getattr(now, switch) == getattr(end, switch):
            continue
        after = replace(now, **{switch: getattr(end, switch)})
        there = _by_phase(under(symbolic, after))
        for phase, role in sorted(dict.fromkeys([*here, *there]), key=lambda key: PHASES.index(key[0])):
            changed = sympy.expand(sympy.sympify(there.get((phase, role), 0)) - here.get((phase, role), 0))
            if changed != 0:
                found[switch, _words(switch, now), _words(switch, after), phase, role] = changed
        now, here = after, there
    return found


def _words(switch: str, convention: Convention) -> str:
    """A switch's position as the convention's line has it; by its name where the line leaves it out."""
    return dict(convention.switches()).get(switch, f"{switch} {getattr(convention, switch)}")


def _by_phase(account: Recounted) -> dict[tuple[str, str], Size]:
    return {(phase, role): flops for phase in PHASES for role, flops in account.by_role(phase).items()}
