"""Attention by itself: FLOP and bytes of the fused kernel, the cache of keys and values."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.language import Attention, Block, Form, Sizes
from published.linear import BOOK, backward, forward, total
from symacct.conventions.presets import Convention

B, D, G, H, K, L, S, T, hd = symbols("B D G H K L S T hd")


@cache
def fused(causal: bool = True) -> sa.Account:
    """A step of scaled_dot_product_attention of T tokens to themselves."""
    specs = [sa.spec("B H T hd", grad=True)] * 3
    return sa.trace(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *specs)


@cache
def products() -> sa.Account:
    """The same by two products."""
    specs = [sa.spec("B H T hd", grad=True)] * 3
    return sa.trace(lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1), -1) @ v, *specs)


def kernel() -> Proof:
    """Forward, half of it, backward of five products."""
    sizes = {"B": 1, "H": 16, "T": 2048, "hd": 64}
    each = B * H * T**2 * hd
    half = fused().under(Convention(causal="half"))
    figures = (
        Figure("forward FLOP", fused(), forward, 4 * each, numbers=(Number("benchmark", sizes, 17179869184),)),
        Figure("forward FLOP, causal half", half, forward, 2 * each, numbers=(Number("benchmark", sizes, 8589934592),)),
        Figure("backward FLOP: five products", fused(), backward, 10 * each,
               numbers=(Number("benchmark", sizes, 42949672960),)),
        Figure("both: 3.5 times the forward pass", fused(), total, 14 * each),
        Figure("backward FLOP by two products: 2 times their forward pass", products(), backward, 8 * each),
    )  # fmt: skip
    return Proof('`scaled_dot_product_attention`, `"B H T hd"`, causal; presets `torch`, causal half', figures)


def intensity() -> Proof:
    """FLOP and bytes of the fused kernel, T queries and S keys, G queries for each of K heads of keys."""
    specs = ("bf16[B, (K G), T, hd]", *["bf16[B, K, S, hd]"] * 2)
    account = sa.trace(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), *specs, train=False
    )  # fmt: skip

    def core(kind: str) -> Any:
        def measure(found: Any) -> Any:
            return sum(getattr(part, kind) for op, part in found.by_op().items() if "scaled_dot" in op)

        return measure

    sums = (4 * B * K * G * T, "float32 log-sum-exps, one for each query and head")
    figures = (
        Figure("FLOP", account, core("flops"), 4 * B * K * G * T * S * hd),
        Figure("bytes", account, core("bytes"), 2 * (2 * B * K * G * T * hd + 2 * B * K * S * hd), (sums,)),
    )
    how = "fused attention on bfloat16 tensors; FLOP/bytes is S*T*G/(S + T*G), log-sum-exps aside"
    return Proof(how, figures)


# -- the cache -------------------------------------------------------------------------------


class Prefill(nn.Module):
    """Blocks that return keys and values of all tokens."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(sizes, form) for _ in range(sizes.depth))
        self.bfloat16()

    def forward(self, x: Any) -> Any:
        """The cache: keys and values of each block."""
        kept = []
        for block in self.blocks:
            y = block.norm(x)
            kept.append(block.attention.kept(y))
            x = x + block.attention.attend(y, *kept[-1])
            x = x + block.inner(block.second(x))
        return kept


