"""GPT, of which most formulas speak, at any depth, and its parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy
import torch

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.language import Form, Language, Sizes
from published.linear import params
from symacct.conventions.presets import Convention

H, L, T, V, a, d, h, hd, s = symbols("H L T V a d h hd s")
l = symbols("l")  # noqa: E741 - layers, as Megatron writes them
WIDTH = {"d": "H*hd"}


def gpt_sizes(H: int, hd: int, V: int, T: int, L: int) -> Sizes:
    """A GPT: heads make up the width, the feed-forward part is four times as wide."""
    return Sizes(H * hd, H, H, hd, 4 * H * hd, V, T, L)


PLAIN = Form()


@cache
def gpt(form: Form = PLAIN, optimizer: Any = None) -> sa.Account:
    """A step of a GPT with learned positions, as many as the sequence is long."""
    model = sa.build(lambda H, hd, V, T, L: Language(gpt_sizes(H, hd, V, T, L), form), depth="L")
    return sa.trace(model, "i64[B, T]", optimizer=optimizer)


BIAS_FREE = Form(norm="gain", last="gain", bias=False)


def at(d: int, hd: int, **sizes: int) -> dict[str, int]:
    """Sizes of a GPT of width d: its heads have size hd."""
    return {"B": 1, "H": d // hd, "hd": hd} | sizes


@cache
def transformers_gpt2() -> sa.Account:
    """GPT-2 as transformers has it, at any depth."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = sa.build(
        lambda H, hd, V, T, L: GPT2LMHeadModel(
            GPT2Config(n_embd=H * hd, n_head=H, n_layer=L, vocab_size=V, n_positions=T, use_cache=False)
        ),
        depth="L",
    )
    return sa.trace(model, input_ids="i64[B, T]", train=False)


def gpt2() -> Proof:
    """GPT-2 and GPT-3."""
    numbers = (
        Number("GPT-2", at(768, 64, B=2, L=12, V=50257, T=1024), 124439808),
        Number("GPT-2 XL", at(1600, 64, B=2, L=48, V=50257, T=1024), 1557611200),
        Number("GPT-3", at(12288, 128, B=2, L=96, V=50257, T=2048), 174604259328),
        Number("GPT-3, as printed", at(12288, 128, B=2, L=96, V=50257, T=2048), "174.6e9"),
    )
    published = L * (12 * d**2 + 13 * d) + (V + T) * d + 2 * d
    figure = Figure("parameters", transformers_gpt2(), params, published, numbers=numbers)
    return Proof('`GPT2LMHeadModel` of transformers, `depth="L"`, T positions', (figure,), WIDTH)


def nanogpt() -> Proof:
    """GPT-2 without biases, and its checkpoint."""
    account = gpt(BIAS_FREE, torch.optim.AdamW)
    small = at(768, 64, L=12, V=50257, T=1024)
    published = L * (12 * d**2 + 2 * d) + (V + T) * d + d
    figures = (
        Figure("parameters", account, params, published, numbers=(Number("GPT-2", small, 124337664),)),
        Figure(
            "bytes of weights and AdamW's two buffers, float32", account,
            lambda x: x.param_bytes + x.optimizer_bytes, 12 * published,
            ((4 * (8 * L + 3), "AdamW's step counter, 4 bytes for each tensor (8 in a layer, 3 beside them)"),),
            (Number("GPT-2", small, 1492051968),),
        ),
    )  # fmt: skip
    return Proof('GPT without biases, tied head, T positions, AdamW, `depth="L"`', figures, WIDTH)


def kipply() -> Proof:
    """A block has 12*d**2 parameters in matrices."""
    account, sizes = gpt(), at(8192, 128, L=64, V=65536, T=2048)
    blocks, tied = (account.under(Convention(params=kinds)) for kinds in (("matrix",), ("matrix", "tied")))
    figures = (
        Figure("parameters in the blocks' matrices", blocks, params, 12 * L * d**2,
               numbers=(Number("52B", sizes, 51539607552),)),
        Figure("with one table of embeddings", tied, params, 12 * L * d**2 + V * d,
               numbers=(Number("52B", sizes, 52076478464),)),
        Figure("all parameters, beside the latter", account, params, 12 * L * d**2 + V * d, (
            (13 * L * d, "biases and norms of the blocks"), (2 * d, "the last norm"), (T * d, "positions")),
            (Number("52B", sizes, 52076478464),)),
    )  # fmt: skip
    return Proof('GPT with biases, tied head, T positions, `depth="L"`; N of matrices', figures, WIDTH)


MEGATRON = (  # layers, width, heads, billions as printed
    (24, 2304, 24, "1.7e9"), (30, 3072, 32, "3.6e9"), (36, 4096, 32, "7.5e9"), (40, 6144, 48, "18.4e9"),
    (48, 8192, 64, "39.1e9"), (60, 10240, 80, "76.1e9"), (80, 12288, 96, "145.6e9"), (96, 16384, 128, "310.1e9"),
    (105, 20480, 128, "529.6e9"), (128, 25600, 160, "1008.0e9"),
)  # fmt: skip


@cache
def megatron_gpt() -> sa.Account:
    """The same GPT in Megatron's letters: a heads, l layers, s tokens."""
    model = sa.build(lambda a, hd, V, s, l: Language(gpt_sizes(a, hd, V, s, l), PLAIN), depth="l")  # noqa: E741
    return sa.trace(model, "i64[B, s]")


def megatron_sizes(layers: int, width: int, heads: int, batch: int = 1) -> dict[str, int]:
    """A row of the papers: a vocabulary of 51,200, 2,048 tokens."""
    return {"B": batch, "a": heads, "hd": width // heads, "V": 51200, "s": 2048, "l": layers}


def megatron() -> Proof:
    """Equation 2 and Table 1."""
    published = 12 * l * h**2 * (1 + sympy.Rational(13, 12) / h + (V + s) / (12 * l * h))
    numbers = [
        Number("175B", megatron_sizes(96, 12288, 96), 174615822336),
        Number("1T", megatron_sizes(128, 25600, 160), 1008038707200),
    ]
    numbers += [Number(f"Table 1, {n}", megatron_sizes(*row), n) for *row, n in MEGATRON]
    figure = Figure(
        "parameters", megatron_gpt(), params, published, ((2 * h, "the norm after the last layer"),), tuple(numbers)
    )
    return Proof('GPT with biases, tied head, s positions, `depth="l"`', (figure,), {"h": "a*hd"})


ENTRIES = (
    Entry("N046", "GPT-2 and GPT-3", "Radford et al. 2019, Brown et al. 2020", "L*(12*d**2 + 13*d) + (V + T)*d + 2*d",
          gpt2),
    Entry("N047", "GPT-2 without biases", "nanoGPT transformer_sizing.ipynb", "L*(12*d**2 + 2*d) + (V + T)*d + d "
          "parameters, 12 bytes for each in a checkpoint", nanogpt),
    Entry("N048", "12*L*d**2", "kipply, LLM Parameter Counting 2022", "12*L*d**2 in the blocks, V*d in the embedding",
          kipply),
    Entry("N049", "Megatron's parameter formula", "Narayanan et al. 2021, eq. 2 and Table 1",
          "12*l*h**2*(1 + 13/(12*h) + (V + s)/(12*l*h))", megatron),
)  # fmt: skip
