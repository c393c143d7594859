"""The kernels of a step if fusing were ideal, and the bytes that no step can do without.

A node's level is how many kernels that cannot be fused into lie on the longest way to it, within its phase. Nodes of
one level that depend on each other can be one kernel: a way from one of them to another meets no other kernel.
So a group is a chain of fusible nodes (elementwise arithmetic, copies, reductions, normalisations, softmax, losses,
random masks, optimizers) with the kernels of its own level that make its inputs, such as matrix products.
Such a chain that needs only what was there before the phase runs where its results are first needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

from symacct.account import Account
from symacct.cost import Cost, Size
from symacct.record import Node
from symacct.roofline.kernels import Kernel, Use, dtype_of, kernel, merged
from symacct.roofline.operands import Access, Operands, Region
from symacct.rule import Rules

# Families of rules whose operators compute each result from few operands, or from a row that stays on the chip.
_FUSIBLE = frozenset({
    "elementwise functions", "copies", "creation", "reductions", "normalisation", "softmax", "losses",
    "random numbers", "optimizers", "simulated quantisation",
})  # fmt: skip


@dataclass
class _Member:
    """A node in a group: its place in the order of nodes, and what it reads and writes."""

    place: int
    node: Node
    access: Access
    cost: Cost


@dataclass
class Fused:
    """A group of nodes that are one kernel: what it reads from memory, what it writes there, and what cannot be split.

    ``reads`` and ``writes`` are (place of the node, region), each distinct region once.
    """

    phase: str
    lead: Node
    members: list[_Member] = field(repr=False)
    reads: list[tuple[int, Region]] = field(default_factory=list)
    writes: list[tuple[int, Region]] = field(default_factory=list)

    def kernel(self, account: Account) -> Kernel:
        """The group as a kernel."""
        nbytes = Counter(rest for member in self.members for rest in member.access.rest)
        nbytes.update(region.nbytes for _, region in (*self.reads, *self.writes))
        return merged([(_arithmetic(account, self.members), 1)], nbytes)


def _arithmetic(account: Account, members: list[_Member]) -> Kernel:
    """What nodes compute, without their bytes."""
    flops = Counter((dtype_of(account.step.record.calls[m.node.call]), m.cost.flops) for m in members if m.cost.flops)
    return kernel(flops, Counter(m.cost.pointwise for m in members), Counter())


# -- groups ------------------------------------------------------------------------------


class _Grouping:
    """Groups of nodes, found in one pass over a phase.

    Fusible nodes that need nothing but what was there before the phase float: they join the first that needs them.
    """

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self._parent: list[int] = []
        self._levels: list[int | None] = []  # of the group that a root stands for; None while it floats
        self._writer: dict[int, int] = {}  # of each storage the member that wrote it last
        self._readers: dict[int, list[int]] = {}  # and those that read it since

    def add(self, member: _Member, fusible: bool) -> None:
        """Add a node: on the level of the last that it depends on, or above it where it is a kernel of its own."""
        access, index = member.access, len(self.members)
        needed = [self._writer[s] for s in access.touched if s in self._writer]
        needed += [r for s in access.changed for r in self._readers.get(s, ())]
        roots = dict.fromkeys(map(self._root, needed))
        known = [level for r in roots if (level := self._levels[r]) is not None]
        below = max(known, default=0)
        level = below + 1 if not fusible else below if known else None
        self.members.append(member)
        self._parent.append(index)
        self._levels.append(level)
        for root in roots:
            if fusible and self._levels[root] in (None, level):
                self._parent[root] = index
            elif self._levels[root] is None:
                self._levels[root] = below
        for storage in access.touched:
            if storage in access.changed:
                self._writer[storage] = index
                self._readers[storage] = []
            else:
                self._readers.setdefault(storage, []).append(index)

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def groups(self) -> Iterator[list[_Member]]:
        """The groups, in the order of their first nodes."""
        found: dict[int, list[_Member]] = {}
        for i, member in enumerate(self.members):
            found.setdefault(self._root(i), []).append(member)
        yield from found.values()


def fused_groups(account: Account) -> list[Fused]:
    """The groups of a plain account's step, phase by phase."""
    record, operands = account.step.record, Operands(account)
    fusible: dict[int, bool] = {}
    phases: dict[str, _Grouping] = {}
    for place, node in enumerate(record.nodes):
        cost = account._costs[node.call]
        if cost == Cost():
            continue  # views and the like
        access = operands.of(node)
        if node.call not in fusible:
            fusible[node.call] = access.split and cost is not None and _fusible(account.rules, node.op, cost)
        member = _Member(place, node, access, cost or Cost())
        phases.setdefault(node.phase, _Grouping()).add(member, fusible[node.call])
    groups = [_led(phase, members) for phase, grouping in phases.items() for members in grouping.groups()]
    _settle(groups, _made(account, groups), surviving(account))
    return groups


def _fusible(rules: Rules, op: str, cost: Cost) -> bool:
    space, _, name = op.partition(".")
    found = rules.find(op) or rules.find(f"{space}.{name.removeprefix('_foreach_')}") or {}
    return cost.flops == 0 and bool(found) and all(rule.family in _FUSIBLE for rule in found.values())


def _led(phase: str, members: list[_Member]) -> Fused:
    """A group under the name of its first contraction, else of its first node."""
    lead = next((m for m in members if m.cost.flops != 0), members[0])
    return Fused(phase, lead.node, members)