class Decode(nn.Module):
    """Attention of one new token to all before it and itself."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        self.attention = Attention(sizes, form)
        self.bfloat16()

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        """x: (batch, 1, width)."""
        key, value = self.attention.kept(x)
        return self.attention.attend(x, torch.cat((keys, key), 2), torch.cat((values, value), 2))


def returned(account: Any) -> Any:
    """Bytes that a forward pass returns."""

    def outputs(member: sa.Account) -> Any:
        return member.memory.later.moments[-1].by_kind().get("outputs", 0)

    return account._value(account.symbolic.fit("outputs", outputs))


CACHES = (  # layers, key heads, queries for each, head size, tokens, bytes
    ("52B of kipply", 64, 64, 1, 128, 1, 2097152), ("Llama-2-7B", 32, 32, 1, 128, 1, 524288),
    ("Llama-2-13B, 8192 tokens", 40, 40, 1, 128, 8192, 6710886400), ("Llama-3-70B", 80, 8, 8, 128, 1, 327680),
    ("Llama-3.1-405B", 126, 8, 16, 128, 1, 516096), ("GPT-3", 96, 96, 1, 128, 1, 4718592),
    ("PaLM 540B", 118, 1, 48, 256, 1, 120832),
)  # fmt: skip


def key_value_cache() -> Proof:
    """Bytes of the cache, and what a decode step does with it."""
    form = Form("rms", "rms", False, True, grouped=True)
    prefill = sa.build(
        lambda D, K, G, hd, L: Prefill(Sizes(D, K * G, K, hd, 4 * D, 1, 0, L), form), depth="L"
    )  # fmt: skip
    account = sa.trace(prefill, "bf16[B, T, D]", train=False)
    rows = tuple(
        Number(name, {"B": 1, "T": tokens, "D": keys * each * size, "K": keys, "G": each, "hd": size, "L": layers}, n)
        for name, layers, keys, each, size, tokens, n in CACHES
    )
    decode = sa.build(lambda D, K, G, hd: Decode(Sizes(D, K * G, K, hd, 1, 1, 0, 1), form))
    step = sa.trace(decode, "bf16[B, 1, D]", *["bf16[B, K, S, hd]"] * 2, train=False)
    matrices = 2 * D * K * G * hd + 2 * D * K * hd

    def cache_bytes(found: Any) -> Any:
        return found.input_bytes

    figures = (
        Figure("bytes of the cache after a prefill", account, returned, 2 * 2 * B * T * L * K * hd, numbers=rows),
        Figure("FLOP of a decode step's attention, one layer, S tokens in the cache", step, forward,
               2 * B * matrices + 4 * B * K * G * S * hd,
               ((4 * B * K * G * hd, "the new token attends to itself too"),)),
        Figure("bytes of the cache that a decode step is given, one layer", step, cache_bytes, 2 * 2 * B * S * K * hd,
               ((2 * B * D, "the new token's activations, the other input"),)),
    )  # fmt: skip
    how = 'bfloat16 blocks with K heads of keys, G queries for each, `depth="L"`; a decode step of one layer'
    return Proof(how, figures)


class Checkpointed(nn.Module):
    """Blocks that keep nothing but what goes into them."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(sizes, form) for _ in range(sizes.depth))
        self.bfloat16()

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x


def block_inputs() -> Proof:
    """What is kept of a layer that is computed again."""
    form = Form("rms", "rms", False, True)
    model = sa.build(
        lambda D, H, hd, L: Checkpointed(Sizes(D, H, H, hd, 4 * D, 1, 0, L), form), depth="L"
    )  # fmt: skip
    account = sa.trace(model, "bf16[B, T, D]", grad=True)

    def kept(found: Any) -> Any:
        return found.activation_bytes + found.input_bytes

    sizes = {"B": 1, "T": 4 * 10**6, "D": 8192, "H": 64, "hd": 128, "L": 64}
    figure = Figure("bytes of activations, the input included", account, kept, 2 * B * T * D * L, ((2, "the loss"),),
                    (Number("64 layers, B*T = 4e6", sizes, 4194304000000),))  # fmt: skip
    return Proof('bfloat16 blocks, `torch.utils.checkpoint` around each, `depth="L"`', (figure,))


ENTRIES = (
    Entry("N041", "Intensity of attention", f"{BOOK}, ch. 4 and 7", "4*B*H*T*S*hd FLOP; bytes of q, k, v and "
          "the result", intensity),
    Entry("N079", "Fused attention", "flash-attention's benchmark; torch.utils.flop_counter", "4*B*H*T**2*hd forward, "
          "half of it causal, 10*B*H*T**2*hd backward", kernel),
    Entry("N096, N099", "A layer that is computed again", "Korthikanti et al. 2022; JAX book ch. 4",
          "2*s*b*h bytes are kept of a layer: 2*B*T*D*L", block_inputs),
    Entry("N101", "The cache of keys and values", "kipply 2022; JAX book ch. 4, 7, 8; DeepSeek-AI 2025 Table 1",
          "2*2*L*K*hd bytes for each token (X01)", key_value_cache),
)  # fmt: skip
