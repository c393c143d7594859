"""Patches of torch for the time of a run: what models see, what is told to us, which kernels are left out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from symacct.sources import source_kind

no_torch_function = DisableTorchFunction


class _KnownToTorchOnly(type):
    """The class of a class whose instances are the fake tensors when torch asks, and none when a model does."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, FakeTensor) and source_kind(sys._getframe(1).f_code.co_filename) != "model"

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, FakeTensor)


class _FakeTensor(metaclass=_KnownToTorchOnly):
    pass


@contextmanager
def as_if_real() -> Iterator[None]:
    """Have programs do what they do on real tensors.

    Some models ask for `FakeTensor` and then take another path; clipping takes lists only of the classes that it knows.
    """
    package: Any = torch._subclasses
    original, package.FakeTensor = package.FakeTensor, _FakeTensor
    lists: Any = torch.utils._foreach_utils
    known, lists._foreach_supported_types = (
        lists._foreach_supported_types,
        [*lists._foreach_supported_types, FakeTensor],
    )
    try:
        yield
    finally:
        package.FakeTensor, lists._foreach_supported_types = original, known


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from logging a traceback when a shape function fails: the error itself is enough."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def torchs_own_kernels() -> Iterator[None]:
    """Keep torch from oneDNN and NNPACK: their LSTM takes sizes as numbers, their use depends on the batch."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    nnpack = torch._C._set_nnpack_enabled
    nnpack_before = torch._C._get_nnpack_enabled()
    nnpack(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)
        nnpack(nnpack_before)


@contextmanager
def convertible_parameters(mode: FakeTensorMode) -> Iterator[None]:
    """Let ``module.to(dtype)`` work on fake parameters: it swaps tensors, which must not be weakly referenced."""
    original = torch.utils.swap_tensors

    def swap(a: torch.Tensor, b: torch.Tensor) -> None:
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
        original(a, b)  # type: ignore[no-untyped-call]

    torch.utils.swap_tensors = swap
    try:
        yield
    finally:
        torch.utils.swap_tensors = original


@contextmanager
def watched_random_state(note: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Tell ``note`` of each copy of the generator's state, which no operator makes; checkpoints keep them."""
    original = torch.get_rng_state

    def get_rng_state() -> torch.Tensor:
        state = original()
        note(state)
        return state

    torch.get_rng_state = torch.random.get_rng_state = get_rng_state
    try:
        yield
    finally:
        torch.get_rng_state = torch.random.get_rng_state = original


@contextmanager
def patched_module_call(wrap: Callable[..., Any]) -> Iterator[None]:
    """Route every ``nn.Module.__call__`` through ``wrap(original, module, *args, **kwargs)``."""
    original = torch.nn.Module.__call__

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return wrap(original, module, *args, **kwargs)

    torch.nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]
