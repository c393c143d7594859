"""Embedding, gather, scatter and indexing.

Counted: adds where values accumulate; choosing is no arithmetic. Bytes: a gather reads the
chosen elements and the indices, not the whole source. A scatter in place writes (and if it
accumulates, reads) the elements it touches; a scatter that returns a copy reads and writes all of
it. The gradient of a selection writes a full buffer of zeros, then its part. A boolean mask
as an index chooses a number of elements that only data can give: counted as all of them.
Units: FLOP and bytes.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product, tensors
from symacct.rule import Rules, read, written
from symacct.rules.common import all_of, broadcast, each, elements, given, without

rules = Rules("indexing")

rules.no_arithmetic(
    "aten.masked_select", "aten.masked_scatter", "aten.masked_scatter_backward", "aten.select_scatter",
    "aten.slice_scatter", "aten.diagonal_scatter", "aten.as_strided_scatter", "aten.tril_indices",
    "aten.triu_indices",
)  # fmt: skip


# -- choosing ------------------------------------------------------------------


@each(
    rules.bytes, "aten.embedding", "aten.gather", "aten.index_select", "aten.index", "aten._unsafe_index", "aten.take"
)
def chosen(call: Call) -> tuple[Size, Size]:
    """As many source elements as results, and the indices."""
    source, *indices = call.inputs if call.op.split(".")[1] != "embedding" else call.inputs[:2]
    return elements(call.outputs[0].numel, source) + read(*indices), written(call)


@rules.bytes("aten._unsafe_masked_index")
def masked_chosen(self: TensorMeta, mask: TensorMeta, indices: object, call: Call) -> tuple[Size, Size]:
    """As many source elements as results (an upper bound: masked ones are filled), mask and indices."""
    return elements(call.outputs[0].numel, self) + all_of(mask, indices), written(call)


# -- putting -------------------------------------------------------------------


def touched(call: Call) -> Size:
    """How many elements an indexed write reaches."""
    args = call.args
    target, source = args["self"], args.get("src", args.get("source"))
    if isinstance(args.get("indices"), (list, tuple)):
        indices = args["indices"]
        if any(t.dtype in ("bool", "uint8") for t in tensors(indices)):
            return target.numel
        kept = (n for i, n in enumerate(target.shape) if i >= len(indices) or indices[i] is None)
        return broadcast([t.shape for t in tensors(indices)]) * product(kept)
    if "dim" in args and not isinstance(source, TensorMeta) and "index_fill" in call.op:
        return args["index"].numel * without(target.shape, args["dim"])
    if isinstance(source, TensorMeta) and "index_" in call.op:
        return source.numel
    return args["index"].numel


def put_bytes(call: Call, accumulates: bool) -> tuple[Size, Size]:
    """In place: what is touched; otherwise a copy of everything. The source is read where it is used."""
    target, count = call.args["self"], touched(call)
    values = [call.args.get(n) for n in ("src", "source", "values", "value")]
    inputs = all_of(*(call.args.get(n) for n in ("mask", "index", "indices")))
    for value in tensors(values):
        inputs = inputs + (elements(count, value) if "src" in call.args else read(value))
    if not call.mutated:
        return inputs + read(target), written(call)
    return inputs + elements(count, target) * int(accumulates), elements(count, target)


PUT = ("aten.scatter", "aten.index_copy", "aten.index_fill")
PUT_ADD = ("aten.scatter_add", "aten.scatter_reduce", "aten.index_add", "aten.index_reduce")
PUT_EITHER = ("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put", "aten.put")


@each(rules.bytes, *PUT)
def put(call: Call, reduce: str | None = None) -> tuple[Size, Size]:
    """Accumulates only where `reduce` says how."""
    return put_bytes(call, reduce is not None)


@each(rules.bytes, *PUT_ADD, "aten._unsafe_masked_index_put_accumulate")
def put_add(call: Call) -> tuple[Size, Size]:
    """Accumulates."""
    return put_bytes(call, True)


@each(rules.bytes, *PUT_EITHER)
def put_either(call: Call, accumulate: bool) -> tuple[Size, Size]:
    """Accumulates if asked."""
    return put_bytes(call, accumulate)


@rules.pointwise("aten.scatter")
def scatter_reduce(call: Call, reduce: str | None = None) -> Size:
    """One operation per element that is put, if `reduce` names one."""
    return touched(call) * given(reduce)


@each(rules.pointwise, *PUT_ADD, "aten._unsafe_masked_index_put_accumulate")
def adds(call: Call, alpha: Size = 1) -> Size:
    """One operation per element that is put; one multiply for a factor."""
    return touched(call) * (1 + (alpha != 1))


@each(rules.pointwise, *PUT_EITHER)
def accumulates(call: Call, accumulate: bool) -> Size:
    """One add per element that is put, if they accumulate."""
    return touched(call) * int(accumulate)


# -- derivatives ---------------------------------------------------------------


@each(rules.bytes, "aten.select_backward", "aten.slice_backward", "aten.diagonal_backward")
def part_backward(grad_output: TensorMeta, call: Call) -> tuple[Size, Size]:
    """A full buffer of zeros, then the part."""
    return read(grad_output), written(call) + elements(grad_output.numel, call.outputs[0])


@rules.pointwise("aten.unfold_backward")
def unfold_backward(grad_in: TensorMeta) -> Size:
    """Windows may overlap: one add per element of the gradient."""
    return grad_in.numel


@rules.pointwise("aten.embedding_dense_backward")
def embedding_backward(grad_output: TensorMeta, scale_grad_by_freq: bool) -> Size:
    """One add per element of the result's gradient, and a division if scaled by frequency."""
    return grad_output.numel * (1 + scale_grad_by_freq)


@rules.pointwise("aten.embedding_renorm", "r d, *i")
def embedding_renorm(i: tuple[Size, ...], d: Size) -> Size:
    """Norm and rescaling of each chosen row: at most 3 FLOP per element."""
    return 3 * product(i) * d


# -- bags ----------------------------------------------------------------------

BAG = ("aten._embedding_bag", "aten._embedding_bag_forward_only")


@each(rules.pointwise, *BAG, pattern="v d, *i")
def bag(i: tuple[Size, ...], d: Size, mode: int, per_sample_weights: TensorMeta | None, call: Call) -> Size:
    """Each chosen row is added (or compared) once, multiplied first if weighted; a mean divides each result."""
    return product(i) * d * (1 + given(per_sample_weights)) + call.outputs[0].numel * int(mode == 1)


@each(rules.bytes, *BAG, pattern="v d, *i")
def bag_bytes(i: tuple[Size, ...], d: Size, weight: TensorMeta, call: Call) -> tuple[Size, Size]:
    """The chosen rows, indices, offsets and weights."""
    return elements(product(i) * d, weight) + read(*call.inputs[1:]), written(call)


@each(rules.pointwise, "aten._embedding_bag_dense_backward", "aten._embedding_bag_backward")
def bag_backward(grad: TensorMeta, indices: TensorMeta, mode: int, per_sample_weights: TensorMeta | None) -> Size:
    """One add per element of each chosen row, a multiply if weighted, a division for a mean."""
    return indices.numel * grad.shape[-1] * (1 + given(per_sample_weights) + (mode == 1))


@rules.pointwise("aten._embedding_bag_per_sample_weights_backward")
def bag_weights_backward(grad: TensorMeta, indices: TensorMeta) -> Size:
    """A product of two rows for each index: 2 FLOP per element."""
    return 2 * indices.numel * grad.shape[-1]
