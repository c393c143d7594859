"""The real thing: the model at given sizes, with data in its parameters, its inputs, its training loop, on a device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.account import Account
from symacct.building import LOCK, build_of, freeze_alike, held
from symacct.capture import paths_of, plain_arguments
from symacct.errors import SymacctError, TargetError, VerifyError
from symacct.program import Loop, Program
from symacct.specs import Spec, make_inputs
from symacct.storages import BLOCK
from symacct.surroundings import enter_counted_world
from symacct.torch_private import FakeTensor, patched_module_call, storage_key
from symacct.verify.profiled import ENTER, LEAVE, point
from symacct.verify.ranges import bounds


@contextmanager
def real_world(seed: int) -> Iterator[None]:
    """Surroundings in which a real run is what was traced; random numbers start from ``seed``."""
    with LOCK, ExitStack() as stack:
        enter_counted_world(stack)
        torch.manual_seed(seed)
        yield


@dataclass
class Concrete:
    """A program made real: its loop, and the bytes of what is there before a step."""

    loop: Loop
    device: str

    def run(self) -> None:
        """One step."""
        self.loop.run()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the profiler of the points that the loop passes, and of the modules that it enters and leaves."""
        paths = paths_of(self.loop.model) if isinstance(self.loop.model, nn.Module) else {}

        def call(original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            names = paths.get(id(module))
            if names is None:
                return original(module, *args, **kwargs)
            point(f"{ENTER}{names[0]}")
            try:
                return original(module, *args, **kwargs)
            finally:
                point(LEAVE)

        with self.marking(point), patched_module_call(call):
            yield

    @contextmanager
    def marking(self, mark: Callable[[str], None]) -> Iterator[None]:
        """Call ``mark`` at the points that the loop passes."""
        before, self.loop.mark = self.loop.mark, mark
        try:
            yield
        finally:
            self.loop.mark = before

    def alive(self) -> int:
        """Bytes of parameters, buffers, inputs and the optimizer's state on the device, shared storages once.

        On CUDA in blocks, as the profiler tells of them there.
        """
        sizes = {**self._storages(self._given()), **self._storages(self._state())}.values()
        return sum(BLOCK * -(-n // BLOCK) for n in sizes) if self.device == "cuda" else sum(sizes)

    def state_bytes(self) -> int:
        """Bytes of the optimizer's state on the device."""
        return sum(self._storages(self._state()).values())

    def _given(self) -> list[Any]:
        model = self.loop.model
        tensors = [t for _, _, t in held(model)] if isinstance(model, nn.Module) else []
        return [*tensors, self.loop.args, dict(self.loop.kwargs)]

    def _state(self) -> list[Any]:
        optimizer = self.loop.optimizer
        return [list(state.values()) for state in optimizer.state.values()] if optimizer is not None else []

    def _storages(self, tree: Any) -> dict[int, int]:
        leaves = (t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor))
        return {storage_key(t): t.untyped_storage().nbytes() for t in leaves if t.device.type == self.device}


def realize(account: Account, program: Program, device: str) -> Concrete:
    """Build the model at the account's sizes and make its inputs. In a `real_world`, which seeds the random numbers."""
    sizes = {**(account.sizes or {}), **program.structure}
    try:
        model = _model(program, sizes, device)
        args, kwargs = _inputs(account, program, sizes, device)
        return Concrete(Loop(program, model, args, kwargs, device=device), device)
    except (SymacctError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        at = ", ".join(f"{n}={s}" for n, s in sizes.items())
        raise VerifyError(
            f"{account.title} cannot be made at {at or 'its sizes'} on {device}: {type(error).__name__}: {error}"
        ) from error


def _model(program: Program, sizes: Mapping[str, int], device: str) -> Any:
    target = program.target
    if not isinstance(target, nn.Module):
        return target
    made = build_of(target)
    if made is None:
        model = _copied(target).to(device)
    else:
        with torch.device(device):
            model = made.builder(**{n: sizes.get(n, int(size)) for n, size in {**made.dims, **made.structure}.items()})
        freeze_alike(model, target)
        model.to(device)
    return model.train(program.train)


def _copied(target: nn.Module) -> nn.Module:
    """A copy, so that training leaves no trace in the module itself; what is on meta gets small random numbers."""
    if any(isinstance(t, FakeTensor) for _, _, t in held(target)):
        raise TargetError(f"{type(target).__name__} holds tensors without data; make it with symacct.build")
    model = copy.deepcopy(target)
    if any(t.device.type == "meta" for _, _, t in held(model)):
        model = model.to_empty(device="cpu")
        with torch.no_grad():
            for _, _, tensor in held(model):
                if tensor.is_floating_point():
                    tensor.normal_(0, 0.02)
                else:
                    tensor.zero_()
    return model


def _inputs(account: Account, program: Program, sizes: Mapping[str, int], device: str) -> tuple[Any, Any]:
    """Normal numbers; whole numbers within what they index, or ones; bools that say yes, as the trace took them."""
    limits = bounds(account.step.record, sizes)
    names = (f"input_{i}" for i in range(10_000))

    def fill(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        limit = limits.get(next(names), 0)
        if dtype.is_floating_point or dtype.is_complex:
            wide = dtype if dtype.itemsize > 1 else torch.float32
            return torch.randn(shape, dtype=wide, device=device).to(dtype)
        if dtype is torch.bool or not limit:
            return torch.ones(shape, dtype=dtype, device=device)
        return torch.randint(0, limit, shape, dtype=dtype, device=device)

    def make(shape: tuple[int, ...], spec: Spec) -> torch.Tensor:
        return fill(shape, spec.dtype).requires_grad_(spec.grad)

    def adopt(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
            return fill(tuple(tensor.shape), tensor.dtype).requires_grad_(tensor.requires_grad)
        next(names)
        return tensor.detach().to(device, copy=True).requires_grad_(tensor.requires_grad)

    args = make_inputs(tuple(program.args), sizes.__getitem__, make, adopt)
    kwargs = make_inputs(dict(program.kwargs), sizes.__getitem__, make, adopt)
    args, kwargs = plain_arguments((args, kwargs), sizes)
    return args, kwargs
