"""The fused inference paths of nn.MultiheadAttention and nn.TransformerEncoderLayer.

Counted: the sum of what they fuse, from the rules of matrix products, attention and
normalisation; equal to the same modules unfused. Bytes: operands and results only, a lower
bound, since the parts hand on their results through memory. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta
from symacct.rule import Rules
from symacct.rules.attention import attention
from symacct.rules.common import given
from symacct.rules.matmul import matmul
from symacct.rules.normalization import normalise
from symacct.rules.weights import WEIGHTS

rules = Rules("transformer fast paths")

MHA = "aten._native_multi_head_attention"
ENCODER = "aten._transformer_encoder_layer_fwd"


@rules.flops(MHA, "b s e, b t e")
def mha(b: Size, s: Size, t: Size, e: Size) -> Size:
    """Projections of queries, keys and values, attention (in which heads cancel), projection of the result."""
    queries, keys = matmul(m=b * s, k=e, n=e), matmul(m=b * t, k=e, n=e)
    return queries + 2 * keys + attention((b,), s, t, e, e) + queries


@rules.pointwise(MHA, "b s e, b t e")
def mha_pointwise(
    b: Size,
    s: Size,
    t: Size,
    e: Size,
    num_head: Size,
    mask: TensorMeta | None,
    need_weights: bool,
    average_attn_weights: bool,
) -> Size:
    """Four biases, the scale of the queries, softmax with its mask, the average of the weights over heads."""
    scores = b * num_head * s * t * (WEIGHTS["softmax"] + given(mask))
    average = (b * num_head * s * t + b * s * t) * int(need_weights and average_attn_weights)
    return b * e * (s + 2 * t + s) + b * s * e + scores + average


@rules.flops(ENCODER, "b s e, _, _, _, _, _, _, _, _, f e")
def encoder(b: Size, s: Size, e: Size, f: Size) -> Size:
    """Attention, then two linear layers."""
    return mha(b, s, s, e) + matmul(m=b * s, k=e, n=f) + matmul(m=b * s, k=f, n=e)


@rules.pointwise(ENCODER, "b s e, _, _, _, _, _, _, _, _, f e")
def encoder_pointwise(
    b: Size, s: Size, e: Size, f: Size, num_heads: Size, use_gelu: bool, mask: TensorMeta | None, src: TensorMeta
) -> Size:
    """Attention without its weights, biases, the activation, two residual adds, two norms with weight and bias."""
    activation = WEIGHTS["gelu" if use_gelu else "relu"]
    norm = normalise(b * s * e, b * s, src, src)
    parts = mha_pointwise(b, s, s, e, num_heads, mask, False, False)
    return parts + b * s * (f + e) + activation * b * s * f + 2 * b * s * e + 2 * norm


@rules.pointwise("aten._transform_bias_rescale_qkv")
def rescale_qkv(call: Call, qkv: TensorMeta) -> Size:
    """A bias for all, and the scale of the queries, which are the first result."""
    return qkv.numel + call.outputs[0].numel
