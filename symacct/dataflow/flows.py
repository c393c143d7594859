"""Which node of a step needs what another one made, also where tensors are written in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from symacct.calls import bind_arguments
from symacct.record import Node, Record, Value, values_in


class Flow(NamedTuple):
    """A tensor that a node reads.

    ``maker``: the index of the node that last wrote it; -1 for what comes from outside (parameters, inputs, state).
    """

    maker: int
    reader: int
    value: Value


def flows(record: Record) -> Iterator[Flow]:
    """The tensors that each node reads, each once, in the order in which nodes ran; a maker stands before its readers.

    What is written in place is made anew: later readers of any view of that storage depend on who wrote last.
    """
    made: dict[int, int] = {}  # by value
    written: dict[int, int] = {}  # by storage
    for node in record.nodes:
        read = {value.id: value for value in values_in((node.args, node.kwargs))}
        for value in read.values():
            maker = max(made.get(value.id, -1), written.get(value.storage, -1))
            yield Flow(maker, node.index, value)
        for value in values_in(node.outputs):
            made[value.id] = node.index
        for value in _written(record, node):
            written[value.storage] = node.index


def _written(record: Record, node: Node) -> Iterator[Value]:
    mutated = record.calls[node.call].mutated
    if mutated:
        arguments = bind_arguments(node.func, node.args, node.kwargs)
        for name in mutated:
            yield from values_in(arguments[name])
