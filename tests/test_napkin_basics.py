"""Napkin-math results that need only an account, torch or arithmetic: formats, small products, shares, slips."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch
from test_memory_cases import same, symbols
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import symacct as sa
from symacct.account import Account
from symacct.hardware import device
from symacct.units import read

YEAR = 365.25 * 86400
GPT3 = {"B": 1, "d": 12_288}


def forward(target: Any, *specs: Any) -> Account:
    """A forward pass."""
    return sa.trace(target, *specs, train=False)


class Behind(nn.Module):
    """A module whose input is not data, so that autograd computes the input's gradient as well."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.shift, self.module = nn.Parameter(torch.zeros(1)), module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The module of x + shift."""
        return self.module(x + self.shift)


@pytest.fixture(scope="module")
def product() -> Account:
    """x @ w in bfloat16, B by D by K."""
    return forward(lambda x, w: x @ w, "bf16[B, D]", "bf16[D, K]")


# -- formats ---------------------------------------------------------------------------


def test_n004_formats() -> None:
    """N004: the ranges of the float formats, by torch; 1e-8 is 0 in float16 and not in bfloat16."""
    assert torch.finfo(torch.float8_e4m3fn).max == 448 == 7 / 4 * 2**8
    assert torch.finfo(torch.float8_e5m2).max == 57_344 == 7 / 4 * 2**15
    half, brain = torch.finfo(torch.float16), torch.finfo(torch.bfloat16)
    assert (half.max, half.smallest_normal * half.eps) == (65_504, 2**-24)
    assert f"{brain.max:.4e}" == "3.3895e+38"
    assert brain.smallest_normal * brain.eps == pytest.approx(9.18e-41, rel=1e-3)
    assert torch.tensor(1e-8, dtype=torch.float16) == 0
    assert torch.tensor(2**-25 * 1.01, dtype=torch.float16) > 0 == torch.tensor(2**-25, dtype=torch.float16)
    assert torch.tensor(1e-8, dtype=torch.bfloat16) != 0
    # Bits of sign, exponent and fraction: 1 + 8 + 23, 1 + 5 + 10, 1 + 8 + 7.
    for dtype, exponent, fraction in ((torch.float32, 8, 23), (torch.float16, 5, 10), (torch.bfloat16, 8, 7)):
        found = torch.finfo(dtype)
        assert found.eps == 2.0**-fraction
        assert math.frexp(found.max)[1] == 2 ** (exponent - 1)
        assert 1 + exponent + fraction == found.bits


# -- small products --------------------------------------------------------------------


def test_n006_scale() -> None:
    """N006: a (16384, 32) matrix has 524,288 parameters; unit-normal products of it have a deviation of 128."""
    n_in = 16_384
    account = sa.trace(sa.build(lambda i, o: nn.Linear(i, o, bias=False)), "B i").at(B=1, i=n_in, o=32)
    assert account.params == 524_288
    torch.manual_seed(0)
    assert math.sqrt(n_in) == 128
    assert (torch.randn(64, n_in) @ torch.randn(n_in, 32)).std().item() == pytest.approx(128, rel=0.05)


def test_n007_einsum() -> None:
    """N007: an einsum counts each named dim once, contracted ones too: 2*2*2*2*3 is 48."""
    account = forward(lambda x, y: torch.einsum("bsh,brh->bsr", x, y), "b s h", "b r h")
    assert account.at(b=2, s=2, r=2, h=3).forward.flops == 48
    assert account.at(b=2, s=3, r=3, h=4).forward.flops == 144


def test_n008_gradient() -> None:
    """N008: of (x.w - 5)**2/2 at x = 1, 2, 3 and w = 1, 1, 1 the gradient of w is 1, 2, 3; the dot takes 6 FLOP."""
    x, w = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, requires_grad=True)
    (0.5 * (x @ w - 5) ** 2).backward()
    assert w.grad.tolist() == [1.0, 2.0, 3.0]
    assert forward(lambda x, w: x @ w, "n", "n").at(n=3).forward.flops == 6


def test_n015_intensity(product: Account) -> None:
    """N015: 2*B*D*K FLOP over 2*(B*D + D*K + B*K) bytes are 4681.14 FLOP/byte at the lecture's sizes."""
    B, D, K = symbols("B D K")
    assert sympy.cancel(product.forward.intensity - B * D * K / (B * D + D * K + B * K)) == 0
    assert float(product.at(B=16_384, D=32_768, K=8192).forward.intensity) == pytest.approx(4681.14, abs=0.005)


# -- data, shares ----------------------------------------------------------------------


