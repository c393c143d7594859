"""Losses and their derivatives.

Counted: the expression beside the op for each element, then its reduction: one add per element
for a sum, and one division for a mean. Losses by class index touch one score per target, so they
read only those; their derivative writes a gradient for every score. CTC is a model, not
exact. Everything is pointwise. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta
from symacct.rule import Rules, read, written
from symacct.rules.common import each, elements, given
from symacct.rules.weights import WEIGHTS

rules = Rules("losses")

LOSSES = {
    "mse_loss": 2,  # d*d, d = x - t
    "smooth_l1_loss": 6,  # abs(d), one comparison, 0.5*d*d/beta; abs(d) - 0.5*beta shares their place
    "huber_loss": 6,  # abs(d), one comparison, 0.5*d*d; delta*(abs(d) - 0.5*delta) shares their place
    "soft_margin_loss": 4,  # log1p(exp(-t*x))
    "binary_cross_entropy": 9,  # -(t*max(log(x), c) + (1 - t)*max(log(1 - x), c)) with 1 - t and 1 - x
    "binary_cross_entropy_with_logits": 2 + 1 + WEIGHTS["log_sigmoid_forward"],  # (1 - t)*x - logsigmoid(x)
    "multi_margin_loss": 4,  # max(0, margin - x[y] + x), sum
}

DERIVATIVES = {
    "mse_loss_backward": 3,  # 2 * d * g
    "smooth_l1_loss_backward": 5,  # d, two comparisons, d*g/beta
    "huber_loss_backward": 5,  # d, two comparisons, d*g or g*delta
    "soft_margin_loss_backward": 6,  # z = exp(-t*x); -t*z*g/(z + 1), its sign with t
    "binary_cross_entropy_backward": 6,  # g * (x - t) / max((1 - x)*x, eps)
    "multi_margin_loss_backward": 4,
    "multilabel_margin_loss_backward": 4,
}


def reduced(count: Size, reduction: int) -> Size:
    """Nothing (0), a sum and a division (1: mean), or a sum (2)."""
    return count * int(reduction != 0) + int(reduction == 1)


@each(rules.pointwise, *(f"aten.{name}" for name in LOSSES))
def loss(
    call: Call,
    self: TensorMeta,
    reduction: int,
    weight: TensorMeta | None = None,
    pos_weight: TensorMeta | None = None,
) -> Size:
    """The expression in the table, one multiply for a weight, four FLOP for ((w - 1)*t + 1)*l, the reduction."""
    per_element = LOSSES[call.op.split(".")[1]] + given(weight) + 4 * given(pos_weight)
    return self.numel * per_element + reduced(self.numel, reduction)


@each(rules.pointwise, *(f"aten.{name}" for name in DERIVATIVES))
def derivative(call: Call, self: TensorMeta, reduction: int, weight: TensorMeta | None = None) -> Size:
    """The expression in the table, one multiply for a weight, one division for a mean."""
    return self.numel * (DERIVATIVES[call.op.split(".")[1]] + given(weight) + (reduction == 1))


@each(rules.pointwise, "aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll(target: TensorMeta, reduction: int, weight: TensorMeta | None) -> Size:
    """Per target a negation, with weights a multiply and the sum of the weights; the reduction."""
    return target.numel * (1 + 2 * given(weight)) + reduced(target.numel, reduction)


@each(rules.bytes, "aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_bytes(self: TensorMeta, target: TensorMeta, weight: TensorMeta | None, call: Call) -> tuple[Size, Size]:
    """One score per target."""
    return elements(target.numel, self) + read(target, weight), written(call)


@each(rules.pointwise, "aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_backward(target: TensorMeta, reduction: int, weight: TensorMeta | None) -> Size:
    """Per target a negation, a multiply for a weight, a division for a mean."""
    return target.numel * (1 + given(weight) + (reduction == 1))


@each(rules.bytes, "aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_backward_bytes(
    grad_output: TensorMeta, target: TensorMeta, weight: TensorMeta | None, total_weight: TensorMeta, call: Call
) -> tuple[Size, Size]:
    """The scores themselves are not needed."""
    return read(grad_output, target, weight, total_weight), written(call)


@rules.pointwise("aten.multilabel_margin_loss_forward")
def multilabel_margin(self: TensorMeta, reduction: int) -> Size:
    """Every class against every target (3 FLOP, sum included): an upper bound, as targets may be fewer."""
    return 4 * self.numel * (self.shape[-1] if self.shape else 1) + reduced(self.numel, reduction)


@rules.pointwise("aten._ctc_loss")
def ctc(call: Call) -> Size:
    """For each cell of the table: log of a sum of three exponentials (11), one add. A model, not exact."""
    return 12 * call.outputs[1].numel


@rules.pointwise("aten._ctc_loss_backward")
def ctc_backward(log_probs: TensorMeta, log_alpha: TensorMeta) -> Size:
    """The table once more, backwards, and 3 FLOP for each gradient. A model, not exact."""
    return 12 * log_alpha.numel + 3 * log_probs.numel
