"""Speculative decoding: a small model guesses tokens, which the large one then checks in one step.

Source: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding (2022), equation 1 and
theorems 3.8 and 3.11. Guesses are taken to be accepted independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symacct.cost import Size
from symacct.errors import QuestionError
from symacct.napkin.amounts import exact
from symacct.printing import formula
from symacct.shown import Shown


@dataclass(frozen=True)
class Speculation(Shown):
    """What guessing gains: ``tokens`` per run of the large model, times ``speed_up``, ``operations`` times the FLOP."""

    acceptance: Size
    guesses: int
    cost: Size
    tokens: Size
    speed_up: Size
    operations: Size

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on."""
        return (
            "each guess is accepted with the same probability, independently of the others",
            "the large model checks all guesses in the time of one step, which holds while it is memory-bound",
        )

    def __str__(self) -> str:
        return (
            f"{self.guesses} guesses, each accepted with probability {_shown(self.acceptance)}: "
            f"{_shown(self.tokens)} tokens per run, {_shown(self.speed_up)} times as fast, "
            f"{_shown(self.operations)} times the FLOP"
        )


def speculate(acceptance: Any, guesses: int, cost: Any, operations: Any = None) -> Speculation:
    """What ``guesses`` guessed tokens per run gain.

    ``acceptance``: the probability of each to be accepted, below 1. ``cost``: the time of a step of the small model by
    that of the large one, such as ``draft.step_seconds(device) / target.step_seconds(device)``. ``operations``: the
    same of their FLOP per token, by default ``cost``. Raises `QuestionError` for numbers that cannot be these.
    """
    accepted, ratio = exact(acceptance), exact(cost)
    flops = ratio if operations is None else exact(operations)
    if accepted.is_number and not 0 <= accepted < 1:
        raise QuestionError(f"acceptance: expected a probability from 0 to below 1, got {acceptance}")
    if guesses < 1:
        raise QuestionError(f"guesses: expected at least 1 guessed token per run, got {guesses}")
    tokens = (1 - accepted ** (guesses + 1)) / (1 - accepted)
    return Speculation(
        accepted, guesses, ratio, tokens, tokens / (guesses * ratio + 1), (guesses * flops + guesses + 1) / tokens
    )


def _shown(value: Size) -> str:
    return formula(value) if getattr(value, "free_symbols", None) else f"{float(value):.3g}"
