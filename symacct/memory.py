"""Memory from lifetimes: what is alive when, in closed form.

The recorder notes every storage's birth and death, so memory at any moment is the sum of
the sizes of what is alive then. A `Timeline` is one step's worth of that. A training run
has two: the first step, in which gradients and the optimizer's state appear, and any later one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy

from symacct.algebra import evaluate, total_of
from symacct.capture import Step
from symacct.cost import Size
from symacct.errors import DimError, MissingSizeError
from symacct.peak import Space
from symacct.record import Mark, Node, Record

KINDS = (
    "parameters", "buffers", "optimizer state", "gradients", "inputs", "activations", "outputs", "temporaries",
)  # fmt: skip
ALLOCATORS = ("logical", "cuda")
_BLOCK = 512  # bytes: what CUDA's caching allocator rounds small and large requests up to


@dataclass(frozen=True)
class Live:
    """A piece of memory that is alive at some moment: its size, what it is, and where it came from."""

    nbytes: Size
    kind: str
    name: str
    shape: tuple[Size, ...]
    dtype: str
    path: str = ""
    op: str = ""
    phase: str = ""
    source: str = ""


@dataclass(frozen=True)
class Moment:
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


class Timeline:
    """What is alive in the course of one step: births and deaths in order, and the moments between them."""

    def __init__(self, memory: Memory, name: str, parts: list[tuple[Mark, Mark]]) -> None:
        self.name = name
        self._memory = memory
        self._record = memory.record
        self._start, self._events, self._parts = _replayed(self._record, parts)

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
        alive = set(self._start)
        for event in self._events[:position]:
            alive.add(event) if event >= 0 else alive.discard(~event)
        return alive

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
        parts = self._memory.parts
        now: dict[Any, Any] = {}
        for storage in sorted(self._start):
            _add(now, parts[storage], 1)
        found: list[Size] = []
        changed = True
        for event in self._changes():
            if event is None:
                found.append(found[-1] if found and not changed else _total(now))
                changed = False
            else:
                changed = True
                _add(now, parts[max(event, ~event)], 1 if event >= 0 else -1)
        return found

    def totals_by_kind(self) -> dict[str, list[Any]]:
        """Bytes of each kind at each moment, as numbers. Raises `MissingSizeError` where dims have none."""
        sizes = self._memory.numbers
        now = dict.fromkeys(KINDS, 0)
        for storage in sorted(self._start):
            now[self.kind(storage)] += sizes[storage]
        found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        for event in self._changes():
            if event is None:
                for kind in KINDS:
                    found[kind].append(now[kind])
            elif event >= 0:
                now[self.kind(event)] += sizes[event]
            else:
                now[self.kind(~event)] -= sizes[~event]
        return found

    def _changes(self) -> Iterator[int | None]:
        """Births (n) and deaths (~n) that change what is alive, in order, and None at each moment."""
        alive = set(self._start)
        for _, event in self.running():
            if event is None:
                yield None
            elif event >= 0 and event not in alive:
                alive.add(event)
                yield event
            elif event < 0 and ~event in alive:
                alive.remove(~event)
                yield event

    @property
    def peak(self) -> Moment:
        """The moment that wins at the account's sizes. Raises `MissingSizeError` where dims have none."""
        _ = self._memory.numbers
        totals = self.totals()
        return self.moments[max(range(len(totals)), key=totals.__getitem__)]

    # -- what is alive ---------------------------------------------------------------------

    def bytes_of(self, storages: Any) -> Size:
        """The sum of storages' sizes."""
        return self._memory.sum(storages)

    def rank(self, storage: int) -> Any:
        """A number to sort by."""
        return self._memory.trial_numbers[storage]

    def kind(self, storage: int) -> str:
        """What a storage is: one of `KINDS`."""
        fixed = self._memory.kinds.get(storage)
        if fixed is not None:
            return fixed
        return "activations" if storage in self._activations else "temporaries"

    @cached_property
    def _activations(self) -> set[int]:
        """What the forward pass, or a checkpoint that runs again, leaves to the backward pass."""
        found: set[int] = set()
        if self._memory.step.trained:
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
        return self._memory.place(storage)

    def live(self, storage: int) -> Live:
        """A storage, described."""
        return self._memory.live(storage, self.kind(storage))


