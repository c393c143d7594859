"""What operators make: torch's shape functions such that no size is fixed behind our back, and what kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._subclasses.fake_tensor import (
    _DISPATCH_META_HANDLERS,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from symacct import dim as sym
from symacct.assumptions import current
from symacct.torch_private.cuda_shapes import CUDA_SHAPES, described, is_narrow
from symacct.torch_private.fake import make_view, new_fake
from symacct.torch_private.operators import schema_arguments
from symacct.torch_private.quick_shapes import quick_shape

aten = torch.ops.aten


# Some C++ kernels ask for sizes as numbers; torch's own handlers then quietly give the trial sizes.
# These do the same, and say so.
def _saying(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def handler(args: Any) -> Any:
        specialize_shape(args[0])
        return answer(args)

    return handler


for _handled, _answer in list(_DISPATCH_META_HANDLERS.items()):
    if _handled is not torch.ops.prim.device.default:
        _DISPATCH_META_HANDLERS[_handled] = _saying(_answer)


def run_symbolic(mode: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator on fake tensors such that no size is fixed behind our back.

    Where the kernel takes numbers, or fails, torch's shape function or decomposition in
    Python is tried, then what the schema alone says. Sizes that are taken all the same are
    doubtful assumptions.
    """
    scope = current()
    known = len(scope.assumptions) if scope is not None else 0
    if described and func in CUDA_SHAPES:
        with mode:
            return CUDA_SHAPES[func](*args, **kwargs)
    result = quick_shape(mode, func, args, kwargs)
    if result is not NotImplemented:
        return _as_kernels_do(mode, func, args, result)
    python = _SHAPES.get(func) or meta_table.get(func) or decomposition_table.get(func) or _shape_by_lists(func)
    try:
        with sym.taking() as taken:
            result = func(*args, **kwargs)
    except (DynamicOutputShapeException, DataDependentOutputException):
        raise
    except Exception as error:
        python = python or _shape_by_schema(func, error)
        if python is None:
            raise
        taken, again = [], True
    else:
        again = bool(taken)
    if again and python is not None:
        if scope is not None:
            scope.forget_since(known)  # what was compared with the numbers says nothing
        with mode, sym.taking() as taken:
            result = python(*args, **kwargs)
    for dim in taken:
        sym.specialize(dim)
    return _as_kernels_do(mode, func, args, result)


_NORMALIZATIONS = (
    aten.native_layer_norm.default,
    aten.native_batch_norm.default,
    aten.native_group_norm.default,
)
_WEIGHT_OF = {  # which argument is the weight
    aten.native_layer_norm_backward.default: 5,
    aten.native_group_norm_backward.default: 4,
    aten.native_batch_norm_backward.default: 2,
}
_REDUCED = (
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.binary_cross_entropy.default,
    aten.soft_margin_loss.default,
)


def _as_kernels_do(mode: FakeTensorMode, func: Any, args: Any, result: Any) -> Any:
    """A result as the kernels make it, where torch's shape functions say otherwise.

    Normalization of two-byte inputs with four-byte parameters, as under autocast: the statistics have
    four bytes, and the parameters' gradients the parameters' dtype. On CUDA the statistics of layers and batches
    have four bytes whatever the parameters have, and a batch's are there in eval mode too.
    """
    if func in _REDUCED and result.dim() == 0:
        # The kernels, of CPU and CUDA, lay out the whole loss and shrink it to a number, whose storage stays as large.
        size = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
        return make_view(mode, result.new_empty(size), (), (), 0, result.dtype)
    if described and func is aten.native_batch_norm.default and not args[5]:
        statistics = (args[0].new_empty(args[0].shape[1], dtype=result[1].dtype) for _ in range(2))
        result = (result[0], *statistics)
    if described and func in _NORMALIZATIONS[:2] and is_narrow(args[0]):
        return _with_dtypes(mode, result, args[0].dtype, torch.float32)
    if func in _NORMALIZATIONS and is_narrow(args[0]):
        mixed = any(t.dtype is torch.float32 for t in args[1:] if isinstance(t, torch.Tensor))
        return _with_dtypes(mode, result, args[0].dtype, torch.float32) if mixed else result
    if func in _WEIGHT_OF and is_narrow(args[1]) and args[_WEIGHT_OF[func]] is not None:
        return _with_dtypes(mode, result, args[1].dtype, args[_WEIGHT_OF[func]].dtype)
    return result


