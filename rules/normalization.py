"""Layer, batch, group, instance, RMS and weight normalisation, and their derivatives.

Counted per element: the mean (1), the variance (subtract, square, sum: 3), (x - mean)*rstd (2),
then one multiply for a weight, one add for a bias; per row of statistics: two divisions, the
addition of eps, a reciprocal root. Running statistics: 7 per channel, r + m*(s - r) twice and
the unbiasing multiply. In evaluation the statistics are given. Everything is pointwise. Units: FLOP.

Derivatives, with y = (x - mean)*rstd computed again (2) where needed: weight: sum of g*y (2); bias:
sum of g (1); input: rstd*(h - mean(h) - y*mean(h*y)), h = g*weight: 1 for h, 3 for the sums, 4 for
the rest, two divisions per row. `output_mask` says which are counted.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta
from symacct.rule import Rules
from symacct.rules.common import each, given

rules = Rules("normalisation")

Mask = tuple[bool, ...]

LEGIT = "aten._native_batch_norm_legit"
BATCH = (
    "aten.native_batch_norm", LEGIT, f"{LEGIT}_functional", "aten.cudnn_batch_norm", "aten.miopen_batch_norm",
    "aten._batch_norm_with_update", "aten._batch_norm_with_update_functional",
)  # fmt: skip
BATCH_FIXED = (f"{LEGIT}_no_training", "aten._batch_norm_no_update")


def normalise(count: Size, rows: Size, *affine: TensorMeta | None) -> Size:
    """Statistics of `rows` rows, and `count` elements normalised by them."""
    return count * (4 + 2 + given(*affine)) + 4 * rows


def normalise_backward(count: Size, rows: Size, mask: Mask, weight: TensorMeta | None, fixed: bool = False) -> Size:
    """The gradients in the mask (input, weight, bias); with fixed statistics the input's is h*rstd."""
    again = 2 * (mask[1] or (mask[0] and not fixed))
    input_grad = given(weight) + (1 if fixed else 3 + 4)
    per_row = 0 if fixed else 2 * mask[0]
    return count * (again + 2 * mask[1] + mask[2] + input_grad * mask[0]) + per_row * rows


@rules.pointwise("aten.native_layer_norm")
def layer_norm(input: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, call: Call) -> Size:
    """One row of statistics for each mean that is returned."""
    return normalise(input.numel, call.outputs[1].numel, weight, bias)


@rules.pointwise("aten.native_layer_norm_backward")
def layer_norm_backward(input: TensorMeta, mean: TensorMeta, weight: TensorMeta | None, output_mask: Mask) -> Size:
    """See the family."""
    return normalise_backward(input.numel, mean.numel, output_mask, weight)


@rules.pointwise("aten.native_group_norm")
def group_norm(input: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None, N: Size, group: Size) -> Size:
    """One row of statistics per sample and group."""
    return normalise(input.numel, N * group, weight, bias)


@rules.pointwise("aten.native_group_norm_backward")
def group_norm_backward(input: TensorMeta, mean: TensorMeta, weight: TensorMeta | None, output_mask: Mask) -> Size:
    """See the family."""
    return normalise_backward(input.numel, mean.numel, output_mask, weight)


@each(rules.pointwise, *BATCH, pattern="n c ...")
def batch_norm(
    input: TensorMeta,
    c: Size,
    weight: TensorMeta | None,
    bias: TensorMeta | None,
    running_mean: TensorMeta | None = None,
    training: bool = True,
) -> Size:
    """One row of statistics per channel; running statistics where there are any."""
    if not training:
        return batch_norm_fixed(input, c, weight, bias)
    return normalise(input.numel, c, weight, bias) + 7 * given(running_mean) * c


@each(rules.pointwise, *BATCH_FIXED, pattern="n c ...")
def batch_norm_fixed(input: TensorMeta, c: Size, weight: TensorMeta | None, bias: TensorMeta | None) -> Size:
    """(x - mean)*rstd*weight + bias, with a reciprocal root per channel."""
    return input.numel * (2 + given(weight, bias)) + 2 * c


