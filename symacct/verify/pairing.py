"""Which storage of a real step is which of an account, and how their lifetimes differ: residuals at their nodes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate

from symacct.record import Node
from symacct.timeline import Timeline
from symacct.verify.course import Course, Piece
from symacct.verify.findings import Residual, residual_at
from symacct.verify.profiled import Called

Pair = tuple[Piece | None, Piece | None]  # a real storage, and the predicted one
_Key = Callable[[Piece], Hashable]


def paired(real: Sequence[Piece], ours: Sequence[Piece]) -> list[Pair]:
    """Lay births side by side, in order; of those without a counterpart the other side is None.

    By size alone where all sizes are equal. Else first by node and size, then what lies between by node, then by
    size. What comes out has only pairs of equal sizes just where the two sequences of sizes are equal.
    """
    if [p.nbytes for p in real] == [p.nbytes for p in ours]:
        return list(zip(real, ours, strict=True))
    both = {id(p.node) for p in real} & {id(p.node) for p in ours} - {id(None)}

    def node(piece: Piece) -> Hashable:
        return id(piece.node) if id(piece.node) in both else None

    keys: list[_Key] = [lambda p: (node(p), p.nbytes), lambda p: node(p) or id(p), lambda p: p.nbytes]
    return list(_aligned(real, ours, keys))


def _aligned(real: Sequence[Piece], ours: Sequence[Piece], keys: Sequence[_Key]) -> Iterator[Pair]:
    if not (real and ours and keys):
        yield from ((piece, None) for piece in real)
        yield from ((None, piece) for piece in ours)
        return
    key, *rest = keys
    matcher = SequenceMatcher(None, [key(p) for p in real], [key(p) for p in ours], autojunk=False)
    for kind, i0, i1, j0, j1 in matcher.get_opcodes():
        if kind == "equal":
            yield from zip(real[i0:i1], ours[j0:j1], strict=True)
        else:
            yield from _aligned(real[i0:i1], ours[j0:j1], rest)


class Places:
    """Where storages are made: at recorded nodes, and at calls that are none of these."""

    def __init__(self, matched: Mapping[int, Node], calls: Sequence[Called]) -> None:
        self._matched, self._calls = matched, calls
        self._indices = sorted(matched)

    def of(self, piece: Piece) -> str:
        """Where a storage is made, in words: "aten.mm.default in layers.1 (backward)"."""
        if piece.node is not None:
            return f"{piece.node.op} in {piece.node.path or 'the top level'} ({piece.node.phase})"
        return piece.call.op if piece.call is not None else "what no operator makes"

    def residual(self, pair: Pair, text: str, amount: float) -> Residual:
        """A residual at the node that made a storage, or at the call."""
        real, ours = pair
        node = next((p.node for p in (ours, real) if p is not None and p.node is not None), None)
        if node is not None or real is None or real.call is None:
            return residual_at(node, text, amount)
        return self.at_call(real.call.index, text, amount)

    def at_call(self, index: int, text: str, amount: float) -> Residual:
        """A residual at the node that a call is; else under the call's own name, near the node that ran before it."""
        call = self._calls[index]
        position = bisect_left(self._indices, index + 1)
        if not position:
            return Residual(text, amount, op=call.op, path=call.path)
        last = self._indices[position - 1]
        node = self._matched[last]
        if last == index:
            return residual_at(node, text, amount)
        text = f"{text} (after {node.op} in {node.path or 'the top level'})"
        return Residual(text, amount, None, call.op, call.path or node.path, node.phase)


