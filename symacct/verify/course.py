"""The course of a step: which storages are born and die in it, in which order; as an account has it.

Some order is left to chance in a real run: a kernel makes its results in any order, and autograd lets go of what a
node kept in any order. So births of one call are sorted, and a death is placed by how many births come before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from symacct.capture import Step
from symacct.record import Node, Record
from symacct.timeline import Timeline, alive_after
from symacct.verify.profiled import Called
from symacct.verify.scratch import NUMBER, Use


@dataclass(eq=False)
class Piece:
    """A storage in the course of one step."""

    nbytes: int
    node: Node | None = None  # the recorded node that made it
    call: Called | None = None  # really: the call that made it
    number: int = -1  # as predicted: its number in the record
    dies: int | None = None  # how many births of the step come before its death; None: it outlives the step
    earlier: Piece | None = None  # the same storage in the step before, if it was there then


@dataclass
class Course:
    """One step: bytes alive at its points, what was there when it began, and what is born, in order."""

    name: str
    start: int = 0
    forward: int | None = None  # at the end of the last forward pass; None: no such point
    peak: int = 0
    rest: int = 0  # when the step has returned
    present: list[Piece] = field(default_factory=list)  # alive at the start, as far as known one by one
    births: list[Piece] = field(default_factory=list)
    freed: list[Piece] = field(default_factory=list)  # really: there before the run, and freed in this step
    raw_peak: int = 0  # really: most bytes alive, with scratch and numbers
    numbers: int = 0  # really: most bytes at once of numbers that became tensors
    uses: dict[int, Use] = field(default_factory=dict)  # really: by call, what it allocated

    @property
    def sequence(self) -> list[int]:
        """Births and deaths in order: sizes, those of deaths negative; nothing after the last birth."""
        deaths: dict[int, list[int]] = {}
        for piece in (*self.present, *self.births, *self.freed):
            if piece.dies is not None:
                deaths.setdefault(piece.dies, []).append(-piece.nbytes)
        found: list[int] = []
        for position, piece in enumerate(self.births):
            found += [*sorted(deaths.get(position, ())), piece.nbytes]
        return found


class Order:
    """Births in order, those of one maker with no death between them by size (then by death, where sizes are equal)."""

    def __init__(self) -> None:
        self.count = 0
        self._groups: list[list[Piece]] = []
        self._last: object = None

    def born(self, piece: Piece, maker: object) -> None:
        """A birth; ``maker`` None: by none that makes others."""
        if maker is None or maker != self._last:
            self._groups.append([])
        self._groups[-1].append(piece)
        self._last = maker
        self.count += 1

    def died(self, piece: Piece) -> None:
        """A death."""
        piece.dies = self.count
        self._last = None

    @property
    def births(self) -> list[Piece]:
        """All that were born."""
        return [piece for group in self._groups for piece in sorted(group, key=_rank)]


def _rank(piece: Piece) -> tuple[int, float]:
    return piece.nbytes, math.inf if piece.dies is None else piece.dies


# -- as predicted ------------------------------------------------------------------------


def predicted(timeline: Timeline, device: str = "cpu") -> Course:
    """The course of a timeline of an account at sizes; on another ``device`` than "cpu" without what stays on the host.

    Raises `MissingSizeError` where dims have no sizes.
    """
    storages, record = timeline.storages, timeline.storages.record
    host = host_storages(storages.step) if device != "cpu" else set()
    sizes = [0 if n in host else size for n, size in enumerate(storages.numbers)]
    begin, end = timeline.alive_at(0), timeline.alive_at(2 * len(record.events))
    forward = timeline.marks("forward")
    inputs = {n for n, kind in storages.kinds.items() if kind == "inputs"}
    (rest,) = (mark for mark in record.marks if mark.name == "rest")
    course = Course(
        timeline.name,
        start=sum(sizes[n] for n in begin),
        forward=sum(sizes[n] for n in timeline.alive_at(forward[-1])) if forward else None,
        peak=max(totals(timeline, sizes)),
        rest=sum(sizes[n] for n in alive_after(record, rest.events) | inputs),
    )
    _replay(course, timeline, sizes, end - _freed_on_return(record))
    return course


def totals(timeline: Timeline, sizes: Sequence[int]) -> list[int]:
    """Bytes alive at each moment of a timeline, storages having ``sizes``."""
    alive = timeline.alive_at(0)
    total = sum(sizes[n] for n in alive)
    found: list[int] = []
    for _, event in timeline.running():
        if event is None:
            found.append(total)
            continue
        number = max(event, ~event)
        if (event >= 0) != (number in alive):
            total += sizes[number] if event >= 0 else -sizes[number]
            (alive.add if event >= 0 else alive.discard)(number)
    return found


def _replay(course: Course, timeline: Timeline, sizes: Sequence[int], stays: Collection[int]) -> None:
    """Fill in the storages of a course: what was there, what is born, and when each dies; empty ones left out."""
    record = timeline.storages.record
    written = _written_numbers(record, sizes)
    shown = {n for n, size in enumerate(sizes) if size and n not in written}
    pieces = {n: Piece(sizes[n], record.storages[n].node, number=n) for n in sorted(timeline.alive_at(0) & shown)}
    course.present = list(pieces.values())
    order = Order()
    for event in (event for _, event in timeline.running() if event is not None):
        number = max(event, ~event)
        if number not in shown or (event >= 0) == (number in pieces):
            continue
        if event < 0:
            order.died(pieces.pop(number))
            continue
        storage = record.storages[number]
        made = storage.node is not None and record.values[storage.value].origin == ""
        pieces[number] = Piece(sizes[number], storage.node, number=number)
        order.born(pieces[number], id(storage.node) if made else None)
    for number, piece in pieces.items():
        if number not in stays:
            order.died(piece)
    course.births = order.births


def host_storages(step: Step) -> set[int]:
    """The storages that stay on the host: copies of a generator's state, and what the record itself has on a CPU.

    A record that knows no other device describes the program's tensors as they are on whichever it runs. Of those
    torch's optimizers make their step counters on the host, unless one kernel does the whole update.
    """
    record = step.record
    found = {value.storage for value in record.values if value.origin == "random state"}
    devices = {value.storage: record.layouts[value.layout][4].type for value in record.values}
    if set(devices.values()) != {"cpu"}:
        return found | {storage for storage, device in devices.items() if device == "cpu"}
    if any(node.op.startswith("aten._fused_") for node in record.nodes if node.phase == "optimizer"):
        return found
    return found | {held.storage for held in step.state if held.meta.shape == ()}


def _written_numbers(record: Record, sizes: Sequence[int]) -> set[int]:
    """Numbers that are written into a tensor (``x[mask] = 1.0``): really, no operator makes tensors of them."""
    nodes = sorted((*record.nodes, *record.aside), key=lambda node: node.clock)
    acting = [node for node in nodes if node.op not in ("aten.select.int", "aten.slice.Tensor")]
    writing = ("aten.index_put_.default", "aten.fill_.Tensor")
    fresh = [a for a, b in pairwise(acting) if a.op == "aten.lift_fresh.default" and b.op in writing]
    return {value.storage for node in fresh for value in node.outputs if sizes[value.storage] <= NUMBER}


def _freed_on_return(record: Record) -> set[int]:
    """What dies between the end of a step and rest: what the step's function held, such as the loss."""
    at = {mark.name: mark.events for mark in record.marks}
    return {~event for event in record.events[at["end"] : at["rest"]] if event < 0}
