"""The memory of an account beside what CUDA's caching allocator says of itself in `torch.cuda.memory_stats`.

The allocator counts three times: what was *requested*, which is the account's bytes; what it *allocated* for that, in
blocks of 512 bytes; and what it *reserved* from the device, which is for information. In each of them stands what
libraries keep as workspace from their first use on; a run that warms up tells how much that is.

A block is larger than its request rounded up where a larger free one was taken and the rest was not split off: for
requests above 1 MiB that happens where at most 1 MiB would be left (c10/cuda/CUDACachingAllocator.cpp,
``should_split``, and c10/core/AllocatorConfig.h, ``kSmallSize``). So "allocated" may exceed the rounded sizes by that
much for each such storage that is alive, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symacct.account import Account
from symacct.record import Node
from symacct.timeline import Timeline
from symacct.verify.course import host_storages, totals
from symacct.verify.findings import BOUND, DIFFERENT, EQUAL, INFORMATION, Figure, Part, Residual, residual_at

POINTS = ("start", "forward", "end")
_SMALL = 2**20  # bytes: the largest request that is served from small blocks, which are always split


def memory_stats_part(account_at: Account, readings: Mapping[str, Any]) -> Part:
    """Lay an account at sizes beside readings of a later step (any after the first), after a warm-up.

    ``readings`` has ``torch.cuda.memory_stats()`` under "start" (the gradients are freed, and
    ``torch.cuda.reset_peak_memory_stats()`` was called just before), "forward" (the last forward pass is done; may be
    left out) and "end" (the step has not returned yet), and under "workspace" the requested bytes that stay allocated
    after a warm-up beyond the program's own tensors; "workspace_allocated" is what these take in blocks, where it is
    known (else they are taken to fill their blocks). All in bytes.
    """
    requested = _Expected(account_at.with_allocator("logical"))
    allocated = _Expected(account_at.with_allocator("cuda"))
    workspace = int(readings.get("workspace", 0))
    in_blocks = int(readings.get("workspace_allocated", workspace))
    figures = [*_requested(requested, readings, workspace), *_allocated(allocated, readings, in_blocks)]
    figures += [
        Figure(f"reserved, {name}", None, reading, "B", INFORMATION)
        for name, reading in _read(readings, "reserved_bytes")
    ]
    figures.append(Figure("workspaces of libraries", None, workspace, "B", INFORMATION, "in what was measured"))
    residuals = _residuals(figures, requested.timeline.peak.node)
    return Part("memory, by the allocator", "B", tuple(figures), tuple(residuals))


class _Expected:
    """What is alive on the device at the points of a later step, and at its peak."""

    def __init__(self, account: Account) -> None:
        self.timeline: Timeline = account.memory.later
        storages = self.timeline.storages
        host = host_storages(storages.step)
        self.sizes = [0 if n in host else size for n, size in enumerate(storages.numbers)]

    def at(self, name: str) -> int:
        """Bytes at a point, or "peak"."""
        return (
            max(totals(self.timeline, self.sizes)) if name == "peak" else sum(self.sizes[n] for n in self._alive(name))
        )

    def unsplit(self, name: str) -> int:
        """How much the blocks of what is alive at a point may exceed its rounded sizes."""
        large = [_SMALL if size > _SMALL else 0 for size in self.sizes]
        return max(totals(self.timeline, large)) if name == "peak" else sum(large[n] for n in self._alive(name))

    def _alive(self, name: str) -> set[int]:
        if name == "forward":
            return self.timeline.alive_at(self.timeline.marks("forward")[-1])
        return self.timeline.alive_at(0 if name == "start" else 2 * len(self.timeline.storages.record.events))


def _read(readings: Mapping[str, Any], what: str) -> Iterator[tuple[str, int]]:
    """(point, bytes) for a statistic: at each point, then the peak between start and end."""
    for name in POINTS:
        if name in readings:
            yield name, int(readings[name][f"{what}.all.current"])
    yield "peak", int(readings["end"][f"{what}.all.peak"])


def _requested(expected: _Expected, readings: Mapping[str, Any], workspace: int) -> Iterator[Figure]:
    for name, reading in _read(readings, "requested_bytes"):
        ours = expected.at(name) + workspace
        yield Figure(f"requested, {name}", ours, reading, "B", EQUAL if ours == reading else DIFFERENT)


def _allocated(expected: _Expected, readings: Mapping[str, Any], workspace: int) -> Iterator[Figure]:
    for name, reading in _read(readings, "allocated_bytes"):
        ours, unsplit = expected.at(name) + workspace, expected.unsplit(name)
        within = BOUND if ours < reading <= ours + unsplit else DIFFERENT
        note = f"blocks that were not split may add {unsplit:,}" if unsplit else ""
        yield Figure(f"allocated, {name}", ours, reading, "B", EQUAL if ours == reading else within, note)


def _residuals(figures: list[Figure], peak: Node | None) -> Iterator[Residual]:
    """Statistics name no storage: each point that differs is told of, the peak at the node where it is predicted."""
    for figure in figures:
        if figure.verdict == DIFFERENT:
            more = figure.measured - figure.predicted
            text = f"{figure.name}: {abs(more):,} bytes {'more' if more > 0 else 'less'} than predicted"
            yield residual_at(peak if figure.name.endswith(", peak") else None, text, abs(more))
