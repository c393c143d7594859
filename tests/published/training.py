"""FLOP of transformers in training: the formulas of papers and scripts, at any depth."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import sympy
from torch.utils.checkpoint import set_checkpoint_early_stop

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.gpts import BIAS_FREE, WIDTH, at, gpt, gpt_sizes, megatron_gpt, megatron_sizes
from published.language import Form, Language, Sizes
from published.linear import BOOK, backward, forward, params, total
from published.parameters import palm_model
from symacct.conventions.presets import preset

B, F, H, L, N, T, V, d, da, h, ks, nh, q, s = symbols("B F H L N T V d da h ks nh q s")
l = symbols("l")  # noqa: E741 - layers, as Megatron writes them
KAPLAN = "Kaplan et al. 2020 Table 1"
HOFFMANN = "Hoffmann et al. 2022"


def part(*ends: str, phase: str | None = "forward") -> Any:
    """A measure: FLOP of the modules whose paths end so."""
    return lambda account: sum(
        group.flops for path, group in account.by_module(None, phase).items() if path.endswith(ends)
    )


def role(name: str, phase: str | None = "forward") -> Any:
    """A measure: FLOP of what is for a purpose ("scores", "softmax", ...), of an account under a convention."""

    def of_member(member: Any) -> Any:
        return member.by_role(phase).get(name, 0)

    def measure(account: Any) -> Any:
        return account._value(account.symbolic.fit(name, of_member))

    return measure


# -- Kaplan ----------------------------------------------------------------------------------


@cache
def kaplan_model() -> sa.Account:
    """A GPT whose attention and feed-forward part have widths of their own: da = H*hd and F."""
    model = sa.build(lambda d, H, hd, F, V, T, L: Language(Sizes(d, H, H, hd, F, V, T, L), Form()), depth="L")
    return sa.trace(model, "i64[B, T]")


def kaplan() -> Proof:
    """Table 1, row by row, for each token."""
    sizes = {"B": 1, "T": 2048, "d": 12288, "H": 96, "hd": 128, "F": 49152, "V": 50257, "L": 96}
    plain = kaplan_model()
    counted = plain.under("kaplan")
    ends = plain.under(replace(preset("kaplan"), embedding="4d", head=True))
    size = 2 * d * L * (2 * da + F)
    rows = (
        ("attention: query, key, value", counted, part(".query", ".key", ".value"), 2 * L * d * 3 * da, 86973087744),
        ("attention: mask", counted, part(".attention"), 2 * L * T * da, 4831838208),
        ("attention: projection", counted, part(".out"), 2 * L * da * d, 28991029248),
        ("feed-forward", counted, part(".up", ".down"), 2 * L * 2 * d * F, 231928233984),
        ("embedding (4*d)", ends, part("words"), 4 * d, 49152),
        ("de-embedding", ends, part("head"), 2 * d * V, 1235116032),
        ("C_forward", counted, forward, 2 * size + 2 * L * T * da, 352724189184),
    )
    figures = [Figure("N, without embeddings", counted, params, size, numbers=(Number("GPT-3", sizes, 173946175488),))]
    figures += [
        Figure(name, account, measure, wanted, numbers=(Number("GPT-3", sizes, number),), per="B T")
        for name, account, measure, wanted, number in rows
    ]
    core = Figure(
        "C_forward with attention in full, as it is run", plain.under(replace(preset("kaplan"), causal="full")),
        forward, 2 * size + 2 * L * T * da, ((2 * L * T * da, "the half that the mask hides, and products compute"),),
        per="B T",
    )  # fmt: skip
    how = 'GPT with da = H*hd and F free, biases, tied head, `depth="L"`; preset `kaplan` (causal half, no head)'
    return Proof(how, (*figures, core), {"da": "H*hd"})


# -- GPT-2, PaLM -----------------------------------------------------------------------------


def gpt2_small() -> Proof:
    """A step of GPT-2 small."""
    sizes = at(768, 64, L=12, V=50257, T=1024)
    account = gpt(BIAS_FREE)
    step = L * (24 * T * d**2 + 4 * T**2 * d) + 2 * T * d * V
    estimate = account.under("nanogpt")
    count = L * (12 * d**2 + 2 * d) + V * d + d
    products = (".query", ".key", ".value", ".out", ".attention")

    def number(found: int) -> tuple[Number, ...]:
        return (Number("GPT-2 small", sizes, found),)

    figures = (
        Figure("forward FLOP", account, forward, step, numbers=number(291648307200), per="B"),
        Figure("backward FLOP, as autograd runs it", account, backward, 2 * step, numbers=number(583296614400),
               per="B"),
        Figure("attention part of a block", account, part(*products), 8 * T * d**2 + 4 * T**2 * d,
               numbers=number(8053063680), per="B L"),
        Figure("MLP part of a block", account, part(".up", ".down"), 16 * T * d**2, numbers=number(9663676416),
               per="B L"),
        Figure("logits", account, part("head"), 2 * T * d * V, numbers=number(79047426048), per="B"),
        Figure("forward and backward FLOP", account, total, 3 * step, numbers=number(874944921600), per="B"),
        Figure("N, without positions", estimate, params, count, numbers=number(123551232)),
        Figure("PaLM's estimate", estimate, total, (6 * count + 12 * L * d * T) * T, numbers=number(875062886400),
               per="B"),
        Figure("PaLM's estimate, beside what is run", estimate, total, 3 * step,
               ((6 * T * (2 * L * d + d), "6 for each gain of a norm, which is no product"),), per="B"),
    )  # fmt: skip
    how = 'GPT without biases, tied head, T positions, `depth="L"`; presets `torch`, `nanogpt`'
    return Proof(how, figures, WIDTH)


def palm_flops() -> Proof:
    """6*N + 12*L*H*q*T for each token."""
    sizes = {"B": 1, "T": 2048, "d": 18432, "H": 48, "q": 256, "V": 256000, "L": 118}
    account = palm_model()
    counted = account.under("palm")
    count = L * (2 * d * H * q + 2 * d * q + 12 * d * d + d) + V * d + d
    rounded = (6 * (count - 540350000000), "the paper puts in N = 540.35e9, the trace has all parameters")
    figures = (
        Figure("FLOP of a step for each token", counted, total, 6 * N + 12 * L * H * q * T, per="B T"),
        Figure("the same at N = 540.35e9", counted, total, 6 * sympy.Integer(540350000000) + 12 * L * H * q * T,
               (rounded,), (Number("540B", sizes, 3277734806784),), per="B T"),
        Figure("FLOP as run, beside the formula", account, total, 6 * N + 12 * L * H * q * T,
               ((-6 * (L * d + d), "6 for each gain of a norm, which is no product"),), per="B T"),
    )  # fmt: skip
    how = 'multi-query, parallel blocks, gated feed-forward of 4*d, tied head, `depth="L"`; preset `palm`'
    return Proof(how, figures, {"N": count})


# -- Megatron --------------------------------------------------------------------------------


def model_flops(attention: int) -> Any:
    """72*B*s*l*h**2*(1 + s/(attention*h) + V/(12*h*l))."""
    return 72 * B * s * l * h**2 * (1 + s / (attention * h) + V / (12 * h * l))


def megatron() -> Proof:
    """Korthikanti's model and hardware FLOP."""
    gpt3 = megatron_sizes(96, 12288, 96, 64)
    account = megatron_gpt()
    once = replace(preset("megatron-selective"), recompute_times=1)
    figures = (
        Figure("model FLOP of an iteration", account.under("megatron"), total, model_flops(6),
               numbers=(Number("GPT-3, B=64", gpt3, 141091531099471872),)),
        Figure("as autograd runs it, without recompute", account, total, model_flops(6),
               numbers=(Number("GPT-3, B=64", gpt3, 141091531099471872),)),
        Figure("hardware FLOP, selective recompute", account.under("megatron-selective"), total, model_flops(3),
               numbers=(Number("GPT-3, B=64", gpt3, 144891443285065728),)),
        Figure("... with attention computed again once, as a checkpoint does", account.under(once), total,
               model_flops(3), ((-8 * B * l * s**2 * h, "the paper takes the repeated attention three times, as if it "
               "had a backward pass of its own"),)),
    )  # fmt: skip
    how = 'GPT with biases, tied head, s positions, `depth="l"`; presets `torch`, `megatron`, `megatron-selective`'
    return Proof(how, figures, {"h": "a*hd"})


