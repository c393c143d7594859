"""What is alive in the course of one step, from births and deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy

from symacct.cost import Size
from symacct.record import Mark, Node, Record
from symacct.shown import Shown
from symacct.storages import KINDS, Live, Storages


@dataclass(frozen=True)
class Moment(Shown):
    """A point of a timeline: just after a node has made its results, while its operands are still there."""

    timeline: Timeline = field(repr=False)
    position: int  # how many of the timeline's births and deaths lie before it
    node: Node | None

    @property
    def op(self) -> str:
        """The operator that had just run."""
        return self.node.op if self.node is not None else ""

    @property
    def phase(self) -> str:
        """The phase that it belongs to; "start" before the first node."""
        return self.node.phase if self.node is not None else "start"

    @property
    def path(self) -> str:
        """The module path of the node."""
        return self.node.path if self.node is not None else ""

    @property
    def source(self) -> str:
        """The line of the model that ran."""
        return self.node.source if self.node is not None else ""

    @property
    def nbytes(self) -> Size:
        """Bytes alive at this moment."""
        return self.timeline.bytes_of(self.timeline.alive_at(self.position))

    @property
    def live(self) -> list[Live]:
        """What is alive, largest first (by trial sizes where the account has no sizes)."""
        storages = sorted(self.timeline.alive_at(self.position), key=lambda s: (-self.timeline.rank(s), s))
        return [self.timeline.live(s) for s in storages]

    def by_kind(self) -> dict[str, Size]:
        """Bytes by kind, kinds of which nothing is alive left out."""
        return self._grouped(self.timeline.kind, KINDS)

    def by_module(self, depth: int | None = 1) -> dict[str, Size]:
        """Bytes by the module that holds or made them, paths cut to ``depth`` parts."""

        def path(storage: int) -> str:
            full = self.timeline.place(storage)
            return full if depth is None else ".".join(full.split(".")[:depth])

        return self._grouped(path, None)

    def _grouped(self, key: Callable[[int], str], order: Sequence[str] | None) -> dict[str, Size]:
        groups: dict[str, list[int]] = {}
        for storage in sorted(self.timeline.alive_at(self.position)):
            groups.setdefault(key(storage), []).append(storage)
        names = groups if order is None else [k for k in order if k in groups]
        return {name: self.timeline.bytes_of(groups[name]) for name in names}

    def __str__(self) -> str:
        where = f"{self.op} in {self.path or 'the top level'}" if self.op else "before the first op"
        return f"{where} ({self.phase}, {self.timeline.name} step)"


class Timeline(Shown):
    """What is alive in the course of one step: births and deaths in order, and the moments between them."""

    def __init__(self, storages: Storages, name: str, parts: list[tuple[Mark, Mark]]) -> None:
        self.name = name
        self.storages = storages
        self._record = storages.record
        self.start, self._events, self._parts = _replayed(self._record, parts)

    # -- moments -------------------------------------------------------------------------

    @cached_property
    def moments(self) -> list[Moment]:
        """The start, then one moment for each node, in the order in which they ran."""
        record = self._record
        found = [Moment(self, 0, None)]
        for begin, end, offset in self._parts:
            nodes = [*record.nodes[begin.nodes : end.nodes], *record.aside[begin.aside : end.aside]]
            found += [Moment(self, n.clock + offset, n) for n in sorted(nodes, key=lambda n: n.clock)]
        return found

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def alive_at(self, position: int) -> set[int]:
        """The storages that are alive after so many births and deaths."""
        return _replay(self.start, self._events[:position])

    def running(self) -> Iterator[tuple[Moment, int | None]]:
        """Each moment, after the storages that were born (n) or died (~n) since the one before, then None."""
        at = 0
        for moment in self.moments:
            for event in self._events[at : moment.position]:
                yield moment, event
            at = max(at, moment.position)
            yield moment, None

    def totals(self) -> list[Size]:
        """Bytes at each moment: numbers in an account at sizes, else expressions."""
        parts = self.storages.parts
        now: dict[Any, Any] = {}
        for storage in sorted(self.start):
            _add(now, parts[storage], 1)
        found: list[Size] = []
        changed = True
        for _, event in self.changes():
            if event is None:
                found.append(found[-1] if found and not changed else _total(now))
                changed = False
            else:
                changed = True
                _add(now, parts[max(event, ~event)], 1 if event >= 0 else -1)
        return found

    def totals_by_kind(self) -> dict[str, list[Any]]:
        """Bytes of each kind at each moment, as numbers. Raises `MissingSizeError` where dims have none."""
        sizes = self.storages.numbers
        now = dict.fromkeys(KINDS, 0)
        for storage in sorted(self.start):
            now[self.kind(storage)] += sizes[storage]
        found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        for _, event in self.changes():
            if event is None:
                for kind in KINDS:
                    found[kind].append(now[kind])
            elif event >= 0:
                now[self.kind(event)] += sizes[event]
            else:
                now[self.kind(~event)] -= sizes[~event]
        return found

    def changes(self) -> Iterator[tuple[Moment, int | None]]:
        """As `running`, but only births and deaths that change what is alive."""
        alive = set(self.start)
        for moment, event in self.running():
            if event is None:
                yield moment, None
            elif event >= 0 and event not in alive:
                alive.add(event)
                yield moment, event
            elif event < 0 and ~event in alive:
                alive.remove(~event)
                yield moment, event

    @property
    def peak(self) -> Moment:
        """The moment that wins at the account's sizes. Raises `MissingSizeError` where dims have none."""
        _ = self.storages.numbers
        totals = self.totals()
        return self.moments[max(range(len(totals)), key=totals.__getitem__)]

    # -- what is alive ---------------------------------------------------------------------

    def bytes_of(self, storages: Iterable[int]) -> Size:
        """The sum of storages' sizes."""
        return self.storages.sum(storages)

    def rank(self, storage: int) -> Any:
        """A number to sort by."""
        return self.storages.trial_numbers[storage]

    def kind(self, storage: int) -> str:
        """What a storage is: one of `KINDS`."""
        fixed = self.storages.kinds.get(storage)
        if fixed is not None:
            return fixed
        return "activations" if storage in self._activations else "temporaries"

    @cached_property
    def _activations(self) -> set[int]:
        """What the forward pass, or a checkpoint that runs again, leaves to the backward pass."""
        found: set[int] = set()
        if self.storages.step.trained:
            for position in self.marks("forward"):
                found |= self.alive_at(position)
            found |= self._recomputed()
        return found

    def _recomputed(self) -> set[int]:
        """What was born while a checkpoint ran again and lived on when it was done."""
        alive: set[int] = set()
        found: set[int] = set()
        for moment, event in self.running():
            if event is None:
                if moment.phase != "recompute":
                    found |= alive
                    alive.clear()
            elif event >= 0:
                node = self._record.storages[event].node
                if node is not None and node.phase == "recompute":
                    alive.add(event)
            else:
                alive.discard(~event)
        return found

    def marks(self, name: str) -> list[int]:
        """The positions of a named point: "forward" is the end of a forward pass, "backward" of a backward pass."""
        return [
            mark.events + offset
            for begin, end, offset in self._parts
            for mark in self._record.marks
            if mark.name == name and begin.events <= mark.events <= end.events
        ]

    def after(self, name: str) -> Size:
        """Bytes alive at a named point of the step (the last of several), or None where there is none."""
        marks = self.marks(name)
        return self.bytes_of(self.alive_at(marks[-1])) if marks else None

    def place(self, storage: int) -> str:
        """The module path that holds or made a storage."""
        return self.storages.place(storage)

    def live(self, storage: int) -> Live:
        """A storage, described."""
        return self.storages.live(storage, self.kind(storage))

    def sums(self, vectors: Sequence[Any]) -> Iterator[tuple[Moment, Any, bool, bool]]:
        """Each moment with the sum of what is alive, and whether anything was born or died since the one before.

        ``vectors`` has one for each storage.
        """
        now = [sum(column) for column in zip(*(vectors[s] for s in sorted(self.start)), strict=True)]
        if not now and vectors:
            now = [0] * len(vectors[0])
        grown = fell = False
        for moment, event in self.changes():
            if event is None:
                yield moment, tuple(now), grown, fell
                grown = fell = False
            elif event >= 0:
                now = [a + b for a, b in zip(now, vectors[event], strict=True)]
                grown = True
            else:
                now = [a - b for a, b in zip(now, vectors[~event], strict=True)]
                fell = True

    def rises(self, vectors: Sequence[Any]) -> Iterator[tuple[Moment, Any]]:
        """The moments after which memory falls, with the sum of what is alive: none between them is larger."""
        return rising(self.sums(vectors))


