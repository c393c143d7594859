"""What a drawing is made of: boxes, the clusters that they stand in, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from symacct.cost import Cost, Size

if TYPE_CHECKING:
    from symacct.account import Account


@dataclass(frozen=True)
class Part:
    """Equal nodes of a box.

    ``cost`` is that of one of them, in symbols, or None where no rule gives it. ``dtype``: whose matrix peak it runs
    at. ``times``: how many there are, in all that the box stands for.
    """

    cost: Cost | None
    dtype: str
    times: Size

    @property
    def free(self) -> bool:
        """Whether it costs nothing, as views do."""
        return self.cost == Cost()


@dataclass(frozen=True)
class Box:
    """A place of the picture, with all the nodes that belong to it.

    ``id``: "b0", "b1", ... in graph order. ``label``: the module's name, the op's short name, or the input's name.
    ``path``: the module path, with equal modules in a row as one ("transformer.h.0-11.attn"). ``kind``: "module" (all
    of its nodes), "own" (a module's own ops between those of its children), "op", "input", "output", or "group"
    (neighbours taken together). ``phase``: "" where nodes of several phases are in it. ``ops``: its distinct ops.
    ``shape``: of what leaves it, in symbols ("f32[B, L, D]"). ``sources``: some of the lines that ran. ``cluster``: the
    id of the cluster that it is in, or "". ``times``: how many equal modules it stands for, or for a box of the
    optimizer how often its op runs. ``kept``: bytes of what was made in it and is kept for the backward pass.
    """

    id: str
    label: str
    path: str
    kind: str
    phase: str
    ops: tuple[str, ...]
    shape: str
    sources: tuple[str, ...]
    cluster: str
    times: Size
    parts: tuple[Part, ...]
    kept: Size

    @property
    def unknown(self) -> bool:
        """Whether a node without a rule is in it, so that its costs are incomplete."""
        return any(part.cost is None for part in self.parts)


@dataclass(frozen=True)
class Cluster:
    """A module whose parts are drawn: its id, label and path, how many equal ones it is, the id of what it is in."""

    id: str
    label: str
    path: str
    times: Size
    parent: str


@dataclass(frozen=True)
class Edge:
    """Tensors that go from one box to another.

    ``nbytes``: of distinct tensors, from one of the equal modules that a box stands for to one. ``back``: whether it
    leads from an equal block to the next one. ``words``: what it stands for where that is no flow of tensors alone.
    """

    tail: str
    head: str
    nbytes: Size
    back: bool = False
    words: str = ""


@dataclass(frozen=True)
class Drawing:
    """A step, or a phase of it, as boxes.

    ``phase``: "" for the whole step. ``depth``: how many parts of module paths are told apart, or "ops". ``notes``:
    sentences about what is collapsed, hidden or folded.
    """

    account: Account = field(repr=False)
    boxes: tuple[Box, ...]
    clusters: tuple[Cluster, ...]
    edges: tuple[Edge, ...]
    phase: str
    depth: int | str
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Drawing of {self.account.title}: {len(self.boxes)} boxes, {len(self.edges)} edges>"
