"""`inference`: from a config or a built model to an `Inference`, and `of_accounts` from accounts of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from symacct.account import Account
from symacct.building import build, build_of, names_of
from symacct.dim import plain
from symacct.errors import DimError, SpecError, TargetError
from symacct.hf import FromConfig, from_config
from symacct.hf.reading import quiet
from symacct.inference.cache import of_inputs
from symacct.inference.cached import CACHE, step_builder
from symacct.inference.result import Inference
from symacct.specs import DTYPES
from symacct.tracing import trace


def inference(
    source: Any,
    /,
    *,
    dtype: str | torch.dtype = "bf16",
    depth: str | int | None = "N",
    past: str | None = None,
    prefill: bool = True,
    device: str = "cpu",
    attention: str | None = None,
    check: bool = True,
    **sizes: int,
) -> Inference:
    """A prefill and a decode step of a causal language model of `transformers`, with its own cache, over named dims.

    ``source``: a config as `symacct.from_config` takes it (or its result), or a model from `symacct.build`. ``dtype``:
    of weights, activations and cache ("bf16", "f16", "f32"). ``depth``: as for `from_config`. ``past``: the name of the
    dim of the past, by default "P", or "T" where P is the model's own. ``prefill=False`` leaves that out. ``device``,
    ``attention``, ``check``: as for `symacct.trace`. ``sizes``: trial sizes. A sliding window shows as an assumption
    (``P < 4095``); to describe what comes after it, trace there (``P=5000, L=5000``).

    Raises what `from_config` and `symacct.trace` raise, and `TargetError` for a model without a cache of keys and
    values.
    """
    parts = _parts(source, depth)
    name = past or next(n for n in ("P", "T", "past") if n not in parts.names)
    if unknown := [n for n in sizes if n not in (*parts.names, "B", "L", name)]:
        raise DimError(
            f"inference(): {unknown[0]}={sizes[unknown[0]]}, but the dims are B, L, {name}, {', '.join(parts.names)}"
        )
    kind = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(dtype)
    if kind is None or not kind.is_floating_point:
        raise SpecError(f"dtype: {dtype!r} is none of bf16, f16, f32, f64")
    own = {n: s for n, s in {**parts.trial, **sizes}.items() if n in parts.names}
    with quiet():
        step = build(
            step_builder(parts.builder, kind, "B", name), depth=parts.depths,
            **{**own, **{n: sizes[n] for n in ("B", name) if n in sizes}},
        )  # fmt: skip
        options: dict[str, Any] = {"train": False, "device": device, "attention": attention, "check": check}
        decode = trace(step, "i64[B, 1]", **options)
        first = None
        if prefill:
            start = build(step_builder(parts.builder, kind, "B", None), depth=parts.depths, **own)
            given: dict[str, int] = {n: sizes[n] for n in ("B", "L") if n in sizes}
            first = trace(start, "i64[B, L]", sizes=given, **options)
    for account in (decode, first):
        if account is not None:
            account.title = parts.title
    return Inference(parts.title, decode, first, _is_buffer_of_cache, name, known=parts.known, notes=parts.notes)


def of_accounts(
    decode: Account,
    prefill: Account | None = None,
    *,
    cache: str | Iterable[str],
    past: str = "P",
    batch: str = "B",
    length: str = "L",
) -> Inference:
    """The same for any module or function, from accounts of its step and its prefill (both with ``train=False``).

    ``cache``: the names of the inputs that are cache ("k v", one by one, or as a list), pytrees of tensors among
    them. What the step returns behind its first tensor is taken to be the new cache. ``past``, ``batch`` and
    ``length`` are the dims of the past, the batch, and the prompt.

    Raises `SpecError` for an input that there is not, or an account of training.
    """
    for account in (decode, prefill):
        if account is not None and account.program is not None and account.program.train:
            raise SpecError("of_accounts(): an account of training; trace with train=False")
    names = names_of(cache) if isinstance(cache, str) else tuple(map(str, cache))
    return Inference(decode.title, decode, prefill, of_inputs(decode, names), past, batch, length)


# -- helpers -----------------------------------------------------------------------------


def _is_buffer_of_cache(origin: str, name: str) -> bool:
    return origin == "buffer" and name.startswith(CACHE)


@dataclass(frozen=True)
class _Parts:
    """What a model is made by: its builder, the trial sizes of its dims, those of depth, and its own sizes."""

    title: str
    builder: Callable[..., nn.Module]
    trial: Mapping[str, int]
    names: tuple[str, ...]
    depths: tuple[str, ...]
    known: Mapping[str, int]
    notes: tuple[str, ...]


def _parts(source: Any, depth: str | int | None) -> _Parts:
    made = build_of(source)
    if made is not None:
        trial = {**{name: plain(dim) for name, dim in made.dims.items()}, **made.structure}
        return _Parts(type(source).__name__, made.builder, trial, tuple(trial), tuple(made.structure), {}, ())
    if isinstance(source, nn.Module):
        raise TargetError(
            f"inference(): {type(source).__name__} was not made by sa.build; give its config, or make it in a builder"
        )
    found = source if isinstance(source, FromConfig) else from_config(source, depth=depth, task="causal-lm")
    trial = {name: size for name, size in found.trial.items() if name in found.legend}
    return _Parts(found.title, found.builder, trial, tuple(found.legend), found.depths, found.sizes, found.notes)
