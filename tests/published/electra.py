"""The totals of ELECTRA's script: BERT of transformers under its rules, and what the script has beside it, exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import sympy

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.linear import total
from published.training import part
from symacct.conventions.presets import preset

B, L, V, a, h, s = symbols("B L V a h s")
SHARE = sympy.Rational(5, 32)  # of positions that BERT predicts


@cache
def bert() -> sa.Account:
    """A step of BERT with its masked language model, whose logits are of all positions."""
    from transformers import BertConfig, BertForMaskedLM

    def make(a: Any, hd: Any, V: Any, s: Any, L: Any) -> Any:
        return BertForMaskedLM(BertConfig(
            vocab_size=V, hidden_size=a * hd, intermediate_size=4 * a * hd, num_attention_heads=a, num_hidden_layers=L,
            max_position_embeddings=s, attn_implementation="eager",
        ))  # fmt: skip

    ids = "i64[B, s]"
    return sa.trace(sa.build(make, depth="L"), input_ids=ids, token_type_ids=ids, labels=ids)


# -- the script's list, for each token, and what a trace has beside each line --------------------

PROJECTIONS = 3 * 2 * h * h + 3 * h  # kernels, biases
CORE = 2 * h * s + 5 * s * a + 4 * s * a + s * a + 2 * h * s  # scores, softmax, dropout, scale, weighted values
INNER = 2 * h * 4 * h + 8 * 4 * h + 4 * h  # kernel, GELU, bias
OUTPUTS = (2 * h * h + h + 4 * h + h) + (2 * h * 4 * h + h + 4 * h + h)  # each: kernel, bias, dropout, residual
NORMS = 5 + 5 * h
BLOCK = PROJECTIONS + CORE + INNER + OUTPUTS + NORMS
EMBEDDING = 2 * h * V + 2 * h * (s + 2) + 2 * h + 5 * h + 4 * h  # words, positions and types, adds, norm, dropout
HIDDEN = 2 * h * h + h + 8 * h + 5 * h  # the head's layer: kernel, bias, GELU, norm
HEAD = 2 * h * V + HIDDEN + 5 * V + 2 * V  # logits, layer, softmax, target word

SCALE = ((-s * a, "the scale of scores, which the script takes as 1 for each"),)
NORM = ((5 * h - 5, "the hidden size, which the script leaves out of a block's first norm (X09)"),)
PLACES = (
    (-2 * h * s * (1 - 1 / B), "positions as one-hot products of every sequence; they are looked up once for all"),
    (-h, "the add of positions, which are the same in all sequences: no residual to the preset"),
)  # fmt: skip


def beside_head(share: Any) -> tuple[tuple[Any, str], ...]:
    """What a trace has beside the script's head: the preset takes a share of the logits alone."""
    found = (
        ((1 - share) * HIDDEN, "the head's layer at all other positions; the script takes a share of all of the head"),
        (V, "the bias of the logits, which the script has not"),
        (-share * 5 * V, "the softmax of the head, which is the loss to a trace"),
        (-share * 2 * V, "the script's `output_target_word`"),
    )  # fmt: skip
    return tuple(each for each in found if each[0] != 0)


def times(factor: Any, terms: tuple[tuple[Any, str], ...]) -> tuple[tuple[Any, str], ...]:
    """Terms of a token as terms of more: each by the factor."""
    return tuple((sympy.expand(factor * term), why) for term, why in terms)


def trained(name: str, share: Any, numbers: tuple[Number, ...], backward: int = 1) -> Figure:
    """The FLOP of training on B sequences: a share of positions in the head, a backward pass as so many forward ones.

    The script has one.
    """
    account = bert().under(replace(preset("electra"), head=share, backward=f"{backward}x"))
    forward = B * s * (L * BLOCK + EMBEDDING + share * HEAD)
    tokens = (1 + backward) * B * s
    beside = times(tokens, (*times(L, (*SCALE, *NORM)), *PLACES, *beside_head(share)))
    if backward > 1:
        beside += ((forward, "the script's backward pass is one forward pass, a real one two (X09)"),)
    return Figure(name, account, total, 2 * forward, beside, numbers)


def sizes(sequences: int, a: int, L: int, V: int) -> dict[str, int]:
    """Steps times sequences of 512 tokens, heads of 64."""
    return {"B": sequences, "s": 512, "a": a, "hd": 64, "V": V, "L": L}


BERTS = (  # name, steps, sequences in each, heads, layers, words, total by the script, as the paper prints it
    ("BERT-Base", 1000000, 256, 12, 12, 30522, "6.428e19", "6.4e19"),
    ("BERT-Large", 1000000, 256, 16, 24, 30522, "1.917e20", "1.9e20"),
    ("RoBERTa", 500000, 8000, 16, 24, 50265, "3.187e21", "3.2e21"),
)  # fmt: skip
GPTS = (("GPT", 960800, 128, 12, 12, 40000, "3.969e19", "4.0e19"),)


def numbers(rows: Any) -> tuple[Number, ...]:
    """Both numbers of each row."""
    found = []
    for name, steps, batch, *shape, script, paper in rows:
        at = sizes(steps * batch, *shape)
        found += [Number(f"{name}, {steps:,} steps of {batch}", at, script), Number(f"{name}, as printed", at, paper)]
    return tuple(found)


def electra() -> Proof:
    """A block part by part, the ends, and the totals of training."""
    account = bert().under("electra")
    blocks = (
        ("a block: query, key, value", part(".query", ".key", ".value"), PROJECTIONS, ()),
        ("a block: scores, softmax, weighted values", part(".attention.self"), CORE, SCALE),
        ("a block: both outputs, with dropout and residual", part(".output.dense", ".output.dropout", ".output"),
         OUTPUTS, ()),
        ("a block: both layer norms", part(".output.LayerNorm"), NORMS, NORM),
        ("a block: the inner layer", part(".intermediate.dense", ".intermediate_act_fn"), INNER, ()),
    )  # fmt: skip
    tables = (".word_embeddings", ".position_embeddings", ".token_type_embeddings")
    inputs = part(".embeddings", *tables, ".embeddings.LayerNorm", ".embeddings.dropout")
    head = part(".transform.dense", ".transform_act_fn", ".transform.LayerNorm", ".decoder")
    figures = [Figure(name, account, measure, listed, beside, per="B s L") for name, measure, listed, beside in blocks]
    figures += [
        Figure("embeddings: words, positions, types, norm, dropout", account, inputs, B * EMBEDDING, times(B, PLACES),
               per="s"),
        Figure("head, at 5 of 32 positions", account, head, SHARE * HEAD, beside_head(SHARE), per="B s"),
        trained("FLOP of training, forward and as much backward", SHARE, numbers(BERTS)),
        trained("the same with the head at all positions, as the script has GPT", sympy.Integer(1), numbers(GPTS)),
        trained("FLOP of training with a backward pass of two forward passes", SHARE, numbers(BERTS[:1]), 2),
    ]  # fmt: skip
    how = (
        '`BertForMaskedLM` of transformers, s positions, logits at all of them, `depth="L"`; preset `electra`, '
        "whose share of the head is 5/32"
    )
    return Proof(how, tuple(figures), {"h": "a*hd"})


ENTRIES = (
    Entry("N081", "The totals of ELECTRA's script", "Clark et al. 2020 Table 8 and flops_computation.py",
          "`2*B*s*(L*block + embedding + share*head)`, each a list of FLOP for a token; backward = forward", electra),
)  # fmt: skip
