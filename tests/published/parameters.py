"""Parameter counts of other language models: Llama, PaLM, the JAX book's, BERT."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.gpts import WIDTH, at
from published.language import Form, Language, Sizes
from published.linear import BOOK, params
from symacct.conventions.presets import Convention

D, F, G, H, K, L, T, V, d, hd, q = symbols("D F G H K L T V d hd q")


# -- Llama -----------------------------------------------------------------------------------


@cache
def llama(grouped: bool) -> sa.Account:
    """Llama as transformers has it: K heads of keys, G of queries for each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    def builder(K: int, G: int, hd: int, F: int, V: int, L: int) -> torch.nn.Module:
        config = LlamaConfig(
            hidden_size=K * G * hd, num_attention_heads=K * G, num_key_value_heads=K, head_dim=hd, intermediate_size=F,
            vocab_size=V, num_hidden_layers=L, use_cache=False,
        )  # fmt: skip
        return LlamaForCausalLM(config)

    def plain(K: int, hd: int, F: int, V: int, L: int) -> torch.nn.Module:
        return builder(K, 1, hd, F, V, L)

    return sa.trace(sa.build(builder if grouped else plain, depth="L"), input_ids="i64[B, T]", train=False)


LLAMAS = (  # name, layers, key heads, queries for each, inner width, words, parameters
    ("Llama 7B", 32, 32, 1, 11008, 32000, 6738415616), ("Llama 13B", 40, 40, 1, 13824, 32000, 13015864320),
    ("Llama-1 65B", 80, 64, 1, 22016, 32000, 65285660672), ("Llama-2 70B", 80, 8, 8, 28672, 32000, 68976648192),
    ("Llama-3 8B", 32, 8, 4, 14336, 128256, 8030261248), ("Llama-3 70B", 80, 8, 8, 28672, 128256, 70553706496),
    ("Llama-3.1 405B", 126, 8, 16, 53248, 128256, 405853388800), ("Mistral 7B", 32, 8, 4, 14336, 32000, 7241732096),
)  # fmt: skip


def llama_sizes(L: int, K: int, G: int, F: int, V: int, T: int = 2048) -> dict[str, int]:
    """A row of the table, in the dims of the model that has G as a dim where it is not 1."""
    return {"B": 2, "T": T, "L": L, "K": K, "hd": 128, "F": F, "V": V} | ({"G": G} if G > 1 else {})


def llamas() -> Proof:
    """The Llama family."""
    published = L * (2 * d * d + 2 * d * K * hd + 3 * d * F + 2 * d) + 2 * V * d + d
    figures = []
    for grouped, label, width in ((True, "G queries for each key", "K*G*hd"), (False, "as many keys", "K*hd")):
        rows = [(name, sizes, count) for name, *sizes, count in LLAMAS if (sizes[2] > 1) == grouped]
        numbers = tuple(Number(name, llama_sizes(*sizes), count) for name, sizes, count in rows)
        name = f"parameters, {label}"
        figures.append(Figure(name, llama(grouped), params, published, numbers=numbers, names={"d": width}))
    return Proof('`LlamaForCausalLM` of transformers, K heads of keys, `depth="L"`', tuple(figures))


PALM_FORM = Form(norm="rms", last="rms", bias=False, gated=True, parallel=True, grouped=True)
PALMS = (  # name, width, layers, heads, matrices, as printed
    ("540B", 18432, 118, 48, 540354281472, "540.35e9"), ("62B", 8192, 64, 32, 62495129600, "62.50e9"),
    ("8B", 4096, 32, 16, 8631877632, "8.63e9"),
)  # fmt: skip


@cache
def palm_model() -> sa.Account:
    """PaLM: one head of keys, attention and a gated feed-forward part side by side, no biases, head tied."""
    model = sa.build(
        lambda d, H, q, V, L: Language(Sizes(d, H, 1, q, 4 * d, V, 0, L), PALM_FORM), depth="L"
    )  # fmt: skip
    return sa.trace(model, "i64[B, T]")


def palm() -> Proof:
    """PaLM's three sizes."""
    numbers = []
    for name, width, layers, heads, count, printed in PALMS:
        sizes = {"B": 1, "T": 2048, "d": width, "H": heads, "q": 256, "V": 256000, "L": layers}
        numbers += [Number(name, sizes, count), Number(f"{name}, as printed", sizes, printed)]
    figure = Figure(
        "parameters", palm_model(), params, L * (2 * d * H * q + 2 * d * q + 12 * d * d) + V * d,
        ((L * d, "a gain of one norm for each layer"), (d, "the last norm")), tuple(numbers),
    )  # fmt: skip
    how = 'multi-query, parallel blocks, gated feed-forward of 4*d, no biases, tied head, `depth="L"`'
    return Proof(how, (figure,))


LECTURE_FORM = Form(norm="rms", last="rms", bias=False, gated=True, tied=False)


@cache
def lecture_model() -> sa.Account:
    """The model of CS336's first assignment."""
    model = sa.build(
        lambda H, hd, F, V, L: Language(Sizes(H * hd, H, H, hd, F, V, 0, L), LECTURE_FORM), depth="L"
    )  # fmt: skip
    return sa.trace(model, "i64[B, T]")


