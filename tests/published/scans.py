"""State-space layers: Mamba-1 and Mamba-2."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.linear import forward, params

B, L, d, di, n, r, w, V = symbols("B L d di n r w V")


class Scan(nn.Module):
    """The selective scan as its reference writes it: a loop over the length."""

    def forward(self, u: Any, delta: Any, rates: Any, into: Any, out: Any) -> Any:
        """u, delta: (batch, length, channels); rates: (channels, n); into, out: (batch, length, n)."""
        state = u.new_zeros(u.shape[0], u.shape[2], rates.shape[1])
        found = []
        for t in range(u.shape[1]):
            decay = torch.exp(delta[:, t, :, None] * rates)
            state = decay * state + (delta[:, t] * u[:, t])[..., None] * into[:, t, None]
            found.append((state @ out[:, t, :, None])[..., 0])
        return torch.stack(found, 1)


class Mamba(nn.Module):
    """A Mamba-1 block: projections, a depthwise convolution, the scan, a gate."""

    def __init__(self, d: int, di: int, n: int, r: int, w: int) -> None:
        super().__init__()
        self.sizes = (di, n, r, w)
        self.in_proj, self.out_proj = nn.Linear(d, 2 * di, bias=False), nn.Linear(di, d, bias=False)
        self.conv = nn.Conv1d(di, di, w, groups=di)
        self.x_proj, self.dt_proj = nn.Linear(di, r + 2 * n, bias=False), nn.Linear(r, di)
        self.rates, self.skip = nn.Parameter(torch.zeros(di, n)), nn.Parameter(torch.zeros(di))
        self.scan = Scan()

    def forward(self, x: Any) -> Any:
        di, n, r, w = self.sizes
        u, gate = self.in_proj(x).split([di, di], -1)
        u = F.silu(self.conv(F.pad(u.transpose(1, 2), (w - 1, 0))).transpose(1, 2))
        step, into, out = self.x_proj(u).split([r, n, n], -1)
        y = self.scan(u, F.softplus(self.dt_proj(step)), -torch.exp(self.rates), into, out)
        return self.out_proj((y + u * self.skip) * F.silu(gate))


class MambaLanguage(nn.Module):
    """Blocks with a norm before each, a norm, and a tied head."""

    def __init__(self, d: int, di: int, n: int, r: int, w: int, words: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, d)
        self.blocks = nn.ModuleList(nn.Sequential(nn.RMSNorm(d), Mamba(d, di, n, r, w)) for _ in range(depth))
        self.norm = nn.RMSNorm(d)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.norm(x) @ self.words.weight.t()


def mamba_parameters() -> Proof:
    """Two of the released models."""
    model = sa.build(
        lambda d, di, n, r, w, V, N: MambaLanguage(d, di, n, r, w, V, N), depth="N"
    )  # fmt: skip
    account = sa.trace(model, "i64[B, 3]", train=False)
    N = symbols("N")
    layer = d * 2 * di + di * w + di + di * (r + 2 * n) + r * di + di + di * n + di + di * d + d
    sizes = {"B": 2, "n": 16, "w": 4, "V": 50280}
    numbers = (
        Number("130M", sizes | {"d": 768, "di": 1536, "r": 48, "N": 24}, 129135360),
        Number("2.8B", sizes | {"d": 2560, "di": 5120, "r": 160, "N": 64}, 2768345600),
    )
    figure = Figure("parameters", account, params, N * layer + V * d + d, numbers=numbers)
    return Proof('Mamba-1 with its reference scan over 3 tokens, tied head, `depth="N"` (L in the paper)', (figure,))


@cache
def mamba_block() -> sa.Account:
    """A block of any length."""
    model = sa.build(lambda d, di, n, r, w: Mamba(d, di, n, r, w))
    return sa.trace(model, "B L d", structural="L", train=False)


def scan_work(account: Any) -> Any:
    """FLOP and pointwise FLOP of the scan."""
    scan = account.by_module(None)["scan"]
    return scan.flops + scan.pointwise


def selective_scan() -> Proof:
    """The rule of nine, and the whole block."""
    sizes = {"B": 1, "L": 2048, "d": 768, "di": 1536, "n": 16, "r": 48, "w": 4}
    products = (
        4 * B * L * d * di + 2 * B * L * di * w + 2 * B * L * di * (r + 2 * n) + 2 * B * L * r * di + 2 * B * L * di * d
    )
    rule, skip = 9 * B * L * di * n, B * L * di
    figures = (
        Figure("the scan: products and pointwise FLOP", mamba_block(), scan_work, rule, (
            (-2 * B * L * di * n, "the rule has 9; the reference has delta*A, exp, decay, B and an add at 1, C at 2"),
            (B * L * di, "delta*u")),
            (Number("130M", sizes, 452984832),)),
        Figure("forward FLOP of the block", mamba_block(), forward, products + rule + skip, (
            (-7 * B * L * di * n, "of the 9, all but the product with C (2) is pointwise work to an account"),
            (-skip, "D*u, pointwise too")),
            (Number("130M", sizes, 15782117376),)),
    )  # fmt: skip
    return Proof('a Mamba-1 block with its reference scan, a loop over `structural="L"`', figures)


# -- Mamba-2 ---------------------------------------------------------------------------------


class Mamba2(nn.Module):
    """A Mamba-2 layer with its recurrence written out: nh heads, g groups of B and C, a state of n for each channel."""

    def __init__(self, h: int, g: int, e: int, hd: int, n: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.state = g * e, g, hd, n
        self.inner = g * e * hd
        self.in_proj = nn.Linear(h, 2 * self.inner + 2 * g * n + self.heads, bias=False)
        self.out_proj = nn.Linear(self.inner, h, bias=False)
        self.rates, self.recurrence = nn.Parameter(torch.zeros(self.heads)), Recurrence()

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        both = self.groups * self.state
        u, gate, into, out, step = self.in_proj(x).split([self.inner, self.inner, both, both, self.heads], -1)
        u = u.reshape(batch, length, self.groups, -1, self.size)
        into = into.reshape(batch, length, self.groups, 1, self.state)
        out = out.reshape(batch, length, self.groups, 1, self.state)
        step = F.softplus(step)
        decay = torch.exp(-step * self.rates).reshape(batch, length, self.groups, -1)
        y = self.recurrence(u * step.reshape(batch, length, self.groups, -1, 1), decay, into, out)
        return self.out_proj(y.reshape(batch, length, self.inner) * F.silu(gate))


class Recurrence(nn.Module):
    """state = decay*state + u B^T, y = state C, one token after the other."""

    def forward(self, u: Any, decay: Any, into: Any, out: Any) -> Any:
        """u: (batch, length, groups, heads, size)."""
        state = u.new_zeros(u.shape[0], u.shape[2], u.shape[3], u.shape[4], into.shape[-1])
        found = []
        for t in range(u.shape[1]):
            state = decay[:, t, :, :, None, None] * state + u[:, t, ..., None] * into[:, t, :, :, None]
            found.append((state @ out[:, t, ..., None])[..., 0])
        return torch.stack(found, 1)


def mamba2() -> Proof:
    """Megatron's estimate beside a recurrence."""
    b, s, h, g, nh = symbols("b s h g nh")
    model = sa.build(lambda h, g, e, hd, n: Mamba2(h, g, e, hd, n))
    account = sa.trace(model, "b s h", structural="s", train=False)
    sizes = {"b": 1, "s": 2048, "h": 4096, "g": 8, "e": 16, "hd": 64, "n": 128}
    projections = 2 * b * s * h * (2 * di + 2 * g * n + nh) + 2 * b * s * di * h

    def work(found: Any) -> Any:
        recurrence = found.by_module(None)["recurrence"]
        return found.forward.flops + recurrence.pointwise

    figure = Figure(
        "projections, and the recurrence's products and pointwise FLOP", account, work,
        projections + 7 * b * s * di * n,
        ((-2 * b * s * di * n, "an estimate of the scan's FLOP; the recurrence has decay, B and an add at 1, C at 2"),),
        (Number("h=4096", sizes, 463856467968),),
    )  # fmt: skip
    how = 'a Mamba-2 layer without its convolution, the recurrence a loop over `structural="s"`'
    return Proof(how, (figure,), {"di": "g*e*hd", "nh": "g*e"})


ENTRIES = (
    Entry("N057", "Mamba's parameters", "Gu and Dao 2023, reference implementation",
          "L*(2*d*di + di*w + di + di*(r + 2*n) + r*di + di + di*n + di + di*d + d) + V*d + d", mamba_parameters),
    Entry("N122", "The selective scan", "state-spaces/mamba issue 110", "9*B*L*di*n for the scan, B*L*di for D",
          selective_scan),
    Entry("N123", "A Mamba-2 layer in Megatron-core", "Megatron-LM training.py mamba_layer_flops, there an estimate",
          "2*b*s*h*(2*di + 2*g*n + nh) + 7*b*s*di*n + 2*b*s*di*h", mamba2),
)  # fmt: skip
