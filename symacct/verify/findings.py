"""What a verification finds: figures, predicted and measured, and residuals, each at its node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symacct.record import Node

EQUAL, DIFFERENT, BOUND, GAP, ABSENT, INFORMATION = (
    "equal", "different", "bound holds", "known gap", "absent", "for information",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One figure: what was predicted, what was measured (None: nothing), in which unit, and what that says."""

    name: str
    predicted: Any
    measured: Any
    unit: str
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Residual:
    """One disagreement: where, how much (in the unit of its part), and a sentence with both sides."""

    text: str
    amount: float = 0.0
    node: int | None = None
    op: str = ""
    path: str = ""
    phase: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.op} in {self.path or 'the top level'} ({self.phase}{', ' + self.source if self.source else ''})"
        return f"{where}: {self.text}" if self.op else self.text


def residual_at(node: Node | None, text: str, amount: float = 0.0) -> Residual:
    """A residual at a node of the recorded graph."""
    if node is None:
        return Residual(text, amount)
    return Residual(text, amount, node.index, node.op, node.path, node.phase, node.source)


@dataclass(frozen=True)
class Part:
    """One comparison: its figures, its residuals (put in order, largest first), and what has to be known about it.

    ``claims``: whether it is part of what is claimed; a part that only informs cannot fail.
    """

    name: str
    unit: str
    figures: tuple[Figure, ...] = ()
    residuals: tuple[Residual, ...] = ()
    notes: tuple[str, ...] = ()
    claims: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "residuals", tuple(sorted(self.residuals, key=lambda r: -r.amount)))

    @property
    def holds(self) -> bool:
        """Whether nothing that is claimed here was refuted."""
        return not self.claims or not (self.residuals or any(f.verdict == DIFFERENT for f in self.figures))