RECOMPUTED = Form(recompute=True)


@cache
def recomputed(early: bool) -> sa.Account:
    """The same GPT with a checkpoint around each block."""
    model = sa.build(lambda a, hd, V, s, l: Language(gpt_sizes(a, hd, V, s, l), RECOMPUTED), depth="l")  # noqa: E741
    with set_checkpoint_early_stop(early):
        return sa.trace(model, "i64[B, s]")


def megatron_full() -> Proof:
    """Narayanan's formula, from a convention and from real checkpoints."""
    formula = 96 * B * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))
    numbers = (
        Number("175B, B=1536", megatron_sizes(96, 12288, 96, 1536), 4510970753323106304),
        Number("1T, B=3072", megatron_sizes(128, 25600, 160, 3072), 51390513775273574400),
    )
    last = (-8 * B * s * l * h**2, "the last product of each block, before which torch's early stop ends the recompute")
    figures = (
        Figure("preset `megatron-full`", megatron_gpt().under("megatron-full"), total, formula, numbers=numbers),
        Figure("checkpoints as run, without early stop", recomputed(False), total, formula, numbers=numbers),
        Figure("checkpoints as torch runs them", recomputed(True), total, formula, (last,), numbers),
        Figure("the same, its recompute left out (`megatron`)", recomputed(True).under("megatron"), total,
               model_flops(6)),
    )  # fmt: skip
    how = 'GPT with biases, tied head, s positions, `torch.utils.checkpoint` around each block, `depth="l"`'
    return Proof(how, figures, {"h": "a*hd"})


