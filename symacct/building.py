"""Modules without data: built with symbolic sizes, built again at others, copied from real ones."""

from __future__ import annotations

import copy
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from symacct.assumptions import Scope, scope
from symacct.dim import Dim, check_size, named_dims
from symacct.dim_mode import DimMode
from symacct.errors import DimError, SymacctError, TargetError, TraceError
from symacct.progress import say
from symacct.recorder import Recorder
from symacct.sources import source_kind
from symacct.surroundings import CPU, enter_plain_world
from symacct.torch_private import (
    FakeTensor,
    FakeTensorMode,
    convertible_parameters,
    copy_fake,
    fake_of_real,
    new_fake_mode,
)

# torch's modes and patches are per process, so one model is built or run at a time.
LOCK = threading.RLock()

SHALLOWEST = 2  # the least depth that is traced: with one layer, the first is also the last


@dataclass(frozen=True)
class Build:
    """How a built module was made, so that it can be made again at other sizes.

    ``structure`` has the dims that change the graph (depths): the builder gets them as plain numbers.
    """

    builder: Callable[..., Any]
    dims: Mapping[str, Dim]
    structure: Mapping[str, int]
    mode: FakeTensorMode
    scope: Scope  # what building assumed


_builds: weakref.WeakKeyDictionary[nn.Module, Build] = weakref.WeakKeyDictionary()


def build(builder: Callable[..., nn.Module], /, depth: str | Iterable[str] | int = (), **sizes: int) -> nn.Module:
    """Call ``builder`` with symbolic ints, so that the module's parameters come out symbolic.

    The names of the builder's parameters are the dims; a parameter with a default
    keeps it unless ``sizes`` names it. ``sizes`` sets trial sizes where the default does
    not suit (``Dh=64``). The builder is kept, so that formulas can be checked at other sizes.
    Change the module inside the builder, not after it.

    ``depth`` names the parameters that change the graph, such as the number of layers ("N", or "Ne Nd"). The builder
    gets them as plain numbers, `symacct.trace` builds the model at a few of them, and every quantity becomes a
    polynomial in them (`symacct.depth.structural`).

    Raises `DimError` for sizes that do not fit, `TargetError` when the builder gives no module,
    `TraceError` when it fails on symbolic sizes.
    """
    if not callable(builder) or isinstance(builder, nn.Module):
        raise TargetError(f"build(): expected a function that makes a module, got {type(builder).__name__}")
    if isinstance(depth, int):  # the size of a dim that has this very name
        sizes["depth"], depth = depth, ()
    parameters = inspect.signature(builder).parameters
    kinds = {p.kind for p in parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise DimError("build(): the builder's parameters are the dims, so *args and **kwargs cannot be used")
    for name, size in sizes.items():
        if name not in parameters:
            raise DimError(f"build(): {name}={size}, but the builder's dims are {', '.join(parameters) or 'none'}")
    deep = names_of(depth)
    for name in deep:
        if name not in parameters:
            raise DimError(f"build(): depth {name!r} is none of the builder's dims {', '.join(parameters) or 'none'}")
    structure = {name: check_size(name, sizes.get(name, SHALLOWEST)) for name in deep}
    own = {n: p for n, p in parameters.items() if n not in deep}
    wanted = [n for n, p in own.items() if p.default is inspect.Parameter.empty or n in sizes]
    made = named_dims(wanted, {n: s for n, s in sizes.items() if n not in deep})
    say("building the model")
    mode, collected = new_fake_mode(), Scope()
    model = construct(builder, {**made, **structure}, mode, collected)
    _builds[model] = Build(builder, made, structure, mode, collected)
    return model


def names_of(dims: str | Iterable[str]) -> tuple[str, ...]:
    """Names given as "Ne Nd" or one by one."""
    return tuple(dict.fromkeys(dims.replace(",", " ").split() if isinstance(dims, str) else dims))


def build_of(model: Any) -> Build | None:
    """How a module was built, if `build` made it."""
    return _builds.get(model) if isinstance(model, nn.Module) else None


def construct(builder: Callable[..., Any], sizes: Mapping[str, int], mode: FakeTensorMode, into: Scope) -> nn.Module:
    """Call a builder on fake tensors, with dims or plain sizes."""
    recorder = Recorder(mode)
    with LOCK, ExitStack() as stack:
        enter_plain_world(stack)
        for context in (scope(into), convertible_parameters(mode), mode, recorder, recorder.recording_to(None)):
            stack.enter_context(context)
        stack.enter_context(DimMode(initialize=False))
        stack.enter_context(failures(recorder, f"building {getattr(builder, '__name__', 'the model')}"))
        model = builder(**sizes)
    if not isinstance(model, nn.Module):
        raise TargetError(f"build(): the builder returned {type(model).__name__}, not a torch.nn.Module")
    return model


# -- copies ------------------------------------------------------------------------


def held(model: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """(name, "param" or "buffer", tensor) for each parameter and buffer, shared ones once."""
    for name, parameter in model.named_parameters():
        yield name, "param", parameter
    for name, buffer in model.named_buffers():
        yield name, "buffer", buffer


def freeze_alike(model: nn.Module, other: nn.Module) -> None:
    """Have a module's parameters want gradients where those of another, built alike, do."""
    wanted = {n: p.requires_grad for n, p in other.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(wanted.get(name, parameter.requires_grad))


def fake_of(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A tensor without data in place of another; what is on the meta device is taken to be on the CPU."""
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta" or tensor.is_inference():
        return copy_fake(tensor, mode, CPU)
    return fake_of_real(tensor, mode)


def without_data(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A copy of a module whose parameters and buffers hold no data; the module itself is not touched."""
    if build_of(model) is None and any(isinstance(t, FakeTensor) for _, _, t in held(model)):
        raise TargetError(
            f"{type(model).__name__} contains a module from symacct.build; make the whole of it in one builder"
        )
    memo: dict[int, Any] = {id(tensor): fake_of(tensor, mode) for _, _, tensor in held(model)}
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}); "
            "use symacct.build with a function that makes it"
        ) from error


# -- failures ----------------------------------------------------------------------


@contextmanager
def failures(recorder: Recorder, doing: str, sizes: Callable[[], str] = str) -> Iterator[None]:
    """Turn whatever the model raises into a `TraceError` that names the place and the sizes."""
    try:
        yield
    except SymacctError:
        raise
    except Exception as error:
        first = (str(error).strip() or "no message").splitlines()[0]
        at = f" (trial sizes {sizes()})" if sizes() else ""
        if recorder.failure is not None and str(recorder.failure[0]) == str(error):
            failed = TraceError(f"{doing} failed in {recorder.failure[1]}: {first}{at}")
            failed.unequal = tuple(recorder.unequal)
            raise failed from error
        place = _place_of(error) or recorder.place()
        raise TraceError(f"{doing} failed at {place}: {type(error).__name__}: {first}{at}") from error


def _place_of(error: BaseException) -> str:
    """The innermost line of an error's traceback that is the model's own."""
    place, trace = "", error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if source_kind(filename) == "model":
            place = f"{filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