@each(rules.pointwise, "aten.native_batch_norm_backward", "aten.batch_norm_backward", pattern="_, n c ...")
def batch_norm_backward(
    input: TensorMeta,
    c: Size,
    weight: TensorMeta | None,
    output_mask: Mask,
    train: bool | None = None,
    update: bool | None = None,
) -> Size:
    """See the family; with fixed statistics the sums over the batch are not needed."""
    return normalise_backward(input.numel, c, output_mask, weight, fixed=not (train or update))


@each(rules.pointwise, "aten.cudnn_batch_norm_backward", "aten.miopen_batch_norm_backward", pattern="n c ...")
def cudnn_batch_norm_backward(input: TensorMeta, c: Size, weight: TensorMeta | None) -> Size:
    """All three gradients, in training."""
    return normalise_backward(input.numel, c, (True, True, True), weight)


@rules.pointwise("aten._fused_rms_norm")
def rms_norm(input: TensorMeta, weight: TensorMeta | None, call: Call) -> Size:
    """Square, sum, multiply by the reciprocal root, and by a weight; per row a division, eps, the root."""
    return input.numel * (3 + given(weight)) + 3 * call.outputs[1].numel


@rules.pointwise("aten._fused_rms_norm_backward")
def rms_norm_backward(input: TensorMeta, rstd: TensorMeta, weight: TensorMeta | None, output_mask: Mask) -> Size:
    """y = x*rstd again (1); weight: sum of g*y (2); input: h = g*weight, rstd*(h - y*mean(h*y)): 1 and 5."""
    wanted = 1 + 2 * output_mask[1] + (given(weight) + 5) * output_mask[0]
    return input.numel * wanted + rstd.numel * int(output_mask[0])


@rules.pointwise("aten._weight_norm_interface")
def weight_norm(v: TensorMeta, g: TensorMeta) -> Size:
    """v * (g / norm(v)): square, sum, multiply; per row a root and a division."""
    return 3 * v.numel + 2 * g.numel


@rules.pointwise("aten._weight_norm_interface_backward")
def weight_norm_backward(saved_v: TensorMeta, saved_g: TensorMeta) -> Size:
    """s = sum(grad*v) (2), grad_v = (g/norm)*(grad - v*(s/norm**2)) (3); grad_g = s/norm: 5 per row in all."""
    return 5 * saved_v.numel + 5 * saved_g.numel


@each(rules.pointwise, "aten.renorm")
def renorm(self: TensorMeta, dim: int) -> Size:
    """The norm of each slice (2 per element), then a multiply; per slice a root, a comparison, a division."""
    return 3 * self.numel + 3 * self.shape[dim]


@rules.pointwise("aten.batch_norm_update_stats", "n c ...")
def batch_norm_update_stats(input: TensorMeta, c: Size, running_mean: TensorMeta | None) -> Size:
    """Mean and variance, and the running ones."""
    return 4 * input.numel + 2 * c + 7 * given(running_mean) * c


@rules.pointwise("aten.batch_norm_stats", "n c ...")
def batch_norm_stats(input: TensorMeta, c: Size) -> Size:
    """Mean and reciprocal root of the variance, per channel."""
    return 4 * input.numel + 4 * c


@each(rules.pointwise, "aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats(mean: TensorMeta, running_mean: TensorMeta | None, call: Call) -> Size:
    """Per process and channel: weigh the mean (3) and the variance (6); then the running statistics."""
    return 9 * mean.numel + 7 * given(running_mean) * call.outputs[0].numel


@rules.pointwise("aten.batch_norm_elemt")
def batch_norm_elemt(input: TensorMeta, weight: TensorMeta | None, bias: TensorMeta | None) -> Size:
    """(x - mean)*rstd*weight + bias."""
    return input.numel * (2 + given(weight, bias))


@rules.pointwise("aten.batch_norm_backward_reduce")
def batch_norm_backward_reduce(input: TensorMeta) -> Size:
    """Sums of g (1) and of g*(x - mean) (3); the weight's and the bias' gradients follow from them."""
    return 4 * input.numel


@rules.pointwise("aten.batch_norm_backward_elemt")
def batch_norm_backward_elemt(input: TensorMeta, weight: TensorMeta | None) -> Size:
    """(g - mean(g) - (x - mean)*rstd**2*mean(g*(x - mean)))*rstd, and a multiply for a weight."""
    return input.numel * (5 + given(weight))
