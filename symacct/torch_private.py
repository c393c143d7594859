"""Everything that symacct imports of torch beyond its public API. Tested with torch 2.13.0 and 2.14.1."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch._C import _current_autograd_node as current_autograd_node
from torch._C import _DisableTorchDispatch as no_dispatch
from torch._C._autograd import _get_sequence_nr as next_sequence_nr
from torch._C._profiler import _EventType, _ExperimentalConfig
from torch._decomp import decomposition_table, meta_table
from torch._subclasses.fake_tensor import (
    _DISPATCH_META_HANDLERS,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.library import _scoped_library, fallthrough_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_other_modes

from symacct import dim as sym
from symacct.assumptions import current
from symacct.sources import source_kind

no_torch_function = DisableTorchFunction

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "UnsupportedOperatorException",
    "answer_about",
    "around_backward",
    "as_if_real",
    "attention_by_products",
    "autocast_called_cuda",
    "below_autocast",
    "composite",
    "convertible_parameters",
    "copy_fake",
    "current_autograd_node",
    "decomposes",
    "event_tree",
    "foreach_by_default",
    "in_operators_only",
    "in_place_variant",
    "is_allocation",
    "is_operator",
    "is_symbolic",
    "make_view",
    "makes_a_view",
    "makes_new_tensors",
    "new_fake",
    "new_fake_mode",
    "next_sequence_nr",
    "no_dispatch",
    "no_torch_function",
    "operator_named",
    "operators_with_kernel",
    "patched_module_call",
    "profiler_settings",
    "quiet",
    "recognized_attention",
    "replaced_kernels",
    "run_symbolic",
    "schema_arguments",
    "sequence_nr",
    "shapes_of_cuda",
    "sole_holder",
    "storage_key",
    "tensor_arguments",
    "tensor_positions",
    "torchs_own_kernels",
    "watched_random_state",
    "when_autocast_forgets",
    "without_other_modes",
]


# -- fake tensors ------------------------------------------------------------------


def new_fake_mode() -> FakeTensorMode:
    """A mode whose tensors have shapes and no data; real tensors that enter are converted."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Our own memo sits above; torch's cache cannot key on symbolic ints that are not its own.
    mode.cache_enabled = False
    return mode


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


def new_fake(mode: FakeTensorMode, size: Any, stride: Any, dtype: torch.dtype, device: Any) -> FakeTensor:
    """A fake tensor on a storage of its own."""
    with no_dispatch():
        elem = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return FakeTensor(mode, elem, device)


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


def copy_fake(tensor: torch.Tensor, mode: FakeTensorMode, device: Any = None) -> torch.Tensor:
    """A fake tensor like another, on a storage of its own; a parameter stays one."""
    made = new_fake(mode, tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, device or tensor.device)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


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


def sequence_nr(node: Any) -> int:
    """The number that autograd gave to a backward node when the forward made it."""
    number: int = node._sequence_nr()
    return number


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
    if _described and func in _CUDA_SHAPES:
        with mode:
            return _CUDA_SHAPES[func](*args, **kwargs)
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
    torch.ops.aten.native_layer_norm.default,
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten.native_group_norm.default,
)
_WEIGHT_OF = {  # which argument is the weight
    torch.ops.aten.native_layer_norm_backward.default: 5,
    torch.ops.aten.native_group_norm_backward.default: 4,
    torch.ops.aten.native_batch_norm_backward.default: 2,
}


_REDUCED = (
    torch.ops.aten.mse_loss.default,
    torch.ops.aten.smooth_l1_loss.default,
    torch.ops.aten.binary_cross_entropy.default,
    torch.ops.aten.soft_margin_loss.default,
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
    if _described and func is _aten.native_batch_norm.default and not args[5]:
        statistics = (args[0].new_empty(args[0].shape[1], dtype=result[1].dtype) for _ in range(2))
        result = (result[0], *statistics)
    if _described and func in _NORMALIZATIONS[:2] and _is_narrow(args[0]):
        return _with_dtypes(mode, result, args[0].dtype, torch.float32)
    if func in _NORMALIZATIONS and _is_narrow(args[0]):
        mixed = any(t.dtype is torch.float32 for t in args[1:] if isinstance(t, torch.Tensor))
        return _with_dtypes(mode, result, args[0].dtype, torch.float32) if mixed else result
    if func in _WEIGHT_OF and _is_narrow(args[1]) and args[_WEIGHT_OF[func]] is not None:
        return _with_dtypes(mode, result, args[1].dtype, args[_WEIGHT_OF[func]].dtype)
    return result


def _is_narrow(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.bfloat16, torch.float16)


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


def answer_about(func: Any, args: Any) -> tuple[bool, Any]:
    """Whether an "operator" is only a question about a tensor's sizes or device, and the answer to it."""
    if func is torch.ops.prim.device.default:
        return True, args[0].fake_device
    if func in _DISPATCH_META_HANDLERS:
        return True, _DISPATCH_META_HANDLERS[func](args)  # type: ignore[no-untyped-call]
    return False, None


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
    torch.ops.aten._grouped_mm.default: _grouped_mm,
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten.trace.default: lambda self: self.new_empty((), dtype=torch.int64 if _is_whole(self) else self.dtype),
}
for _mode in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d"):
    _SHAPES[getattr(torch.ops.aten, f"upsample_{_mode}").default] = _upsample
    _SHAPES[getattr(torch.ops.aten, f"upsample_{_mode}_backward").default] = _upsample_backward


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


