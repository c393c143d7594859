"""Scaled dot-product attention, forward and backward.

Counted: the products, built from matrix products, in the heads of the query (grouped-query
attention repeats keys and values, which costs no FLOP and no bytes), with the head sizes of
queries/keys (d) and values (e) apart. Dense: a causal mask halves nothing. Every fused
backward computes the scores again: 5 products. Bytes: operands and results once; scores are
never written. Arithmetic on scores is pointwise. Packed sequences (cumulative lengths) are
counted as if padded to the longest: an upper bound, since lengths are data. Units: FLOP.
Source: Dao, FlashAttention-2, arXiv 2307.08691.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules
from symacct.rules.common import each, given
from symacct.rules.matmul import matmul
from symacct.rules.weights import WEIGHTS

rules = Rules("attention")

_SDPA = "aten._scaled_dot_product_"
SDPA = (
    f"{_SDPA}flash_attention", f"{_SDPA}flash_attention_for_cpu", f"{_SDPA}efficient_attention",
    f"{_SDPA}cudnn_attention", f"{_SDPA}fused_attention_overrideable", f"{_SDPA}attention_math",
    f"{_SDPA}attention_math_for_mps",
    "aten._cudnn_attention_forward",
)  # fmt: skip
SDPA_BACKWARD = (
    f"{_SDPA}flash_attention_backward", f"{_SDPA}flash_attention_for_cpu_backward",
    f"{_SDPA}efficient_attention_backward", f"{_SDPA}cudnn_attention_backward",
    f"{_SDPA}fused_attention_overrideable_backward", "aten._cudnn_attention_backward",
)  # fmt: skip
PACKED = (
    "aten._flash_attention_forward", "aten._flash_attention_forward_no_dropout_inplace",
    "aten._efficient_attention_forward",
)  # fmt: skip
PACKED_BACKWARD = ("aten._flash_attention_backward", "aten._efficient_attention_backward")

Heads = tuple[Size, ...]


@each(rules.flops, *SDPA, pattern="*b s d, ... t d, ... t e")
def attention(b: Heads, s: Size, t: Size, d: Size, e: Size) -> Size:
    """Q K^T, then P V."""
    heads = product(b)
    return matmul(b=heads, m=s, k=d, n=t) + matmul(b=heads, m=s, k=t, n=e)


@each(rules.flops, *SDPA_BACKWARD, pattern="_, *b s d, ... t d, ... t e")
def attention_backward(b: Heads, s: Size, t: Size, d: Size, e: Size) -> Size:
    """Q K^T again, dV = P^T dO, dP = dO V^T, dQ = dS K, dK = dS^T Q."""
    scores = matmul(b=product(b), m=s, k=d, n=t)
    values = matmul(b=product(b), m=s, k=t, n=e)
    return scores + values + values + scores + scores


@each(rules.pointwise, *SDPA, pattern="*b s d, ... t d")
def softmax(
    b: Heads,
    s: Size,
    t: Size,
    attn_mask: TensorMeta | None = None,
    attn_bias: TensorMeta | None = None,
    dropout_p: float = 0.0,
) -> Size:
    """Per score: the scale, an add if there is a mask, softmax, and dropout if there is any."""
    masked = given(attn_mask, attn_bias)
    return product(b) * s * t * (1 + masked + WEIGHTS["softmax"] + (dropout_p > 0) * WEIGHTS["dropout"])


@each(rules.pointwise, *SDPA_BACKWARD, pattern="_, *b s d, ... t d, ... t e")
def softmax_backward(
    b: Heads,
    s: Size,
    t: Size,
    e: Size,
    attn_mask: TensorMeta | None = None,
    attn_bias: TensorMeta | None = None,
    dropout_p: float = 0.0,
) -> Size:
    """Per score: scale, mask, P = exp(S - lse), dS = P*(dP - D), scale, dropout twice; D sums dO*O."""
    per_score = 1 + given(attn_mask, attn_bias) + 2 + 2 + 1 + (dropout_p > 0) * 2 * WEIGHTS["dropout"]
    return product(b) * s * (t * per_score + 2 * e)


def padded(call: Call) -> tuple[Heads, Size, Size, Size, Size]:
    """(batch, heads), s, t, d, e of operands laid out (batch, length, heads, d), or packed (all lengths, heads, d)."""
    args = call.args
    query, key, value = args["query"], args["key"], args["value"]
    lengths = args.get("cum_seq_q", args.get("cu_seqlens_q"))
    batch, s, t = query.shape[0], query.shape[-3], key.shape[-3]
    if lengths is not None:
        batch = lengths.shape[0] - 1
        s = args.get("max_q", args.get("max_seqlen_q"))
        t = args.get("max_k", args.get("max_seqlen_k"))
    return (batch, query.shape[-2]), s, t, query.shape[-1], value.shape[-1]


@each(rules.flops, *PACKED)
def packed_attention(call: Call) -> Size:
    """As for equal lengths, each sequence padded to the longest."""
    return attention(*padded(call))


@each(rules.flops, *PACKED_BACKWARD)
def packed_attention_backward(call: Call) -> Size:
    """As for equal lengths, each sequence padded to the longest."""
    return attention_backward(*padded(call))


@each(rules.pointwise, *PACKED)
def packed_softmax(call: Call, dropout_p: float, bias: TensorMeta | None = None) -> Size:
    """As for equal lengths, each sequence padded to the longest."""
    b, s, t, _, _ = padded(call)
    return softmax(b, s, t, bias, None, dropout_p)


@each(rules.pointwise, *PACKED_BACKWARD)
def packed_softmax_backward(call: Call, dropout_p: float, bias: TensorMeta | None = None) -> Size:
    """As for equal lengths, each sequence padded to the longest."""
    b, s, t, _, e = padded(call)
    return softmax_backward(b, s, t, e, bias, None, dropout_p)


rules.overwrites("aten._flash_attention_forward_no_dropout_inplace")
