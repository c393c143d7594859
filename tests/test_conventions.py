"""Conventions: published formulas from traced models, by id of the napkin-math reference, and why they disagree."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from fvcore.nn import FlopCountAnalysis
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import symacct as sa
from symacct.conventions import PRESETS, Convention, Recounted, explain, pairs, preset, under
from symacct.conventions.presets import page
from symacct.conventions.roles import roles_of
from symacct.dim import symbol
from symacct.errors import SpecError, UnknownDimError

B, L, D, H, G, Dh, FF, V, P = (symbol(name) for name in ("B", "L", "D", "H", "G", "Dh", "F", "V", "P"))


class Block(nn.Module):
    """A pre-norm block: H*G heads of queries and G of keys, gated or not, attention fused or by products."""

    def __init__(self, width: int, heads: int, groups: int, size: int, inner: int, form: str) -> None:
        super().__init__()
        bias, norm = "bias" in form, nn.RMSNorm if "rms" in form else nn.LayerNorm
        self.heads, self.groups, self.size, self.form = heads, groups, size, form
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.query = nn.Linear(width, heads * groups * size, bias=bias)
        self.key = nn.Linear(width, groups * size, bias=bias)
        self.value = nn.Linear(width, groups * size, bias=bias)
        self.out = nn.Linear(heads * groups * size, width, bias=bias)
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if "gated" in form else None
        self.inside = nn.ModuleList([nn.RMSNorm(size), nn.RMSNorm(size)]) if "qk" in form else None

    def forward(self, x: Any) -> Any:
        """Attention, then the feed-forward part, each added to what comes in."""
        x = x + self.out(self.attend(self.norms[0](x)))
        y = self.norms[1](x)
        up = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(up)

    def attend(self, x: Any) -> Any:
        """Softmax attention, by two products or by one fused operator that is causal."""
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads * self.groups, self.size).transpose(1, 2)
        key = self.key(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        if self.inside is not None:
            query, key = self.inside[0](query), self.inside[1](key)
        if "fused" in self.form:
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            if self.heads > 1:
                key, value = (t.repeat_interleave(self.heads, dim=1) for t in (key, value))
            seen = F.softmax(query @ key.transpose(-2, -1) * 0.125, -1) @ value
        return seen.transpose(1, 2).reshape(batch, length, self.heads * self.groups * self.size)


class Model(nn.Module):
    """A language model; its form says what is tied, learned, recomputed, and how."""

    def __init__(
        self, width: int, heads: int, groups: int, size: int, inner: int, words: int, places: int, depth: int, form: str
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(places, width) if "places" in form else None
        self.blocks = nn.ModuleList(Block(width, heads, groups, size, inner, form) for _ in range(depth))
        self.norm = (nn.RMSNorm if "rms" in form else nn.LayerNorm)(width, **({} if "rms" in form else {"bias": False}))
        self.head = nn.Linear(width, words, bias=False)
        self.form = form
        if "tied" in form:
            self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        """Logits of every token."""
        x = self.words(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "recomputed" in self.form else block(x)
        return self.head(self.norm(x))


@cache
def gpt(form: str = "places bias tied", depth: int = 2) -> sa.Account:
    """A GPT of heads H of size Dh: its width is H*Dh, its feed-forward part four times as wide."""
    model = sa.build(lambda H, Dh, V, P: Model(H * Dh, 1, H, Dh, 4 * H * Dh, V, P, depth, form))
    return sa.trace(model, "i64[B, L]", check=False)


@cache
def gqa(form: str, depth: int) -> sa.Account:
    """A Llama: G groups of H heads, any width D and inner width F."""
    model = sa.build(lambda D, H, G, Dh, F, V: Model(D, H, G, Dh, F, V, 1, depth, form))
    return sa.trace(model, "i64[B, L]", check=False)


def same(found: Any, wanted: Any) -> bool:
    """Whether two formulas are equal by algebra."""
    return sympy.expand(sympy.sympify(found) - wanted) == 0


def at(expr: Any, **sizes: int) -> Any:
    """A formula at sizes."""
    return sympy.sympify(expr).xreplace({symbol(name): sympy.Integer(size) for name, size in sizes.items()})


WIDTH = H * Dh
BLOCK = 24 * B * L * WIDTH**2 + 4 * B * L**2 * WIDTH  # forward products of a GPT block, attention in full
HEAD = 2 * B * L * WIDTH * V


# -- the two-layer net -----------------------------------------------------------------


@cache
def two_layers() -> sa.Account:
    """The linear net of the lecture."""
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    return sa.trace(model, "B D", check=False)


def test_n016_to_n019() -> None:
    """The two-layer net as autograd runs it (N016, N018), by backward = 2x forward (N017), and by 6*N*tokens (N019)."""
    K = symbol("K")
    run, twice, six = (under(two_layers(), c) for c in ("torch", Convention(backward="2x"), "6nd"))
    assert same(run.forward.flops, 2 * B * D * D + 2 * B * D * K)
    assert same(run.backward.flops, 4 * B * D * K + 2 * B * D * D)
    assert same(twice.backward.flops, 4 * B * D * K + 4 * B * D * D)
    assert same(six.total.flops, 6 * B * six.params)
    sizes = {"B": 16384, "D": 32768, "K": 8192}
    assert run.at(**sizes).forward.flops == 43980465111040
    assert run.at(**sizes).backward.flops == 52776558133248
    assert twice.at(**sizes).backward.flops == 87960930222080
    assert six.at(**sizes).total.flops == 131941395333120


def test_the_first_layers_input_gradient_is_the_difference() -> None:
    """What 6*N*tokens counts and autograd does not run is one row: the first layer's input gradient, 2*B*D**2 (E08)."""
    (row,) = explain(two_layers(), "torch", "6nd").rows
    assert (row.switch, row.phase, row.role) == ("backward", "backward", "weights")
    assert same(row.formula, 2 * B * D**2)