def assignment() -> Proof:
    """GPT-2 XL's shape in the assignment's model."""
    sizes = at(1600, 64, F=6400, V=50257, L=48, T=1024)
    published = L * (4 * d**2 + 3 * d * F + 2 * d) + 2 * V * d + d
    four = L * (16 * d**2 + 2 * d) + 2 * V * d + d
    beside = ((3 * L * d * (F - 4 * d), "0 where F = 4*d, which the formula has put in"),)
    figures = (
        Figure("parameters", lecture_model(), params, published, numbers=(Number("XL", sizes, 2127057600),)),
        Figure("parameters, F = 4*d", lecture_model(), params, four, beside, (Number("XL", sizes, 2127057600),)),
        Figure(
            "bytes in float32", lecture_model(), lambda x: x.param_bytes, 4 * four, ((4 * beside[0][0], beside[0][1]),),
            (Number("XL", sizes, 8508230400), Number("XL, as printed", sizes, "8.51e9")),
        ),
    )  # fmt: skip
    return Proof('RMS norms, gated feed-forward, untied head, `depth="L"`', figures, WIDTH)


# -- the JAX book ----------------------------------------------------------------------------


def named(*parts: str) -> Any:
    """A measure: how many parameters have one of some fragments in their names."""

    def count(member: sa.Account) -> Any:
        held = member.symbolic.step.parameters
        return sum(each.meta.numel for each in held if any(part in each.name for part in parts))

    def measure(account: Any) -> Any:
        return account._value(account.symbolic.fit(" and ".join(parts), count))

    return measure


@cache
def book_model(parallel: bool, tied: bool) -> sa.Account:
    """Blocks with grouped queries and a gated feed-forward part."""
    form = Form(norm="rms", last="rms", bias=False, gated=True, parallel=parallel, tied=tied, grouped=True)
    model = sa.build(
        lambda D, K, G, hd, F, V, L: Language(Sizes(D, K * G, K, hd, F, V, 0, L), form), depth="L"
    )  # fmt: skip
    return sa.trace(model, "i64[B, T]", train=False)


def book() -> Proof:
    """Counts of chapters 4, 6 and 7."""
    N = K * G
    four = {"B": 1, "T": 1, "D": 4096, "K": 32, "G": 1, "hd": 128, "F": 16384, "V": 32000, "L": 64}
    seven = four | {"K": 8, "G": 4, "hd": 256, "V": 32128}
    llama70 = {"B": 1, "T": 1, "D": 8192, "K": 8, "G": 8, "hd": 128, "F": 28672, "V": 128256, "L": 80}
    one, two = book_model(True, False), book_model(False, True)
    matrices = two.under(Convention(params=("matrix", "tied")))
    third = book_model(False, False)
    heads = (2 * L * D * (N * hd + K * hd - 2 * D), "0 where G = 1 and K*hd = D, as in the book")
    figures = (
        Figure(
            "ch. 4 Q1, parameters", one, params, L * (3 * D * F + 4 * D * D + D) + 2 * D * V,
            (heads, (D, "the last norm")), (Number("64 layers", four, 17442275328),),
        ),
        Figure(
            "ch. 7 Q1, parameters in matrices", matrices, params, L * D * (3 * F + 2 * hd * (N + K)) + D * V,
            numbers=(Number("64 layers", seven, 18385207296), Number("as printed", seven, "18.4e9")),
        ),
        Figure(
            "feed-forward part", third, named(".inner."), 3 * D * F * L,
            numbers=(Number("Llama-3-70B", llama70, 56371445760),),
        ),
        Figure(
            "attention", third, named(".attention."), L * (2 * D * N * hd + 2 * D * K * hd),
            numbers=(Number("Llama-3-70B", llama70, 12079595520),),
        ),
        Figure(
            "vocabulary", third, named("words.", "head."), 2 * V * D,
            numbers=(Number("Llama-3-70B", llama70, 2101346304),),
        ),
    )  # fmt: skip
    return Proof(
        'K heads of keys, G queries for each (Nq = K*G), gated, `depth="L"`; ch. 4 in parallel blocks', figures
    )


# -- BERT, MPT -------------------------------------------------------------------------------


@cache
def bert_model() -> sa.Account:
    """BERT with its pooler as transformers has it."""
    from transformers import BertConfig, BertModel

    def builder(H: int, hd: int, V: int, T: int, L: int) -> torch.nn.Module:
        config = BertConfig(
            hidden_size=H * hd, num_attention_heads=H, intermediate_size=4 * H * hd, vocab_size=V,
            max_position_embeddings=T, num_hidden_layers=L,
        )  # fmt: skip
        return BertModel(config)

    model = sa.build(builder, depth="L")
    return sa.trace(model, input_ids="i64[B, T]", train=False)


def bert() -> Proof:
    """BERT-base."""
    published = (V + T + 2) * d + 2 * d + L * (12 * d**2 + 13 * d) + d * d + d
    number = Number("BERT-base", at(768, 64, B=2, L=12, V=30522, T=512), 109482240)
    figure = Figure("parameters", bert_model(), params, published, numbers=(number,))
    return Proof('`BertModel` of transformers with its pooler, `depth="L"`, T positions', (figure,), WIDTH)


ENTRIES = (
    Entry("N050", "The Llama family", "public configs; Touvron et al. 2023, Llama 3 report 2024, Jiang et al. 2023",
          "L*(2*d*d + 2*d*K*hd + 3*d*F + 2*d) + 2*V*d + d", llamas),
    Entry("N051", "PaLM", "Chowdhery et al. 2022 Table 1", "L*(2*d*H*q + 2*d*q + 12*d*d) + V*d", palm),
    Entry("N052", "GPT-2 XL's shape in the CS336 model", "CS336 Spring 2025 assignment 1",
          "L*(16*d**2 + 2*d) + 2*V*d + d", assignment),
    Entry("N053", "Models of the JAX book", f"{BOOK}, ch. 4, 6, 7", "feed-forward, attention and vocabulary by part",
          book),
    Entry("N058", "BERT's parameter polynomial", "Devlin et al. 2018",
          "(V + T + 2)*d + 2*d + L*(12*d**2 + 13*d) + d*d + d", bert),
)  # fmt: skip
