"""Reductions, scans, sorting and searching.

Counted: an accumulation that starts from zero, so a sum over n elements is n FLOP; what a
reduction does to each element before it accumulates; and what it does to each result. A
complex element counts twice. Sorting and selecting are models, not exact: n*log2(n)
comparisons (log2 rounded up) for a sort, n*(1 + log2(k)) for the largest k, 2*n for a
median or k-th value, log2(n) for a binary search. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules
from symacct.rules.common import broadcast, each, log2, work

rules = Rules("reductions")

REDUCTIONS = {  # op: (FLOP per element reduced, FLOP per result)
    "sum": (1, 0), "prod": (1, 0), "mean": (1, 1),
    "nansum": (2, 0),  # isnan, add
    "amax": (1, 0), "amin": (1, 0), "max": (1, 0), "min": (1, 0), "argmax": (1, 0), "argmin": (1, 0),
    "aminmax": (2, 0), "_aminmax": (2, 0),
    "all": (1, 0), "any": (1, 0), "_is_all_true": (1, 0), "_is_any_true": (1, 0),
    "count_nonzero": (2, 0),  # compare, add
    "nonzero": (1, 0), "nonzero_static": (1, 0),
    "equal": (2, 0), "allclose": (5, 0),  # compare, and; abs(a - b) <= c + d*abs(b), and
    "var": (4, 2), "var_mean": (4, 2),  # sum; subtract, square, sum: two divisions
    "std": (4, 3), "std_mean": (4, 3),  # and a square root
    "logsumexp": (4, 2),  # max, subtract, exp, sum; log, add
    "cumsum": (1, 0), "cumprod": (1, 0), "cummax": (1, 0), "cummin": (1, 0),
    "_cummax_helper": (1, 0), "_cummin_helper": (1, 0),
    "logcumsumexp": (6, 0), "_logcumsumexp": (6, 0),  # logaddexp
    "trace": (0, 0),
    "median": (2, 0), "nanmedian": (3, 0), "kthvalue": (2, 0),
    "bincount": (1, 0), "histc": (5, 0), "histogram": (5, 0),  # (x - lo) / width, two bounds, increment
    "unique_consecutive": (1, 0), "segment_reduce": (1, 0), "_segment_reduce_backward": (1, 0), "hash_tensor": (1, 0),
}  # fmt: skip


def reduce(call: Call) -> Size:
    """So much for each element, so much for each result."""
    each_element, each_result = REDUCTIONS[call.op.split(".")[1].removesuffix("_")]
    results = call.outputs[0].numel if call.outputs else 0
    return each_element * work(call.inputs[0]) + each_result * results


each(rules.pointwise, *(f"aten.{name}" for name in REDUCTIONS if name != "trace"))(reduce)


@rules.pointwise("aten.trace", "m n")
def trace(m: Size, n: Size) -> Size:
    """One add per element of the diagonal, of which there are at most as many as columns."""
    return n


def norm_weights(p: object) -> tuple[int, int]:
    """(per element, per result) of a p-norm."""
    table = {1: (2, 0), 0: (2, 0), 2: (2, 1), float("inf"): (2, 0), float("-inf"): (2, 0)}
    return table.get(2 if p is None else p, (3, 1))  # type: ignore[call-overload, no-any-return]


@each(rules.pointwise, "aten.norm", "aten.linalg_vector_norm")
def norm(call: Call, p: object = 2, ord: object = None) -> Size:
    """2-norm: square, add, one root; 1-norm: abs, add; infinity: abs, max; otherwise abs, pow, add, one root."""
    each_element, each_result = norm_weights(p if ord is None else ord)
    return each_element * work(call.inputs[0]) + each_result * call.outputs[0].numel


@rules.pointwise("aten.dist")
def dist(self: TensorMeta, other: TensorMeta, p: object) -> Size:
    """Subtract, then the norm."""
    each_element, each_result = norm_weights(p)
    return (1 + each_element) * broadcast([self.shape, other.shape]) + each_result


@each(rules.pointwise, "aten.linalg__powsum", "aten._foreach_powsum")
def powsum(call: Call) -> Size:
    """Abs, pow, add per element; a norm without its root."""
    count: Size = 0
    for tensor in call.inputs:
        count = count + 3 * work(tensor)
    return count


@each(rules.pointwise, "aten.sort", "aten.mode")
def sort(self: TensorMeta, dim: int = -1) -> Size:
    """n*log2(n) comparisons for each line of n; a model, not exact."""
    return self.numel * log2(self.shape[dim] if self.shape else 1)


@rules.pointwise("aten.topk")
def topk(self: TensorMeta, k: Size) -> Size:
    """A heap of k: n*(1 + log2(k)) comparisons; a model, not exact."""
    return self.numel * (1 + log2(k))


@each(rules.pointwise, "aten._unique", "aten._unique2", "aten.unique_dim", "aten.unique_dim_consecutive")
def unique(self: TensorMeta) -> Size:
    """A sort of all elements, then one comparison for each; a model, not exact."""
    return self.numel * (1 + log2(self.numel))


@rules.pointwise("aten.searchsorted")
def searchsorted(call: Call, sorted_sequence: TensorMeta) -> Size:
    """A binary search per result; a model, not exact."""
    return call.outputs[0].numel * log2(sorted_sequence.shape[-1])


@rules.pointwise("aten.bucketize")
def bucketize(call: Call, boundaries: TensorMeta) -> Size:
    """A binary search per result; a model, not exact."""
    return call.outputs[0].numel * log2(boundaries.shape[0])


@rules.pointwise("aten.isin")
def isin(elements: TensorMeta, test_elements: TensorMeta) -> Size:
    """Every element against every test element; a model, not exact."""
    return product(getattr(elements, "shape", ())) * product(getattr(test_elements, "shape", ()))