def _with_dtypes(mode: FakeTensorMode, results: Any, first: torch.dtype, rest: torch.dtype) -> Any:
    """Results whose first has one dtype and whose others have another."""

    def converted(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return t if t.dtype is dtype else new_fake(mode, t.size(), t.stride(), dtype, t.device)

    dtypes = (first, *(rest for _ in results[1:]))
    return tuple(None if t is None else converted(t, dtype) for t, dtype in zip(results, dtypes, strict=True))


def _shape_by_schema(func: Any, error: Exception) -> Callable[..., Any] | None:
    """A shape function for ops whose schema or kind says it all: in-place ops, and elementwise ones."""
    written = [i for i, (_, _, is_written) in enumerate(schema_arguments(func)) if is_written]
    returns = func._schema.returns
    if written and len(returns) <= 1:
        return lambda *args, **kwargs: args[written[0]] if returns else None
    if "TensorIterator" in str(error) and len(returns) == 1:
        return lambda *args, **kwargs: _broadcast([a for a in args if isinstance(a, torch.Tensor)])
    return None


_REDUCTIONS = ("norm", "max", "powsum")  # of ``_foreach_`` operators: those that make a number of each tensor


def _shape_by_lists(func: Any) -> Callable[..., Any] | None:
    """A shape function for ``_foreach_`` operators: results like the operands, of which there is a list, or none."""
    name = func.overloadpacket.__name__
    if not name.startswith("_foreach_") or name.removeprefix("_foreach_") in _REDUCTIONS:
        return None
    if name.endswith("_"):
        return lambda *args, **kwargs: None
    return lambda *args, **kwargs: [torch.empty_like(t) for t in next(a for a in args if isinstance(a, (list, tuple)))]


def _broadcast(tensors: list[torch.Tensor]) -> torch.Tensor:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    size = torch.broadcast_shapes(*(t.shape for t in tensors))  # type: ignore[no-untyped-call]
    return tensors[0].new_empty(size, dtype=dtype)


def specialize_shape(tensor: torch.Tensor) -> None:
    """Something took all sizes of a tensor as numbers."""
    for size in tensor.size():
        if isinstance(size, torch.SymInt) and size.node.is_symbolic():
            sym.specialize(size.node.dim)


def is_question(func: Any) -> bool:
    """Whether an "operator" only asks for a tensor's sizes or device."""
    return func in _DISPATCH_META_HANDLERS


def answer_about(func: Any, args: Any) -> Any:
    """The answer to such a question."""
    return _DISPATCH_META_HANDLERS[func](args)  # type: ignore[no-untyped-call]


def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Shape of a grouped product of any dtype (torch's own function insists on bfloat16)."""
    rows, columns = self.shape[-2], mat2.shape[-1]
    groups = [n.shape[0] for n in (self, mat2) if n.dim() == 3] or [offs.shape[0]]
    batched = (self.dim() == 3) == (mat2.dim() == 3)
    size = (groups[0], rows, columns) if batched else (rows, columns)
    return self.new_empty(size, dtype=out_dtype or self.dtype)


def _trilinear(i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, *_: Any) -> Any:
    """Shape of a sum of products of three broadcast tensors."""
    shapes = []
    for tensor, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        shape = list(tensor.shape)
        for axis in expand:
            shape.insert(axis, 1)
        shapes.append(shape)
    size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return i1.new_empty([n for axis, n in enumerate(size) if axis not in sumdim])


def _upsample(self: Any, output_size: Any, *_: Any, **__: Any) -> Any:
    """Shape of a resized batch."""
    return self.new_empty([*self.shape[:2], *output_size])


def _upsample_backward(grad_output: Any, output_size: Any, input_size: Any, *_: Any, **__: Any) -> Any:
    """Shape of the gradient of what was resized."""
    return grad_output.new_empty(list(input_size))


def _is_whole(tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


# Shape functions where torch has none that takes symbolic sizes.
_SHAPES: dict[Any, Callable[..., Any]] = {
    aten._grouped_mm.default: _grouped_mm,
    aten._trilinear.default: _trilinear,
    aten.trace.default: lambda self: self.new_empty((), dtype=torch.int64 if _is_whole(self) else self.dtype),
}
for _mode in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d"):
    _SHAPES[getattr(torch.ops.aten, f"upsample_{_mode}").default] = _upsample
    _SHAPES[getattr(torch.ops.aten, f"upsample_{_mode}_backward").default] = _upsample_backward
for _mode in ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d", "bilinear2d_aa", "bicubic2d_aa"):
    _SHAPES[getattr(torch.ops.aten, f"_upsample_{_mode}").default] = _upsample
    _SHAPES[getattr(torch.ops.aten, f"_upsample_{_mode}_backward").default] = _upsample_backward
