"""Interpolation, sampling by a grid, affine grids.

Counted: interpolation from the size of the result, whatever the scale argument says. Linear
interpolation between two values is 3 FLOP (two multiplies, one add), bilinear three of those,
trilinear seven; cubic is 7 FLOP per line of four, bicubic five lines. Nearest is no arithmetic. Finding
the source position is not counted. A derivative is a multiply and an add per tap. Antialiased modes
are a model, not exact: each of two passes spreads taps over max(in, out) positions. Everything is
pointwise but the affine grid. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules
from symacct.rules.common import each, larger

rules = Rules("resampling")

INTERPOLATION = {  # op: (FLOP per result, taps)
    "upsample_linear1d": (3, 2), "upsample_bilinear2d": (9, 4), "upsample_trilinear3d": (21, 8),
    "upsample_bicubic2d": (35, 16),
}  # fmt: skip
ANTIALIASED = {"_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 4, "_upsample_lanczos2d_aa": 6}
NEAREST = [f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]

for name, (flop, _) in INTERPOLATION.items():
    rules.elementwise(flop, f"aten.{name}")

rules.no_arithmetic(*(f"aten.{name}" for name in NEAREST))


@each(rules.pointwise, *(f"aten.{name}_backward" for name in INTERPOLATION))
def interpolation_backward(grad_output: TensorMeta, call: Call) -> Size:
    """A multiply and an add for each tap of each gradient."""
    _, taps = INTERPOLATION[call.op.split(".")[1].removesuffix("_backward")]
    return 2 * taps * grad_output.numel


@each(rules.pointwise, *(f"aten.{name}_backward" for name in NEAREST))
def nearest_backward(grad_output: TensorMeta) -> Size:
    """One add per gradient."""
    return grad_output.numel


def passes(small: TensorMeta, big: TensorMeta, taps: int) -> Size:
    """Rows first, then columns: a multiply and an add per tap."""
    (h, w), (y, x) = small.shape[-2:], big.shape[-2:]
    return 2 * taps * product(small.shape[:-2]) * (h * larger(w, x) + x * larger(h, y))


@each(rules.pointwise, *(f"aten.{name}" for name in ANTIALIASED))
def antialiased(call: Call) -> Size:
    """Two separable passes; a model, not exact."""
    return passes(call.inputs[0], call.outputs[0], ANTIALIASED[call.op.split(".")[1]])


@each(rules.pointwise, *(f"aten.{name}_backward" for name in ANTIALIASED))
def antialiased_backward(call: Call) -> Size:
    """The same two passes, transposed; a model, not exact."""
    return passes(call.outputs[0], call.inputs[0], ANTIALIASED[call.op.split(".")[1].removesuffix("_backward")])


GRID = ("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten._grid_sampler_2d_cpu_fallback")


def grid_taps(grid: TensorMeta, mode: int) -> int:
    """Source elements per result: 2 per axis (0: linear), 1 (1: nearest), 4 per axis (2: cubic)."""
    return int({0: 2, 1: 1, 2: 4}[mode] ** (len(grid.shape) - 2))


@each(rules.pointwise, *GRID)
def grid_sampler(grid: TensorMeta, interpolation_mode: int, call: Call) -> Size:
    """Per point 4 FLOP to place each coordinate and 2 for each tap's weight; per result a multiply-add per tap."""
    taps = grid_taps(grid, interpolation_mode)
    per_tap = 2 * taps * (interpolation_mode != 1)
    return 4 * grid.numel + product(grid.shape[:-1]) * per_tap + call.outputs[0].numel * per_tap


@each(rules.pointwise, *(f"{op}_backward" for op in GRID))
def grid_sampler_backward(
    grad_output: TensorMeta, grid: TensorMeta, interpolation_mode: int, output_mask: tuple[bool, ...] = (True, True)
) -> Size:
    """Points placed again; a multiply-add per tap for the input, and one per tap and axis for the grid."""
    taps, axes = grid_taps(grid, interpolation_mode), len(grid.shape) - 2
    for_grid = 2 * taps * axes * output_mask[1] * (interpolation_mode != 1)
    return 4 * grid.numel + grad_output.numel * (2 * taps * output_mask[0] + for_grid)


@each(rules.flops, "aten.affine_grid_generator", "aten.cudnn_affine_grid_generator")
def affine_grid(theta: TensorMeta, call: Call) -> Size:
    """Each coordinate is a product with a column of theta."""
    return 2 * call.outputs[0].numel * theta.shape[-1]


@each(rules.flops, "aten.cudnn_affine_grid_generator_backward")
def cudnn_affine_grid_backward(grad: TensorMeta) -> Size:
    """Each coordinate's gradient meets the three of its position."""
    return 2 * grad.numel * 3


@rules.pointwise("aten.cudnn_grid_sampler")
def cudnn_grid_sampler(grid: TensorMeta, call: Call) -> Size:
    """Linear."""
    return grid_sampler(grid, 0, call)


@rules.pointwise("aten.cudnn_grid_sampler_backward")
def cudnn_grid_sampler_backward(grad_output: TensorMeta, grid: TensorMeta) -> Size:
    """Linear, both gradients."""
    return grid_sampler_backward(grad_output, grid, 0)