# -- closed forms of papers --------------------------------------------------------------


def test_n061_kaplan() -> None:
    """Kaplan's table: N, its rows by module, embedding 4*d, de-embedding 2*d*V, and C_forward = 2*N + 2*L*T*d_attn."""
    kaplan = under(gpt(), "kaplan")
    assert same(kaplan.params, 2 * (2 * WIDTH * (2 * WIDTH + 4 * WIDTH)))
    assert same(kaplan.forward.flops, B * L * (2 * kaplan.params + 2 * 2 * L * WIDTH))
    rows = under(gpt(), replace(preset("kaplan"), embedding="4d", head=True))
    modules = rows.by_module(None, "forward")
    each = {name: sum(p.flops for m, p in modules.items() if m.endswith(name)) for name in ("query", "key", "value")}
    assert same(sum(each.values()), B * L * 2 * 2 * WIDTH * 3 * WIDTH)
    assert same(sum(modules[f"blocks.{i}"].flops for i in range(2)), B * L * 2 * 2 * L * WIDTH)
    assert same(sum(modules[f"blocks.{i}.out"].flops for i in range(2)), B * L * 2 * 2 * WIDTH**2)
    dense = sum(modules[f"blocks.{i}.{part}"].flops for i in range(2) for part in ("up", "down"))
    assert same(dense, B * L * 2 * 2 * 2 * WIDTH * 4 * WIDTH)
    assert same(rows.by_role("forward")["embedding"], B * L * 4 * WIDTH)
    assert same(rows.by_role("forward")["head"], B * L * 2 * WIDTH * V)


def test_n062_gpt2_small() -> None:
    """GPT-2 small without biases: 291,648,307,200 forward, twice that backward; PaLM's estimate 875,062,886,400."""
    account = gpt("places tied", 12)
    sizes = {"B": 1, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024}
    run = under(account, "torch").at(**sizes)
    assert (run.forward.flops, run.backward.flops) == (291648307200, 583296614400)
    estimate = under(account, "nanogpt").at(**sizes)
    gains_of_norms = (2 * 12 + 1) * 768
    norm_biases = 2 * 12 * 768  # nn.LayerNorm has them here, nanoGPT has not
    assert estimate.params == 123551232 + norm_biases
    assert estimate.total.flops == 875062886400 + 6 * 1024 * norm_biases
    assert estimate.params - gains_of_norms - norm_biases == 12 * 12 * 768**2 + 50257 * 768


