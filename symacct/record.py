"""What a recorded step is made of: values, nodes, distinct calls, layouts, deaths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from symacct.calls import schema_of
from symacct.cost import Call

PHASES = ("forward", "backward", "recompute", "optimizer")


@dataclass(slots=True)
class Value:
    """A tensor of the graph: what it looks like, where it is stored, where it came from."""

    id: int
    layout: int  # which (shape, stride, offset, dtype, device)
    storage: int
    origin: str = ""  # "param", "buffer", "input", "constant", or "" for a node's result
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

    @property
    def op(self) -> str:
        """The operator's full name, "aten.mm.default"."""
        return schema_of(self.func).name


@dataclass
class Record:
    """What came out of a recorded step."""

    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    layouts: list[tuple[Any, ...]] = field(default_factory=list)
    deaths: list[tuple[int, int]] = field(default_factory=list)  # (nodes so far, storage)


Watch = Callable[[Node, Call], None]