# -- helpers -----------------------------------------------------------------------


def rising(sums: Iterable[tuple[Moment, Any, bool, bool]]) -> Iterator[tuple[Moment, Any]]:
    """Of moments with their sums, as `Timeline.sums` has them, those after which memory falls before it grows."""
    last: tuple[Moment, Any] | None = None
    fell = False
    for moment, now, has_grown, has_fallen in sums:
        fell = fell or has_fallen
        if has_grown or last is None:
            if last is not None and fell:
                yield last
            last, fell = (moment, now), False
    if last is not None:
        yield last


def _add(now: dict[Any, Any], parts: Mapping[Any, Any], sign: int) -> None:
    for monomial, coefficient in parts.items():
        now[monomial] = now.get(monomial, 0) + sign * coefficient


def _total(now: Mapping[Any, Any]) -> Size:
    if len(now) == 1 and 1 in now:
        return now[1]
    return sympy.Add(*(coefficient * monomial for monomial, coefficient in now.items()))


def alive_after(record: Record, position: int) -> set[int]:
    """What is alive after so many events. What came from outside was there all along."""
    outside = {n for n, storage in enumerate(record.storages) if storage.outside}
    return _replay(outside, record.events[:position])


def _replay(start: set[int], events: Iterable[int]) -> set[int]:
    """What is alive after births (n) and deaths (~n)."""
    alive = set(start)
    for event in events:
        alive.add(event) if event >= 0 else alive.discard(~event)
    return alive


def _replayed(
    record: Record, parts: list[tuple[Mark, Mark]]
) -> tuple[set[int], list[int], list[tuple[Mark, Mark, int]]]:
    """What is alive at the start of a timeline made of parts of the record; its events; and its parts.

    What was born in between and survived it was there from the start; what died in between is gone when
    the next part begins. With each part stands what leads from a place in the record to one in the timeline.
    """
    before = parts[0][0].events
    start = alive_after(record, before)
    events: list[int] = []
    placed: list[tuple[Mark, Mark, int]] = []
    for begin, end in parts:
        between = record.events[before : begin.events]
        born = {e for e in between if e >= 0}
        dead = {~e for e in between if e < 0}
        start |= born - dead
        events += [~n for n in sorted(dead - born)]
        placed.append((begin, end, len(events) - begin.events))
        events += record.events[begin.events : end.events]
        before = end.events
    return start, events, placed