class Memory:
    """The memory of a step: timelines, the moments that can be the peak, and what is alive then.

    ``first`` is the timeline of the first step, ``later`` that of any step after it (the same
    one where there is no optimizer). Expressions, or numbers in an account at given sizes.
    """

    def __init__(
        self,
        step: Step,
        trial_sizes: Mapping[str, int],
        sizes: Mapping[str, int] | None = None,
        least: Mapping[str, int] | None = None,
        exact: Callable[[Size], Size] = lambda size: size,
        allocator: str = "logical",
    ) -> None:
        self.step = step
        self.record = step.record
        self.sizes = sizes
        self.allocator = allocator
        self._trial_sizes = trial_sizes
        self._least = dict(least or {})
        self._exact = exact
        self.kinds, self._names, self._places = _roles(step)

    # -- sizes -----------------------------------------------------------------------------

    @cached_property
    def formulas(self) -> list[Size]:
        """The size of each storage, in bytes, as the allocator counts."""
        known: dict[Any, Any] = {}
        for storage in self.record.storages:
            if storage.nbytes not in known:
                known[storage.nbytes] = self._rounded(self._exact(storage.nbytes))
        found = [known[s.nbytes] for s in self.record.storages]
        if self.allocator == "cuda":  # random states stay on the host
            for value in self.record.values:
                if value.origin == "random state":
                    found[value.storage] = 0
        return found

    def _rounded(self, size: Size) -> Size:
        if self.allocator != "cuda":
            return size
        return _BLOCK * (-(-size // _BLOCK) if isinstance(size, int) else sympy.ceiling(size / _BLOCK))

    @cached_property
    def numbers(self) -> list[Any]:
        """The size of each storage at the account's sizes."""
        if self.sizes is None and any(isinstance(f, sympy.Basic) and f.free_symbols for f in self.formulas):
            raise MissingSizeError(
                "the winning moment depends on the sizes: give them with account.at(...), or look at memory.candidates"
            )
        return self._at(self.sizes or {})

    @cached_property
    def parts(self) -> list[dict[Any, Any]]:
        """The size of each storage as monomials with coefficients (of 1 alone in an account at sizes)."""
        if self.sizes is not None:
            return [{1: n} for n in self.numbers]
        known = {f: sympy.expand(f).as_coefficients_dict() for f in dict.fromkeys(self.formulas)}
        return [known[f] for f in self.formulas]

    @cached_property
    def trial_numbers(self) -> list[Any]:
        """The size of each storage at the account's sizes, or the trial sizes where it has none."""
        return self._at(self.sizes if self.sizes is not None else self._trial_sizes)

    def _at(self, sizes: Mapping[str, int]) -> list[Any]:
        values = {f: evaluate(f, sizes) for f in dict.fromkeys(self.formulas)}
        return [values[f] for f in self.formulas]

    def sum(self, storages: Any) -> Size:
        """The sizes of storages added up."""
        if self.sizes is not None:
            return sum(self.numbers[s] for s in storages)
        return total_of(Counter(self.formulas[s] for s in storages))

    # -- timelines -------------------------------------------------------------------------

    @cached_property
    def first(self) -> Timeline:
        """The first step: gradients and the optimizer's state appear in it."""
        return self._timelines[0]

    @cached_property
    def later(self) -> Timeline:
        """Any later step: the optimizer's state is there from the start."""
        return self._timelines[-1]

    @cached_property
    def _timelines(self) -> list[Timeline]:
        at = {mark.name: mark for mark in self.record.marks}
        start, end = at["start"], at["end"]
        if "update" in at:  # all but the optimizer's part is common to the first and to later steps
            return [
                Timeline(self, "first", [(start, at["later"])]),
                Timeline(self, "later", [(start, at["update"]), (at["later"], end)]),
            ]
        if "later" in at:
            return [Timeline(self, "first", [(start, at["later"])]), Timeline(self, "later", [(at["later"], end)])]
        return [Timeline(self, "only", [(start, end)])]

    # -- the peak --------------------------------------------------------------------------

    @property
    def peak(self) -> Moment:
        """The moment with most bytes alive, of the first or a later step, at the account's sizes."""
        return max((t.peak for t in reversed(self._timelines)), key=lambda moment: moment.nbytes)

    @cached_property
    def candidates(self) -> list[Moment]:
        """The few moments that can be the peak, whatever the sizes; the peak is the largest of them."""
        return self.candidates_where()

    def candidates_where(self, **least: int) -> list[Moment]:
        """The moments that can be the peak when dims are at least as given (``L=128``); others are at least 1."""
        for name, size in least.items():
            if name not in self._trial_sizes:
                raise DimError(f"{name}={size}: the dims are {', '.join(self._trial_sizes) or 'none'}")
        space = Space(dict.fromkeys(self.formulas), {**self._least, **least})
        moments, vectors = [], []
        for timeline in self._timelines[::-1]:
            for moment, vector in _rises(timeline, [space.vectors[f] for f in self.formulas]):
                moments.append(moment)
                vectors.append(vector)
        return [moments[i] for i in space.candidates(vectors)]

    @property
    def peak_bytes(self) -> Size:
        """The most bytes alive at once: ``Max(...)`` over the candidates, or a number at given sizes."""
        if self.sizes is not None:
            return self.peak.nbytes
        found = [moment.nbytes for moment in self.candidates]
        return found[0] if len(found) == 1 else sympy.Max(*found, evaluate=False)

    # -- other sums ------------------------------------------------------------------------

    @property
    def activation_bytes(self) -> Size:
        """Bytes alive between forward and backward beyond parameters, buffers, state, gradients and inputs."""
        marks = self.later.marks("forward")
        if not self.step.trained or not marks:
            return 0
        return self.sum(s for s in self.later.alive_at(marks[0]) if self.later.kind(s) in ("activations", "outputs"))

    @property
    def rest_bytes(self) -> Size:
        """Bytes alive between steps: parameters, buffers, gradients, state, and what modules keep."""
        inputs = {s for s, kind in self.kinds.items() if kind == "inputs"}
        (rest,) = (mark for mark in self.record.marks if mark.name == "rest")
        return self.sum(sorted(_alive(self.record, rest.events) - inputs))

    # -- what is alive ---------------------------------------------------------------------

    def place(self, storage: int) -> str:
        """The module path that holds or made a storage."""
        known = self._places.get(storage)
        node = self.record.storages[storage].node
        return known if known is not None else node.path if node is not None else ""

    def live(self, storage: int, kind: str) -> Live:
        """A storage, described."""
        made = self.record.storages[storage]
        shape, _, _, dtype, _ = self.record.layouts[self.record.values[made.value].layout]
        if self.sizes is not None:
            shape = tuple(evaluate(n, self.sizes) for n in shape)
        node = made.node
        return Live(
            self.sum([storage]),
            kind,
            self._names.get(storage, ""),
            shape,
            str(dtype).removeprefix("torch."),
            self.place(storage),
            *((node.op, node.phase, node.source) if node is not None else ("", "", "")),
        )


# -- helpers -----------------------------------------------------------------------


def _roles(step: Step) -> tuple[dict[int, str], dict[int, str], dict[int, str]]:
    """Kind, name and module path of the storages that have a role of their own."""
    kinds: dict[int, str] = {}
    names: dict[int, str] = {}
    places: dict[int, str] = {}
    origins = {"param": "parameters", "buffer": "buffers", "input": "inputs", "constant": "buffers"}
    for value in step.record.values:
        outside = step.record.storages[value.storage].outside
        if value.origin in origins and outside and value.storage not in kinds:
            kinds[value.storage] = origins[value.origin]
            names[value.storage] = value.name
            places[value.storage] = value.name.rpartition(".")[0] if value.origin in ("param", "buffer") else ""
    for kind, held in (("gradients", step.gradients), ("optimizer state", step.state)):
        for each in held:
            kinds.setdefault(each.storage, kind)
            names.setdefault(each.storage, each.name)
            places.setdefault(each.storage, each.name.partition(":")[0].rpartition(".")[0])
    if not step.trained:
        for storage in step.outputs:
            kinds.setdefault(storage, "outputs")
    return kinds, names, places


def _add(now: dict[Any, Any], parts: Mapping[Any, Any], sign: int) -> None:
    for monomial, coefficient in parts.items():
        now[monomial] = now.get(monomial, 0) + sign * coefficient


def _total(now: Mapping[Any, Any]) -> Size:
    if len(now) == 1 and 1 in now:
        return now[1]
    return sympy.Add(*(coefficient * monomial for monomial, coefficient in now.items()))


def _alive(record: Record, position: int) -> set[int]:
    """What is alive after so many events. What came from outside was there all along."""
    alive = {n for n, storage in enumerate(record.storages) if storage.outside}
    for event in record.events[:position]:
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
    start = _alive(record, before)
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


def _rises(timeline: Timeline, vectors: Sequence[Any]) -> Iterator[tuple[Moment, Any]]:
    """The moments at which memory has grown, with the sum of what is alive; a later fall or rise adds nothing new."""
    alive = set(timeline.alive_at(0))
    now = [sum(column) for column in zip(*(vectors[s] for s in sorted(alive)), strict=True)]
    if not now and vectors:
        now = [0] * len(vectors[0])
    grown, fell = True, False
    last: tuple[Moment, Any] | None = None
    for moment, event in timeline.running():
        if event is None:
            if grown:
                if last is not None and fell:
                    yield last
                last = (moment, tuple(now))
                grown = fell = False
        elif event >= 0:
            if event not in alive:
                alive.add(event)
                now = [a + b for a, b in zip(now, vectors[event], strict=True)]
                grown = True
        elif ~event in alive:
            alive.remove(~event)
            now = [a - b for a, b in zip(now, vectors[~event], strict=True)]
            fell = True
    if last is not None:
        yield last
