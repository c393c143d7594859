"""The models that the benchmarks trace, each as symacct builds it and as a plain module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import symacct as sa


@dataclass(frozen=True)
class Case:
    """A model, its inputs as specs, and the same inputs as sizes and dtypes for a plain run."""

    name: str
    build: Callable[[], Any]
    specs: dict[str, str]
    plain: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    deep: bool = False  # symbolic in depth too: building it is a part of tracing it


def _gpt2(H: int, Dh: int, V: int, P: int, layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(n_embd=H * Dh, n_head=H, vocab_size=V, n_positions=P, n_layer=layers, bos_token_id=0, eos_token_id=0)
    )


def _llama(H: int, G: int, Dh: int, F: int, V: int, layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=H * G * Dh,
            num_attention_heads=H * G,
            num_key_value_heads=G,
            head_dim=Dh,
            intermediate_size=F,
            vocab_size=V,
            num_hidden_layers=layers,
        )
    )


def _ids(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(batch, length, dtype=torch.int64) for name in ("input_ids", "labels")}


def _resnet() -> torch.nn.Module:
    import torchvision

    return torchvision.models.resnet50()


TOKENS = {"input_ids": "i64[B, L]", "labels": "i64[B, L]"}


def cases() -> list[Case]:
    """Full training steps with AdamW, the deep ones of models whose depth is symbolic."""
    return [
        Case(
            "GPT-2, 12 layers",
            lambda: sa.build(lambda H, Dh, V, P: _gpt2(H, Dh, V, P, 12)),
            TOKENS,
            lambda: _gpt2(12, 64, 50257, 1024, 12),
            lambda: _ids(8, 1024),
        ),
        Case(
            "Llama, 32 layers",
            lambda: sa.build(lambda H, G, Dh, F, V: _llama(H, G, Dh, F, V, 32)),
            TOKENS,
            lambda: _llama(4, 8, 128, 14336, 128256, 32),
            lambda: _ids(8, 2048),
        ),
        Case(
            "GPT-2, any depth",
            lambda: sa.build(_gpt2, depth="layers"),
            TOKENS,
            lambda: _gpt2(12, 64, 50257, 1024, 12),
            lambda: _ids(8, 1024),
            deep=True,
        ),
        Case(
            "Llama, any depth",
            lambda: sa.build(_llama, depth="layers"),
            TOKENS,
            lambda: _llama(16, 8, 128, 53248, 128256, 126),
            lambda: _ids(8, 2048),
            deep=True,
        ),
        Case("ResNet-50", _resnet, {"x": "B 3 224 224"}, _resnet, lambda: {"x": torch.zeros(8, 3, 224, 224)}),
    ]
