"""Random numbers and dropout.

Counted: what is done to a drawn number, never the drawing itself, whose cost depends on the
generator. Bytes: results once; a tensor that is filled in place, or that only lends its shape, is
not read. Dropout is x*mask*scale. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size
from symacct.rule import Rules, read, written
from symacct.rules.common import each
from symacct.rules.weights import WEIGHTS

rules = Rules("random numbers")

FILLS = ("uniform", "normal", "exponential", "log_normal", "cauchy", "geometric", "random")

rules.overwrites(*(f"aten.{name}_" for name in (*FILLS, "bernoulli")), "aten._fill_mem_eff_dropout_mask_")
rules.no_arithmetic(
    "aten.bernoulli", "aten.rand", "aten.randn", "aten.randint", "aten.randperm", "aten.poisson", "aten.binomial",
    "aten._standard_gamma", "aten._sample_dirichlet", "aten._cudnn_init_dropout_state", "aten._philox_key_split",
    "aten._philox_key_fold_in", "aten._philox_uniform", "aten._philox_normal",
)  # fmt: skip
rules.elementwise(2, "aten.normal", "aten.normal_functional")  # mean + std*x
rules.elementwise(WEIGHTS["dropout"], "aten.native_dropout", "aten._fused_dropout", "aten.native_dropout_backward")
rules.elementwise(WEIGHTS["dropout"], "aten._masked_scale")
rules.elementwise(1, "aten._standard_gamma_grad", "aten._dirichlet_grad")


@each(rules.bytes, "aten.rand_like", "aten.randn_like", "aten.randint_like", *(f"aten.{name}" for name in FILLS[:1]))
@each(rules.bytes, "aten.exponential", "aten.log_normal", "aten.cauchy", "aten.geometric", "aten.random")
def shape_only(call: Call) -> tuple[Size, Size]:
    """The first tensor lends its shape."""
    return read(*call.inputs[1:]), written(call)


@rules.pointwise("aten.multinomial")
def multinomial(call: Call) -> Size:
    """Weights are summed and normalised: 2 FLOP each."""
    return 2 * call.inputs[0].numel