# -- autograd ----------------------------------------------------------------------


@contextmanager
def around_backward(context: Callable[[], Any]) -> Iterator[None]:
    """Run autograd's engine in a context: torch functions leave their mode, and checkpoints run the model in it."""
    engine: Any = torch.autograd
    original = engine._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return original(*args, **kwargs)

    engine._engine_run_backward = run
    try:
        yield
    finally:
        engine._engine_run_backward = original


# On real tensors ATen's backward formulas write into what they have just made; where a dispatch mode is active they do
# not (`areAnyTensorSubclassLike`). By autograd node: the operators that do so.
_aten = torch.ops.aten
_WRITES = {
    "GatherBackward0": (_aten.scatter_add,),
    "IndexBackward0": (_aten.index_put,),
    "IndexSelectBackward0": (_aten.index_add,),
    "BinaryCrossEntropyWithLogitsBackward0": (_aten.sub, _aten.mul),
    "Atan2Backward0": (_aten.masked_fill,),
    "TakeBackward0": (_aten.put,),
    "TraceBackward0": (_aten.index_fill,),
    **dict.fromkeys(
        ("SortBackward0", "SortBackward1", "TopkBackward0", "KthvalueBackward0", "ModeBackward0", "MaxBackward0",
         "MinBackward0", "MedianBackward1", "NanmedianBackward1"),
        (_aten.scatter,),
    ),
}  # fmt: skip


@cache
def _may_write(func: Any) -> bool:
    return func is _aten.add.Tensor or any(func.overloadpacket in packets for packets in _WRITES.values())


def in_place_variant(func: Any, args: Any, kwargs: Any, made_by_running_node: Callable[[torch.Tensor], bool]) -> Any:
    """The in-place operator that would run here on real tensors in place of ``func``, or ``func`` itself.

    Autograd's engine adds gradients into the first one, if that is dense and nobody else holds it; some backward
    formulas, and attention without a fused kernel, write into what they made. Under a dispatch mode, such as
    ours, torch does none of this.
    """
    if not _may_write(func):
        return func
    caller = sys._getframe(3)
    if func is _aten.add.Tensor and _ATTENTION & {caller.f_code, caller.f_back and caller.f_back.f_code}:
        return _aten.add_.Tensor  # a mask to the scores that were just computed
    running = current_autograd_node()
    if running is None or torch.is_grad_enabled() or caller.f_code.co_name != "_engine_run_backward":
        return func
    packet = func.overloadpacket
    if packet in _WRITES.get(running.name(), ()):
        return _in_place(func) if made_by_running_node(args[0]) else func
    if func is not _aten.add.Tensor or kwargs or not isinstance(args[1], torch.Tensor):
        return func
    twice = len(running.next_functions) > len(set(running.next_functions))  # two gradients of the same tensor
    first = args[0]
    if made_by_running_node(first) and not twice:
        return func
    return _in_place(func) if _dense(first) and _holders(first) == sole_holder() else func


_attention = torch.nn.functional.scaled_dot_product_attention


def _call_attention(*args: Any, **kwargs: Any) -> Any:
    return _attention(*args, **kwargs)


def attention_by_products(*args: Any, **kwargs: Any) -> Any:
    """Attention without a fused kernel, whatever `scaled_dot_product_attention` would choose."""
    return _aten._scaled_dot_product_attention_math.default(*args, **kwargs)[0]


_ATTENTION = {_call_attention.__code__, attention_by_products.__code__}


