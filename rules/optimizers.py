"""Fused optimizer steps and gradient scaling.

Counted: per parameter element what the for-loop implementation of torch.optim does in separate
ops. The same step by foreach ops costs the same FLOP, op by op. Scalars such as bias corrections are
not counted. Gradients are read, and written only where they are unscaled. Units: FLOP.

    Adam       m + (1 - b1)*(g - m) 3; v*b2 + (1 - b2)*g*g 4; sqrt(v)/c + eps 3; p - a*m/d 3:  13
    SGD        p - lr*g 2; with momentum m*b + g 2, a dampened gradient 1 more
    Adagrad    s + g*g 2; sqrt(s) + eps 2; p - a*g/d 3:  7
"""

from __future__ import annotations

from typing import Any

from symacct.cost import Call, Size, TensorMeta, tensors
from symacct.rule import Rules, read
from symacct.rules.common import all_of, each, given, total, work

rules = Rules("optimizers")

Tensors = tuple[TensorMeta, ...]


def count(parameters: Tensors) -> Size:
    """Elements of all parameters."""
    return total([work(p) for p in parameters])


@each(rules.pointwise, "aten._fused_adam", "aten._fused_adamw")
def adam(
    self: Tensors, weight_decay: float, amsgrad: bool, maximize: bool, grad_scale: TensorMeta | None, call: Call
) -> Size:
    """Decay of the weights: p*(1 - lr*w) for AdamW, g + w*p for Adam; AMSGrad keeps a maximum."""
    decay = (weight_decay != 0) * (1 if "adamw" in call.op else 2)
    return count(self) * (13 + decay + amsgrad + maximize + given(grad_scale))


@rules.pointwise("aten._fused_sgd")
def sgd(
    self: Tensors,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: TensorMeta | None,
) -> Size:
    """The first step copies the gradient as its momentum; Nesterov adds b*m once more."""
    moving = momentum != 0
    update = (2 + (dampening != 0)) * (moving and not is_first_step) + 2 * (moving and nesterov)
    return count(self) * (2 + 2 * (weight_decay != 0) + update + maximize + given(grad_scale))


@rules.pointwise("aten._fused_adagrad")
def adagrad(self: Tensors, weight_decay: float, maximize: bool, grad_scale: TensorMeta | None) -> Size:
    """See the family."""
    return count(self) * (7 + 2 * (weight_decay != 0) + maximize + given(grad_scale))


@rules.pointwise("symacct.adamw_8bit_")
def adamw_8bit(self: TensorMeta, qmap1: TensorMeta | None, weight_decay: float) -> Size:
    """AdamW's 13, 1 more with decay; for each 8-bit state code*max, abs, max, x/max and a search of 8 steps in 256.

    Model, not exact: a kernel may search its table in another way. Bytes are the default: everything is read
    once; parameters, states and maxima are written once. Source: Dettmers et al. 2021, section 2.
    """
    return self.numel * (13 + (weight_decay != 0) + (2 * (4 + 8) if qmap1 is not None else 0))


STATE = ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list", "state_sums")


@each(rules.bytes, "aten._fused_adam", "aten._fused_adamw", "aten._fused_sgd", "aten._fused_adagrad")
def step_bytes(call: Call, grads: Tensors, grad_scale: TensorMeta | None) -> tuple[Size, Size]:
    """Everything is read once, parameters and state are written once; momentum is not read in its first step."""
    unread: Any = call.args.get("momentum_buffer_list") if call.args.get("is_first_step") else None
    states = [t for name in STATE for t in tensors(call.args.get(name))]
    written = read(*states) + (read(*grads) if grad_scale is not None else 0)
    return read(*(t for t in call.inputs if t not in tensors(unread))), written


@rules.pointwise("aten._amp_foreach_non_finite_check_and_unscale")
def unscale(self: Tensors) -> Size:
    """One test and one multiply per element."""
    return 2 * count(self)


@rules.pointwise("aten._amp_update_scale")
def update_scale(self: TensorMeta) -> Size:
    """One comparison and one multiply."""
    return 2 * self.numel


@rules.bytes("aten._amp_foreach_non_finite_check_and_unscale")
def unscale_bytes(self: Tensors, found_inf: TensorMeta, inv_scale: TensorMeta) -> tuple[Size, Size]:
    """Gradients and the scale are read, gradients and the flag are written."""
    return all_of(self, inv_scale), all_of(self, found_inf)
