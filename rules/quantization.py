"""Simulated quantisation, as quantisation-aware training uses it.

Counted per element: divide, round, add the zero point, clamp (2), subtract, multiply (7); the derivative is
one multiply by a mask. Real quantised tensors are left out: their ops are unknown.
"""

from __future__ import annotations

from symacct.rule import Rules

rules = Rules("simulated quantisation")

rules.elementwise(
    7, "aten.fake_quantize_per_tensor_affine_cachemask", "aten.fake_quantize_per_channel_affine_cachemask",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "aten._fake_quantize_learnable_per_tensor_affine", "aten._fake_quantize_learnable_per_channel_affine",
)  # fmt: skip
