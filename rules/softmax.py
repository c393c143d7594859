"""Softmax, log-softmax and their derivatives.

Counted per element: max, subtract, exp, sum, divide (5); log-softmax: max, subtract, exp, sum,
subtract (5) and one log per row. Everything is pointwise. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Size, TensorMeta
from symacct.rule import Rules
from symacct.rules.common import without
from symacct.rules.weights import WEIGHTS

rules = Rules("softmax")

rules.elementwise(WEIGHTS["softmax"], "aten._softmax", "aten._masked_softmax")
rules.elementwise(WEIGHTS["softmax"] + 2, "aten._safe_softmax")  # and whether a row is all -inf: compare, and
rules.elementwise(4, "aten._softmax_backward_data", "aten._masked_softmax_backward")  # y*(g - sum(g*y))
rules.elementwise(4, "aten._log_softmax_backward_data")  # g - exp(y)*sum(g)


@rules.pointwise("aten._log_softmax")
def log_softmax(self: TensorMeta, dim: int) -> Size:
    """x - max - log(sum(exp(x - max)))."""
    return 5 * self.numel + without(self.shape, dim)
