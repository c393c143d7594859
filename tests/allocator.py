"""What the CPU allocator really did in a training step, from torch.profiler's allocator events.

An allocation that an operator makes and frees before it returns is *scratch*: no tensor that the
program can see, so tensors without data cannot show it. It is kept apart, by operator. So is the
8-byte tensor that Python makes of a number among an operator's tensor operands. All else are the
storages whose lifetimes symacct predicts.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from symacct.torch_private import decomposes


@dataclass
class Part:
    """Allocator events between two points of the program: sizes, frees negative, in order."""

    name: str
    start: int = 0  # bytes alive when it began
    events: list[int] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)  # bytes alive at a point
    scratch: Counter = field(default_factory=Counter)  # operator -> most bytes at once
    numbers: int = 0  # most bytes at once of numbers that became tensors
    peak: int = 0  # of what the program can see
    raw_peak: int = 0  # with scratch and numbers
    raw_place: str = ""  # the operator that ran at the raw peak

    @property
    def end(self):
        return self.start + sum(self.events)


def measure(program, start):
    """Run ``program(point)`` under the profiler, where ``point(name)`` starts a part named "step..." or marks a point.

    ``start`` is what is alive before. Returns the parts in order.
    """
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            program(lambda name: record_function(f"## {name}").__enter__().__exit__(None, None, None))
    finally:
        gc.enable()
    roots = profiler.profiler.kineto_results.experimental_event_tree()
    return _parts(_flat(roots), start)


def _flat(roots):
    """(time, owner, size, ptr) of allocations and (time, name) of points, in order."""
    found = []
    stack = [(e, None, None) for e in roots]
    while stack:
        event, owner, named = stack.pop()
        if event.tag == _EventType.Allocation:
            extra = event.extra_fields
            if extra.device.type == "cpu":
                found.append((event.start_time_ns, len(found), "alloc", (owner, named), extra.alloc_size, extra.ptr))
            continue
        name = event.name
        if name.startswith("## "):
            found.append((event.start_time_ns, len(found), "point", name[3:], 0, 0))
        elif owner is None and _recorded(name):
            owner, named = id(event), name
        stack += [(child, owner, named) for child in event.children]
    return sorted(found, key=lambda e: e[0])


_known = {}


def _recorded(name):
    """Whether an operator is one that symacct records: a real one, not made of others."""
    if name not in _known:
        space, _, op = name.partition("::")
        packet = getattr(getattr(torch.ops, space, None), op, None) if op and space in ("aten", "symacct") else None
        overloads = [getattr(packet, o) for o in packet.overloads()] if packet is not None else []
        _known[name] = any(not _composite(o) for o in overloads)
    return _known[name]


def _composite(overload):
    try:
        return decomposes(overload)
    except RuntimeError:  # an overload of TorchScript's only
        return True


def _parts(flat, start):
    ends = {}  # (position of birth) -> (owner at death)
    open_at = {}
    for i, (_, _, what, who, size, ptr) in enumerate(flat):
        if what == "alloc" and size > 0:
            open_at[ptr] = i
        elif what == "alloc" and ptr in open_at:
            ends[open_at.pop(ptr)] = (i, who[0])
    scratch, numbers = {}, {}
    for i, (_, _, what, who, size, _) in enumerate(flat):
        if what == "alloc" and size > 0:
            end, owner = ends.get(i, (None, None))
            if who[0] is not None and owner == who[0]:
                scratch[i] = scratch[end] = who[1]
            elif who[0] is None and size <= 16:
                numbers[i] = None
                if end is not None:
                    numbers[end] = None
    parts = [Part("before", start)]
    now = raw = start
    inside, held = Counter(), 0
    for i, (_, _, what, who, size, _) in enumerate(flat):
        part = parts[-1]
        if what == "point":
            if who.startswith("step"):
                parts.append(Part(who, now, peak=now, raw_peak=raw))
            else:
                part.marks[who] = now
            continue
        raw += size
        if i in scratch:
            inside[scratch[i]] += size
            part.scratch[scratch[i]] = max(part.scratch[scratch[i]], inside[scratch[i]])
        elif i in numbers:
            held += size
            part.numbers = max(part.numbers, held)
        else:
            now += size
            part.events.append(size)
            part.peak = max(part.peak, now)
        if raw > part.raw_peak:
            part.raw_peak, part.raw_place = raw, who[1] or ""
    return parts[1:]


def alive(*tensors):
    """Bytes of the storages of tensors, shared ones once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None}
    return sum(storages.values())


def predicted(timeline):
    """The same from a timeline: bytes at its start, and sizes born and freed in order."""
    sizes, kinds = timeline._memory.numbers, timeline._memory.kinds
    living = timeline.alive_at(0)
    start = sum(sizes[s] for s in living)
    events = []
    for event in timeline._events:
        if event >= 0 and event not in living:
            living.add(event)
            events.append(sizes[event])
        elif event < 0 and ~event in living:
            living.discard(~event)
            events.append(-sizes[~event])
    return start, [e for e in events if e]
