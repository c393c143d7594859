"""What a recorded step is made of: values, nodes, distinct calls, layouts, storages and their lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from symacct.calls import operator_of
from symacct.cost import Call, Size

PHASES = ("forward", "backward", "recompute", "optimizer")


@dataclass(slots=True)
class Value:
    """A tensor of the graph: what it looks like, where it is stored, where it came from."""

    id: int
    layout: int  # which (shape, stride, offset, dtype, device)
    storage: int
    origin: str = ""  # "param", "buffer", "input", "constant", "random state", or "" for a node's result
    name: str = ""


@dataclass(slots=True)
class Node:
    """One use of an operator."""

    index: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: int  # which distinct `Call`
    outputs: Any
    phase: str
    path: str
    source: str
    forward: int = -1  # for backward nodes: the forward node that they belong to
    clock: int = 0  # how many births and deaths there were when it had made its results
    autograd: int = -1  # the number of the autograd node that called it

    @property
    def op(self) -> str:
        """The operator's full name, "aten.mm.default"."""
        return operator_of(self.func).name


@dataclass(slots=True)
class Storage:
    """A piece of memory: its size, the first tensor on it, the node that made it, whether it was there before."""

    nbytes: Size
    value: int
    node: Node | None = None
    outside: bool = False


class Mark(NamedTuple):
    """A named point of a step: how many births and deaths, nodes, and nodes aside there were."""

    name: str
    events: int
    nodes: int
    aside: int


@dataclass
class Record:
    """What came out of a recorded step.

    ``events`` holds births and deaths of storages in order: ``n`` says that number n was born,
    ``~n`` that it died.
    """

    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    layouts: list[tuple[Any, ...]] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    aside: list[Node] = field(default_factory=list)  # nodes of steps that are run for their lifetimes only


Watch = Callable[[Node, Call], None]


def values_in(tree: Any) -> Iterator[Value]:
    """The tensors among the (nested) arguments or results of a node, in order."""
    if isinstance(tree, Value):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from values_in(each)
