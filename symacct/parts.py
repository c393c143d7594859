"""The parts of an account: nodes with their costs, groups of nodes, and sums over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from symacct.algebra import total_of
from symacct.cost import COST_FIELDS, Cost, Size, TensorMeta
from symacct.printing import formula
from symacct.shown import Shown

if TYPE_CHECKING:
    from symacct.account import Account


@dataclass(frozen=True)
class NodeCost:
    """One node of the graph with its cost: op, phase, module path, source line, shapes, dtypes."""

    index: int
    op: str
    phase: str
    path: str
    source: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    storages: tuple[int, ...]
    forward: int
    cost: Cost | None

    @property
    def known(self) -> bool:
        """Whether a rule gave the cost."""
        return self.cost is not None

    def __getattr__(self, name: str) -> Any:
        if name in (*COST_FIELDS, "bytes", "intensity"):
            return getattr(self.cost or Cost(), name)
        raise AttributeError(name)


@dataclass(frozen=True)
class Unknown:
    """An op without a rule: its name, how often it occurs, and where."""

    op: str
    count: Size
    places: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.places[:3]) + (", ..." if len(self.places) > 3 else "")
        return f"{self.op} x{self.count} in {shown}"


@dataclass(frozen=True)
class Group:
    """Nodes of one phase, module path, operator and cost: ``times`` says how many there are."""

    phase: str
    path: str
    op: str
    call: int  # its cost's place in the account
    times: Size


class Phase(Shown):
    """A part of an account (a phase, a module, an op): its nodes' costs added up.

    ``flops``, ``pointwise``, ``bytes_read``, ``bytes_written``, ``bytes`` and ``intensity`` are SymPy
    expressions, or numbers in an account at given sizes. ``str()`` is the FLOP formula.
    """

    def __init__(self, account: Account, name: str, calls: Counter[Any]) -> None:
        self.account = account
        self.name = name
        self.calls = calls
        self.times = 1  # how many equal modules it is the sum of

    @property
    def count(self) -> Size:
        """Number of nodes."""
        return self.account._value(sum(self.calls.values()))

    @property
    def unknown(self) -> bool:
        """Whether a node without a rule is among them, so that the sums are incomplete."""
        return any(self.account._costs[call] is None for call in self.calls)

    @cached_property
    def _formulas(self) -> Cost:
        return _sum((self.account._costs[call], times) for call, times in self.calls.items())

    @property
    def cost(self) -> Cost:
        """All sums as one `Cost`."""
        return Cost(**{f: self.account._value(getattr(self._formulas, f)) for f in COST_FIELDS})

    @property
    def flops(self) -> Size:
        """Contractions: 2 FLOP per multiply-add."""
        return self.account._value(self._formulas.flops)

    @property
    def pointwise(self) -> Size:
        """All other arithmetic, in FLOP."""
        return self.account._value(self._formulas.pointwise)

    @property
    def bytes_read(self) -> Size:
        """Bytes that kernels read."""
        return self.account._value(self._formulas.bytes_read)

    @property
    def bytes_written(self) -> Size:
        """Bytes that kernels write."""
        return self.account._value(self._formulas.bytes_written)

    @property
    def bytes(self) -> Size:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> Size:
        """FLOP per byte, contractions and pointwise together; None where no byte moves."""
        return self.cost.intensity

    def __str__(self) -> str:
        return formula(self.flops)

    def __repr__(self) -> str:
        return (
            f"<{self.name or 'all'}: flops {formula(self.flops)}; pointwise {formula(self.pointwise)}; "
            f"bytes {formula(self.bytes)}>"
        )


def _sum(costs: Iterable[tuple[Cost | None, int]]) -> Cost:
    """Add costs times their counts; equal expressions are collected before SymPy sees them."""
    collected: dict[str, Counter[Any]] = {f: Counter() for f in COST_FIELDS}
    for cost, times in costs:
        if cost is not None:
            for name in COST_FIELDS:
                collected[name][getattr(cost, name)] += times
    return Cost(**{f: total_of(counter) for f, counter in collected.items()})
