"""FLOP of transformers as lectures, books, reports and scripts count them, at any depth."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import sympy

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.gpts import WIDTH, at, gpt
from published.language import Form, Language, Sizes
from published.linear import BOOK, forward, params, total
from published.parameters import lecture_model
from published.training import part, role
from symacct.conventions.presets import preset

B, D, F, G, H, K, L, N, T, V, d, h, ks, q, s = symbols("B D F G H K L N T V d h ks q s")
KAPLAN = "Kaplan et al. 2020 Table 1"

# -- lecture and book ------------------------------------------------------------------------


def assignment() -> Proof:
    """The forward pass of CS336's model, part by part."""
    account = lecture_model()

    def sizes(d: int, L: int, T: int = 1024) -> dict[str, int]:
        return at(d, 64, F=4 * d, V=50257, L=L, T=T)

    def xl(found: int) -> tuple[Number, ...]:
        return (Number("XL", sizes(1600, 48), found),)

    step = L * (8 * T * d**2 + 4 * T**2 * d + 6 * T * d * F) + 2 * T * d * V
    totals = (
        *xl(4513336524800), Number("small", sizes(768, 12), 349630365696),
        Number("medium", sizes(1024, 24), 1033109504000),
        Number("large", sizes(1280, 36), 2257754521600), Number("XL, T=16384", sizes(1600, 48, 16384), 149522795724800),
    )  # fmt: skip
    figures = (
        Figure("forward FLOP", account, forward, step, numbers=totals, per="B"),
        Figure("projections", account, part(".query", ".key", ".value", ".out"), L * 8 * T * d**2,
               numbers=xl(1006632960000), per="B"),
        Figure("scores and values", account, part(".attention"), L * 4 * T**2 * d, numbers=xl(322122547200), per="B"),
        Figure("feed-forward", account, part(".up", ".gate", ".down"), L * 6 * T * d * F, numbers=xl(3019898880000),
               per="B"),
        Figure("logits", account, part("head"), 2 * T * d * V, numbers=xl(164682137600), per="B"),
    )  # fmt: skip
    return Proof('RMS norms, gated feed-forward, untied head, `depth="L"`', figures, WIDTH)


def book() -> Proof:
    """Chapter 4's table: training FLOP of a layer."""
    form = Form(norm="rms", last="rms", bias=False, gated=True, tied=False)
    model = sa.build(
        lambda D, Nq, hd, F, V, L: Language(Sizes(D, Nq, Nq, hd, F, V, 0, L), form), depth="L"
    )  # fmt: skip
    account = sa.trace(model, "i64[B, T]")
    Nq, hd = symbols("Nq hd")
    one = {"B": 1, "T": 1, "D": 8192, "Nq": 64, "hd": 128, "F": 28672, "V": 128256, "L": 80}

    def in_all(*ends: str) -> Any:
        return part(*ends, phase=None)

    figures = (
        Figure("MLP of a layer", account, in_all(".up", ".gate", ".down"), 18 * B * T * D * F,
               numbers=(Number("one token", one, 4227858432),), per="L"),
        Figure("attention's projections of a layer", account, in_all(".query", ".key", ".value", ".out"),
               24 * B * T * D * Nq * hd, numbers=(Number("one token", one, 1610612736),), per="L"),
        Figure("attention's products of a layer", account, in_all(".attention"), 12 * B * T**2 * Nq * hd,
               numbers=(Number("T=8192", one | {"T": 8192}, 6597069766656),), per="L"),
        Figure("unembedding", account, in_all("head"), 6 * B * T * D * V,
               numbers=(Number("one token", one, 6304038912),)),
    )  # fmt: skip
    return Proof('as many heads of keys, gated, untied head, `depth="L"`, forward and backward as run', figures)


# -- reports and scripts ---------------------------------------------------------------------


@cache
def grouped(fused: bool = True, inside: bool = False, gated: bool = True) -> sa.Account:
    """K heads of keys of size q, G queries for each; any width."""
    attention = "fused" if fused else "products"
    form = Form("rms", "rms", False, gated, False, inside=inside, grouped=True, attention=attention)
    model = sa.build(
        lambda h, K, G, q, F, V, L: Language(Sizes(h, K * G, K, q, F, V, 0, L), form), depth="L"
    )  # fmt: skip
    return sa.trace(model, "i64[B, s]")


