"""New tensors.

Counted: no arithmetic for constants, 2 FLOP per element for a range (start + step*i). Bytes:
what is written; `empty` writes nothing, and a tensor that only lends its shape is not read.
Units: FLOP and bytes.
"""

from __future__ import annotations

from symacct.cost import Call, Size, tensors
from symacct.rule import Rules, read, written
from symacct.rules.common import each

rules = Rules("creation")

rules.free(
    "aten.empty", "aten.empty_strided", "aten.empty_permuted", "aten.empty_like", "aten.new_empty",
    "aten.new_empty_strided", "aten._efficientzerotensor",
)  # fmt: skip
rules.no_arithmetic("aten.zeros", "aten.ones", "aten.full", "aten.eye", "aten.scalar_tensor")
rules.elementwise(2, "aten.arange", "aten.range", "aten.linspace", "aten.fft_fftfreq", "aten.fft_rfftfreq")
rules.elementwise(3, "aten.logspace")  # base ** (start + step*i)
rules.elementwise(4, "aten.bartlett_window", "aten.hann_window", "aten.hamming_window")  # a - b*cos(c*i)
rules.elementwise(7, "aten.blackman_window", "aten.kaiser_window")  # one more term, or a Bessel function of a root
rules.overwrites("aten.fill_", "aten.zero_")

LIKE = (
    "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.new_zeros", "aten.new_ones", "aten.new_full",
    "aten._new_zeros_with_same_feature_meta", "aten.fill", "aten.zero",
)  # fmt: skip


@each(rules.bytes, *LIKE)
def like(call: Call) -> tuple[Size, Size]:
    """The first tensor lends its shape; a value that is a tensor is read."""
    return read(*tensors(call.args.get("value"))), written(call)
