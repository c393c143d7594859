"""One step of a program on tensors without data: forward, autograd's own backward, the optimizer's own step.

`build` makes a module whose parameters have symbolic shapes. A `Program` is what
to run and how; `Program.run` runs it, symbolically or at given sizes, and gives a
`Step`: the record of every ATen call and what the module and optimizer hold.
"""

from __future__ import annotations

import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.assumptions import Assumption, Scope, scope
from symacct.calls import Describer
from symacct.cost import TensorMeta
from symacct.dim import Dim, new_dim, plain
from symacct.dim_mode import DimMode
from symacct.errors import DimError, SpecError, SymacctError, TargetError, TraceError
from symacct.progress import say
from symacct.recorder import Record, Recorder, Watch
from symacct.specs import Spec, make_inputs
from symacct.torch_private import FakeTensor, FakeTensorMode, new_fake, new_fake_mode, patched_module_call, quiet

CPU = torch.device("cpu")


# -- building ----------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """How a built module was made, so that it can be made again at other sizes."""

    builder: Callable[..., Any]
    dims: Mapping[str, Dim]
    mode: FakeTensorMode
    assumptions: tuple[Assumption, ...]
    lost: Mapping[int, Any]  # see assumptions.Scope


_builds: weakref.WeakKeyDictionary[nn.Module, Build] = weakref.WeakKeyDictionary()