def full_recompute() -> Proof:
    """8 for each parameter and token."""
    counted = gpt().under(replace(preset("6nd"), recompute="full", params=("matrix", "vector")))
    figure = Figure("FLOP of a step for each token", counted, total, 8 * N, per="B T")
    names = {"N": L * (12 * (symbols("H") * symbols("hd")) ** 2 + 13 * H * symbols("hd")) + 2 * H * symbols("hd")}
    return Proof("GPT with biases, `depth=\"L\"`; 6nd with full recompute, N of the blocks and the last norm",
                 (figure,), names)  # fmt: skip


# -- Chinchilla ------------------------------------------------------------------------------

CHINCHILLAS = (  # name, L, d, F, heads, head size, ratio, as published
    ("73M", 10, 640, 2560, 10, 64, "1.02639", "1.03"), ("305M", 20, 1024, 4096, 16, 64, "1.10193", "1.10"),
    ("552M", 24, 1280, 5120, 10, 128, "1.08383", "1.08"), ("1.1B", 26, 1792, 7168, 14, 128, "1.04474", "1.04"),
    ("1.6B", 28, 2048, 8192, 16, 128, "1.03346", "1.03"), ("6.8B", 40, 3584, 14336, 28, 128, "0.994429", "0.99"),
)  # fmt: skip


@cache
def chinchilla_model() -> sa.Account:
    """Chinchilla without its relative positions, which its Appendix F does not count."""
    form = Form(norm="rms", last="rms", bias=False)
    model = sa.build(
        lambda d, nh, ks, F, V, L: Language(Sizes(d, nh, nh, ks, F, V, 0, L), form), depth="L"
    )  # fmt: skip
    return sa.trace(model, "i64[B, s]")


def chinchilla_sizes(L: int, d: int, F: int, nh: int, ks: int) -> dict[str, int]:
    """A row of Table A4."""
    return {"B": 1, "s": 2048, "V": 32000, "L": L, "d": d, "F": F, "nh": nh, "ks": ks}