def test_n064_palm() -> None:
    """6*N + 12*L*H*Q*T per token from a multi-query, gated model with a tied head, N of all parameters."""
    model = sa.build(lambda D, H, Dh, F, V: Model(D, H, 1, Dh, F, V, 1, 2, "rms gated fused tied"))
    palm = under(sa.trace(model, "i64[B, L]", check=False), "palm")
    assert same(palm.total.flops, B * L * (6 * palm.params + 12 * 2 * H * Dh * L))
    assert same(palm.params, 2 * (2 * D * H * Dh + 2 * D * Dh + 3 * D * FF + 2 * D) + V * D + D)
    at_540b = B * L * (6 * symbol("N") + 12 * symbol("depth") * H * Dh * L)
    sizes = {"N": 540350000000, "depth": 118, "H": 48, "Dh": 256, "L": 2048}
    assert at(sympy.expand(at_540b / (B * L)), **sizes) == 3277734806784


@pytest.mark.parametrize("form", ["places bias tied", "places bias tied fused"])
def test_n065_n066_megatron(form: str) -> None:
    """72*B*l*s*h**2*(1 + s/(6*h) + V/(12*h*l)); 96*B*s*l*h**2*(1 + s/(6*h) + V/(16*l*h)) with full recompute."""
    account, h, depth = gpt(form), WIDTH, 2
    model = 72 * B * L * depth * h**2 * (1 + L / (6 * h) + V / (12 * h * depth))
    full = 96 * B * L * depth * h**2 * (1 + L / (6 * h) + V / (16 * h * depth))
    paper = 72 * B * L * depth * h**2 * (1 + L / (3 * h) + V / (12 * h * depth))
    assert same(under(account, "megatron").total.flops, model)
    assert same(under(account, "megatron-full").total.flops, full)
    assert same(under(account, "megatron-selective").total.flops, paper)
    once = under(account, replace(preset("megatron-selective"), recompute_times=1))
    assert same(once.total.flops, model + depth * 4 * B * L**2 * h)  # what one more forward pass of attention is
    if "fused" not in form:
        assert same(under(account, "megatron").total.flops, account.total.flops)


@pytest.mark.parametrize("early", [True, False])
def test_n065_with_a_real_checkpoint(early: bool) -> None:
    """A traced checkpoint is Megatron's full recompute; torch's early stop leaves each block's last product out."""
    model = sa.build(lambda H, Dh, V: Model(H * Dh, 1, H, Dh, 4 * H * Dh, V, 1, 2, "bias tied recomputed"))
    with set_checkpoint_early_stop(early):
        account = sa.trace(model, "i64[B, L]", check=False)
    full = 96 * B * L * 2 * WIDTH**2 * (1 + L / (6 * WIDTH) + V / (16 * WIDTH * 2))
    left_out = 2 * 8 * B * L * WIDTH**2 if early else 0
    assert same(under(account, "torch").total.flops, full - left_out)
    assert same(under(account, "megatron-full").total.flops, full)
    assert same(under(account, "megatron").recompute.flops, 0)
    hardware = under(account, replace(preset("megatron"), recompute=True))
    assert same(hardware.recompute.flops, 2 * BLOCK - left_out)


def test_n068_chinchilla() -> None:
    """Appendix F's components: one-hot embedding, QKV, scores, softmax 3, values, projection, dense, logits."""
    model = sa.build(lambda D, H, Dh, F, V: Model(D, 1, H, Dh, F, V, 1, 2, ""))
    account = sa.trace(model, "i64[B, L]", check=False)
    found = under(account, "chinchilla")
    roles, modules = found.by_role("forward"), found.by_module(None, "forward")
    assert same(roles["embedding"], B * 2 * L * V * D)
    assert same(sum(modules[f"blocks.0.{m}"].flops for m in ("query", "key", "value")), B * 2 * 3 * L * D * Dh * H)
    assert same(roles["scores"], 2 * B * 2 * L * L * Dh * H)
    assert same(roles["softmax"], 2 * B * 3 * H * L * L)
    assert same(roles["values"], 2 * B * 2 * L * L * Dh * H)
    assert same(modules["blocks.0.out"].flops, B * 2 * L * Dh * H * D)
    assert same(modules["blocks.0.up"].flops + modules["blocks.0.down"].flops, B * 2 * L * (D * FF + D * FF))
    assert same(roles["head"], B * 2 * L * D * V)
    assert same(found.total.flops, 3 * found.forward.flops)