def megatron_core() -> Proof:
    """Megatron-core's count of a Llama."""
    account = grouped()
    llama = {"B": 1, "s": 8192, "h": 4096, "F": 14336, "L": 32, "K": 8, "G": 4, "q": 128, "V": 128256}
    token = 18 * h * F * L + 6 * L * (h * (H * q + 2 * K * q) + H * q * s + H * q * h) + 6 * h * V
    hidden = (6 * L * H * q * s, "the half that the mask hides, which the script leaves out")
    again = (2 * L * H * q * s, "the scores that the fused kernel computes again in its backward pass")
    counted = account.under("megatron-core")
    figures = (
        Figure("FLOP of a step for each token", counted, total, token, (), (Number("Llama-3 8B", llama, 51470401536),),
               "B s"),
        Figure("FLOP of a step for each sequence", counted, total, s * token, (),
               (Number("Llama-3 8B", llama, 421645529382912),), "B"),
        Figure("as run, beside it", account, total, token, (hidden, again), per="B s"),
    )  # fmt: skip
    how = 'grouped queries, RMS norms, gated, untied head, fused causal attention, `depth="L"`; preset `megatron-core`'
    return Proof(how, figures, {"H": "K*G"})


def apertus() -> Proof:
    """Apertus 70B."""
    account = grouped(False, True, False).under("apertus")
    sizes = {"B": 15 * 10**12 // 4096, "s": 4096, "h": 8192, "q": 128, "K": 8, "G": 8, "F": 43008, "V": 131072, "L": 80}
    d, ks = h, q
    layer = (
        2 * s * d * ks * H + 4 * s * d * ks * K + 2 * s * ks * H * d + 4 * s * s * ks * H + 3 * H * s * s
        + 4 * s * (H + K) * ks + 4 * s * d * F + 8 * s * d
    )  # fmt: skip
    figure = Figure(
        "FLOP of training, B sequences", account, total, 3 * B * (L * layer + 2 * s * d * V),
        ((12 * B * s * d, "the norm before the head, 4 for each element, which the report leaves out"),),
        (Number("70B, 15e12 tokens", sizes, 6743614095360000000000000), Number("as printed", sizes, "6.74e24")),
    )  # fmt: skip
    how = 'grouped queries with norms, ungated, untied head, `depth="L"`; preset `apertus` (softmax 3, RMS norms 4)'
    return Proof(how, (figure,), {"H": "K*G"})


def eleuther() -> Proof:
    """The cookbook's script."""
    sizes = {"B": 3 * 10**11 // 2048, "T": 2048, "H": 96, "hd": 128, "V": 51200, "L": 96}
    account = gpt()
    ends = 4 * h + 2 * h * V
    layer = 24 * h**2 + 4 * T * h
    recomputed, without = account.under("eleuther"), account.under(replace(preset("eleuther"), recompute="none"))
    figures = (
        Figure("FLOP of training for each token, with recompute", recomputed, total, 4 * L * layer + ends, per="B T"),
        Figure("FLOP of training, B*T tokens, with recompute", recomputed, total, B * T * (4 * L * layer + ends), (),
               (Number("GPT-3", sizes, 429444734976000000000000), Number("as printed", sizes, "4.29e23"))),
        Figure("... without", without, total, B * T * (3 * L * layer + ends), (),
               (Number("GPT-3", sizes, 322177926758400000000000), Number("as printed", sizes, "3.22e23"))),
        Figure("a prefill of T tokens", recomputed, forward, T * (L * layer + ends), (),
               (Number("GPT-3", sizes | {"B": 1}, 734851825139712),), "B"),
        Figure("FLOP as run, beside the script without recompute", account, total, B * T * (3 * L * layer + ends), (
            (4 * B * T * h * V, "the logits' backward pass, which the script leaves out (X04)"),
            (-4 * B * T * h, "4*h for a lookup, which is no product"))),
    )  # fmt: skip
    how = 'GPT with biases, tied head, `depth="L"`; preset `eleuther`'
    return Proof(how, figures, {"h": "H*hd"})


def gpt3_training() -> Proof:
    """GPT-3's training compute."""
    counted = gpt().under("6nd")
    sizes = {"B": 3 * 10**11 // 2048, "T": 2048, "H": 96, "hd": 128, "V": 50257, "L": 96}
    count = (L * (12 * d**2 + 13 * d) + (V + T) * d + 2 * d).xreplace({d: H * symbols("hd")})
    rounded = sympy.Integer(174600000000)
    figures = (
        Figure("FLOP of training on B*T tokens", counted, total, 6 * N * B * T,
               numbers=(Number("300e9 tokens, as printed", sizes, "3.14e23"),)),
        Figure("the same at P = 174.6e9", counted, total, 6 * rounded * B * T,
               ((6 * (N - rounded) * B * T, "the paper puts in 174.6e9, the trace has all parameters"),),
               (Number("300e9 tokens", sizes, 314280000000000000000000),
                Number("300e9 tokens, in PF-days", sizes, "3637.5", 10**15 * 86400))),
    )  # fmt: skip
    return Proof('GPT with biases, T positions, tied head, `depth="L"`; preset `6nd`', figures, {"N": count})


MPTS = (("1b", 24, 2048, 1315950592), ("7b", 32, 4096, 6658859008), ("13b", 40, 5120, 12853954560),
        ("30b", 48, 7168, 29975214080), ("70b", 80, 8192, 64862437376))  # fmt: skip


def mpt() -> Proof:
    """Parameters and FLOP for each token of the MPT table."""
    counted = gpt(Form(attention="fused")).under("llm-foundry")
    published = L * (12 * d**2 + 13 * d) + (V + T) * d + 2 * d
    numbers = [Number(name, at(width, 128, L=L, V=50368, T=2048), n) for name, L, width, n in MPTS]
    numbers.append(Number("7b, T=65536", at(4096, 128, L=32, V=50368, T=65536), 6918905856))
    figures = (
        Figure("P", counted, params, published, numbers=tuple(numbers)),
        Figure("FLOP of a step for each token", counted, total, 6 * N + 12 * L * d * T, per="B T"),
    )
    names = {"d": "H*hd", "N": published.xreplace({d: H * symbols("hd")})}
    how = 'GPT with biases, T learned positions, tied head, 50,368 words, fused attention, `depth="L"`; `llm-foundry`'
    return Proof(how, figures, names)


def kipply() -> Proof:
    """FLOP of a forward pass for each token."""
    account = gpt().under("torch")
    sizes = at(8192, 128, L=64, V=65536, T=2048)
    figures = (
        Figure("keys and values for each token", account, part(".key", ".value"), 4 * L * d**2,
               numbers=(Number("52B", sizes, 17179869184),), per="B T"),
        Figure("all blocks for each token", account, role("weights"), 24 * L * d**2,
               numbers=(Number("52B", sizes, 103079215104),), per="B T"),
        Figure("the whole forward pass, beside it", account, forward, 24 * L * d**2, (
            (4 * L * T * d, "scores and values"), (2 * d * V, "logits")), per="B T"),
    )  # fmt: skip
    return Proof('GPT with biases, tied head, `depth="L"`', figures, WIDTH)


ENTRIES = (
    Entry("N011", "GPT-3's training FLOP", "Brown et al. 2020 Table D.1", "6*P*D = 3.14e23 FLOP", gpt3_training),
    Entry("N070", "The forward pass of the CS336 model", "CS336 Spring 2025 assignment 1",
          "L*(8*T*d**2 + 4*T**2*d + 6*T*d*F) + 2*T*d*V", assignment),
    Entry("N071", "Training FLOP of a layer in the JAX book", f"{BOOK}, ch. 4", "18*B*T*D*F, 24*B*T*D*Nq*hd, "
          "12*B*T**2*Nq*hd, 6*B*T*D*V", book),
    Entry("N072", "Megatron-core's count with grouped queries", "Megatron-LM training.py "
          "num_floating_point_operations", "18*h*F*L + 6*L*(h*(H*q + 2*K*q) + H*q*s + H*q*h) + 6*h*V for each token",
          megatron_core),
    Entry("N074", "Apertus", "Apertus technical report 2025, Appendix E", "softmax 3, norms 4 for each element",
          apertus),
    Entry("N075", "The EleutherAI cookbook", "EleutherAI/cookbook calc_transformer_flops.py",
          "4*L*(24*h**2 + 4*s*h) + 4*h + 2*h*V for each token", eleuther),
    Entry("N076", "MPT's table", "llm-foundry benchmarking README", "6*P + 12*L*d*T for each token", mpt),
    Entry("N077", "A forward pass of 52B", "kipply, Transformer Inference Arithmetic 2022", "24*L*d**2 for each token",
          kipply),
)  # fmt: skip
