"""Which sizes of one dim an account accepts, along a line on which the others follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from symacct.algebra import RELATIONS
from symacct.assumptions import Assumption
from symacct.errors import QuestionError
from symacct.formulas.compiled import compile_expressions
from symacct.napkin.ties import Line

_STEPS = 100_000  # so far apart are no two sizes that a model accepts


class Admissible:
    """The sizes of the unknown at which all sizes are whole and all relations hold that the trace relied on.

    ``low`` and ``high`` (None: none) are the bounds that linear relations set.
    """

    def __init__(self, line: Line, assumptions: Iterable[Assumption]) -> None:
        self.line = line
        self.low: int = 1
        self.high: int | None = None
        known = {line.x.name, *line.opaque}
        told = [(a.relation, line.of(a.left - a.right)) for a in assumptions if a.relation]
        # Of dims that no figure needs there may be no size: what they must be is not asked.
        told = [(relation, difference) for relation, difference in told if _names(difference) <= known]
        self._holds = [RELATIONS[relation] for relation, _ in told]
        self._compiled = compile_expressions({str(i): difference for i, (_, difference) in enumerate(told)})
        for relation, difference in told:
            self._bound(relation, difference)

    def _bound(self, relation: str, difference: sympy.Expr) -> None:
        """Take the bound of a relation that is linear in the unknown; a bound that is too wide does no harm."""
        x = self.line.x
        if _names(difference) != {x.name} or not difference.is_polynomial(x) or sympy.degree(difference, x) != 1:
            return
        difference = sympy.expand(difference)
        slope, root = difference.coeff(x, 1), -difference.coeff(x, 0) / difference.coeff(x, 1)
        below = relation in (("<", "<=") if slope > 0 else (">", ">="))
        if relation == "==" or below:
            high = int(sympy.floor(root))
            self.high = high if self.high is None else min(self.high, high)
        if relation == "==" or (relation != "!=" and not below):
            self.low = max(self.low, int(sympy.ceiling(root)))

    def __contains__(self, number: int) -> bool:
        letters = self.line.letters(number)
        if letters is None or self.line.at(number) is None:
            return False
        found = self._compiled(**letters)
        return all(holds(found[str(i)], 0) for i, holds in enumerate(self._holds))

    def next(self, start: int, step: int) -> int | None:
        """The first accepted size from ``start`` on, upwards (``step`` 1) or downwards (-1); None where there is none.

        Raises `QuestionError` after a hundred thousand sizes that are not accepted.
        """
        number = max(start, self.low) if step > 0 else min(start, start if self.high is None else self.high)
        for _ in range(_STEPS):
            if number < self.low or (self.high is not None and number > self.high):
                return None
            if number in self:
                return number
            number += step
        raise QuestionError(
            f"none of the {_STEPS:,} sizes of {self.line.x} up to {number:,} is one that the model accepts; the rules "
            "of other dims and what the trace relied on may contradict each other"
        )


def _names(expr: Any) -> set[str]:
    return {s.name for s in expr.free_symbols}
