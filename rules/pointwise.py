"""Elementwise functions and their derivatives.

Counted: the weight of the function (`symacct.rules.weights`) for each element of the
broadcast result; a complex element counts twice unless the table of complex weights says
otherwise. A factor alpha or value that is not 1 is one multiply more. Bytes by the default:
an expanded operand is read at its stored size. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta
from symacct.rule import Rules
from symacct.rules.common import each, given, work
from symacct.rules.weights import COMPLEX, WEIGHTS

rules = Rules("elementwise functions")

ELSEWHERE = (
    "add", "sub", "rsub", "abs", "gelu", "gelu_backward", "gelu_tanh", "gelu_tanh_backward", "softmax", "dropout",
    "isfinite",
)  # fmt: skip

for name, weight in WEIGHTS.items():
    if name not in ELSEWHERE:
        rules.elementwise(weight, f"aten.{name}", complex_weight=COMPLEX.get(name))

rules.no_arithmetic("aten.where", "aten.masked_fill", "aten.complex")


@each(rules.pointwise, "aten.add", "aten.sub", "aten.rsub")
def add(call: Call, alpha: Size = 1) -> Size:
    """a + alpha*b."""
    return work(call.outputs[0]) * (1 + (alpha != 1))


@rules.pointwise("aten.addcmul")
@rules.pointwise("aten.addcdiv")
def addc(call: Call, value: Size = 1, scalars: Size = None) -> Size:
    """a + value*(b*c), or with a division; foreach ops call the factor `scalars`."""
    return work(call.outputs[0]) * (2 + ((value if scalars is None else scalars) != 1))


@rules.pointwise("aten.abs")
def absolute(self: TensorMeta) -> Size:
    """One FLOP; for a complex number sqrt(a*a + b*b)."""
    return self.numel * (WEIGHTS["hypot"] if self.is_complex else 1)


@rules.pointwise("aten.clamp")
def clamp(call: Call, min: object = None, max: object = None) -> Size:
    """One comparison for each bound that is given."""
    return call.outputs[0].numel * given(min, max)


@rules.pointwise("aten.gelu")
def gelu(call: Call, approximate: str) -> Size:
    """By erf, or by tanh if so asked."""
    return call.outputs[0].numel * WEIGHTS["gelu_tanh" if approximate == "tanh" else "gelu"]


@rules.pointwise("aten.gelu_backward")
def gelu_backward(call: Call, approximate: str) -> Size:
    """By erf, or by tanh if so asked."""
    return call.outputs[0].numel * WEIGHTS["gelu_tanh_backward" if approximate == "tanh" else "gelu_backward"]
