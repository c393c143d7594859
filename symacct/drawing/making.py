"""From an account to the boxes of a picture: what is a box, what is in it, and what flows between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symacct.account import Account
from symacct.cost import Cost
from symacct.depth.fitting import Offset
from symacct.drawing.building import Builder
from symacct.drawing.fits import Fits
from symacct.drawing.model import Drawing
from symacct.drawing.places import OPS, Key, Places, Stretch, containers_of, deepest, keys_of
from symacct.drawing.sorting import Sorted
from symacct.errors import SpecError, StructuralError
from symacct.printing import formula
from symacct.record import PHASES

LIMIT = 250  # boxes of a picture whose depth is asked for
_READABLE = 40  # boxes of one whose depth is not


def draw(
    account: Account, phase: str | None = None, depth: int | str | None = None, free: bool = False, limit: int = LIMIT
) -> Drawing:
    """The boxes of an account, each with what runs in it; together they have all the account's nodes, each once.

    ``phase``: None for the whole step, drawn on its forward pass, or one of "forward", "backward" (with what
    checkpoints compute again) and "optimizer". ``depth``: how many parts of module paths are told apart, "ops" for a
    box for every op, or None for the finest that is readable. ``free``: also show views and other nodes without cost.
    ``limit``: the most boxes; what would be more is drawn to a smaller depth.

    Raises `SpecError` for a phase or a depth that there is not, or of which nothing runs.
    """
    return Drawings(account, phase, free).at(depth, limit)


@dataclass(frozen=True)
class Cut:
    """One way to part a step into boxes: the depth, the key of each drawn node in each member, the keys of boxes."""

    depth: int | str
    keys: Mapping[Offset, list[Key]]
    visible: list[Key]
    hidden: int


class Drawings:
    """The drawings of a step or a phase of it, from fine to coarse; what they share is found out once.

    ``phase`` and ``free`` as in `draw`, which raises the same.
    """

    def __init__(self, account: Account, phase: str | None = None, free: bool = False) -> None:
        if phase is not None and (phase not in PHASES or phase == "recompute"):
            raise SpecError(f"phase: {phase!r} is none of forward, backward (with what is recomputed), optimizer")
        self.asked = account
        self.account = account.symbolic
        self.phase = phase
        self.free = free
        self.fits = Fits(self.account)
        self.stretches = {offset: Stretch.of(member, phase) for offset, member in self.fits.members.items()}
        if not all(stretch.drawn for stretch in self.stretches.values()):
            raise SpecError(f"phase: nothing runs in {phase!r}" if phase else "draw(): the account has no nodes")
        nodes = [node for stretch in self.stretches.values() for node in (*stretch.drawn, *stretch.folded)]
        places = Places(self.account, nodes)
        self.shown = {path: places.of(path) for path in dict.fromkeys(node.path for node in nodes)}
        self.paths = {self.shown[n.path] for stretch in self.stretches.values() for n in stretch.drawn}

    def at(self, depth: int | str | None = None, limit: int = LIMIT) -> Drawing:
        """The drawing at a depth, with so many boxes at most, as `draw` has them."""
        if depth is not None and depth != OPS and not (isinstance(depth, int) and depth >= 1):
            raise SpecError(f"depth: {depth!r} is neither a whole number >= 1 nor 'ops'")
        if limit < 1:
            raise SpecError(f"limit: {limit!r} boxes are none; give a whole number >= 1")
        most = limit if depth is not None else min(limit, _READABLE)
        refusal: StructuralError | None = None
        for cut in self._cuts(depth, most):
            try:
                return self._drawing(cut, depth)
            except StructuralError as error:  # too fine for a polynomial in the depth: coarser sums may have one
                refusal = error
        raise refusal or SpecError("draw(): nothing runs")

    def _cuts(self, depth: int | str | None, most: int) -> Iterator[Cut]:
        """The cuts that have at most so many boxes, the one that is asked for first; the last is made to."""
        lowest = deepest(self.paths)
        depths: list[int | str] = list(range(min(depth, lowest) if isinstance(depth, int) else lowest, 0, -1))
        if depth is None or depth == OPS:
            depths.insert(0, OPS)
        cut: Cut | None = None
        for each in depths or [1]:
            cut = self._cut(each, brief=self.phase is None and depth is None)
            if len(cut.visible) <= most:
                yield cut
        if cut is not None and len(cut.visible) > most:
            yield _grouped(cut, most)

    def _cut(self, depth: int | str, brief: bool) -> Cut:
        containers: Collection[str] = () if depth == OPS else containers_of(self.paths, int(depth))
        keys = {o: keys_of(stretch, self.shown, depth, containers, brief) for o, stretch in self.stretches.items()}
        visible: dict[Key, None] = {}
        for offset, stretch in reversed(self.stretches.items()):
            costs = stretch.account._costs
            for node, key in zip(stretch.drawn, keys[offset], strict=True):
                if self.free or key.kind == "module" or costs[node.call] != Cost():
                    visible[key] = None
        if not visible:  # nothing costs anything, so that nothing is hidden
            visible = dict.fromkeys(key for each in keys.values() for key in each)
        deepest_member = next(reversed(keys.values()))
        ordered = dict.fromkeys(key for key in (*deepest_member, *visible) if key in visible)
        first = next(iter(keys.values()))
        return Cut(depth, keys, list(ordered), sum(key not in visible for key in first))

    def _drawing(self, cut: Cut, wished: int | str | None) -> Drawing:
        """The picture of a cut."""
        visible = set(cut.visible)
        found = {
            offset: Sorted(stretch, self.shown, cut.keys[offset], visible) for offset, stretch in self.stretches.items()
        }
        builder = Builder(self.fits, found, self.shown, cut.visible, folded=self.phase is None)
        boxes = builder.boxes
        notes = tuple(self._notes(cut, wished, len(boxes), builder.count))
        return Drawing(self.asked, boxes, builder.clusters, builder.edges, self.phase or "", cut.depth, notes)

    def _notes(self, cut: Cut, wished: int | str | None, boxes: int, number: Any) -> Iterator[str]:
        grouped = any(key.kind == "group" for key in cut.visible)
        how = "every op" if cut.depth == OPS else f"modules to depth {cut.depth}"
        how += ", neighbours taken together" if grouped else ""
        yield f"{formula(number)} nodes drawn as {boxes:,} boxes: {how}."
        if wished is not None and (grouped or cut.depth != wished) and (wished == OPS or self._deeper(wished, cut)):
            yield f"{'Every op' if wished == OPS else f'Depth {wished}'} would be more boxes than can be read."
        if cut.hidden and cut.depth == OPS:
            yield "Views and other nodes that cost nothing are not shown; edges go through them."
        if self.phase is None and any(stretch.folded for stretch in self.stretches.values()):
            yield "Costs of the backward pass stand with those of the forward pass, whose flows are drawn."
        if self.account.unknown:
            names = ", ".join(dict.fromkeys(each.op for each in self.account.unknown))
            yield f"INCOMPLETE, no rule for: {names}."

    def _deeper(self, wished: int | str, cut: Cut) -> bool:
        return isinstance(wished, int) and cut.depth != min(wished, max(1, deepest(self.paths)))


def _grouped(cut: Cut, most: int) -> Cut:
    """The boxes of a cut taken together, neighbours with neighbours, until there are only so many."""
    joined = [key for key in cut.visible if key.phase != "optimizer" and not key.path.startswith("(")]
    size = max(1, -(-len(joined) // max(1, most - (len(cut.visible) - len(joined)))))
    groups: dict[Key, Key] = {}
    for begin in range(0, len(joined), size):
        chunk = joined[begin : begin + size]
        group = Key("group", _named(chunk), run=begin // size) if len(chunk) > 1 else chunk[0]
        groups |= dict.fromkeys(chunk, group)
    keys = {offset: [groups.get(key, key) for key in each] for offset, each in cut.keys.items()}
    return Cut(cut.depth, keys, list(dict.fromkeys(groups.get(key, key) for key in cut.visible)), cut.hidden)


def _named(chunk: Sequence[Key]) -> str:
    first, last = (next((k.path for k in each if k.path), "") for each in (chunk, chunk[::-1]))
    return first if first == last else f"{first} ... {last}"
