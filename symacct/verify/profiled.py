"""A real run as torch's profiler saw it: operators with their operands, allocations, and named points, in order.

The profiler looks on from outside. A dispatch mode would change what runs: autograd and some kernels
write in place on plain tensors only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from symacct.surroundings import without_collection
from symacct.torch_private import (
    decomposes,
    event_tree,
    is_allocation,
    is_operator,
    profiler_settings,
)

SPACES = ("aten", "symacct")  # namespaces of operators that the recorder sees
ENTER, LEAVE = "> ", "<"  # points at which a program enters a module, whose path follows, and leaves it
_MARK = "## "
_LOG_LEVEL, _NOTHING = "KINETO_LOG_LEVEL", "6"


@dataclass(frozen=True)
class Operand:
    """A tensor among an operator's arguments."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the region in memory: an expanded axis (stride 0) holds one element."""
        return self.dtype.itemsize * prod(n for n, s in zip(self.shape, self.stride, strict=True) if s != 0)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass
class Called:
    """A call of an operator that is not made of others; ``time`` and ``end`` in nanoseconds."""

    time: int
    end: int
    op: str  # "aten.mm.default"
    operands: tuple[Operand, ...]
    index: int = -1  # its place among the calls of the run
    path: str = ""  # the module that was being called, if one was
    allocates: bool = False  # whether it asked for memory


@dataclass
class Allocated:
    """Memory handed out (``nbytes`` > 0) or given back (< 0), by which call (-1: by none), on which device."""

    time: int
    nbytes: int
    ptr: int
    device: str
    call: int = -1


@dataclass
class Point:
    """A point of the program that `point` named."""

    time: int
    name: str


@dataclass
class Seen:
    """A run: calls in the order in which they began, everything (calls too) in the order of time, and its threads."""

    calls: list[Called] = field(default_factory=list)
    events: list[Called | Allocated | Point] = field(default_factory=list)
    threads: int = field(default_factory=torch.get_num_threads)


def point(name: str) -> None:
    """Name a point of a program that is being profiled."""
    with record_function(f"{_MARK}{name}"):
        pass


def profiled(run: Callable[[], Any], device: str = "cpu") -> Seen:
    """Run something under the profiler. Collected garbage would free tensors at chance moments, so none is."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    settings = profiler_settings()
    with (
        without_collection(),
        _quiet(),
        profile(
            activities=activities, profile_memory=True, record_shapes=True, experimental_config=settings
        ) as profiler,
    ):
        run()
        if device == "cuda":
            torch.cuda.synchronize()
    return _seen(event_tree(profiler))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the profiler's library from telling of its start and stop on stderr."""
    before = os.environ.get(_LOG_LEVEL)
    os.environ.setdefault(_LOG_LEVEL, _NOTHING)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LOG_LEVEL]


def _seen(roots: list[Any]) -> Seen:
    """Flatten the profiler's tree: what happens inside of a recorded operator belongs to it."""
    events: list[Called | Allocated | Point] = []
    owners: list[tuple[Allocated, Called]] = []
    stack: list[tuple[Any, Called | None]] = [(event, None) for event in reversed(roots)]
    while stack:
        event, owner = stack.pop()
        if is_allocation(event):
            extra = event.extra_fields
            if extra.alloc_size:
                made = Allocated(event.start_time_ns, extra.alloc_size, extra.ptr, extra.device.type)
                events.append(made)
                if owner is not None:
                    owners.append((made, owner))
            continue
        if event.name.startswith(_MARK):
            events.append(Point(event.start_time_ns, event.name.removeprefix(_MARK)))
        elif owner is None and is_operator(event) and _recorded(event.name, event.overload_name) and not _wraps(event):
            owner = Called(event.start_time_ns, event.end_time_ns, _full_name(event), _operands(event))
            events.append(owner)
        stack += [(child, owner) for child in reversed(event.children)]  # events of one time keep their order
    events = _with_paths(sorted(events, key=lambda event: event.time))
    seen = Seen([e for e in events if isinstance(e, Called)], events)
    for index, call in enumerate(seen.calls):
        call.index = index
    for made, call in owners:
        made.call = call.index
        call.allocates |= made.nbytes > 0
    return seen


def _with_paths(events: list[Called | Allocated | Point]) -> list[Called | Allocated | Point]:
    """Tell calls the module that they were made in; the points that say so have served their purpose then."""
    paths: list[str] = []
    kept = []
    for event in events:
        if isinstance(event, Point) and event.name.startswith(ENTER):
            paths.append(event.name.removeprefix(ENTER))
        elif isinstance(event, Point) and event.name == LEAVE:
            paths.pop()
        else:
            kept.append(event)
        if isinstance(event, Called) and paths:
            event.path = paths[-1]
    return kept


@cache
def _recorded(name: str, overload: str) -> bool:
    """Whether an operator is one that the recorder records: a real one, not made of others."""
    space, _, op = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), op, None) if op and space in SPACES else None
    return packet is not None and not decomposes(getattr(packet, overload or "default"))


def _wraps(event: Any) -> bool:
    """Whether a call only casts its operands, as autocast does, and then calls the same operator."""
    same = (event.name, event.overload_name)
    return any(is_operator(c) and (c.name, c.overload_name) == same for c in event.children)


def _full_name(event: Any) -> str:
    return f"{event.name.replace('::', '.')}.{event.overload_name or 'default'}"


def _operands(event: Any) -> tuple[Operand, ...]:
    """The tensors among an event's arguments, those in lists too."""
    found = []
    for value in event.extra_fields.inputs:
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "sizes"):
                found.append(Operand(tuple(each.sizes), tuple(each.strides), each.dtype))
    return tuple(found)
