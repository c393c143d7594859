"""Autograd as it works on plain tensors: its nodes, its engine, what it writes in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._C import _current_autograd_node as current_autograd_node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_other_modes

from symacct.torch_private.fake import storage_holders


def sequence_nr(node: Any) -> int:
    """The number that autograd gave to a backward node when the forward made it."""
    number: int = node._sequence_nr()
    return number


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


aten = torch.ops.aten
# On real tensors ATen's backward formulas write into what they have just made; where a dispatch mode is active they do
# not (`areAnyTensorSubclassLike`). By autograd node: the operators that do so.
_WRITES = {
    "GatherBackward0": (aten.scatter_add,),
    "IndexBackward0": (aten.index_put,),
    "IndexSelectBackward0": (aten.index_add,),
    "BinaryCrossEntropyWithLogitsBackward0": (aten.sub, aten.mul),
    "Atan2Backward0": (aten.masked_fill,),
    "TakeBackward0": (aten.put,),
    "TraceBackward0": (aten.index_fill,),
    **dict.fromkeys(
        ("SortBackward0", "SortBackward1", "TopkBackward0", "KthvalueBackward0", "ModeBackward0", "MaxBackward0",
         "MinBackward0", "MedianBackward1", "NanmedianBackward1"),
        (aten.scatter,),
    ),
}  # fmt: skip


def may_be_in_place(func: Any) -> bool:
    """Whether there are places where real tensors get the in-place variant of an operator."""
    return func is aten.add.Tensor or any(func.overloadpacket in packets for packets in _WRITES.values())


def in_place_variant(func: Any, args: Any, kwargs: Any, made_by_running_node: Callable[[torch.Tensor], bool]) -> Any:
    """The in-place operator that would run here on real tensors in place of ``func``, or ``func`` itself.

    ``func`` is one that `may_be_in_place`.

    Autograd's engine adds gradients into the first one, if that is dense and nobody else holds it; some backward
    formulas, and attention without a fused kernel, write into what they made. Under a dispatch mode, such as
    ours, torch does none of this.
    """
    caller = sys._getframe(3)
    if func is aten.add.Tensor and _ATTENTION & {caller.f_code, caller.f_back and caller.f_back.f_code}:
        return aten.add_.Tensor  # a mask to the scores that were just computed
    running = current_autograd_node()
    if running is None or torch.is_grad_enabled() or caller.f_code.co_name != "_engine_run_backward":
        return func
    packet = func.overloadpacket
    if packet in _WRITES.get(running.name(), ()):
        return _in_place(func) if made_by_running_node(args[0]) else func
    if func is not aten.add.Tensor or kwargs or not isinstance(args[1], torch.Tensor):
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
    return aten._scaled_dot_product_attention_math.default(*args, **kwargs)[0]


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
    if func is aten.index_put.default:
        return aten._index_put_impl_.default
    return getattr(getattr(aten, func.overloadpacket.__name__ + "_"), func._overloadname)


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
    return count, storage_holders(tensor)


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
