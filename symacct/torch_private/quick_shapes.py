"""Shapes of common operators without asking torch, which takes some hundred times as long to say the same.

Each function answers the plain case, where sizes match as they are written, and leaves all else, errors too, to
torch by giving ``NotImplemented``. Nothing here compares sizes in a way that would become an assumption.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from symacct.assumptions import current
from symacct.dim import Dim
from symacct.symnode import from_symint, to_symint
from symacct.torch_private.fake import make_view, new_fake

aten = torch.ops.aten
Sizes = Sequence[Any]


def quick_shape(mode: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator as a fake tensor, or several, or ``NotImplemented``."""
    function = _QUICK.get(func)
    if function is None or _have_lost_a_symbol(args):
        return NotImplemented
    return function(mode, *args, **kwargs)


def _have_lost_a_symbol(args: Any) -> bool:
    """Whether a size may be of a dim whose symbol ``int(...)`` took: what torch compares it with shows which it is."""
    scope = current()
    if scope is None or not scope.lost:
        return False
    sizes = [n for a in args for n in (a.size() if isinstance(a, torch.Tensor) else a if type(a) is list else ())]
    return any(type(n) is int and n > 0 and n % lost == 0 for n in sizes for lost in scope.lost)


# -- sizes ---------------------------------------------------------------------------------


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _same(a: Any, b: Any) -> bool:
    """Whether two sizes are written alike."""
    return bool(_expr(a) == _expr(b))


def _product(sizes: Sizes) -> Any:
    return _torchs(math.prod(map(from_symint, sizes)))


def _torchs(size: Any) -> Any:
    """A size as torch has it. Products are made of dims, since torch wraps each of its own anew."""
    return to_symint(size) if isinstance(size, Dim) else size


def _strides(sizes: Sizes) -> tuple[Any, ...]:
    """Those of a contiguous tensor that is not empty."""
    steps = accumulate(map(from_symint, reversed(sizes)), operator.mul, initial=1)
    return tuple(map(_torchs, steps))[-2::-1]


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is contiguous, as its strides are written, and not empty."""
    sizes = tensor.size()
    return all(map(_same, tensor.stride(), _strides(sizes))) and not any(_same(n, 0) for n in sizes)


def _places(tensor: Any, axes: Sequence[int]) -> list[int] | None:
    """Axes counted from the front; None where there is no such axis, or one stands twice."""
    rank = tensor.dim()
    if not all(-rank <= axis < rank for axis in axes):
        return None
    places = [axis % rank for axis in axes]
    return places if len(set(places)) == len(places) else None


def _alike(a: Any, b: Any) -> bool:
    """Whether two tensors are of one dtype and size, and plain."""
    return a.dtype is b.dtype and _is_plain(b) and a.dim() == b.dim() and all(map(_same, a.size(), b.size()))


def _made(mode: FakeTensorMode, like: Any, sizes: Sizes) -> Any:
    return new_fake(mode, tuple(sizes), _strides(sizes), like.dtype, like.fake_device)


def _is_wide(*tensors: Any) -> bool:
    """Whether all are of one dtype that kernels compute in, so that no result has another."""
    return tensors[0].dtype in (torch.float32, torch.float64) and len({t.dtype for t in tensors}) == 1


# -- views ---------------------------------------------------------------------------------


def _viewed(mode: FakeTensorMode, tensor: Any, sizes: Sizes, strides: Sizes) -> Any:
    return make_view(mode, tensor, tuple(sizes), tuple(strides), tensor.storage_offset(), tensor.dtype)


def _view(mode: FakeTensorMode, tensor: Any, sizes: Any) -> Any:
    sizes = list(sizes)
    if len(sizes) == tensor.dim() and all(map(_same, sizes, tensor.size())) and not any(_same(n, 1) for n in sizes):
        return _viewed(mode, tensor, sizes, tensor.stride())
    if not _is_plain(tensor):
        return NotImplemented
    open_at = [i for i, size in enumerate(sizes) if _same(size, -1)]
    whole = _product(tensor.size())
    rest = _product([size for i, size in enumerate(sizes) if i not in open_at])
    if len(open_at) > 1 or _same(rest, 0):
        return NotImplemented
    if open_at:
        quotient = _quotient(whole, rest)
        if quotient is None:
            return NotImplemented
        sizes[open_at[0]] = quotient
    elif not _same(whole, rest):
        return NotImplemented
    return _viewed(mode, tensor, sizes, _strides(sizes))


def _quotient(whole: Any, part: Any) -> Any:
    """A product of sizes divided by another, where that leaves a product of sizes; else None."""
    if not isinstance(whole, torch.SymInt):
        return None if isinstance(part, torch.SymInt) or whole % part else whole // part
    left = _expr(whole) / _expr(part)
    numerator, denominator = left.as_numer_denom()
    return whole // part if denominator == 1 and numerator.is_integer else None


def _detached(mode: FakeTensorMode, tensor: Any) -> Any:
    return _viewed(mode, tensor, tensor.size(), tensor.stride())


def _transposed(mode: FakeTensorMode, tensor: Any, a: int, b: int) -> Any:
    first, second = _places(tensor, [a]), _places(tensor, [b])
    if first is None or second is None:
        return NotImplemented
    order = list(range(tensor.dim()))
    order[a], order[b] = order[b], order[a]
    return _permuted(mode, tensor, order)


def _permuted(mode: FakeTensorMode, tensor: Any, order: Sequence[int]) -> Any:
    places, sizes, strides = _places(tensor, order), tensor.size(), tensor.stride()
    if places is None or len(places) != len(sizes):
        return NotImplemented
    return _viewed(mode, tensor, [sizes[i] for i in places], [strides[i] for i in places])


def _matrix_transposed(mode: FakeTensorMode, tensor: Any) -> Any:
    return _permuted(mode, tensor, (1, 0)) if tensor.dim() == 2 else NotImplemented


def _expanded(mode: FakeTensorMode, tensor: Any, sizes: Any, implicit: bool = False) -> Any:
    """As ATen's ``inferExpandGeometry`` has it: what is repeated has stride 0."""
    own, steps = tensor.size(), tensor.stride()
    if not own:
        return NotImplemented
    new = len(sizes) - len(own)
    if new < 0:
        return NotImplemented
    wanted, strides = list(sizes), [0] * len(sizes)
    for i in reversed(range(len(sizes))):
        size = own[i - new] if i >= new else 1
        strides[i] = steps[i - new] if i >= new else wanted[i + 1] * strides[i + 1]
        if _same(sizes[i], -1) and i >= new:
            wanted[i] = size
        elif not _same(sizes[i], size):
            if not _same(size, 1) or _same(sizes[i], -1):
                return NotImplemented
            strides[i] = 0
    return _viewed(mode, tensor, wanted, strides)


