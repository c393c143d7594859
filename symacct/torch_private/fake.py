"""Fake tensors: shapes, dtypes and storages without data."""

from __future__ import annotations

import weakref
from functools import cache
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


def fake_of_real(tensor: torch.Tensor, mode: FakeTensorMode) -> FakeTensor:
    """The fake tensor in place of a real one, the same one each time; real ones on one storage have fake ones on one.

    torch does that in some ten times as long, so it is asked only where a tensor is not plain.
    """
    known = mode.__dict__.setdefault("_symacct_converted", {})
    key = id(tensor)
    found = known.get(key)
    if found is not None and found[0]() is tensor:
        made: FakeTensor = found[1]
        return made
    if not _is_plain(tensor):
        return mode.from_tensor(tensor)
    made = copy_fake(tensor, mode)  # type: ignore[assignment]
    known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), made)
    return made


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a dense leaf that has its storage for itself."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_leaf
        and tensor.grad is None
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference())
        and tensor.storage_offset() == 0
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
        and storage_holders(tensor) == _one_holder()
    )


@cache
def _one_holder() -> int:
    with no_dispatch():
        return storage_holders(torch.empty(1))


class Pattern:
    """What a fake tensor looks like, to make more like it without computing with its sizes again.

    It holds a tensor of its own, so that it keeps no storage of the program alive.
    """

    __slots__ = ("device", "dtype", "elem", "offset", "room", "size", "stride")

    def __init__(self, tensor: FakeTensor) -> None:
        self.size, self.stride, self.offset = tuple(tensor.size()), tuple(tensor.stride()), tensor.storage_offset()
        self.dtype, self.device = tensor.dtype, tensor.fake_device
        self.room = tensor.untyped_storage().nbytes()
        self.elem: torch.Tensor | None = None  # made when a second one is wanted

    def new(self, mode: FakeTensorMode) -> FakeTensor:
        """A tensor like it on a storage of its own."""
        with no_dispatch():
            return self._on(mode, torch.empty((self.room,), dtype=torch.uint8, device="meta"))

    def view(self, mode: FakeTensorMode, base: FakeTensor) -> FakeTensor:
        """A tensor like it on the storage of another."""
        with no_dispatch():
            return self._on(mode, base)

    def _on(self, mode: FakeTensorMode, owner: torch.Tensor) -> FakeTensor:
        if self.elem is None:
            storage = torch.empty((self.room,), dtype=torch.uint8, device="meta").untyped_storage()
            self.elem = torch.empty((0,), dtype=self.dtype, device="meta")
            self.elem.set_(storage, self.offset, self.size, self.stride)
            self.elem.is_contiguous()  # is found out once, and then copied
        elem = self.elem.data  # has a version of its own, which a detached one would share
        torch._functionalize_unsafe_set(elem, owner)
        return _wrapped(mode, elem, self.device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a symbolic size or stride."""
    return bool(tensor._has_symbolic_sizes_strides)


def storage_key(tensor: torch.Tensor) -> int:
    """What identifies a tensor's storage while the storage lives."""
    key: int = tensor.untyped_storage()._cdata
    return key


def storage_holders(tensor: torch.Tensor) -> int:
    """How many hold a tensor's storage."""
    return torch._C._storage_Use_Count(storage_key(tensor))