def _settle(groups: list[Fused], made: Mapping[int, int], survivors: frozenset[int]) -> None:
    """Which regions each group reads from memory, and which it has to write there.

    ``made``: of each storage that begins in the step the place of the node that first writes it.
    """
    touches: dict[int, list[tuple[int, int]]] = {}  # of each storage (place of the node, number of its group)
    for number, group in enumerate(groups):
        for member in group.members:
            for storage in member.access.touched:
                touches.setdefault(storage, []).append((member.place, number))
    later = {storage: _last(found) for storage, found in touches.items()}
    for number, group in enumerate(groups):
        places = {member.place for member in group.members}
        here: set[tuple[int, int]] = set()  # regions that it has read or written
        written: dict[tuple[int, int], tuple[int, Region]] = {}
        for member in group.members:
            for region in member.access.reads:
                key = region.storage, region.layout
                if made.get(region.storage) not in places and (key not in here or region.layout < 0):
                    group.reads.append((member.place, region))
                    here.add(key)
            for region in member.access.writes:
                here.add((region.storage, region.layout))
                written.setdefault((region.storage, region.layout), (member.place, region))
        group.writes = [
            (place, region)
            for place, region in written.values()
            if region.storage in survivors or _used_after(later[region.storage], number, place)
        ]


def _made(account: Account, groups: list[Fused]) -> dict[int, int]:
    """Of each storage that begins in the step the place of the first node that touches it, which writes it."""
    record = account.step.record
    ran = {id(node) for node in record.nodes}
    first: dict[int, int] = {}
    for group in groups:
        for member in group.members:
            for storage in member.access.touched:
                first[storage] = min(first.get(storage, member.place), member.place)
    return {
        s: place for s, place in first.items() if not record.storages[s].outside and id(record.storages[s].node) in ran
    }


def _last(found: list[tuple[int, int]]) -> tuple[int, int, int]:
    """The last place that touches a storage, its group, and the last place of any other group."""
    place, group = max(found)
    return place, group, max((p for p, g in found if g != group), default=-1)


def _used_after(last: tuple[int, int, int], group: int, place: int) -> bool:
    """Whether another group than this touches a storage after a place."""
    latest, by, of_others = last
    return (latest if by != group else of_others) > place


def surviving(account: Account) -> frozenset[int]:
    """The storages that are there after the step: from outside, gradients, state, results."""
    step, record = account.step, account.step.record
    found = {i for i, storage in enumerate(record.storages) if storage.outside}
    held = (*step.parameters, *step.buffers, *step.gradients, *step.state)
    return frozenset({*found, *step.outputs, *(h.storage for h in held)})


# -- levels --------------------------------------------------------------------------------


def fused(account: Account, groups: Iterable[Fused]) -> list[Use]:
    """The kernels of a plain account if fusing were ideal."""
    uses = []
    for group in groups:
        made = group.kernel(account)
        if made.flops or made.pointwise or made.bytes:
            uses.append(Use(group.phase, group.lead.path, group.lead.op, made))
    return uses


def minimal(account: Account, groups: list[Fused], phase: str | None = None) -> Kernel:
    """A phase, or the whole step, as one kernel that reads and writes nothing twice.

    Read is, of each storage that was there before, what is read of it before it is written. Written is, of each
    storage that is used or kept afterwards, what is written. Of what different nodes read of one storage the largest
    part counts, or all where the parts make up the storage. Every byte here is one of the fused level's.
    """
    record, survivors, made = account.step.record, surviving(account), _made(account, groups)
    inside = [group for group in groups if phase in (None, group.phase)]
    places = {member.place for group in inside for member in group.members}
    changed: dict[int, int] = {}  # of each storage the place of the first node that changes it
    for group in inside:
        for member in group.members:
            for storage in member.access.changed:
                changed[storage] = min(changed.get(storage, member.place), member.place)
    needed = {
        storage
        for group in groups
        for member in group.members
        if member.place not in places
        for storage in member.access.touched
        if member.place > changed.get(storage, member.place)
    }
    reads: dict[int, dict[Region, None]] = {}
    writes: dict[int, dict[Region, None]] = {}
    for group in inside:
        for place, region in group.reads:
            if made.get(region.storage) not in places and place <= changed.get(region.storage, place):
                reads.setdefault(region.storage, {})[region] = None
        for _, region in group.writes:
            if region.storage in survivors or region.storage in needed:
                writes.setdefault(region.storage, {})[region] = None
    nbytes: Counter[Any] = Counter()
    for each in (reads, writes):
        for storage, regions in each.items():
            nbytes[_least([r.nbytes for r in regions], account._exact(record.storages[storage].nbytes))] += 1
    return merged([(_arithmetic(account, group.members), 1) for group in inside], nbytes)


def _least(sizes: list[Size], whole: Size) -> Size:
    """What must be read or written of a storage of which kernels read or write these parts."""
    if len(sizes) == 1:
        return sizes[0]
    if any(size == whole for size in sizes):
        return whole
    if sympy.expand(sum(sizes) - sympy.sympify(whole)) == 0:
        return whole
    distinct = list(dict.fromkeys(map(sympy.sympify, sizes)))
    return distinct[0] if len(distinct) == 1 else sympy.Max(*distinct, evaluate=False)