def test_n069_chinchilla_ratio() -> None:
    """Table A4's 73M row is 1.03: embedding and head out, N with V*d and a fifth projection (X08)."""
    model = sa.build(lambda D, H, Dh, F, V: Model(D, 1, H, Dh, F, V, 1, 2, "tied"))
    account = sa.trace(model, "i64[B, L]", check=False)
    table = under(account, "chinchilla-a4")
    matrices = under(account, replace(preset("chinchilla-a4"), params=("matrix", "tied"))).params
    depth = symbol("depth")  # two equal layers were traced: what a layer adds is half of what is not the table
    flops = table.forward.flops / B * depth / 2
    parameters = (matrices - V * D) / 2 * depth + V * D + depth * D * Dh * H
    ratio = flops / (2 * L * parameters)
    row = {"depth": 10, "D": 640, "F": 2560, "H": 10, "Dh": 64, "L": 2048, "V": 32000}
    assert round(float(at(ratio, **row)), 5) == 1.02639


def test_n072_megatron_core() -> None:
    """Grouped queries, gated, causal halved: the closed form, and Llama-3-8B's 421,645,529,382,912 per sequence."""
    for depth in (2, 3):
        found = under(gqa("rms gated fused", depth), "megatron-core")
        queries, keys = H * G * Dh, G * Dh
        layer = 18 * D * FF + 6 * (D * (queries + 2 * keys) + queries * L + queries * D)
        assert same(found.total.flops, B * L * (depth * layer + 6 * D * V))
    two, three = (under(gqa("rms gated fused", depth), "megatron-core") for depth in (2, 3))
    sizes = {"B": 1, "L": 8192, "D": 4096, "H": 4, "G": 8, "Dh": 128, "F": 14336, "V": 128256}
    low, high = two.at(**sizes).total.flops, three.at(**sizes).total.flops
    assert low + (32 - 2) * (high - low) == 421645529382912


def test_n074_apertus() -> None:
    """Softmax 3 per score, RMS norms and QK norms 4 per element, ungated; the report leaves out the last norm."""
    found = under(gqa("rms qk", 2), "apertus")
    queries, keys = H * G, G  # heads
    layer = (
        2 * L * D * Dh * queries + 4 * L * D * Dh * keys + 2 * L * Dh * queries * D + 4 * L * L * Dh * queries
        + 3 * queries * L * L + 4 * L * (queries + keys) * Dh + 4 * L * D * FF + 8 * L * D
    )  # fmt: skip
    last_norm = 4 * L * D
    assert same(found.total.flops, 3 * B * (2 * layer + 2 * L * D * V + last_norm))


def test_n075_eleuther() -> None:
    """The cookbook's script, with and without recompute: embedding and logits counted forward alone (X04)."""
    recomputed = under(gpt(), "eleuther")
    without = under(gpt(), replace(preset("eleuther"), recompute="none"))
    ends = B * L * (4 * WIDTH + 2 * WIDTH * V)
    assert same(recomputed.total.flops, 4 * 2 * BLOCK + ends)
    assert same(without.total.flops, 3 * 2 * BLOCK + ends)


def test_n080_electra() -> None:
    """ELECTRA (X09): dropout 4, layer norm 5, GELU 8, softmax 5, bias and residual 1, one-hot, 15.6% of positions."""
    forward = under(gpt(), "electra").by_role("forward")
    assert same(forward["normalisation"], 5 * B * L * WIDTH * (2 * 2 + 1))
    assert same(forward["activation"], 2 * 8 * B * L * 4 * WIDTH)
    assert same(forward["softmax"], 2 * 5 * B * H * L**2)
    assert same(forward["bias"], 2 * B * L * (3 + 1 + 4 + 1) * WIDTH)
    assert same(forward["residual"], 2 * 2 * B * L * WIDTH)
    assert same(forward["embedding"], 2 * B * L * WIDTH * V)
    assert same(forward["head"], sympy.Rational(5, 32) * HEAD)
    account = sa.trace(sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Dropout(0.1))), "B D", check=False)
    electra = under(account, "electra")
    assert same(electra.by_role("forward")["dropout"], 4 * B * D)
    assert same(electra.backward.flops, electra.forward.flops)


# -- attention -----------------------------------------------------------------------------