def build(builder: Callable[..., nn.Module], /, **sizes: int) -> nn.Module:
    """Call ``builder`` with symbolic ints, so that the module's parameters come out symbolic.

    The names of the builder's parameters are the dims; a parameter with a default
    keeps it unless ``sizes`` names it. ``sizes`` sets trial sizes where the default does
    not suit (``Dh=64``). The builder is kept, so that formulas can be checked at other sizes.

    Raises `DimError` for sizes that do not fit, `TargetError` when the builder gives no module,
    `TraceError` when it fails on symbolic sizes.
    """
    parameters = inspect.signature(builder).parameters
    kinds = {p.kind for p in parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise DimError("build(): the builder's parameters are the dims, so *args and **kwargs cannot be used")
    for name, size in sizes.items():
        if name not in parameters:
            raise DimError(f"build(): {name}={size}, but the builder's dims are {', '.join(parameters) or 'none'}")
    made = {
        name: new_dim(name, sizes.get(name))
        for name, p in parameters.items()
        if p.default is inspect.Parameter.empty or name in sizes
    }
    mode = new_fake_mode()
    collected = Scope()
    say("building the model")
    model = _construct(builder, made, mode, collected)
    _builds[model] = Build(builder, made, mode, tuple(collected.assumptions.values()), collected.lost)
    return model


def build_of(model: Any) -> Build | None:
    """How a module was built, if `build` made it."""
    return _builds.get(model) if isinstance(model, nn.Module) else None


def _construct(builder: Callable[..., Any], sizes: Mapping[str, int], mode: FakeTensorMode, into: Scope) -> nn.Module:
    recorder = Recorder(mode)
    where = getattr(builder, "__name__", "builder")
    failures = _failures(recorder, f"building {where}")
    with quiet(), scope(into), mode, recorder, recorder.pause(), DimMode(initialize=False), failures:
        model = builder(**sizes)
    if not isinstance(model, nn.Module):
        raise TargetError(f"build(): the builder returned {type(model).__name__}, not a torch.nn.Module")
    return model


# -- the program -------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """What to run: a target, its inputs' specs, and the rest of the step."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None = None
    optimizer: Callable[..., Any] | None = None
    autocast: torch.dtype | None = None
    train: bool = True

    def run(self, sizes: Mapping[str, int], symbolic: bool, watch: Watch | None = None) -> Step:
        """Run the step, with the given dims (``symbolic``) or plain sizes; ``watch`` sees each node as it comes."""
        runner = _Runner(self, sizes, symbolic)
        runner.recorder.watch = watch
        return runner.run()


@dataclass(frozen=True)
class Held:
    """A tensor that outlives the step: a parameter, buffer, gradient or optimizer state."""

    name: str
    meta: TensorMeta
    trainable: bool = False


@dataclass
class Step:
    """What a run gave."""

    record: Record
    assumptions: tuple[Assumption, ...] = ()
    parameters: list[Held] = field(default_factory=list)
    buffers: list[Held] = field(default_factory=list)
    gradients: list[Held] = field(default_factory=list)
    state: list[Held] = field(default_factory=list)


class _Runner:
    """One run of a program: the modes, the module stack, the three phases."""

    def __init__(self, program: Program, sizes: Mapping[str, int], symbolic: bool) -> None:
        self.program = program
        self.sizes = sizes
        self.symbolic = symbolic
        self.scope = Scope()
        made = build_of(program.target)
        if made and symbolic:
            self.scope.lost.update(made.lost)
        self.mode = made.mode if made and symbolic else new_fake_mode()
        self.recorder = Recorder(self.mode)
        self.stack: list[str] = []
        self.paths: dict[int, list[str]] = {}
        self.labels = ""
        self.recorder.path = lambda: self.stack[-1] if self.stack else self.labels

    def run(self) -> Step:
        program, recorder = self.program, self.recorder
        with ExitStack() as stack:
            stack.enter_context(quiet())
            stack.enter_context(torch.random.fork_rng(devices=[]))
            if "torch._dynamo" in sys.modules:  # else nothing can be compiled, and importing it takes seconds
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_without_fast_path())
            stack.enter_context(scope(self.scope))
            model = self._model()
            stack.enter_context(self.mode)
            stack.enter_context(recorder)
            if self.symbolic:
                stack.enter_context(DimMode())
            if isinstance(model, nn.Module):
                stack.enter_context(_training(model, program.train))
                self.paths = _paths_of(model)
                for name, kind, tensor in _held(model):
                    recorder.value_of(tensor, kind, name)
                recorder.own_parameters(_owners(model))
            stack.enter_context(patched_module_call(self._call))
            stack.enter_context(_failures(recorder, "running the model", self._inputs_text))
            args, kwargs = self._inputs()
            step = self._step(model, args, kwargs)
        step.assumptions = tuple(self.scope.assumptions.values())
        return step

    def _model(self) -> Any:
        target = self.program.target
        if not isinstance(target, nn.Module):
            return target
        made = build_of(target)
        if made and self.symbolic:
            return target
        if made:
            model = _construct(made.builder, {n: self.sizes[n] for n in made.dims}, self.mode, Scope())
            wanted = {n: p.requires_grad for n, p in target.named_parameters()}
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(wanted.get(name, parameter.requires_grad))
            return model
        return _without_data(target, self.mode)

    def _inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = iter(range(10_000))

        def make(size: tuple[int, ...], spec: Spec) -> torch.Tensor:
            if spec.grad and not spec.dtype.is_floating_point:
                raise SpecError(f"{spec} cannot want a gradient: only floating-point inputs can")
            tensor = torch.empty(size, dtype=spec.dtype)
            tensor.requires_grad_(spec.grad)
            self.recorder.value_of(tensor, "input", f"input_{next(count)}")
            return tensor

        def adopt(tensor: torch.Tensor) -> torch.Tensor:
            fake = _fake_of(tensor, self.mode)
            self.recorder.value_of(fake, "input", f"input_{next(count)}")
            return fake

        def size_of(name: str) -> int:
            return self.sizes[name]

        with self.recorder.pause():
            args = make_inputs(tuple(self.program.args), size_of, make, adopt)
            kwargs = make_inputs(dict(self.program.kwargs), size_of, make, adopt)
        if not self.symbolic:
            args, kwargs = _plain((args, kwargs))
        return args, kwargs

    def _step(self, model: Any, args: Any, kwargs: Any) -> Step:
        program, recorder = self.program, self.recorder
        optimizer = self._optimizer(model)
        self._clear_gradients(model)
        try:
            recorder.phase = "forward"
            with torch.set_grad_enabled(program.train), _autocast(program.autocast):
                output = model(*args, **kwargs)
                self.labels = "(loss)"
                loss = self._loss(output) if program.train else None
            if loss is not None and loss.requires_grad:
                recorder.phase = "backward"
                self.labels = "(backward)"
                del output
                loss.backward()  # type: ignore[no-untyped-call]
            if optimizer is not None:
                self.labels = "(optimizer)"
                recorder.phase = "optimizer"
                with recorder.pause():
                    optimizer.step()  # makes the state; what is recorded is any later step
                optimizer.step()
            self.labels = ""
            return self._result(model, optimizer)
        finally:
            self._clear_gradients(model)
            if isinstance(model, nn.Module):
                for _, _, tensor in _held(model):
                    tensor.__dict__.pop("_symacct", None)

    def _loss(self, output: Any) -> torch.Tensor | None:
        if self.program.loss is not None:
            loss = self.program.loss(output)
            if not isinstance(loss, torch.Tensor):
                raise TraceError(f"loss: expected a tensor, the function returned {type(loss).__name__}")
            return loss.sum() if loss.dim() else loss
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if isinstance(own, torch.Tensor):
            return own.sum() if own.dim() else own
        total = None
        for leaf in _tensor_leaves(output):
            if leaf.requires_grad:
                part = leaf.sum() if leaf.dim() else leaf
                total = part if total is None else total + part
        return total

    def _optimizer(self, model: Any) -> Any:
        if self.program.optimizer is None or not self.program.train:
            return None
        parameters = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
        if not parameters:
            raise TraceError("optimizer: the target has no parameters that require a gradient")
        return self.program.optimizer(parameters)

    @staticmethod
    def _clear_gradients(model: Any) -> None:
        if isinstance(model, nn.Module):
            for parameter in model.parameters():
                parameter.grad = None

    def _result(self, model: Any, optimizer: Any) -> Step:
        step = Step(self.recorder.record)
        if isinstance(model, nn.Module):
            describe = Describer()
            for name, kind, tensor in _held(model):
                held = Held(name, describe.tensor(tensor), tensor.requires_grad)
                (step.parameters if kind == "param" else step.buffers).append(held)
                if kind == "param" and tensor.grad is not None:
                    step.gradients.append(Held(name, describe.tensor(tensor.grad)))
            names = {id(p): n for n, p in model.named_parameters()}
            if optimizer is not None:
                for parameter, state in optimizer.state.items():
                    for key, leaf in state.items():
                        for t in _tensor_leaves(leaf):
                            step.state.append(Held(f"{names.get(id(parameter), '')}:{key}", describe.tensor(t)))
        return step

    def _call(self, original: Any, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """``module(...)`` with its path on the stack: of several names, the one under the caller's."""
        names = self.paths.get(id(module))
        if names is None:
            return original(module, *args, **kwargs)
        caller = self.stack[-1] if self.stack else ""
        path = names[0]
        if len(names) > 1 and caller:
            path = next((n for n in names if n.startswith(caller + ".")), path)
        self.stack.append(path)
        try:
            return original(module, *args, **kwargs)
        finally:
            self.stack.pop()

    def _inputs_text(self) -> str:
        return ", ".join(f"{n}={s}" for n, s in ((n, plain(d)) for n, d in self.sizes.items()))


# -- helpers -----------------------------------------------------------------------


@contextmanager
def _failures(recorder: Recorder, doing: str, sizes: Callable[[], str] = str) -> Iterator[None]:
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
    from symacct.recorder import source_kind

    frames = []
    trace = error.__traceback__
    while trace is not None:
        if source_kind(trace.tb_frame.f_code.co_filename) == "model":
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    return frames[-1] if frames else ""


def _fake_of(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A tensor without data in place of a real one; what is on the meta device is taken to be on the CPU."""
    if isinstance(tensor, FakeTensor) and tensor.fake_mode is mode:
        return tensor
    if tensor.device.type != "meta" and not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor)
    made: torch.Tensor = new_fake(mode, tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype, CPU)
    if isinstance(tensor, nn.Parameter):
        made = nn.Parameter(made, requires_grad=tensor.requires_grad)
    else:
        made.requires_grad_(tensor.requires_grad)
    return made


def _without_data(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A copy of a module whose parameters and buffers hold no data; the module itself is not touched."""
    memo: dict[int, Any] = {}
    for _, _, tensor in _held(model):
        memo[id(tensor)] = _fake_of(tensor, mode)
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}); "
            "use symacct.build with a function that makes it"
        ) from error


