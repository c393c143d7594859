"""Where the nodes of a step stand in a picture: module paths with equal modules as one, cut to a depth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from symacct.account import Account
from symacct.dataflow.flows import Flow, flows
from symacct.depth.structural import StructuralAccount
from symacct.record import Node
from symacct.repeats import Repeats

OPS = "ops"  # the depth at which every op is a box
_DEEPEST = 1_000  # parts of a module path: all


class Key(NamedTuple):
    """What the nodes of a box have in common.

    ``path`` has equal modules as one. ``run``: which stretch of a module's own ops, or which op within a module.
    """

    kind: str
    path: str
    phase: str = ""
    run: int = 0
    op: str = ""


@dataclass(frozen=True)
class Stretch:
    """The nodes of a plain account that are drawn, in order, and those of other phases that are folded onto them."""

    account: Account
    drawn: list[Node]
    folded: list[Node]

    @classmethod
    def of(cls, account: Account, phase: str | None) -> Stretch:
        """The nodes of a phase, or of the whole step on its forward pass (where there is none, on what there is)."""
        nodes = account.step.record.nodes
        if phase == "backward":
            return cls(account, [n for n in nodes if n.phase in ("backward", "recompute")], [])
        if phase is not None or not any(n.phase == "forward" for n in nodes):
            return cls(account, [n for n in nodes if phase is None or n.phase == phase], [])
        drawn = [n for n in nodes if n.phase in ("forward", "optimizer")]
        return cls(account, drawn, [n for n in nodes if n.phase not in ("forward", "optimizer")])

    @cached_property
    def flows(self) -> list[Flow]:
        """The tensors that the drawn nodes read."""
        drawn = {node.index for node in self.drawn}
        return [flow for flow in flows(self.account.step.record) if flow.reader in drawn]

    @property
    def kept(self) -> list[int]:
        """The storages that are kept for the backward pass, where the forward pass is drawn."""
        return self.account.memory.kept if any(node.phase == "forward" for node in self.drawn) else []


class Places:
    """Module paths as they are drawn: ``h.0-11.attn`` of a plain account, ``h.*.attn`` of one of any depth."""

    def __init__(self, account: Account, nodes: Iterable[Node]) -> None:
        self.account = account
        if isinstance(account, StructuralAccount):
            self.of: Callable[[str], str] = account.templates.of
        else:
            costs = account._costs
            repeats = Repeats(((n.path, (n.phase, n.op, costs[n.call])) for n in nodes), numeric=True)
            self.of = lambda path: repeats.of(path)[0]


def parts_of(path: str) -> list[str]:
    """The parts of a module path; the top level has none."""
    return path.split(".") if path else []


def above(path: str) -> Iterator[str]:
    """The paths of the modules that one is in, the innermost first, the top level last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def containers_of(paths: Iterable[str], depth: int) -> set[str]:
    """The modules whose children are told apart at a depth."""
    return {outer for path in {".".join(parts_of(p)[:depth]) for p in paths} for outer in above(path)}


def deepest(paths: Iterable[str]) -> int:
    """The depth beyond which no module is left to be parted."""
    return max((len(parts_of(path)) for path in paths), default=0)


def keys_of(
    stretch: Stretch, shown: Mapping[str, str], depth: int | str, containers: Collection[str], brief: bool = False
) -> list[Key]:
    """The key of each drawn node. ``shown``: module paths as they are drawn.

    Where every op is a box, an op of the optimizer is one for all parameters; with ``brief`` the optimizer is one box.
    """
    cut = _DEEPEST if depth == OPS else int(depth)
    counting = _Counting(containers, cut)
    marks = sorted(m.nodes for m in stretch.account.step.record.marks if m.name in ("forward", "backward"))
    keys: list[Key] = []
    for node in stretch.drawn:
        while marks and marks[0] <= node.index:  # another pass through the model: its ops are the same ones again
            marks.pop(0)
            counting.restart()
        path = shown[node.path]
        if brief and node.phase == "optimizer":
            keys.append(Key("module", path))
        elif depth == OPS and node.phase == "optimizer":
            keys.append(Key("op", path, node.phase, op=node.op))
        elif depth == OPS:
            keys.append(Key("op", path, node.phase, counting.position(node), node.op))
        else:
            keys.append(counting.place(node.path, path))
    return keys


class _Counting:
    """Counts, in each module apart, the stretches of its own ops that its children part, and its ops."""

    def __init__(self, containers: Collection[str], depth: int) -> None:
        self._containers = containers
        self._depth = depth
        self._above: dict[str, tuple[str, ...]] = {}
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._runs: dict[str, int] = {}
        self._open: set[str] = set()
        self._positions: dict[tuple[str, str], int] = {}

    def position(self, node: Node) -> int:
        """Which op of its module and phase a node is."""
        key = node.phase, node.path
        self._positions[key] = self._positions.get(key, -1) + 1
        return self._positions[key]

    def place(self, path: str, shown: str) -> Key:
        """The module that a node is drawn in, or the stretch of own ops of one whose children are drawn."""
        real = ".".join(parts_of(path)[: self._depth])
        for outer in self._outer(real):
            self._open.discard(outer)
        cut = ".".join(parts_of(shown)[: self._depth])
        if cut not in self._containers:
            return Key("module", cut)
        if real not in self._open:
            self._open.add(real)
            self._runs[real] = self._runs.get(real, -1) + 1
        return Key("own", cut, run=self._runs[real])

    def _outer(self, path: str) -> tuple[str, ...]:
        if path not in self._above:
            self._above[path] = tuple(above(path))
        return self._above[path]
