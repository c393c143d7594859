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
    return _wrapped(mode, elem, device)


def _wrapped(mode: FakeTensorMode, elem: torch.Tensor, device: Any) -> FakeTensor:
    """``FakeTensor(mode, elem, device)`` in a fraction of the time: what torch's constructor sets is copied.

    The mode itself is left out of what is kept with it, so that it is no cycle.
    """
    known = mode.__dict__.setdefault("_symacct_attributes", {})
    attributes = known.get(device)
    if attributes is None:
        made = FakeTensor(mode, elem, device)
        of_mode = [name for name, value in made.__dict__.items() if value is mode]
        rest = {name: value for name, value in made.__dict__.items() if value is not mode}
        known[device] = (of_mode, rest, made.fake_device)
        return made
    of_mode, rest, normal = attributes
    made = torch.Tensor._make_subclass(FakeTensor, elem, False, dispatch_device=True, device_for_backend_keys=normal)
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
    else:
        torch._C._set_throw_on_mutable_data_ptr(made)
    made.__dict__.update(rest)
    for name in of_mode:
        made.__dict__[name] = mode
    return made


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
    return _wrapped(mode, elem, base.fake_device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a symbolic size or stride."""
    return bool(tensor._has_symbolic_sizes_strides)


def storage_key(tensor: torch.Tensor) -> int:
    """What identifies a tensor's storage while the storage lives."""
    key: int = tensor.untyped_storage()._cdata
    return key
