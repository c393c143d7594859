"""How far a traced step is from 6*N*D, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sympy

from symacct.account import Account
from symacct.conventions import Explanation
from symacct.conventions.presets import Convention
from symacct.formulas.expressions import read
from symacct.napkin.amounts import over, reduced, shown, table, times
from symacct.napkin.tokens import tokens_of
from symacct.shown import Shown

RULE = Convention(
    name="6ND",
    source="Kaplan et al. 2020, section 2.1, with all parameters in N",
    weights="parameters",
    attention=False,
    backward="2x",
    recompute="none",
    optimizer=False,
)


@dataclass(frozen=True)
class RuleOfSix(Shown):
    """The work of a step as traced, 6*N*D, and the terms that lie between, each with a reason (``explanation``)."""

    params: Any
    tokens: Any
    traced: Any
    rule: Any
    explanation: Explanation

    @property
    def ratio(self) -> Any:
        """Traced over 6*N*D."""
        found = over(self.traced, self.rule)
        return sympy.cancel(found) if isinstance(found, sympy.Basic) else found

    @property
    def reasons(self) -> tuple[tuple[str, Any], ...]:
        """Why they differ, and by how much: what was counted, how it is counted, and FLOP."""
        return tuple(
            (f"{row.role} ({row.phase}): {row.before} -> {row.after}", row.formula if row.value is None else row.value)
            for row in self.explanation.rows
        )

    def __str__(self) -> str:
        rows = [("6*N*D", shown(self.rule, "FLOP"), "")]
        rows += [(f"  {why}", shown(flops, "FLOP"), "") for why, flops in self.reasons]
        rows += [("traced", shown(self.traced, "FLOP"), f"{shown(self.ratio)} of it")]
        notes = (
            f"N is {shown(self.params)}, all parameters; D is {shown(self.tokens)} tokens",
            "the rule fails where a parameter is used more than once or not multiplied at all (lookups), where "
            "sequences are so long that attention's products matter, and where the first layer's input wants no "
            "gradient",
        )
        return table("a step, and the rule of six", rows, notes)


def rule_of_six(account: Account, tokens: Any = None) -> RuleOfSix:
    """The work of a step, forward, backward, recomputation and optimizer, beside 6 FLOP per parameter and token.

    ``tokens``: of a step, such as "B*L", where the trace does not tell. The reasons add up to the difference exactly.
    """
    found = account.explain(_rule(tokens), Convention(name="traced"))
    number = tokens_of(account, tokens)
    return RuleOfSix(account.params, number, reduced(found.second.total.flops), times(6, account.params, number), found)


def _rule(tokens: Any) -> Convention:
    """The rule, with the dims whose product the tokens are where they are given."""
    return RULE if tokens is None else replace(RULE, tokens=tuple(sorted(s.name for s in read(tokens).free_symbols)))