@cache
def attention(kind: str) -> sa.Account:
    """Attention of q queries to k keys (or of q to q), fused or by products."""

    def fused(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, key, value, is_causal=kind == "causal")

    def eager(query: Any, key: Any, value: Any) -> Any:
        return torch.softmax(query @ key.transpose(-2, -1), -1) @ value

    keys = "B H q Dh" if kind in ("self", "causal") else "B H k Dh"
    specs = [sa.spec(spec, grad=True) for spec in ("B H q Dh", keys, keys)]
    return sa.trace(eager if kind in ("eager", "self") else fused, *specs, check=False)


def test_n079_fused_attention() -> None:
    """Forward 4*B*H*T**2*hd, causal half of it; backward 10 (five products), 8 without the scores again, halved too."""
    q, account = symbol("q"), attention("causal")
    each = B * H * q**2 * Dh
    assert same(under(account, "torch").forward.flops, 4 * each)
    assert same(under(account, "torch").backward.flops, 10 * each)
    assert same(under(account, Convention(fused_backward=4)).backward.flops, 8 * each)
    half = under(account, Convention(causal="half"))
    assert same(half.forward.flops, 2 * each)
    assert same(half.backward.flops, 5 * each)
    exact = under(account, Convention(causal="exact"))
    assert same(exact.forward.flops, 4 * B * H * Dh * q * (q + 1) / 2)
    assert exact.at(B=1, H=1, q=4, Dh=1).forward.flops == 40  # B25: 64 in full, 40 exactly, 32 by half


@pytest.mark.parametrize("kind", ["cross", "eager"])
def test_causal_where_lengths_differ(kind: str) -> None:
    """Where queries and keys differ in number nothing is causal, unless the user says so; then alignment matters."""
    q, k = symbol("q"), symbol("k")
    account = attention(kind)
    full = 4 * B * H * q * k * Dh
    assert same(under(account, Convention(causal="half")).forward.flops, full)
    assert same(under(account, Convention(causal="half", causal_in=("",))).forward.flops, full / 2)
    for alignment in ("top-left", "bottom-right"):
        found = under(account, Convention(causal="exact", causal_in=("",), alignment=alignment))
        for queries, keys in ((2, 6), (6, 2), (5, 5), (1, 7)):
            counted = found.at(B=3, H=2, Dh=4, q=queries, k=keys).forward.flops
            assert counted == 4 * 3 * 2 * 4 * brute(queries, keys, alignment, None)


def brute(queries: int, keys: int, alignment: str, window: int | None) -> int:
    """Pairs counted one by one."""
    offset = 0 if alignment == "top-left" else keys - queries
    seen = [(i, j) for i in range(queries) for j in range(keys) if j <= i + offset]
    return len([(i, j) for i, j in seen if window is None or j > i + offset - window])


def test_pairs_are_those_that_a_mask_leaves() -> None:
    """The closed form equals a count of the mask, for both alignments, with windows and without."""
    for queries, keys, alignment, window in itertools.product(
        range(1, 7), range(1, 7), ("top-left", "bottom-right"), (None, 1, 3, 9)
    ):
        assert pairs(queries, keys, alignment, window) == brute(queries, keys, alignment, window)
    assert pairs(2048, 2048, window=512) == 917760  # B26


def test_pairs_stay_formulas() -> None:
    """With symbols: L*(L+1)/2 for equal lengths, and with a window a form that holds on both sides of it."""
    W = symbol("W")
    assert same(pairs(L, L), L * (L + 1) / 2)
    assert same(pairs(L, L, "bottom-right"), L * (L + 1) / 2)
    for length, width in ((9, 4), (4, 9), (4, 4)):
        assert at(pairs(L, L, window="W"), L=length, W=width) == brute(length, length, "top-left", width)
    assert W in pairs(L, L, window="W").free_symbols


def test_causal_is_what_the_program_tells() -> None:
    """A fused call without a mask that is not causal stays in full; eager self-attention follows the convention."""
    q = symbol("q")
    full = 4 * B * H * q**2 * Dh
    assert same(under(attention("self"), Convention(causal="half")).forward.flops, full / 2)
    assert same(under(attention("self"), Convention(causal="half", causal_in=())).forward.flops, full)
    told = sa.trace(F.scaled_dot_product_attention, "B H q Dh", "B H q Dh", "B H q Dh", check=False)
    assert same(under(told, Convention(causal="half")).forward.flops, full)


