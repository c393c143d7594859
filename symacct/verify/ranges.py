"""What whole-number inputs may be: token ids within the vocabulary, labels within the classes, read off the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from symacct.algebra import evaluate
from symacct.calls import bind_arguments
from symacct.record import Node, Record, Value
from symacct.torch_private import makes_a_view

# What an operator indexes by whole numbers: by the name of the argument that holds these, how many there can be.
_Arguments = Mapping[str, Any]
_Shape = Callable[[Value], tuple[Any, ...]]


def _axis(tensor: str, axis: str | int) -> Callable[[_Arguments, _Shape], Any]:
    """The size of an axis of a tensor argument; the axis is a number or an argument itself."""

    def size(bound: _Arguments, shape: _Shape) -> Any:
        sizes = shape(bound[tensor])
        return sizes[bound[axis] if isinstance(axis, str) else axis] if sizes else 1

    return size


_classes = _axis("self", -1)


def _channels(bound: _Arguments, shape: _Shape) -> Any:
    """Classes of a loss: the second axis of a batch, the only one of a sample."""
    sizes = shape(bound["self"])
    return sizes[1] if len(sizes) > 1 else sizes[0]


INDEXED: dict[str, tuple[str, Callable[[_Arguments, _Shape], Any]]] = {
    "aten.embedding": ("indices", _axis("weight", 0)),
    "aten._embedding_bag": ("indices", _axis("weight", 0)),
    "aten._embedding_bag_forward_only": ("indices", _axis("weight", 0)),
    "aten.nll_loss_forward": ("target", _channels),
    "aten.nll_loss2d_forward": ("target", _channels),
    "aten.multi_margin_loss": ("target", _classes),
    "aten.multilabel_margin_loss_forward": ("target", _classes),
    **dict.fromkeys(
        (
            "aten.gather", "aten.scatter", "aten.scatter_", "aten.scatter_add", "aten.scatter_add_",
            "aten.scatter_reduce", "aten.scatter_reduce_", "aten.index_select", "aten.index_add", "aten.index_add_",
            "aten.index_fill", "aten.index_fill_", "aten.index_copy", "aten.index_copy_",
        ),
        ("index", _axis("self", "dim")),
    ),
}  # fmt: skip
# Results of these have the values of their whole-number operands, or numbers that are given.
_CARRY = frozenset({
    "aten.clone", "aten._to_copy", "aten.constant_pad_nd", "aten.cat", "aten.stack", "aten.copy_", "aten.masked_fill",
    "aten.masked_fill_", "aten.where", "aten.index_select", "aten.gather", "aten.repeat", "aten.roll", "aten.flip",
    "aten.slice_scatter", "aten.select_scatter", "aten.copy", "aten.repeat_interleave", "aten.reflection_pad1d",
    "aten._unsafe_view", "aten.index",
})  # fmt: skip


def bounds(record: Record, sizes: Mapping[str, int]) -> dict[str, int]:
    """The least number that is out of range, for each input that is used as an index; by the input's name."""
    roots = {v.id: {v.name} for v in record.values if v.origin == "input" and _is_whole(v, record)}
    found: dict[str, int] = {}
    for node in (*record.nodes, *record.aside):
        if node.phase != "forward":
            continue
        bound = bind_arguments(node.func, node.args, node.kwargs)
        for value, size in _limits(node, bound, lambda v: record.layouts[v.layout][0]):
            limit = evaluate(size, sizes)
            for name in roots.get(value.id, ()):
                found[name] = min(found.get(name, limit), limit)
        if makes_a_view(node.func) or node.op.rpartition(".")[0] in _CARRY:
            carried = set().union(*(roots.get(v.id, set()) for v in _values(bound)))
            for out in node.outputs:
                if carried and isinstance(out, Value):
                    roots.setdefault(out.id, set()).update(carried)
    return found


def _limits(node: Node, bound: _Arguments, shape: _Shape) -> Iterator[tuple[Value, Any]]:
    """(indices, how many there can be) of a node."""
    packet = node.op.rpartition(".")[0]
    if packet in INDEXED:
        name, limit = INDEXED[packet]
        if isinstance(bound.get(name), Value):
            yield bound[name], limit(bound, shape)
    elif packet in ("aten.index", "aten.index_put", "aten.index_put_", "aten._unsafe_index"):
        for axis, each in enumerate(bound["indices"]):
            if isinstance(each, Value):
                yield each, shape(bound["self"])[axis]


def _values(bound: _Arguments) -> Iterator[Value]:
    for value in bound.values():
        yield from (v for v in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(v, Value))


def _is_whole(value: Value, record: Record) -> bool:
    dtype = record.layouts[value.layout][3]
    return not (dtype.is_floating_point or dtype.is_complex or str(dtype) == "torch.bool")
