"""Models in plain PyTorch, for machines that have nothing else: GPT-2, a Llama with grouped queries, ResNet-50."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def two_layer(D: int, K: int) -> nn.Module:
    """x (B, D) times w1 (D, D) times w2 (D, K)."""
    return nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False))


# -- GPT-2 ---------------------------------------------------------------------------------


class GPT2Block(nn.Module):
    """Attention and an MLP, with layer norms before them; H heads of size Dh."""

    def __init__(self, H: int, Dh: int) -> None:
        super().__init__()
        D = H * Dh
        self.H, self.Dh = H, Dh
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, L, D = x.shape
        parts = self.qkv(self.ln_1(x)).split(D, dim=2)
        q, k, v = (t.view(B, L, self.H, self.Dh).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, L, D))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """The language model, its head tied to the embedding; without dropout. ``checkpoints``: blocks are recomputed."""

    def __init__(self, H: int, Dh: int, V: int, P: int, layers: int, checkpoints: bool = False) -> None:
        super().__init__()
        D = H * Dh
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(P, D)
        self.blocks = nn.ModuleList(GPT2Block(H, Dh) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpoints = checkpoints

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


# -- Llama ---------------------------------------------------------------------------------


class LlamaBlock(nn.Module):
    """G groups of H query heads, each group with one head of keys and values, rotary embeddings; a gated MLP of F."""

    def __init__(self, G: int, H: int, Dh: int, F: int) -> None:
        super().__init__()
        D = G * H * Dh
        self.G, self.H, self.Dh = G, H, Dh
        self.norm_1, self.norm_2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.q, self.o = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.k, self.v = nn.Linear(D, G * Dh, bias=False), nn.Linear(D, G * Dh, bias=False)
        self.gate, self.up = nn.Linear(D, F, bias=False), nn.Linear(D, F, bias=False)
        self.down = nn.Linear(F, D, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        B, L, _ = x.shape
        h = self.norm_1(x)
        q = _rotated(self.q(h).view(B, L, self.G * self.H, self.Dh).transpose(1, 2), cos, sin)
        k = _rotated(self.k(h).view(B, L, self.G, self.Dh).transpose(1, 2), cos, sin)
        v = self.v(h).view(B, L, self.G, self.Dh).transpose(1, 2)
        k, v = (t[:, :, None].expand(B, self.G, self.H, L, self.Dh).flatten(1, 2) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, L, -1))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Llama(nn.Module):
    """The language model."""

    def __init__(self, G: int, H: int, Dh: int, F: int, V: int, layers: int) -> None:
        super().__init__()
        D = G * H * Dh
        self.tokens = nn.Embedding(V, D)
        self.blocks = nn.ModuleList(LlamaBlock(G, H, Dh, F) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(D), nn.Linear(D, V, bias=False)
        self.Dh = Dh

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        cos, sin = self._angles(ids, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    def _angles(self, ids: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        powers = torch.arange(0, self.Dh, 2, device=ids.device) / self.Dh
        places = torch.arange(ids.shape[1], device=ids.device)
        angles = places[:, None] * 10_000.0**-powers
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


# -- ResNet --------------------------------------------------------------------------------


def _conv(c: int, k: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(c, k, size, stride, size // 2, bias=False), nn.BatchNorm2d(k))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut."""

    def __init__(self, c: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _conv(c, width, 1), _conv(width, width, 3, stride)
        self.third = _conv(width, 4 * width, 1)
        self.shortcut = _conv(c, 4 * width, 1, stride) if stride != 1 or c != 4 * width else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.second(F.relu(self.first(x), inplace=True)), inplace=True)
        return F.relu(self.third(y) + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


def resnet50(classes: int = 1000) -> nn.Module:
    """As torchvision has it (v1.5: the stride is in the 3x3 convolution)."""
    layers: list[Any] = [_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    c = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for n in range(count):
            layers.append(Bottleneck(c, width, stride if n == 0 else 1))
            c = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))