def test_n032_data() -> None:
    """N032: LLaMA's 1.4e12 tokens at two bytes each are the 2.8 TB that are read from a memory map."""
    tokens = 1_400_000_000_000
    ids = forward(lambda i: i + 1, "i16[N]").at(N=tokens)
    assert ids.input_bytes == 2_800_000_000_000


class Encoder(nn.Module):
    """A layer of BERT with attention written out."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, width) to the same."""
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = F.dropout((q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)).softmax(-1), 0.1)
        x = self.norms[0](x + F.dropout(self.out((scores @ v).transpose(1, 2).reshape(b, t, d)), 0.1))
        return self.norms[1](x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


def test_n044_shares_of_bert() -> None:
    """N044: in a training step of a BERT-large layer contractions have 99.7% of the FLOP, norms and softmax 0.15%.

    Published are 99.80%, 0.17% and 0.03%: the source counts one FLOP for each element that an elementwise operator
    gives, where GELU counts 5 here and its gradient 11. The shares of time (61.0%, 25.5%, 13.5%) were measured.
    """
    model = sa.build(lambda H, hd, F: Encoder(H * hd, H, F))
    account = sa.trace(model, "B T (H hd)").at(B=8, T=512, H=16, hd=64, F=4096)
    flops, pointwise = int(account.total.flops), int(account.total.pointwise)
    norms = sum(int(node.pointwise) for node in account.nodes if "softmax" in node.op or "layer_norm" in node.op)
    total = flops + pointwise
    assert f"{flops / total:.2%}" == "99.67%"
    assert f"{norms / total:.2%}" == "0.15%"
    assert f"{(pointwise - norms) / total:.2%}" == "0.18%"
    assert account.unknown == []


def test_n045_attention_moves_scores() -> None:
    """N045: attention written out moves 4*(T*hd + T**2) elements a head, four times the published order, 1,114,112.

    Fused, it need not move the T**2 scores: 4*T*hd elements and the log-sum-exps are left. The published
    T**2*hd**2/M = 43,691 is for a cache of M elements that is smaller than T*hd, which 98,304 is not.
    """
    T, hd = symbols("T hd")
    eager = forward(lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v, *["bf16[T, hd]"] * 3)
    assert same(eager.total.bytes, 2 * 4 * (T * hd + T**2))
    assert eager.at(T=1024, hd=64).total.bytes == 2 * 4 * 1_114_112
    fused = forward(F.scaled_dot_product_attention, *["bf16[1, 1, T, hd]"] * 3)
    assert same(fused.total.bytes, 2 * 4 * T * hd + 4 * T)
    assert round(1024**2 * 64**2 / 98_304, 1) == 43690.7
    assert 98_304 > 1024 * 64


# -- errors of the notes ---------------------------------------------------------------


def test_n011_e03_e17_gpt3() -> None:
    """N011, E03, E17: 6*174.6e9*300e9 is 3.1428e23 FLOP, 3637.5 PFLOP/s-days, and not 3.23e23; 175e9 has embeddings."""
    assert 6 * 174_600_000_000 * 300_000_000_000 == 314_280 * 10**18
    assert 6 * 175_000_000_000 * 300_000_000_000 == 315_000 * 10**18
    assert read("3637.5 PFLOP/s-days", "FLOP") == 314_280 * 10**18
    inside = 12 * 96 * GPT3["d"] ** 2
    assert f"{inside:.5g}" == "1.7395e+11"
    assert f"{1 - inside / 174_604_259_328:.1%}" == "0.4%"


def test_e04_to_e06_timed_products(product: Account) -> None:
    """E04, E05, E06: the product that was timed is no 32**3; 0.16 s and 0.03 s are MFUs of 0.82 and 0.296."""
    assert product.at(B=32, D=32, K=32).forward.flops == 65_536
    flops = product.at(B=16_384, D=32_768, K=8192).forward.flops
    h100 = device("h100")
    assert flops / 0.16 == pytest.approx(5.4976e13, rel=1e-4)
    assert flops / 5.4e13 == pytest.approx(0.162891, rel=1e-5)
    assert flops / 0.03 / h100.peak("bf16") == pytest.approx(0.296314, rel=1e-5)
    assert flops / 0.16 / h100.peak("fp32") == pytest.approx(0.8205, rel=1e-3)
    assert 5.4e13 / h100.peak("fp32") == pytest.approx(0.80597, rel=1e-5)
    assert flops / (0.26 * h100.peak("bf16")) == pytest.approx(0.0341901, rel=1e-5)


def test_e07_first_layer() -> None:
    """E07: the layer of D by D has (2 + 2)*B*D*D FLOP backward, with no K; half where its input is data (E08)."""
    B, D = symbols("B D")
    inner = sa.trace(sa.build(lambda D: Behind(nn.Linear(D, D, bias=False))), "B D")
    assert same(inner.backward.flops, (2 + 2) * B * D**2)
    assert same(sa.trace(sa.build(lambda D: nn.Linear(D, D, bias=False)), "B D").backward.flops, 2 * B * D**2)


def test_e10_broadcast() -> None:
    """E10: an output of (B, 1) and a target of (B,) make a loss of B*B elements, with B*B more FLOP."""
    B = symbols("B")
    wide = forward(lambda y, t: y - t, "B 1", "B")
    assert same(wide.forward.pointwise, B**2)
    assert same(forward(lambda y, t: y.squeeze(1) - t, "B 1", "B").forward.pointwise, B)


def test_e14_e21_roundings() -> None:
    """E14, E21: 1000 TFLOP/s and 3 TB/s make a ridge of 333 for 295.4; 990 or 989.4 make 143.85 or 143.94 days."""
    h100 = device("h100")
    assert h100.peak("bf16") / h100.bytes_per_s == pytest.approx(295.373, abs=5e-4)
    assert round(1000e12 / 3e12, 3) == 333.333

    def days(peak: float) -> float:
        return 6 * 70e9 * 15e12 / (1024 * peak * 0.5 * 86400)

    assert [round(days(peak), 2) for peak in (990e12, 989.4e12)] == [143.85, 143.94]
    assert days(h100.peak("bf16")) == pytest.approx(143.927, abs=5e-4)


def test_e15_elementwise() -> None:
    """E15: one FLOP for each element is 1/4 and 1/6 FLOP for each byte in bfloat16, 1/8 and 1/12 in float32."""
    for dtype, unary, binary in (("bf16", 4, 6), ("f32", 8, 12)):
        one, two = forward(torch.relu, f"{dtype}[n]"), forward(torch.add, f"{dtype}[n]", f"{dtype}[n]")
        assert one.at(n=100).forward.bytes == unary * one.at(n=100).forward.pointwise
        assert two.at(n=100).forward.bytes == binary * two.at(n=100).forward.pointwise


def test_e16_years() -> None:
    """E16: 3.1e23 FLOP at 4e14 FLOP/s are 24.6 years; 25 years are those of 3.15e23."""
    assert [round(flops / 4e14) for flops in (3.1e23, 3.15e23)] == [775_000_000, 787_500_000]
    assert round(3.1e23 / 4e14 / YEAR, 4) == 24.5583
    assert round(3.15e23 / 4e14 / YEAR, 4) == 24.9544


def test_e19_orientation() -> None:
    """E19: y = W x needs W of d_out by d_in; the FLOP of W x and of x W with W transposed are the same."""
    column = forward(lambda w, x: w @ x, "o i", "i n").forward.flops
    row = forward(lambda x, w: x @ w, "n i", "i o").forward.flops
    assert same(column, row)


def test_e20_a_week() -> None:
    """E20: eight H100 have 4.788e21 FLOP in one week at their dense peak, and 9.575e21 in the two of the text."""
    week = 8 * 7 * 86400 * device("h100").peak("bf16")
    assert week == 4_787_596_800_000_000_000_000
    assert 2 * week == 9_575_193_600_000_000_000_000


@pytest.mark.parametrize(("groups", "counted"), [(1, 2), (4, 5), (8, 9)])
def test_x12_groups(groups: int, counted: int) -> None:
    """X12: a convolution's backward is 2 x forward with groups too; torch's counter has 5 x for 4, 9 x for 8."""
    model = Behind(nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False))
    account = sa.trace(model, "B 8 8 8")
    assert same(account.backward.flops, 2 * account.forward.flops)
    with FlopCounterMode(display=False) as forward_counter:
        loss = model(torch.randn(2, 8, 8, 8)).sum()
    with FlopCounterMode(display=False) as backward_counter:
        loss.backward()
    assert forward_counter.get_total_flops() == account.at(B=2).forward.flops
    assert backward_counter.get_total_flops() == counted * forward_counter.get_total_flops()


def test_x13_multiply_adds(product: Account) -> None:
    """X13: what vision papers call FLOPs are multiply-adds, half of the FLOP that are counted here."""
    B, D, K = symbols("B D K")
    assert same(product.forward.flops, 2 * B * D * K)
    assert same(product.under("fvcore").forward.flops, B * D * K)
