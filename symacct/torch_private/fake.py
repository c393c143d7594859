"""Fake tensors: shapes, dtypes and storages without data."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _DisableTorchDispatch as no_dispatch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def new_fake_mode() -> FakeTensorMode:
    """A mode whose tensors have shapes and no data; real tensors that enter are converted."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Our own memo sits above; torch's cache cannot key on symbolic ints that are not its own.
    mode.cache_enabled = False
    return mode


def new_fake(mode: FakeTensorMode, size: Any, stride: Any, dtype: torch.dtype, device: Any) -> FakeTensor:
    """A fake tensor on a storage of its own."""
    with no_dispatch():
        elem = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return FakeTensor(mode, elem, device)


def copy_fake(tensor: torch.Tensor, mode: FakeTensorMode, device: Any = None) -> torch.Tensor:
    """A fake tensor like another, on a storage of its own; a parameter stays one."""
    made = new_fake(mode, tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, device or tensor.device)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def make_view(
    mode: FakeTensorMode, base: FakeTensor, size: Any, stride: Any, offset: Any, dtype: torch.dtype
) -> FakeTensor:
    """A fake tensor on the storage of another."""
    with no_dispatch():
        elem = torch.empty((0,), dtype=dtype, device="meta")
        elem.set_(base.untyped_storage(), offset, size, stride)
    return FakeTensor(mode, elem, base.fake_device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a symbolic size or stride."""
    return bool(tensor._has_symbolic_sizes_strides)


def storage_key(tensor: torch.Tensor) -> int:
    """What identifies a tensor's storage while the storage lives."""
    key: int = tensor.untyped_storage()._cdata
    return key
