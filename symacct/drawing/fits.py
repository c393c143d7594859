"""One figure from those of the members of an account: of a plain one its own, else a polynomial in the depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from symacct.account import Account
from symacct.cost import COST_FIELDS, Cost, Size
from symacct.depth.fitting import Offset
from symacct.depth.structural import StructuralAccount
from symacct.drawing.model import Part
from symacct.errors import StructuralError

Parts = Counter[tuple[Cost | None, str]]


class Fits:
    """Figures of an account of any depth. A plain account is its own only member."""

    def __init__(self, account: Account) -> None:
        deep = isinstance(account, StructuralAccount)
        self.lattice = account.lattice if isinstance(account, StructuralAccount) else None
        self.members: Mapping[Offset, Account] = account.members if deep else {(): account}  # type: ignore[attr-defined]

    def of(self, what: str, values: Mapping[Offset, Any]) -> Size:
        """A figure at any depth. Raises `StructuralError` where it is no polynomial."""
        found = self.maybe(values)
        if found is None:
            raise StructuralError(f"{what} is no polynomial in {self.lattice.names if self.lattice else 'no dim'}")
        return found

    def maybe(self, values: Mapping[Offset, Any]) -> Size | None:
        """A figure at any depth, or None where it is no polynomial."""
        if self.lattice is None:
            return next(iter(values.values()))
        if all(value == 0 for value in values.values()):
            return 0
        return self.lattice.polynomial(values)

    def any_of(self, values: Mapping[Offset, Any]) -> Size:
        """A figure at any depth, or where that is no polynomial, at the least one."""
        found = self.maybe(values)
        return next(iter(values.values())) if found is None else found

    def parts(self, what: str, counts: Mapping[Offset, Parts]) -> tuple[Part, ...]:
        """What a box is made of: how often each cost occurs, or where that is no polynomial, the sum of them all."""
        keys = dict.fromkeys(key for counter in reversed(list(counts.values())) for key in counter)
        found: list[Part] = []
        for cost, dtype in keys:
            times = self.maybe({offset: counter[cost, dtype] for offset, counter in counts.items()})
            if times is None:
                return tuple(self._summed(what, counts))
            found.append(Part(cost, dtype, times))
        return tuple(found)

    def _summed(self, what: str, counts: Mapping[Offset, Parts]) -> Iterable[Part]:
        """Operands that grow with the depth: the costs of one dtype as one, and free nodes for the others' number."""
        for dtype in dict.fromkeys(dtype for counter in counts.values() for _, dtype in counter):
            chosen = {o: {c: n for (c, d), n in counter.items() if d == dtype} for o, counter in counts.items()}
            number = self.of(f"the number of nodes in {what}", {o: sum(each.values()) for o, each in chosen.items()})
            if any(None in each for each in chosen.values()):
                yield Part(None, dtype, number)
                continue
            sums = {
                name: self.of(
                    f"{name} of {what}",
                    {o: sympy.Add(*(getattr(c, name) * n for c, n in each.items())) for o, each in chosen.items()},
                )
                for name in COST_FIELDS
            }
            yield Part(Cost(**sums), dtype, 1)
            yield Part(Cost(), dtype, number - 1)
