"""The recorded step as a ``torch.fx.Graph`` of ATen nodes, annotated with costs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch.fx

from symacct.cost import Cost
from symacct.record import Record, Value, values_in

if TYPE_CHECKING:
    from symacct.account import Account


def to_fx(account: Account) -> torch.fx.Graph:
    """Build the graph: a placeholder for every tensor that comes from outside, a node for every ATen call.

    ``node.meta`` has ``phase``, ``module`` (path), ``source`` (file:line), ``shape`` and ``dtype``
    (of the first result), ``storage``, ``forward`` (for backward nodes: name of the forward
    node), and ``cost`` (a `symacct.Cost`, or None for an op without a rule).
    """
    record = account.step.record
    graph = torch.fx.Graph()
    made: dict[int, torch.fx.Node] = {}
    for value in _from_outside(record):
        origin = value.origin or "state"  # made while nothing was recorded: the optimizer's state
        node = graph.placeholder(_identifier(value.name or f"{origin}_{value.id}"))
        shape, _, _, dtype, _ = record.layouts[value.layout]
        node.meta.update(origin=origin, label=value.name, shape=shape, dtype=dtype, storage=value.storage)
        made[value.id] = node
    names: list[torch.fx.Node] = []
    for recorded, costed in zip(record.nodes, account.nodes, strict=True):
        args, kwargs = _refer(recorded.args, made, graph), _refer(recorded.kwargs, made, graph)
        node = graph.call_function(recorded.func, args, kwargs)
        names.append(node)
        outputs = [v for v in recorded.outputs if isinstance(v, Value)]
        node.meta.update(
            phase=recorded.phase,
            module=recorded.path,
            source=recorded.source,
            forward=names[recorded.forward].name if recorded.forward >= 0 else None,
            shape=costed.outputs[0].shape if costed.outputs else (),
            dtype=costed.outputs[0].dtype if costed.outputs else None,
            shapes=tuple(t.shape for t in costed.outputs),
            storage=tuple(v.storage for v in outputs),
            cost=costed.cost if costed.known else None,
        )
        single = len(recorded.outputs) == 1
        for i, value in enumerate(recorded.outputs):
            if isinstance(value, Value):
                # An in-place op's result stands for the tensor from here on.
                made[value.id] = node if single else _item(graph, node, i)
    graph.output(None)
    return graph


def _from_outside(record: Record) -> list[Value]:
    """The values that nodes use and none made, and all named ones, in order of appearance."""
    outside: dict[int, Value] = {v.id: v for v in record.values if v.origin}
    made: set[int] = set()
    for node in record.nodes:
        for value in values_in((node.args, node.kwargs)):
            if value.id not in made:
                outside.setdefault(value.id, value)
        made.update(v.id for v in node.outputs if v is not None)
    return [outside[i] for i in sorted(outside)]


def _item(graph: torch.fx.Graph, node: torch.fx.Node, index: int) -> torch.fx.Node:
    item = graph.call_function(operator.getitem, (node, index))
    item.meta.update({k: node.meta[k] for k in ("phase", "module", "source")}, cost=Cost())
    return item


def _refer(value: Any, made: dict[int, torch.fx.Node], graph: torch.fx.Graph) -> Any:
    if isinstance(value, Value):
        return made[value.id]
    if isinstance(value, tuple):
        return tuple(_refer(v, made, graph) for v in value)
    if isinstance(value, dict):
        return {k: _refer(v, made, graph) for k, v in value.items()}
    expr = getattr(value, "expr", None)
    return value if expr is None else _Symbolic(int(value), str(expr))


class _Symbolic(int):
    """An int argument that shows its formula when the graph is printed."""

    def __new__(cls, size: int, text: str) -> _Symbolic:
        self = super().__new__(cls, size)
        self.text = text  # type: ignore[attr-defined]
        return self

    def __repr__(self) -> str:
        return str(self.text)  # type: ignore[attr-defined]


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