def test_window_is_a_dim_or_a_number() -> None:
    """B26: a window of 512 at 2,048 tokens is 939,786,240 FLOP for 4 heads of 64; an unknown dim is refused."""
    account = attention("causal")
    found = under(account, Convention(causal="exact", window=512))
    assert found.at(B=1, H=4, q=2048, Dh=64).forward.flops == 939786240
    same_dim = under(account, Convention(causal="exact", window="H"))
    assert same_dim.at(B=1, H=4, q=8, Dh=1).forward.flops == 4 * 4 * brute(8, 8, "top-left", 4)
    with pytest.raises(UnknownDimError, match="there is no dim 'W'; the account's dims are B, H, q, Dh"):
        under(account, Convention(causal="exact", window="W"))


# -- tools -----------------------------------------------------------------------------------


class Attending(nn.Module):
    """Attention by products, after a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.query, self.key, self.value = nn.LayerNorm(24), *(nn.Linear(24, 24) for _ in range(3))

    def forward(self, x: Any) -> Any:
        """Without heads."""
        x = self.norm(x)
        scores = torch.bmm(self.query(x), self.key(x).transpose(1, 2))
        return torch.bmm(torch.softmax(scores, -1), self.value(x))


NETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8, bias=False)), (5, 16)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4, bias=False),
            nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Flatten(), nn.Linear(4 * 12 * 12, 7),
        ),
        (2, 3, 8, 8),
    ),
    "attention": (Attending, (2, 6, 24)),
}  # fmt: skip


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("net", NETS)
def test_fvcore(net: str, train: bool) -> None:
    """The preset counts what the installed fvcore counts of an MLP, a CNN and attention, operator by operator."""
    build, shape = NETS[net]
    model, x = build().train(train), torch.randn(shape)
    counted = FlopCountAnalysis(model, x).unsupported_ops_warnings(False)
    found = under(sa.trace(model, x, train=train, check=False), "fvcore")
    assert found.total.flops == counted.total()
    norms = sum(count for op, count in counted.by_operator().items() if "norm" in op)
    assert sum(count for role, count in found.by_role().items() if "normalisation" in role) == norms


def test_bias_of_products_and_convolutions() -> None:
    """Bias is one add per output: of all, of convolutions alone (DeepSpeed), or not counted; ptflops' unit is 1."""
    account = sa.trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 7)), torch.ones(2, 3, 8, 8))
    products = 2 * (2 * 8 * 36 * 27) + 2 * (2 * 8 * 36 * 7)
    adds = {False: 0, "convolutions": 2 * 8 * 36, True: 2 * 8 * 36 + 2 * 7}
    for bias, added in adds.items():
        assert under(account, Convention(bias=bias)).forward.flops == products + added
    assert under(account, "ptflops").total.flops == products // 2 + adds[True]
    assert under(account, "deepspeed").total.flops == 3 * (products + adds["convolutions"])


def test_pointwise_moves_and_is_not_lost() -> None:
    """Pointwise work "in" is the account's own, in ``flops`` and no longer in ``pointwise``, phase by phase."""
    plain, moved = gpt(), under(gpt(), Convention(pointwise="in"))
    for name, phase in plain.phases.items():
        assert same(moved.phases[name].flops, phase.flops + phase.pointwise)
        assert same(moved.phases[name].pointwise, 0)
    some = under(gpt(), "chinchilla").forward
    assert same(some.pointwise, plain.forward.pointwise - 2 * 5 * B * H * L**2)


# -- what stays, what adds up ------------------------------------------------------------------


def test_torch_is_what_the_account_counts() -> None:
    """Under "torch" every node has the FLOP that it had; bytes, memory, dims and node order are the account's."""
    plain, found = gpt(), under(gpt(), "torch")
    assert [n.cost for n in found.nodes] == [n.cost for n in plain.nodes]
    for convention in ("palm", "megatron-full"):
        other = under(plain, convention)
        for name, phase in plain.phases.items():
            assert same(other.phases[name].bytes, phase.bytes)
        assert same(other.activation_bytes, plain.activation_bytes)
        assert same(other.param_bytes, plain.param_bytes)
        assert other.peak_bytes == plain.peak_bytes
        assert other.dims == plain.dims