@dataclass
class Step:
    """A real step beside a predicted one; ``residuals`` fill up as things are compared."""

    name: str
    real: Course
    ours: Course
    timeline: Timeline
    places: Places
    pairs: list[Pair] = field(default_factory=list)  # of births
    residuals: list[Residual] = field(default_factory=list)
    told: set[int] = field(default_factory=set)  # ids of the storages in them

    def tell(self, pair: Pair, text: str, amount: float) -> None:
        """Add a residual about a storage."""
        self.residuals.append(self.places.residual(pair, text, amount))
        self.told |= {id(piece) for piece in pair if piece is not None}

    # -- births ------------------------------------------------------------------------

    def compare_births(self) -> None:
        """Storages that only one side has, and storages of another size."""
        self.pairs = paired(self.real.births, self.ours.births)
        for pair in self.pairs:
            real, ours = pair
            if ours is None and real is not None:
                self.tell(
                    pair, f"{real.nbytes:,} bytes are really made here that the account does not have", real.nbytes
                )
            elif real is None and ours is not None:
                self.tell(pair, f"{self.what(ours)} are never really made here", ours.nbytes)
            elif real is not None and ours is not None and real.nbytes != ours.nbytes:
                text = f"{real.nbytes:,} bytes are really made here, predicted {self.what(ours)}"
                self.tell(pair, text, abs(real.nbytes - ours.nbytes))

    # -- deaths ------------------------------------------------------------------------

    def compare_deaths(self, present: Sequence[Pair]) -> None:
        """Storages that live longer or shorter than predicted; ``present``: pairs that were there at the start."""
        counted = _counts(self.real.births, [r for r, o in self.pairs if o is not None])
        expected = _counts(self.ours.births, [o for r, o in self.pairs if r is not None])
        for real, ours in (*present, *self.pairs):
            if real is not None and ours is not None and _at(real, counted) != _at(ours, expected):
                self.tell(
                    (real, ours), self._lifetimes(real, ours, _at(real, counted) > _at(ours, expected)), real.nbytes
                )
        before = {id(ours) for _, ours in present}
        outside = [p for p in self.ours.present if p.dies is not None and id(p) not in before]
        really = sorted(self.real.freed, key=lambda p: (p.nbytes, _at(p, counted)))
        for real in really:
            same = (p for p in outside if (p.nbytes, _at(p, expected)) == (real.nbytes, _at(real, counted)))
            ours = next(same, None)
            if ours is not None:
                outside.remove(ours)
            else:
                text = f"{real.nbytes:,} bytes that were there before the run are freed {self._before(real, self.real)}"
                self.tell((real, None), f"{text}; predicted otherwise", real.nbytes)
        for ours in outside:
            text = f"{self.what(ours)} is predicted to be freed {self._before(ours, self.ours)}; really it is not"
            self.tell((None, ours), text, ours.nbytes)

    def _lifetimes(self, real: Piece, ours: Piece, longer: bool) -> str:
        what = f"{self.what(ours)} made here"
        if not longer:
            wanted = "outlive the step" if ours.dies is None else f"live on until after {self._last(ours, self.ours)}"
            return f"{what} die {self._before(real, self.real)}; predicted to {wanted}"
        lives = "are never freed" if real.dies is None else f"live on until after {self._last(real, self.real)}"
        return f"{what} {lives}; predicted to die {self._before(ours, self.ours)}"

    def _before(self, piece: Piece, course: Course) -> str:
        """When a storage dies: before which birth."""
        following = course.births[piece.dies :] if piece.dies is not None else []
        return f"before {self.places.of(following[0]) if following else 'the step returns'}"

    def _last(self, piece: Piece, course: Course) -> str:
        """Up to when a storage lives: the last birth before its death."""
        return self.places.of(course.births[piece.dies - 1]) if piece.dies else "the start"

    # -- the start ---------------------------------------------------------------------

    def compare_start(self, before: Step | None) -> list[Pair]:
        """What the step before has made and left, really and as predicted; returns it in pairs."""
        known = {real: ours for real, ours in before.pairs if real is not None} if before is not None else {}
        told = before.told if before is not None else set()
        left = {piece.number: piece for piece in self.ours.present}
        pairs: list[Pair] = []
        for real in self.real.present:
            counterpart = known.get(real.earlier) if real.earlier is not None else None
            pair: Pair = (real, left.pop(counterpart.number, None) if counterpart is not None else None)
            pairs.append(pair)
            if pair[1] is None and id(real.earlier) not in told:
                self.tell(pair, f"{real.nbytes:,} bytes made here outlive the step; predicted to be freed", real.nbytes)
        for made in known.values():
            if made is not None and made.number in left and id(made) not in told:
                text = f"{self.what(made)} made here are freed; predicted to outlive the step"
                self.tell((None, left[made.number]), text, made.nbytes)
        return pairs

    def what(self, piece: Piece) -> str:
        """A predicted storage in words: its role or bytes, shape and dtype."""
        live = self.timeline.live(piece.number)
        role = f"the {live.kind} {live.name}: " if self.timeline.storages.record.storages[piece.number].outside else ""
        return f"{role}{piece.nbytes:,} bytes {live.dtype}{list(live.shape)}"


def _counts(births: Sequence[Piece], counted: Sequence[Piece | None]) -> list[int]:
    """How many of the first n births have a counterpart, for each n."""
    ids = {id(piece) for piece in counted}
    return [0, *accumulate(id(piece) in ids for piece in births)]


def _at(piece: Piece, counts: Sequence[int]) -> float:
    """When a storage dies, in births that both sides have."""
    return math.inf if piece.dies is None else counts[piece.dies]