def chinchilla() -> Proof:
    """Appendix F, component by component."""
    sizes = chinchilla_sizes(10, 640, 2560, 10, 64)
    counted = chinchilla_model().under("chinchilla")
    rows = (
        ("embedding (one-hot)", part("words"), 2 * s * V * d, 83886080000, "B"),
        ("query, key, value", part(".query", ".key", ".value"), 2 * 3 * s * d * ks * nh, 5033164800, "B L"),
        ("logits of attention", role("scores"), 2 * s * s * ks * nh, 5368709120, "B L"),
        ("softmax", role("softmax"), 3 * nh * s * s, 125829120, "B L"),
        ("softmax @ value", role("values"), 2 * s * s * ks * nh, 5368709120, "B L"),
        ("output projection", part(".out"), 2 * s * ks * nh * d, 1677721600, "B L"),
        ("dense", part(".up", ".down"), 2 * s * (d * F + d * F), 13421772800, "B L"),
        ("logits", part("head"), 2 * s * d * V, 83886080000, "B"),
    )
    figures = [
        Figure(name, counted, measure, wanted, numbers=(Number("73M", sizes, number),), per=per)
        for name, measure, wanted, number, per in rows
    ]
    layer = 8 * s * d * ks * nh + 4 * s * s * ks * nh + 3 * nh * s * s + 4 * s * d * F
    figures.append(Figure("a step: forward, and twice that backward", counted, total, 3 * (L * layer + 4 * s * d * V),
                          per="B"))  # fmt: skip
    how = 'no biases, tied head, `depth="L"`; preset `chinchilla` (one-hot embedding, softmax 3)'
    return Proof(how, tuple(figures))


def chinchilla_ratio() -> Proof:
    """Table A4: the paper's own count beside 6*N for each token."""
    plain = chinchilla_model()
    counted = plain.under("chinchilla-a4")
    kinds = plain.under(replace(preset("chinchilla-a4"), params=("matrix", "tied")))
    layer = 8 * s * d * ks * nh + 4 * s * s * ks * nh + 3 * nh * s * s + 4 * s * d * F
    size = L * (5 * d * ks * nh + 2 * d * F) + V * d
    numbers = []
    for name, *sizes, ratio, printed in CHINCHILLAS:
        over = 2 * s * size
        numbers += [Number(f"{name}, ratio", chinchilla_sizes(*sizes), text, over) for text in (ratio, printed)]
    relative = (-L * d * ks * nh, "the projection of relative positions, which the paper has in N and not in its FLOP")
    figures = (
        Figure("N of matrices and the table of embeddings", kinds, params, size, (relative,)),
        Figure("forward FLOP, embedding and logits left out (X08), over 2*s*N", counted, forward, L * layer, (),
               tuple(numbers), "B"),
    )  # fmt: skip
    return Proof("as N068; preset `chinchilla-a4`", figures)


ENTRIES = (
    Entry("N061", "Kaplan's table", KAPLAN, "C_forward = 2*N + 2*L*T*da for each token, N = 2*d*L*(2*da + F)", kaplan),
    Entry("N062, N063", "A step of GPT-2 small", "nanoGPT transformer_sizing.ipynb",
          "L*(24*T*d**2 + 4*T**2*d) + 2*T*d*V forward, twice that backward", gpt2_small),
    Entry("N064", "PaLM's 6*N + 12*L*H*Q*T", "Chowdhery et al. 2022 Appendix B", "6*N + 12*L*H*Q*T for each token",
          palm_flops),
    Entry("N065", "Megatron with full recompute", "Narayanan et al. 2021, eq. 3",
          "96*B*s*l*h**2*(1 + s/(6*h) + V/(16*l*h))", megatron_full),
    Entry("N066", "Megatron's model and hardware FLOP", "Korthikanti et al. 2022, Appendix A",
          "72*B*l*s*h**2*(1 + s/(6*h) + V/(12*h*l)) model FLOP, s/(3*h) with selective recompute", megatron),
    Entry("N067", "8*N with full recompute", f"{BOOK}, ch. 4; EleutherAI, Transformer Math 101", "8*N for each token",
          full_recompute),
    Entry("N068", "Chinchilla's appendix", f"{HOFFMANN}, Appendix F", "components of the forward pass, for each "
          "sequence and layer", chinchilla),
    Entry("N069", "Chinchilla's ratios", f"{HOFFMANN}, Table A4", "own count over 6*N for each token",
          chinchilla_ratio),
)  # fmt: skip