def test_modules_ops_and_roles_add_up() -> None:
    """Groups by module, by op and by role add up to the total under every preset, also at sizes."""
    sizes = {"B": 2, "L": 8, "H": 2, "Dh": 4, "V": 16, "P": 8}
    for name in PRESETS:
        found = under(gpt(), name)
        for groups in (found.by_module(None), found.by_op(), found.phases):
            assert same(sum(part.flops for part in groups.values()), found.total.flops), name
        assert same(sum(found.by_role().values()), found.total.flops), name
        assert found.at(**sizes).total.flops == at(found.total.flops, **sizes)


def test_explanations_add_up() -> None:
    """The rows of an explanation are exactly the difference, between every preset and the next."""
    for first, second in itertools.pairwise([*PRESETS, "torch"]):
        found = explain(gpt(), first, second)
        assert same(sympy.Add(*(row.formula for row in found.rows)), found.difference), (first, second)
        assert same(found.difference, under(gpt(), second).total.flops - under(gpt(), first).total.flops)


def test_explanation_is_a_table() -> None:
    """The text of an explanation names switches, phases, roles and formulas; at sizes it has values too."""
    sizes = {"B": 1, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024}
    found = explain(gpt("places bias tied fused").at(**sizes), "torch", "megatron-core")
    text = str(found)
    assert "Model: FLOP under torch, and what makes them those under megatron-core" in text
    assert "causal attention in full -> causal" in text
    said = {(row.switch, row.phase, row.role): (row.formula, row.value) for row in found.rows}
    each = B * L**2 * WIDTH
    assert same(said["backward", "backward", "scores"][0], -2 * 2 * each)  # the fused kernel's scores again
    assert same(said["causal", "forward", "values"][0], -2 * each)
    assert said["causal", "forward", "values"][1] == -2 * 1024**2 * 768
    assert sum(value for _, value in said.values()) == found.difference
    assert "| FLOP | value |" in found.to_markdown()


def test_a_convention_is_one_line() -> None:
    """The report ends with the convention in one line, the source in it."""
    found = under(gpt(), "palm")
    assert found.convention.startswith(
        "convention palm: 2 per multiply-add; 2 per parameter and token in place of products; N of all parameters; "
        "attention in; causal attention in full; bias out; pointwise out; backward 2x; recompute out; optimizer out "
        "(Chowdhery et al. 2022 Appendix B: 6*N + 12*L*H*Q*T per token); "
    )
    assert "convention palm: 2 per multiply-add" in found.report()
    assert '"convention": "convention palm' in found.to_json()


def test_counting_again_starts_from_the_traced_account() -> None:
    """A recounted account can be recounted, at sizes too, and is checked as it was traced."""
    sizes = {"B": 2, "L": 8, "H": 2, "Dh": 4, "V": 16, "P": 8}
    twice = under(under(gpt(), "fvcore").at(**sizes), "torch")
    assert isinstance(twice, Recounted)
    assert twice.total.flops == gpt().at(**sizes).total.flops
    assert len(list(under(gpt(), "palm").graph.nodes)) > len(list(gpt().graph.nodes))
    built = sa.build(lambda D: nn.Linear(D, D))
    assert under(sa.trace(built, "B D", check=False), "palm").check() != ()


def test_inference_has_no_backward() -> None:
    """Without a backward pass nothing is counted for one: PaLM's rule gives 2*N per token."""
    model = sa.build(lambda D, F: nn.Sequential(nn.Linear(D, F), nn.Linear(F, D)))
    found = under(sa.trace(model, "B L D", train=False, check=False), "palm")
    assert same(found.total.flops, 2 * B * L * found.params)


def test_optimizer_is_in_or_out() -> None:
    """A Muon step multiplies matrices, which tools count and the papers' model FLOPs leave out."""
    model = sa.build(lambda D: nn.Linear(D, D, bias=False))
    account = sa.trace(model, "B D", optimizer=torch.optim.Muon, check=False)
    assert account.optimizer.flops != 0
    assert same(under(account, "torch").optimizer.flops, account.optimizer.flops)
    assert same(under(account, "megatron").optimizer.flops, 0)


# -- roles -----------------------------------------------------------------------------------------