# -- products, and what looks like an operand -------------------------------------------------


def _mm(mode: FakeTensorMode, a: Any, b: Any) -> Any:
    if a.dim() != 2 or b.dim() != 2 or a.dtype is not b.dtype or not _same(a.size(1), b.size(0)):
        return NotImplemented
    return _made(mode, a, (a.size(0), b.size(1)))


def _addmm(mode: FakeTensorMode, bias: Any, a: Any, b: Any, **scales: Any) -> Any:
    made = _mm(mode, a, b)
    fits = bias.dim() == 1 and bias.dtype is a.dtype and _same(bias.size(0), b.size(-1))
    return made if fits else NotImplemented


def _bmm(mode: FakeTensorMode, a: Any, b: Any) -> Any:
    if a.dim() != 3 or b.dim() != 3 or a.dtype is not b.dtype or not _same(a.size(2), b.size(1)):
        return NotImplemented
    return _made(mode, a, (a.size(0), a.size(1), b.size(2))) if _same(a.size(0), b.size(0)) else NotImplemented


_NO_OPTIONS = (None, torch.preserve_format, torch.contiguous_format, torch.strided, False)
_REAL = (int, float, bool, torch.SymInt)


def _copied(mode: FakeTensorMode, tensor: Any, **options: Any) -> Any:
    """Like a tensor of any dtype."""
    if not all(any(o is each for each in _NO_OPTIONS) for o in options.values()) or not _is_plain(tensor):
        return NotImplemented
    return _made(mode, tensor, tensor.size())


def _cloned(mode: FakeTensorMode, tensor: Any, memory_format: Any = None) -> Any:
    if memory_format is torch.contiguous_format and not any(_same(n, 0) for n in tensor.size()):
        return _made(mode, tensor, tensor.size())
    return _copied(mode, tensor, memory_format=memory_format)


def _triangle(mode: FakeTensorMode, tensor: Any, diagonal: int = 0) -> Any:
    return _copied(mode, tensor) if tensor.dim() > 1 else NotImplemented


def _computed(mode: FakeTensorMode, tensor: Any, *others: Any, **options: Any) -> Any:
    """Like floats that all look alike: whole numbers, and complex ones, would make other dtypes."""
    rest = (*others, *options.values())
    alike = all(_alike(tensor, o) if isinstance(o, torch.Tensor) else type(o) in _REAL for o in rest)
    return _copied(mode, tensor) if alike and tensor.is_floating_point() else NotImplemented


def _gelu(mode: FakeTensorMode, tensor: Any, *, approximate: str = "none") -> Any:
    return _computed(mode, tensor) if approximate in ("none", "tanh") else NotImplemented


def _gelu_backward(mode: FakeTensorMode, grad: Any, tensor: Any, *, approximate: str = "none") -> Any:
    return _computed(mode, grad, tensor)


def _softmax(mode: FakeTensorMode, tensor: Any, axis: int, converted: Any = None) -> Any:
    if converted or _places(tensor, [axis]) is None:  # to another dtype
        return NotImplemented
    return _computed(mode, tensor)


def _softmax_backward(mode: FakeTensorMode, grad: Any, output: Any, axis: int, dtype: Any) -> Any:
    return _computed(mode, grad, output) if dtype is grad.dtype else NotImplemented


