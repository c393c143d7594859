"""What operators of CUDA make, where torch has no shape function that serves, or one that takes sizes as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import meta_table

aten = torch.ops.aten


def is_narrow(tensor: torch.Tensor) -> bool:
    """Whether a tensor has floats of two bytes."""
    return tensor.dtype in (torch.bfloat16, torch.float16)


described: list[str] = []  # the devices whose kernels are described, if not the CPU's
_ALIGNED = 32  # efficient attention pads its log-sum-exp to this many rows


def _efficient_attention(
    query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, *_: Any, **__: Any
) -> tuple[Any, ...]:
    """As torch's own, with sizes that stay symbols: (batch, heads, rows, size of a value), laid out by rows."""
    batch, heads, rows, _ = query.shape
    result = query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)
    kept = (rows + _ALIGNED - 1) // _ALIGNED * _ALIGNED if compute_log_sumexp else 0
    log_sum_exp = query.new_empty(batch, heads, kept, dtype=torch.float32)
    return result, log_sum_exp, *(query.new_empty((), dtype=torch.int64) for _ in range(2))


def _efficient_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, attn_bias: Any, out: Any, lse: Any, seed: Any, offset: Any,
    dropout_p: float, grad_input_mask: Any, *_: Any, **__: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """As torch's own: gradients laid out by rows; that of a bias is cut from one whose rows are a multiple of 16."""

    def by_rows(t: Any) -> Any:
        batch, heads, rows, size = t.shape
        return t.new_empty(batch, rows, heads, size).transpose(1, 2)

    bias = None
    if attn_bias is not None and grad_input_mask[3]:
        *outer, last = attn_bias.shape
        aligned = last if last % 16 == 0 else (last + 15) // 16 * 16
        bias = attn_bias.new_empty(*outer, aligned)[..., :last]
    return by_rows(query), by_rows(key), by_rows(value), bias


def _cudnn_batch_norm(input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: Any) -> Any:
    """The output; in training mean and inverse deviation like the weight; a reserve whose size cuDNN alone knows."""
    kept = weight.shape if training else (0,)
    reserve = input.new_empty(0, dtype=torch.uint8)
    return torch.empty_like(input), weight.new_empty(kept), weight.new_empty(kept), reserve


def _cudnn_batch_norm_backward(input: Any, grad_output: Any, weight: Any, *_: Any) -> Any:
    """Gradients like the input, the weight and the bias."""
    return torch.empty_like(input), torch.empty_like(weight), torch.empty_like(weight)


def _cudnn_grid_sampler(self: Any, grid: Any) -> Any:
    """As many images and channels as of the input, of the height and width of the grid."""
    return self.new_empty(*self.shape[:2], *grid.shape[1:3])


def _cudnn_grid_sampler_backward(self: Any, grid: Any, grad_output: Any) -> Any:
    """Gradients like the input and the grid."""
    return self.new_empty(self.shape), grid.new_empty(grid.shape)


def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    """The output, and one number for each row."""
    rows = (*input.shape[: input.dim() - len(normalized_shape)], *(1 for _ in normalized_shape))
    wide = torch.float32 if is_narrow(input) else input.dtype
    return input.new_empty(input.shape), input.new_empty(rows, dtype=wide)


def _rms_norm_backward(grad: Any, input: Any, shape: Any, rstd: Any, weight: Any, output_mask: Any) -> Any:
    """Gradients like the input and the weight, where wanted."""
    wanted = ((input, output_mask[0]), (weight, output_mask[1]))
    return tuple(t.new_empty(t.shape) if want and t is not None else None for t, want in wanted)


def _cudnn_rnn(*args: Any) -> Any:
    """As torch's own; the buffer of all weights is that of the parameters, which are views of it: no memory."""
    *results, _ = meta_table[aten._cudnn_rnn.default](*args)
    return *results, args[0].new_empty(0)


def _cudnn_rnn_backward(input: Any, weight: Any, *others: Any) -> Any:
    """Gradients like the input, the states and the weights, where wanted; the weights' are pieces of one buffer."""
    _, _, hx, cx = others[:4]
    output_mask = others[-1]
    first = (
        t.new_empty(t.shape) if want and t is not None else None
        for t, want in zip((input, hx, cx), output_mask[:3], strict=True)
    )
    if not output_mask[3]:
        return *first, [None for _ in weight]
    buffer = weight[0].new_empty(sum(w.numel() for w in weight))
    pieces, start = [], 0
    for w in weight:
        pieces.append(buffer.narrow(0, start, w.numel()).view(w.shape))
        start = start + w.numel()
    return *first, pieces


# Where torch has no shape function that serves, or one that takes sizes as numbers.
CUDA_SHAPES: dict[Any, Callable[..., Any]] = {
    aten._scaled_dot_product_efficient_attention.default: _efficient_attention,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention_backward,
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.cudnn_grid_sampler.default: _cudnn_grid_sampler,
    aten.cudnn_grid_sampler_backward.default: _cudnn_grid_sampler_backward,
    aten._fused_rms_norm.default: _rms_norm,
    aten._fused_rms_norm_backward.default: _rms_norm_backward,
    aten._cudnn_rnn.default: _cudnn_rnn,
    aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
}