def test_kinds_of_parameters() -> None:
    """Tables of tokens and positions, tied or not, heads, matrices and vectors are told apart by the graph."""
    kinds = {p.name: p.kind for p in roles_of(gpt()).parameters}
    assert kinds["words.weight"] == "tied"
    assert kinds["places.weight"] == "position"
    assert kinds["blocks.0.query.weight"] == "matrix"
    assert kinds["blocks.0.query.bias"] == "vector"
    untied = {p.name: p.kind for p in roles_of(gqa("rms gated fused", 2)).parameters}
    assert (untied["words.weight"], untied["head.weight"]) == ("embedding", "head")


def test_a_product_as_wide_as_the_vocabulary_is_no_head_inside() -> None:
    """An inner layer with as many outputs as there are words is not the head, since products come after it."""
    model = sa.build(lambda D, V: nn.Sequential(nn.Embedding(V, D), nn.Linear(D, V), nn.ReLU(), nn.Linear(V, V)))
    roles = under(sa.trace(model, "i64[B, L]", check=False), "torch").by_role("forward")
    assert same(roles["weights"], 2 * B * L * D * V)
    assert same(roles["head"], 2 * B * L * V * V)


def test_a_router_is_no_attention() -> None:
    """A softmax of a product with a parameter, and what it weighs, is not attention."""

    class Mixture(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(width, 4), nn.Linear(width, 4 * width)

        def forward(self, x: Any) -> Any:
            shares = torch.softmax(self.router(x), -1)
            return torch.einsum("be,bed->bd", shares, self.experts(x).view(x.shape[0], 4, x.shape[1]))

    roles = under(sa.trace(sa.build(Mixture), "B width", check=False), "torch").by_role("forward")
    assert set(roles) == {"weights", "contraction"}


def test_what_is_added_to_scores_is_no_factor() -> None:
    """A parameter that baddbmm adds makes scores no product with a parameter; a product of constants is no scores."""

    class Biased(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.bias, self.size = nn.Parameter(torch.zeros(1, 1, 1)), size

        def forward(self, query: Any, key: Any, value: Any) -> Any:
            near = torch.ones(query.shape[1], 3) @ torch.ones(3, key.shape[1])
            scores = torch.baddbmm(self.bias, query, key.transpose(1, 2)) + near
            return torch.bmm(torch.softmax(scores, -1), value)

    account = sa.trace(sa.build(Biased), "B L size", "B L size", "B L size", check=False)
    roles, size = under(account, "torch").by_role("forward"), symbol("size")
    assert set(roles) == {"scores", "values", "contraction"}
    assert same(roles["scores"], 2 * B * L * L * size)
    assert same(roles["contraction"], 2 * L * L * 3)


# -- errors, the page --------------------------------------------------------------------------------


def test_errors() -> None:
    """A preset, a switch, a role or a share that is none is refused with what there is."""
    with pytest.raises(SpecError, match="there is no convention 'plam'; the presets are torch, fvcore"):
        under(two_layers(), "plam")
    with pytest.raises(SpecError, match="Convention: causal='none' is none of full, half, exact"):
        Convention(causal="none")
    with pytest.raises(SpecError, match="Convention: multiply_add=3 is none of 1, 2"):
        Convention(multiply_add=3)
    with pytest.raises(SpecError, match="Convention: pointwise='relu' is none of bias"):
        Convention(pointwise={"relu": 1})
    with pytest.raises(SpecError, match="head=2 is no share; give True, False or a fraction between"):
        Convention(head=2)
    with pytest.raises(SpecError, match="Convention: tokens is a tuple of names, such as \\('B',\\)"):
        Convention(tokens="B")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="window=0 lets a query see nothing"):
        Convention(causal="exact", window=0)
    images = sa.trace(nn.Conv2d(3, 4, 3), "B 3 8 8", check=False)
    with pytest.raises(SpecError, match="counts by tokens, and nothing tells how many there are"):
        under(images, "6nd")
    named = under(images, replace(preset("6nd"), tokens=("B",)))
    assert same(named.total.flops, 6 * B * named.params)


def test_every_preset_has_its_source() -> None:
    """Each preset has a name, a source of one line, and is found by its name."""
    for name, convention in PRESETS.items():
        assert convention.name == name
        assert convention.source
        assert "\n" not in convention.source
        assert preset(name) is convention


def test_the_page_is_what_the_presets_say() -> None:
    """docs/conventions.md is what its command prints."""
    assert (Path(__file__).parent.parent / "docs" / "conventions.md").read_text() == page()
