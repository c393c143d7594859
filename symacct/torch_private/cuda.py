"""The kernels of a device that is not here, put in place for the time of a run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import _scoped_library, fallthrough_kernel

from symacct.torch_private.cuda_shapes import described
from symacct.torch_private.operators import operator_named
from symacct.torch_private.patches import no_torch_function


@contextmanager
def replaced_kernels(kernels: Mapping[tuple[str, str], Callable[..., Any] | None]) -> Iterator[None]:
    """Have operators run other kernels, by (operator, dispatch key), such as ("aten.dropout.default", "AutogradCPU").

    None for a kernel: as if there were none under that key. It holds in the whole process until the context ends.
    """
    with _scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():  # torch says once that a kernel is replaced, which is what is wanted
            warnings.simplefilter("ignore")
            for (op, key), kernel in kernels.items():
                library.impl(operator_named(op), kernel or fallthrough_kernel, key)
        yield


def in_operators_only(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose calls go to operators directly, past the modes of torch functions: sizes are SymInts in it."""

    @wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with no_torch_function():
            return kernel(*args, **kwargs)

    return run


def composite(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator as the other operators that torch makes it of, whatever kernel was put in its place.

    By its own kernel: for some, such as dropout, ``func.decompose`` takes a Python one that serves compilers.
    """
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@contextmanager
def shapes_of_cuda() -> Iterator[None]:
    """Have results the shapes and dtypes that the kernels of CUDA give them, where those differ."""
    described.append("cuda")
    try:
        yield
    finally:
        described.pop()


@contextmanager
def foreach_by_default(asked: Callable[[], None]) -> Iterator[None]:
    """Have optimizers take tensors by lists where nothing else is wanted, as they do with CUDA's.

    ``asked`` is called when an optimizer leaves the choice to torch.
    """
    module: Any = sys.modules["torch.optim.optimizer"]
    devices, types = module._get_foreach_kernels_supported_devices, module._foreach_supported_types

    def with_cpu() -> list[str]:
        asked()
        return [*devices(), "cpu"]

    module._get_foreach_kernels_supported_devices = with_cpu
    types.append(FakeTensor)  # to the list itself, since others append to it too
    try:
        yield
    finally:
        module._get_foreach_kernels_supported_devices = devices
        types.remove(FakeTensor)


@contextmanager
def autocast_called_cuda() -> Iterator[None]:
    """Have ``torch.autocast("cuda")`` in a model mean the tensors that stand for CUDA ones, which are on the CPU."""
    cls: Any = torch.amp.autocast_mode.autocast
    original = cls.__init__

    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, *args, **kwargs)

    cls.__init__ = init
    try:
        yield
    finally:
        cls.__init__ = original


@contextmanager
def when_autocast_forgets(forget: Callable[[], None]) -> Iterator[None]:
    """Call ``forget`` whenever autocast drops the casts that it keeps: as its outermost region ends."""
    original = torch.clear_autocast_cache

    def clear() -> None:
        forget()
        original()

    torch.clear_autocast_cache = clear
    try:
        yield
    finally:
        torch.clear_autocast_cache = original
        forget()


below_autocast = torch._C._DisableAutocast


def operators_with_kernel(key: str) -> frozenset[str]:
    """ATen's operators that have a kernel of their own under a dispatch key, such as "AutocastCPU", by full name."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    own = (n.replace("::", ".") for n in names if n.startswith("aten::"))
    return frozenset(n if n.count(".") == 2 else f"{n}.default" for n in own)