@contextmanager
def recognized_attention() -> Iterator[None]:
    """Have attention called from a frame of ours, by which `in_place_variant` knows it."""
    functional: Any = torch.nn.functional
    if functional.scaled_dot_product_attention is not _attention:  # somebody else's
        yield
        return
    functional.scaled_dot_product_attention = _call_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = _attention


def _in_place(func: Any) -> Any:
    if func is _aten.index_put.default:
        return _aten._index_put_impl_.default
    return getattr(getattr(_aten, func.overloadpacket.__name__ + "_"), func._overloadname)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a piece of memory without gaps or overlaps."""
    expected: Any = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True), key=lambda pair: int(pair[0])):
        if int(size) != 1 and stride != expected:
            return False
        expected = expected * size
    return True


def _holders(tensor: torch.Tensor) -> tuple[int, int]:
    count: int = tensor._use_count()  # type: ignore[attr-defined]
    return count, torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@cache
def sole_holder() -> tuple[int, int]:
    """How many hold a gradient, and its storage, in such a call when only the engine does: measured, once."""
    found = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor:
                found.append(_holders(args[0]))
            return func(*args, **(kwargs or {}))

    with without_other_modes(), torch.enable_grad():
        x = torch.zeros(2, requires_grad=True)
        loss = (x.exp() * x.tanh()).exp().sum()
        with Watch():  # type: ignore[no-untyped-call]
            loss.backward()  # type: ignore[no-untyped-call]
    return found[0] if found else (0, 0)


# -- operators ---------------------------------------------------------------------


def schema_arguments(func: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, default, is written in place) for each argument of an operator."""
    for argument in func._schema.arguments:
        default = argument.default_value if argument.has_default_value() else None
        yield argument.name, default, argument.alias_info is not None and argument.alias_info.is_write


@cache
def tensor_positions(func: Any) -> tuple[int, ...]:
    """Which of an operator's arguments are single tensors, by position; where a number is given torch makes one."""
    return tuple(i for i, argument in enumerate(func._schema.arguments) if str(argument.type) == "Tensor")


def decomposes(func: Any) -> bool:
    """Whether an operator is nothing but other operators: composite, and without a kernel of its own."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has_kernel(name, "CompositeImplicitAutograd") and not any(has_kernel(name, k) for k in ("CPU", "CUDA"))


@cache
def tensor_arguments(func: Any) -> dict[str, str]:
    """The arguments of an operator that take tensors: names and types ("Tensor", "List[Optional[Tensor]]" ...)."""
    return {a.name: str(a.type) for a in func._schema.arguments if "Tensor" in str(a.type)}


def operator_named(op: str) -> Any:
    """The operator of a full name such as "aten.mm.default"."""
    space, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload)


@cache
def makes_new_tensors(func: Any) -> bool:
    """Whether every result of an operator is a tensor on memory of its own."""
    returned = func._schema.returns
    return bool(returned) and all(r.alias_info is None and str(r.type) == "Tensor" for r in returned)


@cache
def makes_a_view(func: Any) -> bool:
    """Whether an operator only gives another look at a tensor (view, detach, in place too), and moves no data."""
    returned = [r.alias_info for r in func._schema.returns]
    return torch.Tag.inplace_view in func.tags or any(a is not None and not a.is_write for a in returned)


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


# -- the profiler ------------------------------------------------------------------


def profiler_settings(**settings: Any) -> Any:
    """Settings of ``torch.profiler.profile`` under which operators have their full names."""
    return _ExperimentalConfig(capture_overload_names=True, **settings)


def event_tree(profiler: Any) -> list[Any]:
    """What a profiler saw, as trees: calls, with what happened inside of them as children."""
    roots: list[Any] = profiler.profiler.kineto_results.experimental_event_tree()
    return roots


def is_operator(event: Any) -> bool:
    """Whether an event is a call of an operator."""
    return bool(event.tag == _EventType.TorchOp)


def is_allocation(event: Any) -> bool:
    """Whether an event is memory that was handed out or given back."""
    return bool(event.tag == _EventType.Allocation)


# -- kernels of another device -----------------------------------------------------


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
    _described.append("cuda")
    try:
        yield
    finally:
        _described.pop()


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


# -- shapes on CUDA ----------------------------------------------------------------

_described: list[str] = []  # the devices whose kernels are described, if not the CPU's
_ALIGNED = 32  # efficient attention pads its log-sum-exp to this many rows


def _efficient_attention(
    query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, *_: Any, **__: Any
) -> tuple[Any, ...]:
    """As torch's own, with sizes that stay symbols: (batch, heads, rows, size of a value), laid out by rows."""
    batch, heads, rows, _ = query.shape
    result = query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)
    kept = (rows + _ALIGNED - 1) // _ALIGNED * _ALIGNED if compute_log_sumexp else 0
    log_sum_exp = query.new_empty(batch, heads, kept, dtype=torch.float32)
    return result, log_sum_exp, *(query.new_empty((), dtype=torch.int64) for _ in range(2))


