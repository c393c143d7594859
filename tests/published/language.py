"""Language models of the papers, written out: one class whose form says what a paper's model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Form:
    """What sets models apart.

    ``norm``: "layer" (with bias), "gain" (a layer norm without bias) or "rms". ``last``: the norm before the head.
    ``parallel``: attention and feed-forward part of one norm, added together. ``attention``: "products" with a
    softmax, or "fused" and causal. ``grouped``: fewer heads of keys than of queries. ``inside``: norms of both.
    """

    norm: str = "layer"
    last: str = "layer"
    bias: bool = True
    gated: bool = False
    tied: bool = True
    parallel: bool = False
    recompute: bool = False
    inside: bool = False
    grouped: bool = False
    attention: str = "products"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model: queries have ``heads`` heads of ``size``, keys and values ``groups``; ``places`` 0: none."""

    width: int
    heads: int
    groups: int
    size: int
    inner: int
    words: int
    places: int
    depth: int


def normalisation(kind: str, width: int) -> nn.Module:
    """A norm with one gain for each feature, and a bias where it is a full layer norm."""
    return nn.RMSNorm(width) if kind == "rms" else nn.LayerNorm(width, bias=kind == "layer")


class Attention(nn.Module):
    """Multi-head attention with grouped queries."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        self.sizes, self.form = sizes, form
        self.query = nn.Linear(sizes.width, sizes.heads * sizes.size, bias=form.bias)
        self.key = nn.Linear(sizes.width, sizes.groups * sizes.size, bias=form.bias)
        self.value = nn.Linear(sizes.width, sizes.groups * sizes.size, bias=form.bias)
        self.out = nn.Linear(sizes.heads * sizes.size, sizes.width, bias=form.bias)
        self.inside = nn.ModuleList([nn.RMSNorm(sizes.size), nn.RMSNorm(sizes.size)]) if form.inside else None

    def split(self, x: Any, heads: int) -> Any:
        """(batch, length, heads*size) as (batch, heads, length, size)."""
        return x.view(x.shape[0], x.shape[1], heads, self.sizes.size).transpose(1, 2)

    def forward(self, x: Any) -> Any:
        """Attention of a sequence to itself."""
        key, value = self.kept(x)
        return self.attend(x, key, value)

    def kept(self, x: Any) -> tuple[Any, Any]:
        """Keys and values, which a cache keeps."""
        return self.split(self.key(x), self.sizes.groups), self.split(self.value(x), self.sizes.groups)

    def attend(self, x: Any, key: Any, value: Any) -> Any:
        """What the tokens of x see of keys and values."""
        query = self.split(self.query(x), self.sizes.heads)
        if self.inside is not None:
            query, key = self.inside[0](query), self.inside[1](key)
        if self.form.attention == "fused":
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            if self.form.grouped:
                times = self.sizes.heads // self.sizes.groups
                key, value = (t.repeat_interleave(times, dim=1) for t in (key, value))
            seen = F.softmax(query @ key.transpose(-2, -1) * 0.125, -1) @ value
        return self.out(seen.transpose(1, 2).reshape(x.shape[0], x.shape[1], self.sizes.heads * self.sizes.size))


class FeedForward(nn.Module):
    """Two matrices with a GELU between them, or three with a gate."""

    def __init__(self, width: int, inner: int, form: Form) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner, bias=form.bias)
        self.down = nn.Linear(inner, width, bias=form.bias)
        self.gate = nn.Linear(width, inner, bias=form.bias) if form.gated else None

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A pre-norm block; the parallel form has one norm."""

    def __init__(self, sizes: Sizes, form: Form, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.form = form
        self.attention = Attention(sizes, form)
        self.inner = inner or FeedForward(sizes.width, sizes.inner, form)
        self.norm = normalisation(form.norm, sizes.width)
        self.second = None if form.parallel else normalisation(form.norm, sizes.width)

    def forward(self, x: Any) -> Any:
        if self.second is None:
            y = self.norm(x)
            return x + self.attention(y) + self.inner(y)
        x = x + self.attention(self.norm(x))
        return x + self.inner(self.second(x))


class Language(nn.Module):
    """Embeddings, blocks, a norm, and the head: logits of every token."""

    def __init__(self, sizes: Sizes, form: Form, block: Any = Block) -> None:
        super().__init__()
        self.form = form
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.places = nn.Embedding(sizes.places, sizes.width) if sizes.places else None
        self.blocks = nn.ModuleList(block(sizes, form) for _ in range(sizes.depth))
        self.norm = normalisation(form.last, sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)
        if form.tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.form.recompute else block(x)
        return self.head(self.norm(x))
