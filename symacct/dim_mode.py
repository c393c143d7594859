"""Dims on the model's side, ``torch.SymInt`` on torch's: the swap between them."""

from __future__ import annotations

from typing import Any

import torch

from symacct.assumptions import current
from symacct.dim import Dim, DimFloat, plain, restored
from symacct.symnode import from_symint, to_symint
from symacct.torch_private import FakeTensor, TorchFunctionMode, copy_fake

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class DimMode(TorchFunctionMode):
    """Swaps `Dim` for SymInt on the way into every torch function, and back on the way out.

    With ``initialize=False`` the functions of ``torch.nn.init`` do nothing: there is no data to fill in.
    """

    def __init__(self, initialize: bool = True) -> None:
        super().__init__()
        self.initialize = initialize

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.initialize and getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if func is torch.Tensor.__deepcopy__ and isinstance(args[0], FakeTensor):
            tensor, memo = args  # torch's own asks for a data pointer
            return memo.setdefault(id(tensor), copy_fake(tensor, tensor.fake_mode))
        if func in _VALUES:  # sizes as data: what is computed with them is no shape
            return func(*_numbers(args), **{k: _numbers(v) for k, v in (kwargs or {}).items()})
        args = swap_in(args)
        kwargs = {k: swap_in(v) for k, v in kwargs.items()} if kwargs else {}
        return swap_out(func(*args, **kwargs))


def swap_in(value: Any) -> Any:
    """``value`` with each `Dim` in it (in tuples, lists and slices too) as a SymInt."""
    kind = type(value)
    if kind is Dim:
        return to_symint(value)
    if kind is int:
        return _remembered(value)
    if kind is DimFloat:
        return float(value)
    if kind is tuple or kind is list:
        for each in value:
            if type(each) in _NESTED:
                return kind([swap_in(v) for v in value])
        return value
    if kind is torch.Size:
        return tuple([swap_in(v) for v in value])
    if kind is slice:
        return slice(swap_in(value.start), swap_in(value.stop), swap_in(value.step))
    return value


def _remembered(value: int) -> Any:
    """A plain int, or the SymInt of what it was before ``int(...)`` took its symbol."""
    scope = current()
    if scope is None or value not in scope.lost:
        return value
    dim = restored(value)
    return to_symint(dim) if isinstance(dim, Dim) else value


_VALUES = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor})


def _numbers(value: Any) -> Any:
    """``value`` with each `Dim` in it as its trial size."""
    if type(value) is Dim:
        return plain(value)
    return type(value)([_numbers(v) for v in value]) if type(value) in (list, tuple) else value


_NESTED = frozenset({Dim, DimFloat, int, tuple, list, torch.Size, slice})


def swap_out(value: Any) -> Any:
    """``value`` with each SymInt in it as a `Dim` (or a plain int, where no symbol is left)."""
    kind = type(value)
    if kind in _SYMBOLIC:
        return from_symint(value)
    if kind is torch.Size:
        return torch.Size([from_symint(v) for v in value])
    if kind is tuple or kind is list:
        for each in value:
            if type(each) in _SYMBOLIC:
                return kind([from_symint(v) for v in value])
    return value
