"""Pooling in one to three dimensions, padding by reflection or replication, and windows as columns.

Counted: every result of a pool is charged its whole window (borders and padding included): one add or
comparison per element, starting from nothing, and one division for an average. Adaptive windows of m results
over n elements cover n + m - gcd(n, m) elements along an axis, which is n where m divides n, so both spellings
of one pool agree. Derivatives: one add per element that is passed back, and one division for an average.
Everything is pointwise. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules, read, written
from symacct.rules.common import common_divisor, each

rules = Rules("pooling")

Window = tuple[Size, ...]

AXES = {"1d": 1, "2d": 2, "3d": 3}
ADAPTIVE = ("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d")
MAX = ("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
PADS = [f"aten.{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]

rules.no_arithmetic(*PADS, "aten.max_unpool2d", "aten.max_unpool3d", "aten.im2col")


def rank(call: Call) -> int:
    """Number of pooled axes, from the op's name."""
    return next(n for text, n in AXES.items() if text in call.op)


def window(call: Call, kernel_size: Window) -> Size:
    """Elements in a window; one number stands for all axes."""
    return product(kernel_size) if len(kernel_size) > 1 else kernel_size[0] ** rank(call)


def adaptive(inputs: TensorMeta, results: TensorMeta, axes: int) -> Size:
    """Elements in all windows of an adaptive pool."""
    covered = [n + m - common_divisor(n, m) for n, m in zip(inputs.shape[-axes:], results.shape[-axes:], strict=True)]
    return product(inputs.shape[:-axes]) * product(covered)


@each(rules.pointwise, "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(call: Call, kernel_size: Window) -> Size:
    """A window of adds and one division per result."""
    return call.outputs[0].numel * (window(call, kernel_size) + 1)


@each(rules.pointwise, "aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def avg_pool_backward(call: Call, grad_output: TensorMeta, kernel_size: Window) -> Size:
    """One division, and a window of adds, for each gradient."""
    return grad_output.numel * (window(call, kernel_size) + 1)


@each(rules.pointwise, *MAX)
def max_pool(call: Call, kernel_size: Window) -> Size:
    """A window of comparisons per result."""
    return call.outputs[0].numel * window(call, kernel_size)


@each(rules.pointwise, "aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(call: Call, kernel_size: Window) -> Size:
    """A window of comparisons per result."""
    return max_pool(call, kernel_size)


@each(rules.pointwise, *ADAPTIVE)
def adaptive_avg_pool(self: TensorMeta, call: Call) -> Size:
    """All windows, and one division per result."""
    out = call.outputs[0]
    return adaptive(self, out, rank(call)) + out.numel


@each(rules.pointwise, *(f"{op}_backward" for op in ADAPTIVE))
def adaptive_avg_pool_backward(grad_output: TensorMeta, self: TensorMeta, call: Call) -> Size:
    """All windows, and one division per gradient."""
    return adaptive(self, grad_output, rank(call)) + grad_output.numel


@each(rules.pointwise, "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(self: TensorMeta, call: Call) -> Size:
    """One comparison per element of each window."""
    return adaptive(self, call.outputs[0], rank(call))


PASSED_BACK = (
    *(f"{op}_backward" for op in MAX), "aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward",
    "aten.fractional_max_pool2d_backward", "aten.fractional_max_pool3d_backward", *(f"{op}_backward" for op in PADS),
)  # fmt: skip


@each(rules.pointwise, *PASSED_BACK)
def passed_back(grad_output: TensorMeta) -> Size:
    """One add per gradient."""
    return grad_output.numel


@each(rules.bytes, *(f"{op}_backward" for op in (*ADAPTIVE, *PADS)))
@each(rules.bytes, "aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def shape_only(grad_output: TensorMeta, call: Call) -> tuple[Size, Size]:
    """Of the input only the shape is needed."""
    return read(grad_output), written(call)


@each(rules.bytes, *PASSED_BACK[:6])
def by_indices(grad_output: TensorMeta, indices: TensorMeta, call: Call) -> tuple[Size, Size]:
    """Of the input only the shape is needed; the saved indices say where."""
    return read(grad_output, indices), written(call)


@rules.pointwise("aten.col2im")
def col2im(self: TensorMeta) -> Size:
    """Windows may overlap: one add per element of the columns."""
    return self.numel
