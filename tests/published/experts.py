"""Mixtures of experts: parameters in all, those that a token meets, and FLOP; DeepSeek's latent attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.language import Block, FeedForward, Form, Language, Sizes, normalisation
from published.linear import params, total
from published.parameters import named
from published.training import part, role
from symacct.conventions.presets import Convention

FORM = Form("rms", "rms", False, True, False, grouped=True)


class Experts(nn.Module):
    """Gated feed-forward parts, of which a router chooses some for each token; all get equally many tokens."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int, shared: int = 0, bias: bool = False) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.balance = nn.Parameter(torch.zeros(experts)) if bias else None
        self.gate, self.up = (nn.Parameter(torch.empty(experts, width, inner)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(experts, inner, width))
        self.shared = FeedForward(width, shared * inner, FORM) if shared else None

    def forward(self, x: Any) -> Any:
        """(batch, length, width): each token by the experts that were chosen for it, and the shared ones."""
        tokens = x.reshape(-1, x.shape[-1])
        scores = self.router(tokens).softmax(-1)
        ranked = scores if self.balance is None else scores + self.balance
        index = ranked.topk(self.chosen, -1).indices
        order = index.flatten().argsort()
        source = order // self.chosen
        sent = tokens[source].view(self.experts, -1, tokens.shape[1])
        inner = F.silu(torch.bmm(sent, self.gate)) * torch.bmm(sent, self.up)
        back = torch.bmm(inner, self.down).view(-1, tokens.shape[1])
        weighed = back * scores.gather(1, index).flatten()[order][:, None]
        found = torch.zeros_like(tokens).index_add(0, source, weighed).view(x.shape)
        return found if self.shared is None else found + self.shared(x)


def met(account: Any) -> Any:
    """Multiply-adds with parameters: for each token, the parameters that it meets in a product."""
    return role("weights")(account) + role("head")(account)


# -- Mixtral ---------------------------------------------------------------------------------


@cache
def mixtral_model() -> sa.Account:
    """Mixtral: grouped queries, k of E experts, at any depth."""

    def builder(K: int, G: int, hd: int, F: int, E: int, k: int, V: int, L: int) -> nn.Module:
        sizes = Sizes(K * G * hd, K * G, K, hd, F, V, 0, L)
        return Language(sizes, FORM, lambda s, form: Block(s, form, Experts(s.width, F, E, k)))

    model = sa.build(builder, depth="L", E=4, k=2)
    return sa.trace(model, "i64[B, T]", sizes={"B": 6, "T": 10})


def mixtral() -> Proof:
    """Mixtral 8x7B."""
    d, K, hd, E, k, F, V, L, T = symbols("d K hd E k F V L T")
    sizes = {"B": 4, "T": 4096, "K": 8, "G": 4, "hd": 128, "E": 8, "k": 2, "F": 14336, "V": 32000, "L": 32}
    account = mixtral_model()

    def count(of: Any) -> Any:
        return L * (2 * d * d + 2 * d * K * hd + of * 3 * d * F + E * d + 2 * d) + 2 * V * d + d

    beside = ((-V * d, "the embedding, which is looked up"), (-(2 * L + 1) * d, "gains of norms, no product"))
    token = 6 * (count(k) - V * d - (2 * L + 1) * d) + 12 * L * T * d
    figures = (
        Figure("parameters", account, params, count(E), numbers=(Number("Mixtral 8x7B", sizes, 46702792704),)),
        Figure("active parameters: multiply-adds with parameters for each token",
               account.under(Convention(multiply_add=1)), met, count(k), beside,
               (Number("Mixtral 8x7B", sizes, 12879925248), Number("as printed", sizes, "12.9e9")), "B T"),
        Figure("experts of a layer, FLOP of training for each token (N124)", account, part(".inner", phase=None),
               6 * k * 3 * d * F, numbers=(Number("Mixtral 8x7B", sizes, 2113929216),), per="B T L"),
        Figure("router of a layer, FLOP of training for each token (N124)", account, part(".router", phase=None),
               6 * d * E, numbers=(Number("Mixtral 8x7B", sizes, 196608),), per="B T L"),
        Figure("FLOP of a step for each token: 6 for each active parameter in a product, and attention", account, total,
               token, per="B T"),
    )  # fmt: skip
    how = 'gated experts as batched products, equally many tokens for each (B*T*k/E), untied head, `depth="L"`'
    return Proof(how, figures, {"d": "K*G*hd"})


# -- DeepSeek --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latent:
    """Sizes of latent attention: ranks of queries and of the cache, parts of a head, number of heads."""

    width: int
    queries: int
    cache: int
    plain: int
    rotary: int
    values: int
    heads: int


class LatentAttention(nn.Module):
    """DeepSeek's multi-head latent attention; rotations, which multiply elementwise, are left out."""

    def __init__(self, at: Latent) -> None:
        super().__init__()
        self.at = at
        self.query_down = nn.Linear(at.width, at.queries, bias=False)
        self.query_norm = nn.RMSNorm(at.queries)
        self.query_up = nn.Linear(at.queries, at.heads * (at.plain + at.rotary), bias=False)
        self.down = nn.Linear(at.width, at.cache + at.rotary, bias=False)
        self.norm = nn.RMSNorm(at.cache)
        self.up = nn.Linear(at.cache, at.heads * (at.plain + at.values), bias=False)
        self.out = nn.Linear(at.heads * at.values, at.width, bias=False)

    def forward(self, x: Any) -> Any:
        at, (batch, length, _) = self.at, x.shape
        query = self.query_up(self.query_norm(self.query_down(x))).view(batch, length, at.heads, at.plain + at.rotary)
        latent, rotary = self.down(x).split([at.cache, at.rotary], -1)
        up = self.up(self.norm(latent)).view(batch, length, at.heads, at.plain + at.values)
        key, value = up.split([at.plain, at.values], -1)
        key = torch.cat((key, rotary[:, :, None].expand(batch, length, at.heads, at.rotary)), -1)
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        seen = F.softmax(query @ key.transpose(-2, -1) * 0.125, -1) @ value
        return self.out(seen.transpose(1, 2).reshape(batch, length, at.heads * at.values))


class DeepBlock(nn.Module):
    """Latent attention and a feed-forward part or experts."""

    def __init__(self, at: Latent, inner: nn.Module) -> None:
        super().__init__()
        self.attention, self.inner = LatentAttention(at), inner
        self.first, self.second = nn.RMSNorm(at.width), nn.RMSNorm(at.width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.inner(self.second(x))


class DeepSeek(nn.Module):
    """Dense blocks, then blocks with experts; no multi-token prediction."""

    def __init__(self, at: Latent, words: int, dense: list[nn.Module], experts: list[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(words, at.width)
        self.dense = nn.ModuleList(DeepBlock(at, inner) for inner in dense)
        self.blocks = nn.ModuleList(DeepBlock(at, inner) for inner in experts)
        self.norm, self.head = normalisation("rms", at.width), nn.Linear(at.width, words, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for block in (*self.dense, *self.blocks):
            x = block(x)
        return self.head(self.norm(x))


@cache
def deepseek_model(third: bool) -> sa.Account:
    """DeepSeek-V3: Ld dense blocks and Le with experts, whose router has biases; or V2: one dense block, no biases."""

    def builder(
        d: int, q: int, c: int, nope: int, rope: int, v: int, n: int, Fd: int, Fe: int, E: int, sh: int, k: int, V: int,
        Le: int, Ld: int = 1,
    ) -> nn.Module:  # fmt: skip
        dense: list[nn.Module] = [FeedForward(d, Fd, FORM) for _ in range(Ld)]
        experts: list[nn.Module] = [Experts(d, Fe, E, k, sh, third) for _ in range(Le)]
        return DeepSeek(Latent(d, q, c, nope, rope, v, n), V, dense, experts)

    model = sa.build(builder, depth="Ld Le" if third else "Le", E=4, k=2)
    return sa.trace(model, "i64[B, T]", sizes={"B": 6, "T": 10})


V3 = {"d": 7168, "q": 1536, "c": 512, "nope": 128, "rope": 64, "v": 128, "n": 128, "Fd": 18432, "Fe": 2048, "E": 256,
      "sh": 1, "k": 8, "V": 129280, "Ld": 3, "Le": 58, "B": 1, "T": 4096}  # fmt: skip
V2 = {name: size for name, size in V3.items() if name != "Ld"} | {
    "d": 5120, "Fd": 12288, "Fe": 1536, "E": 160, "sh": 2, "k": 6, "V": 102400, "Le": 59, "B": 5,
}  # fmt: skip


def deepseek(third: bool) -> Proof:
    """Parameters in all and active, and FLOP for each token, causal half."""
    d, q, c, nope, rope, v, n, Fd, Fe, E, sh, k, V, L, Ld, T = symbols("d q c nope rope v n Fd Fe E sh k V L Ld T")
    account, sizes, label = deepseek_model(third), V3 if third else V2, "V3" if third else "V2"
    bias = (L - Ld) * E if third else 0
    matrices = d * q + q * n * (nope + rope) + d * (c + rope) + c * n * (nope + v) + n * v * d
    attention = matrices + q + c

    def count(of: Any) -> Any:
        layers = L * (attention + 2 * d) + Ld * 3 * d * Fd + (L - Ld) * ((of + sh) * 3 * d * Fe + E * d)
        return layers + bias + 2 * V * d + d

    def numbers(*found: int | str) -> tuple[Number, ...]:
        return tuple(Number(label, sizes, each) for each in found)

    beside = [(-V * d, "the embedding, which is looked up"), (-(L * (q + c + 2 * d) + d), "gains of norms, no product")]
    if third:
        beside.append((-bias, "what the router adds to its scores"))
    flops = 3 * (
        2 * (L * matrices + Ld * 3 * d * Fd + (L - Ld) * ((k + sh) * 3 * d * Fe + E * d) + V * d)
        + L * T * (n * (nope + rope) + n * v)
    )
    all_counts, active, rates = (
        ((671026419200,), (37552297472,), ("250.45e9", "250e9")) if third else
        ((235741434880, "236e9"), (21375800320, "21e9"), ("155.304e9", "155e9"))
    )  # fmt: skip
    figures = (
        Figure("attention's parameters", account, named(".attention."), L * attention, (),
               (Number("a layer of V3", V3, 187107328, L),) if third else ()),
        Figure("parameters", account, params, count(E), (), numbers(*all_counts)),
        Figure("active parameters: multiply-adds with parameters for each token",
               account.under(Convention(multiply_add=1)), met, count(k), tuple(beside), numbers(*active), "B T"),
        Figure("FLOP of training for each token, causal half (N073)", account.under("megatron-core"), total, flops, (),
               numbers(*rates), "B T"),
    )  # fmt: skip
    depth = "Ld Le" if third else "Le"
    how = f'latent attention, Ld dense blocks and Le with k of E experts and sh shared ones, `depth="{depth}"`'
    names = {"L": "Ld + Le"} if third else {"L": "1 + Le", "Ld": "1"}
    return Proof(f"{how}; preset `megatron-core` for FLOP", figures, names)


def deepseek_v3() -> Proof:
    """DeepSeek-V3."""
    return deepseek(True)


def deepseek_v2() -> Proof:
    """DeepSeek-V2."""
    return deepseek(False)


MLA = "attention with q, c, nope, rope, v and n; E experts, k active, sh shared"
ENTRIES = (
    Entry("N054, N124", "Mixtral's total and active parameters", "Jiang et al. 2024; JAX book ch. 4",
          "L*(2*d*d + 2*d*K*hd + k*3*d*F + E*d + 2*d) + 2*V*d + d active; 6*k*3*d*F + 6*d*E FLOP", mixtral),
    Entry("N055, N073", "DeepSeek-V3", "DeepSeek-AI 2024; DeepSeek-AI 2025 Table 2", MLA, deepseek_v3, True),
    Entry("N056, N073", "DeepSeek-V2", "DeepSeek-AI 2024; DeepSeek-AI 2025 Table 2", MLA, deepseek_v2),
)  # fmt: skip
