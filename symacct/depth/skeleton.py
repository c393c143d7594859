"""A sequence that grows with the depth, as parts that are fixed and parts that repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

from symacct.depth.fitting import Lattice, Offset
from symacct.errors import StructuralError

Labels = Sequence[Any]


@dataclass(frozen=True)
class Segment:
    """A part of a sequence: ``length`` labels at the base, and ``grows`` more of them for each step of a dim.

    A part that grows repeats its first ``grows`` labels; ``axis`` says with which dim.
    """

    labels: tuple[Any, ...]
    length: int
    grows: int = 0
    axis: int = -1

    def at(self, offset: Offset) -> int:
        """The length at a point."""
        return self.length + self.grows * offset[self.axis] if self.grows else self.length

    def without(self, n: int) -> Segment:
        """A part that repeats, n labels later."""
        turned = tuple(self.labels[(n + i) % self.grows] for i in range(self.grows))
        return Segment(turned, self.length - n, self.grows, self.axis)

    def expanded(self, offset: Offset) -> list[Any]:
        """The labels at a point."""
        n = self.at(offset)
        return [self.labels[i % self.grows] for i in range(n)] if self.grows else list(self.labels)


@dataclass(frozen=True)
class Skeleton:
    """A sequence at any depth, as parts that are fixed and parts that repeat."""

    segments: tuple[Segment, ...]

    @staticmethod
    def of(lattice: Lattice, labels: Mapping[Offset, Labels]) -> Skeleton:
        """The skeleton of sequences at the points of a lattice. Raises `StructuralError` where they have none."""
        zero = lattice.offsets[0]
        stretches: list[tuple[int, Segment]] = []
        for axis in range(len(lattice.base)):
            step = tuple(int(i == axis) for i in range(len(lattice.base)))
            stretches += _stretches(labels[zero], labels[step], axis)
        segments: list[Segment] = []
        at = 0
        for start, stretch in sorted(stretches, key=lambda s: s[0]):
            shared = min(
                max(at - start, 0), stretch.length
            )  # with the stretch before, which it could belong to as well
            begin = start + shared
            segments.append(Segment(tuple(labels[zero][at:begin]), begin - at))
            segments.append(stretch.without(shared))
            at = begin + stretch.length - shared
        segments.append(Segment(tuple(labels[zero][at:]), len(labels[zero]) - at))
        skeleton = Skeleton(tuple(segments))
        for offset, found in labels.items():
            if [label for segment in segments for label in segment.expanded(offset)] != list(found):
                raise StructuralError(f"the graph does not grow by equal layers with {lattice.names}")
        return skeleton

    def lines(self, offset: Offset) -> list[list[int]]:
        """For each moment that is there at any depth its places in the sequence of a point: one, or one per layer."""
        found: list[list[int]] = []
        at = 0
        for segment in self.segments:
            n = segment.at(offset)
            period = segment.grows or max(n, 1)
            found += [list(range(at + i, at + n, period)) for i in range(segment.grows or n)]
            at += n
        return found


def _stretches(short: Labels, long: Labels, axis: int) -> Iterator[tuple[int, Segment]]:
    """The parts that are longer in a sequence than in another, each with its start, as far as they repeat."""
    for i1, i2, j1, j2 in _insertions(short, long):
        if i1 != i2:
            raise StructuralError(f"the graph changes otherwise than by layers: {i2 - i1} nodes are {j2 - j1} others")
        period = j2 - j1
        left, right = j1, j2
        while left > 0 and long[left - 1] == long[left - 1 + period]:
            left -= 1
        while right < len(long) and long[right] == long[right - period]:
            right += 1
        yield i1 - (j1 - left), Segment(tuple(long[left : left + period]), right - left - period, period, axis)


def _insertions(short: Labels, long: Labels) -> Iterator[tuple[int, int, int, int]]:
    """Where a sequence is longer than another, as ``short[i1:i2]`` and ``long[j1:j2]``.

    Labels that occur once in each part them; of the parts, what is alike at both ends is no insertion.
    """
    ours, theirs = ({label: i for i, label in enumerate(labels)} for labels in (short, long))
    counts = [Counter(labels) for labels in (short, long)]
    single = [label for label in short if all(count[label] == 1 for count in counts)]
    at = [(-1, -1), *((ours[label], theirs[label]) for label in single), (len(short), len(long))]
    for (i1, j1), (i2, j2) in pairwise(at):
        start, mine, other = i1 + 1, short[i1 + 1 : i2], long[j1 + 1 : j2]
        if mine == other:
            continue
        before = _alike(mine, other)
        after = _alike(mine[::-1], other[::-1])
        if len(other) > len(mine) and before + after >= len(mine):
            i, j = start + before, j1 + 1 + before
            yield i, i, j, j + len(other) - len(mine)
            continue
        for tag, a1, a2, b1, b2 in SequenceMatcher(None, mine, other, autojunk=False).get_opcodes():
            if tag != "equal":
                yield start + a1, start + a2, j1 + 1 + b1, j1 + 1 + b2


def _alike(one: Labels, other: Labels) -> int:
    """How many labels are the same from the start on."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