def _efficient_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, attn_bias: Any, out: Any, lse: Any, seed: Any, offset: Any,
    dropout_p: float, grad_input_mask: Any, *_: Any, **__: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """As torch's own: gradients laid out by rows; that of a bias is cut from one whose rows are a multiple of 16."""

    def by_rows(t: Any) -> Any:
        batch, heads, rows, size = t.shape
        return t.new_empty(batch, rows, heads, size).transpose(1, 2)

    bias = None
    if attn_bias is not None and grad_input_mask[3]:
        *outer, last = attn_bias.shape
        aligned = last if last % 16 == 0 else (last + 15) // 16 * 16
        bias = attn_bias.new_empty(*outer, aligned)[..., :last]
    return by_rows(query), by_rows(key), by_rows(value), bias


def _cudnn_batch_norm(input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: Any) -> Any:
    """The output; in training mean and inverse deviation like the weight; a reserve whose size cuDNN alone knows."""
    kept = weight.shape if training else (0,)
    reserve = input.new_empty(0, dtype=torch.uint8)
    return torch.empty_like(input), weight.new_empty(kept), weight.new_empty(kept), reserve


def _cudnn_batch_norm_backward(input: Any, grad_output: Any, weight: Any, *_: Any) -> Any:
    """Gradients like the input, the weight and the bias."""
    return torch.empty_like(input), torch.empty_like(weight), torch.empty_like(weight)


def _cudnn_grid_sampler(self: Any, grid: Any) -> Any:
    """As many images and channels as of the input, of the height and width of the grid."""
    return self.new_empty(*self.shape[:2], *grid.shape[1:3])


def _cudnn_grid_sampler_backward(self: Any, grid: Any, grad_output: Any) -> Any:
    """Gradients like the input and the grid."""
    return self.new_empty(self.shape), grid.new_empty(grid.shape)


def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    """The output, and one number for each row."""
    rows = (*input.shape[: input.dim() - len(normalized_shape)], *(1 for _ in normalized_shape))
    wide = torch.float32 if _is_narrow(input) else input.dtype
    return input.new_empty(input.shape), input.new_empty(rows, dtype=wide)


def _rms_norm_backward(grad: Any, input: Any, shape: Any, rstd: Any, weight: Any, output_mask: Any) -> Any:
    """Gradients like the input and the weight, where wanted."""
    wanted = ((input, output_mask[0]), (weight, output_mask[1]))
    return tuple(t.new_empty(t.shape) if want and t is not None else None for t, want in wanted)


def _cudnn_rnn(*args: Any) -> Any:
    """As torch's own; the buffer of all weights is that of the parameters, which are views of it: no memory."""
    *results, _ = meta_table[_aten._cudnn_rnn.default](*args)
    return *results, args[0].new_empty(0)


def _cudnn_rnn_backward(input: Any, weight: Any, *others: Any) -> Any:
    """Gradients like the input, the states and the weights, where wanted; the weights' are pieces of one buffer."""
    _, _, hx, cx = others[:4]
    output_mask = others[-1]
    first = (
        t.new_empty(t.shape) if want and t is not None else None
        for t, want in zip((input, hx, cx), output_mask[:3], strict=True)
    )
    if not output_mask[3]:
        return *first, [None for _ in weight]
    buffer = weight[0].new_empty(sum(w.numel() for w in weight))
    pieces, start = [], 0
    for w in weight:
        pieces.append(buffer.narrow(0, start, w.numel()).view(w.shape))
        start = start + w.numel()
    return *first, pieces


# Where torch has no shape function that serves, or one that takes sizes as numbers.
_CUDA_SHAPES: dict[Any, Callable[..., Any]] = {
    _aten._scaled_dot_product_efficient_attention.default: _efficient_attention,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention_backward,
    _aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    _aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    _aten.cudnn_grid_sampler.default: _cudnn_grid_sampler,
    _aten.cudnn_grid_sampler_backward.default: _cudnn_grid_sampler_backward,
    _aten._fused_rms_norm.default: _rms_norm,
    _aten._fused_rms_norm_backward.default: _rms_norm_backward,
    _aten._cudnn_rnn.default: _cudnn_rnn,
    _aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
}