def _sum(mode: FakeTensorMode, tensor: Any, axes: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    if not axes or dtype is not None or not tensor.is_floating_point() or not _is_plain(tensor):
        return NotImplemented
    gone = _places(tensor, axes)
    if gone is None:
        return NotImplemented
    kept = [1 if i in gone else n for i, n in enumerate(tensor.size()) if keepdim or i not in gone]
    return _made(mode, tensor, kept)


# -- normalization ------------------------------------------------------------------------------


def _layer_norm(mode: FakeTensorMode, tensor: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    if not _is_wide(tensor, *(t for t in (weight, bias) if t is not None)) or not _is_plain(tensor):
        return NotImplemented
    outer = tensor.dim() - len(shape)
    normalized = [tensor.size()[outer:], *(t.size() for t in (weight, bias) if t is not None)]
    if not shape or not all(len(n) == len(shape) and all(map(_same, n, shape)) for n in normalized):
        return NotImplemented
    statistics = (*tensor.size()[:outer], *(1 for _ in shape))
    return (_made(mode, tensor, tensor.size()), _made(mode, tensor, statistics), _made(mode, tensor, statistics))


def _layer_norm_backward(
    mode: FakeTensorMode, grad: Any, tensor: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, wanted: Any
) -> Any:
    if not _is_wide(grad, tensor, mean, *(t for t in (weight, bias) if t is not None)) or not _is_plain(tensor):
        return NotImplemented
    made = zip((tensor, weight, bias), wanted, strict=True)
    return tuple(_made(mode, t, t.size()) if each and t is not None else None for t, each in made)


def _batch_norm(
    mode: FakeTensorMode, tensor: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: Any
) -> Any:
    """Like the input, and the batch's statistics, which there are in training only."""
    if not _is_wide(tensor, *(t for t in (weight, bias) if t is not None)) or not _is_plain(tensor):
        return NotImplemented
    size = tensor.size(1) if training else 0
    return (_made(mode, tensor, tensor.size()), _made(mode, tensor, (size,)), _made(mode, tensor, (size,)))


def _batch_norm_backward(mode: FakeTensorMode, grad: Any, tensor: Any, weight: Any, *rest: Any) -> Any:
    if not _is_wide(grad, tensor, *(() if weight is None else (weight,))) or not _is_plain(tensor):
        return NotImplemented
    wanted = rest[-1]
    parameters = (_made(mode, tensor, (tensor.size(1),)) if each else None for each in wanted[1:])
    return (_made(mode, tensor, tensor.size()) if wanted[0] else None, *parameters)


def _group_norm(
    mode: FakeTensorMode, tensor: Any, weight: Any, bias: Any, N: Any, C: Any, HxW: Any, group: Any, eps: float
) -> Any:
    if not _is_wide(tensor, *(t for t in (weight, bias) if t is not None)) or not _is_plain(tensor):
        return NotImplemented
    statistics = (N, group)
    return (_made(mode, tensor, tensor.size()), _made(mode, tensor, statistics), _made(mode, tensor, statistics))


# -- creation -------------------------------------------------------------------------------------


def _empty(
    mode: FakeTensorMode, sizes: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: Any = None,
) -> Any:  # fmt: skip
    plain = layout in (None, torch.strided) and memory_format in (None, torch.contiguous_format)
    if not plain or device is None or torch.device(device).type != "cpu" or any(_same(n, 0) for n in sizes):
        return NotImplemented
    return new_fake(mode, tuple(sizes), _strides(sizes), dtype or torch.get_default_dtype(), torch.device("cpu"))


_QUICK: dict[Any, Callable[..., Any]] = {
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten.transpose.int: _transposed,
    aten.permute.default: _permuted,
    aten.t.default: _matrix_transposed,
    aten.expand.default: _expanded,
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten.detach.default: _detached,
    aten.tril.default: _triangle,
    aten.triu.default: _triangle,
    aten.clone.default: _cloned,
    aten.empty_like.default: _copied,
    aten.zeros_like.default: _copied,
    aten.ones_like.default: _copied,
    aten.add.Tensor: _computed,
    aten.add.Scalar: _computed,
    aten.sub.Tensor: _computed,
    aten.sub.Scalar: _computed,
    aten.mul.Tensor: _computed,
    aten.mul.Scalar: _computed,
    aten.div.Tensor: _computed,
    aten.div.Scalar: _computed,
    aten.pow.Tensor_Scalar: _computed,
    aten.sqrt.default: _computed,
    aten.neg.default: _computed,
    aten.exp.default: _computed,
    aten.relu.default: _computed,
    aten.silu.default: _computed,
    aten.tanh.default: _computed,
    aten.gelu.default: _gelu,
    aten.threshold_backward.default: _computed,
    aten.silu_backward.default: _computed,
    aten.tanh_backward.default: _computed,
    aten.gelu_backward.default: _gelu_backward,
    aten._safe_softmax.default: _softmax,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _softmax_backward,
    aten.sum.dim_IntList: _sum,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.empty.memory_format: _empty,
    aten.zeros.default: _empty,
    aten.ones.default: _empty,
}
