"""A plain transformer block, written out: H heads of size Dh without biases or norms, and a gated MLP of F units.

And a function that relies on a relation between sizes.
"""

from functools import cache

import torch
from torch import nn

import symacct as sa


class Products(nn.Module):
    """softmax(q k^T / sqrt(Dh)) v, as two batched products."""

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.softmax(-1) @ v


class Block(nn.Module):
    """Attention and a gated MLP on x of shape (B, L, H*Dh)."""

    def __init__(self, H, Dh, F):
        super().__init__()
        width = H * Dh
        self.heads = H
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.products = Products()
        self.gate, self.up = nn.Linear(width, F, bias=False), nn.Linear(width, F, bias=False)
        self.down = nn.Linear(F, width, bias=False)

    def forward(self, x):
        B, L, width = x.shape
        q, k, v = (p(x).view(B, L, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        x = x + self.o(self.products(q, k, v).transpose(1, 2).reshape(B, L, width))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@cache
def block_account():
    """One training step with AdamW, the gradient of x included, as if blocks lay below."""
    model = sa.build(Block)
    return sa.trace(model, "B L (H Dh)", grad=True, optimizer=torch.optim.AdamW)


@cache
def quartered_account():
    """A function whose axis D is cut into pieces of 4, so that 4 must divide D."""

    def products(x):
        y = x.view(x.shape[0], -1, 4)
        return (y @ y.transpose(1, 2)).sum()

    return sa.trace(products, "B D")
