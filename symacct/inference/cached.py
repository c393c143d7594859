"""Causal models of `transformers` with their cache of keys and values: one module whose call is a prefill or a step.

The cache is the model's own. While a `CachedStep` is made, the model reads as many tokens as the past has, without
being counted, and the cache that it returns says what the tensors are: how many heads of what size, the latents of
multi-head latent attention, or no more tokens than a sliding window lets through. These tensors become buffers of the
module, from which each call makes a cache as the model would find it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from symacct.assumptions import Scope, scope
from symacct.errors import TargetError
from symacct.hf.reading import quiet, transformers

CACHE = "cache_"  # how the names of the buffers begin


class CachedStep(nn.Module):
    """A causal model that reads tokens after a past of ``past`` of them (None: none yet), and extends its cache.

    Returned are the logits of the last token, then the keys and values (or what is kept in their place) of each layer.
    """

    def __init__(self, model: nn.Module, batch: int = 1, past: int | None = None) -> None:
        super().__init__()
        self.model = model.eval()
        self.past = past
        self.keyword = _keyword(model)
        self.layers = 0
        if past is not None:
            # What reading these tokens relies on is no condition of the step, which has its own of the same windows.
            with torch.no_grad(), scope(Scope()):
                found = self._layers_after(torch.zeros(batch, past, dtype=torch.int64))
            self.layers = len(found)
            for number, (keys, values) in enumerate(found):
                self.register_buffer(f"{CACHE}{number}_keys", torch.empty_like(keys), persistent=False)
                self.register_buffer(f"{CACHE}{number}_values", torch.empty_like(values), persistent=False)

    def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """``input_ids``: (batch, tokens). The logits are (batch, 1, tokens in the vocabulary)."""
        given = {} if self.past is None else {self.keyword: self._cache()}
        last = {"logits_to_keep": 1} if "logits_to_keep" in _parameters(self.model) else {}
        output = self.model(input_ids=input_ids, use_cache=True, **given, **last)
        return output.logits, *(t for layer in _layers_of(output) for t in layer)

    def _layers_after(self, input_ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return _layers_of(self.model(input_ids=input_ids, use_cache=True))

    def _cache(self) -> Any:
        """A cache as the model finds it after a past of that many tokens."""
        cache = transformers().DynamicCache(config=self.model.config)
        for number, layer in enumerate(cache.layers):
            layer.keys = getattr(self, f"{CACHE}{number}_keys")
            layer.values = getattr(self, f"{CACHE}{number}_values")
            layer.device, layer.dtype, layer.is_initialized = layer.keys.device, layer.keys.dtype, True
            if hasattr(layer, "cumulative_length"):  # of sliding windows, which forget tokens but not their number
                layer.cumulative_length = self.past
        return cache


def step_builder(
    builder: Callable[..., nn.Module], dtype: torch.dtype, batch: str, past: str | None
) -> Callable[..., nn.Module]:
    """A builder of a `CachedStep` of what another builder makes, in a dtype.

    With ``past``, its parameters are those of the other and before those with defaults ``batch`` and ``past``.
    """

    def make(*args: int, **sizes: int) -> nn.Module:
        bound = signature.bind(*args, **sizes).arguments
        extra = (bound.pop(batch), bound.pop(past)) if past is not None else ()
        with quiet(), default_dtype(dtype):
            return CachedStep(_causal(builder(**bound)), *extra)

    parameters = list(inspect.signature(builder).parameters.values())
    if past is not None:
        place = next((i for i, p in enumerate(parameters) if p.default is not p.empty), len(parameters))
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters[place:place] = [inspect.Parameter(name, kind) for name in (batch, past)]
    signature = inspect.Signature(parameters)
    make.__name__ = getattr(builder, "__name__", "builder")
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Floating-point tensors are of this dtype meanwhile, but those that are made of a dtype of their own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _causal(model: nn.Module) -> nn.Module:
    causal = isinstance(model, transformers().PreTrainedModel) and model.get_output_embeddings() is not None
    if not causal:
        raise TargetError(
            f"inference(): {type(model).__name__} is no causal language model of transformers; trace a prefill and a "
            "step of any other module with sa.trace(..., train=False), and give these to of_accounts"
        )
    return model


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def _keyword(model: nn.Module) -> str:
    """What the model's parameter for its cache is called; releases of `transformers` differ."""
    found = next((name for name in ("cache", "past_key_values") if name in _parameters(model)), None)
    if found is None:
        raise TargetError(f"inference(): {type(model).__name__}.forward takes no cache of keys and values")
    return found


def _layers_of(output: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of the cache that a model returns, by layer."""
    cache = next((found for name in ("cache", "past_key_values") if (found := getattr(output, name, None))), None)
    kept = [(getattr(each, "keys", None), getattr(each, "values", None)) for each in getattr(cache, "layers", ())]
    if not kept or any(keys is None or values is None for keys, values in kept):
        raise TargetError(
            "inference(): the model returns no cache of keys and values for each layer (a state-space layer has "
            "another state); trace its step with sa.trace(..., train=False), and give that to of_accounts"
        )
    return kept  # type: ignore[return-value]