def _held(model: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, parameter in model.named_parameters():
        yield name, "param", parameter
    for name, buffer in model.named_buffers():
        yield name, "buffer", buffer


def _owners(model: nn.Module) -> dict[int, str]:
    return {
        id(p): path for path, module in reversed(list(model.named_modules())) for p in module.parameters(recurse=False)
    }


def _paths_of(model: nn.Module) -> dict[int, list[str]]:
    """All names of each module. A compiled wrapper adds nothing to a name."""
    paths: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        clean = ".".join(p for p in name.split(".") if p != "_orig_mod")
        paths.setdefault(id(module), []).append(clean)
    return paths


@contextmanager
def _training(model: nn.Module, train: bool) -> Iterator[None]:
    """Put a module in train or eval mode, and back as it was."""
    before = {name: module.training for name, module in model.named_modules()}
    model.train(train)
    try:
        yield
    finally:
        for name, module in model.named_modules():
            module.training = before[name]


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Keep attention layers off their inference fast path, which they leave anyway where a `DimMode` is active."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _autocast(dtype: torch.dtype | None) -> Any:
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)


def _tensor_leaves(value: Any) -> list[torch.Tensor]:
    """The distinct tensors in an output: containers, dicts, dataclasses and objects with fields."""
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, Mapping):
        value = [getattr(value, f) for f in value.__dataclass_fields__]
    leaves = pytree.tree_leaves(dict(value) if isinstance(value, Mapping) else value)
    found: dict[int, torch.Tensor] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            found.setdefault(id(leaf), leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found.update({id(t): t for t in _tensor_leaves(leaf)})
    return list(found.values())


def _plain(tree: Any) -> Any:
    return pytree.tree_map(lambda v: plain(v) if isinstance(v, Dim) else v, tree)
