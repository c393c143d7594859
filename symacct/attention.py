"""`scaled_dot_product_attention` on CUDA: which kernel serves a call, and what is done before and after it.

Source: ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp of PyTorch 2.13, for devices that run flash
attention (compute capability 8.0 and above).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from symacct.errors import TraceError
from symacct.torch_private import attention_by_products

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
KINDS = ("flash", "efficient", "cudnn", "math")
OPERATORS = tuple(
    f"aten._scaled_dot_product_{name}.default"
    for name in ("flash_attention", "efficient_attention", "cudnn_attention", "attention_math")
)
# In the order in which torch tries them where the device is not a Hopper or Blackwell with a cuDNN above 9.15.
ORDER: dict[str, Callable[[], bool]] = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
}


def attend(
    wanted: str | None,
    place: Callable[[], str],
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[str, Any]:
    """`scaled_dot_product_attention` by the kernel that is wanted, or the first that serves: which it was, its result.

    What is wanted goes before what the model allows by ``sdpa_kernel``. Raises `TraceError`, with the ``place``
    where the program is, for a call that the kernel cannot serve.
    """
    why = _Refusals(query, key, value, attn_mask, is_causal)
    if wanted is not None and (reason := why.of(wanted)):
        others = " or ".join(repr(k) for k in ("flash", "efficient", "math") if not why.of(k))
        raise TraceError(
            f"attention={wanted!r} cannot serve the call at {place()}: {reason}; choose {others}, "
            "or None for what PyTorch takes"
        )
    chosen = wanted or next((k for k, enabled in ORDER.items() if enabled() and not why.of(k)), None)
    if chosen is None:
        raise TraceError(
            f"no kernel of attention is left for the call at {place()}: torch.nn.attention.sdpa_kernel allows none "
            "that can serve it; allow SDPBackend.MATH there, which can serve all"
        )
    if chosen == "math":
        return chosen, attention_by_products(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if chosen == "flash":
        return chosen, _flash(query, key, value, dropout_p, is_causal, scale)
    bias = _additive(attn_mask, query.dtype)
    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if chosen == "cudnn":
        return chosen, aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, bias, wants_gradient, dropout_p, is_causal, False, scale=scale
        )[0]
    bias = bias if bias is None else _aligned(bias).expand(*query.shape[:3], key.shape[2])
    return chosen, aten._scaled_dot_product_efficient_attention.default(
        query, key, value, bias, wants_gradient, dropout_p, is_causal, scale=scale
    )[0]


class _Refusals:
    """Why a kernel cannot serve a call, in words; "" where it can. Asks in torch's order, and what torch asks."""

    def __init__(self, query: Any, key: Any, value: Any, mask: Any, is_causal: bool) -> None:
        self.query, self.key, self.value, self.mask, self.is_causal = query, key, value, mask, is_causal

    def of(self, kind: str) -> str:
        """The reason against a kernel; there is none against matrix products."""
        if kind == "math":
            return ""
        if any(t.dim() != 4 for t in (self.query, self.key, self.value)):
            return "its operands do not have the four axes (batch, heads, length, size)"
        if self.query.shape[0] != self.key.shape[0] or self.query.shape[0] != self.value.shape[0]:
            return "its operands differ in the batch"
        reason: str = getattr(self, kind)()
        return reason

    def flash(self) -> str:
        """Two bytes, no mask, heads of one size up to 256; fewer heads of keys and values are fine."""
        query, key, value = self.query, self.key, self.value
        if query.dtype not in HALF:
            return f"flash attention takes float16 and bfloat16, not {_name(query.dtype)}"
        if self.mask is not None:
            return "flash attention takes no mask"
        if query.shape[3] != key.shape[3] or query.shape[3] != value.shape[3] or query.shape[3] > 256:
            return "flash attention takes heads of one size, of at most 256"
        if self.is_causal and query.shape[2] != key.shape[2]:
            return "flash attention takes is_causal only where queries are as many as keys"
        return ""

    def efficient(self) -> str:
        """As many heads in all operands, of sizes that fill 16 bytes."""
        query, key, value = self.query, self.key, self.value
        if query.dtype not in (*HALF, torch.float32):
            return f"efficient attention takes float32, float16 and bfloat16, not {_name(query.dtype)}"
        if query.shape[1] != key.shape[1] or query.shape[1] != value.shape[1]:
            return "efficient attention takes as many heads of keys and values as of queries"
        step = 16 // query.dtype.itemsize
        if query.shape[3] % step != 0 or value.shape[3] % step != 0:
            return f"efficient attention takes heads whose size is a multiple of {step} in {_name(query.dtype)}"
        return ""

    def cudnn(self) -> str:
        """Two bytes, heads of a multiple of 8 up to 256 (128 before Hopper), no gradient of the mask."""
        query, value = self.query, self.value
        if query.dtype not in HALF:
            return f"cuDNN's attention takes float16 and bfloat16, not {_name(query.dtype)}"
        if any(size % 8 != 0 or size > 256 for size in (query.shape[3], value.shape[3])):
            return "cuDNN's attention takes heads whose size is a multiple of 8, of at most 256"
        if self.mask is not None and self.mask.requires_grad:
            return "cuDNN's attention gives no gradient of its mask"
        return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _flash(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    """Flash attention on heads padded to a multiple of 8; the padding of the result is cut off."""
    size = query.shape[3]
    scale = scale if scale is not None else 1 / math.sqrt(size)
    short = size % 8
    if short != 0:
        query, key, value = (aten.constant_pad_nd.default(t, [0, 8 - short], 0.0) for t in (query, key, value))
    attended = aten._scaled_dot_product_flash_attention.default
    out, *_ = attended(query, key, value, dropout_p, is_causal, False, scale=scale)
    return out if short == 0 else aten.slice.Tensor(out, -1, 0, size)


def _additive(mask: Any, dtype: torch.dtype) -> Any:
    """A mask of bools as what is added to the scores."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    closed = aten.scalar_tensor.default(-math.inf, dtype=dtype, device=mask.device)
    return aten.where.ScalarSelf(mask, 0.0, closed)


def _aligned(bias: Any) -> Any:
    """A bias whose rows begin at a multiple of 8 elements: itself, or a padded copy, seen without the padding."""
    *outer, inner = bias.stride()
    if inner == 1 and all(stride % 8 == 0 for stride in reversed(outer)):  # if rows are aligned, so is what has rows
        return bias
    last = bias.shape[-1]
    return aten.slice.Tensor(aten.constant_pad_nd.default(bias, [0, 8 - last % 8], 0.0), -1, 0, last)
