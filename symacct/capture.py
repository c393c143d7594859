"""One step of a program on tensors without data: forward, autograd's own backward, the optimizer's own step.

`run_step` runs a program, symbolically or at given sizes, and gives a `Step`: the
record of every ATen call, and what the module and the optimizer hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.assumptions import Assumption, Scope, scope
from symacct.building import LOCK, build_of, construct, failures, fake_of, freeze_alike, held, without_data
from symacct.calls import Describer
from symacct.cost import TensorMeta
from symacct.dim import Dim, plain, point
from symacct.dim_mode import DimMode
from symacct.errors import SpecError
from symacct.lowering import lowered
from symacct.program import Loop, Program, tensor_leaves
from symacct.record import Record, Watch
from symacct.recorder import Recorder
from symacct.specs import Spec, make_inputs
from symacct.surroundings import enter_counted_world
from symacct.torch_private import (
    FakeTensor,
    around_backward,
    new_fake_mode,
    patched_module_call,
    recognized_attention,
    resizing_by_symbols,
    sole_holder,
    watched_random_state,
)

# -- the step ----------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A tensor that outlives the step: a parameter, buffer, gradient or optimizer state."""

    name: str
    meta: TensorMeta
    storage: int
    trainable: bool = False
    saved: bool = True  # whether a checkpoint has it


@dataclass
class Step:
    """What a run gave."""

    record: Record
    assumptions: tuple[Assumption, ...] = ()
    parameters: list[Held] = field(default_factory=list)
    buffers: list[Held] = field(default_factory=list)
    gradients: list[Held] = field(default_factory=list)
    state: list[Held] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)  # storages that the caller holds at the end
    trained: bool = False  # whether there was a backward pass
    kernels: tuple[str, ...] = ()  # of another device than the CPU, in words: those that it used


def run_step(program: Program, sizes: Mapping[str, int], symbolic: bool, watch: Watch | None = None) -> Step:
    """Run a program's step, with the given dims (``symbolic``) or plain sizes; ``watch`` sees each node as it comes."""
    runner = _Runner(program, sizes, symbolic)
    runner.recorder.watch = watch
    return runner.run()


class _Runner:
    """One run of a program: the modes, the module stack, the three phases."""

    def __init__(self, program: Program, sizes: Mapping[str, int], symbolic: bool) -> None:
        self.program = program
        self.sizes = {**sizes, **program.structure}
        self.symbolic = symbolic
        self.scope = Scope()
        made = build_of(program.target)
        # A built module serves the symbolic run at its own trial sizes; all other runs build again.
        self.as_built = (
            made is not None
            and symbolic
            and all(sizes[n] is d for n, d in made.dims.items())
            and all(program.structure[n] == size for n, size in made.structure.items())
        )
        if made is not None and self.as_built:  # what building made exact, running may use
            self.scope.lost.update(made.scope.lost)
            self.scope.divisible.update(made.scope.divisible)
        self.mode = made.mode if made is not None and self.as_built else new_fake_mode()
        self.recorder = Recorder(self.mode)
        self.stack: list[str] = []
        self.paths: dict[int, list[str]] = {}
        self.labels = ""
        self.recorder.path = lambda: self.stack[-1] if self.stack else self.labels

    def run(self) -> Step:
        program, recorder = self.program, self.recorder
        with LOCK, ExitStack() as stack:
            enter_counted_world(stack)
            sole_holder()  # measured now, since it cannot be within an op
            stack.enter_context(scope(self.scope))
            model = self._model()
            stack.enter_context(self.mode)
            stack.enter_context(recorder)
            if self.symbolic:
                stack.enter_context(DimMode())
                stack.enter_context(resizing_by_symbols())
                stack.enter_context(around_backward(DimMode))
            if isinstance(model, nn.Module):
                model.train(program.train)
                self.paths = paths_of(model)
                for name, kind, tensor in held(model):
                    recorder.values.of(tensor, kind, name)
                recorder.own_parameters(_owners(model))
            stack.enter_context(watched_random_state(lambda state: recorder.note(state, "random state")))
            stack.enter_context(recognized_attention())
            stack.enter_context(patched_module_call(self._call))
            stack.callback(recorder.restore_leaves)
            stack.enter_context(failures(recorder, "running the model", self._inputs_text))
            kernels = stack.enter_context(lowered(program.lowering, recorder.place))
            args, kwargs = self._inputs()
            step = self._step(model, args, kwargs)
            step.kernels = tuple(kernels.used)
        step.assumptions = tuple(self.scope.assumptions.values())
        return step

    def _model(self) -> Any:
        """The target itself if it is a function; of a module a copy, so that a run leaves no trace in it."""
        target = self.program.target
        if not isinstance(target, nn.Module):
            return target
        made = build_of(target)
        if made is None or self.as_built:
            return without_data(target, self.mode)
        sizes = {n: self.sizes[n] for n in (*made.dims, *made.structure)}
        model = construct(made.builder, sizes, self.mode, self.scope if self.symbolic else Scope())
        freeze_alike(model, target)
        return model

    def _inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = iter(range(10_000))

        def make(size: tuple[int, ...], spec: Spec) -> torch.Tensor:
            if spec.grad and not spec.dtype.is_floating_point:
                raise SpecError(f"{spec} cannot want a gradient: only floating-point inputs can")
            tensor = torch.empty(size, dtype=spec.dtype)
            tensor.requires_grad_(spec.grad)
            self.recorder.values.of(tensor, "input", f"input_{next(count)}")
            return tensor

        def adopt(tensor: torch.Tensor) -> torch.Tensor:
            fake = fake_of(tensor, self.mode)
            self.recorder.values.of(fake, "input", f"input_{next(count)}")
            return fake

        def size_of(name: str) -> int:
            return self.sizes[name]

        with self.recorder.recording_to(None):
            args = make_inputs(tuple(self.program.args), size_of, make, adopt)
            kwargs = make_inputs(dict(self.program.kwargs), size_of, make, adopt)
        if not self.symbolic:
            args, kwargs = plain_arguments((args, kwargs), self.sizes)
        return args, kwargs

    def _step(self, model: Any, args: Any, kwargs: Any) -> Step:
        """One step, of a loop that has run before. The first step is run aside, for its lifetimes.

        With ``set_to_none`` the first step differs from later ones in the optimizer alone, so that part
        is all that is run twice; else gradients that are there already are added to, and everything is.
        """
        program, recorder = self.program, self.recorder
        with recorder.recording_to(None):  # making the optimizer is no part of a step
            loop = Loop(program, model, args, kwargs, self._at, recorder.mark)
        recorder.mark("start")
        if program.train and not program.set_to_none:
            with recorder.recording_to(recorder.record.aside):
                kept = loop.gradients()
                loop.update()
                del kept
            recorder.mark("later")
            loop.zero()
            kept = loop.gradients()
        else:
            kept = loop.gradients()
            if loop.optimizer is not None:
                recorder.mark("update")
                with recorder.recording_to(recorder.record.aside):
                    loop.update()  # makes the state; what is recorded is a later step
                recorder.mark("later")
        loop.update()
        self._at("", "optimizer")
        recorder.mark("end")
        step = self._result(model, loop.optimizer, kept)
        del kept
        recorder.mark("rest")
        recorder.values.lifetimes.close()
        return step

    def _at(self, label: str, phase: str) -> None:
        self.labels, self.recorder.phase = label, phase

    def _result(self, model: Any, optimizer: Any, kept: Any) -> Step:
        step = Step(self.recorder.record)
        step.trained = any(mark.name == "backward" for mark in step.record.marks)
        leaves = [t for t in _all_tensors(kept, set()) if isinstance(t, FakeTensor)]
        step.outputs = [self.recorder.values.of(t).storage for t in leaves]
        if isinstance(model, nn.Module):
            saved = {id(t) for t in model.state_dict(keep_vars=True).values() if isinstance(t, torch.Tensor)}
            for name, kind, tensor in held(model):
                kept_tensor = self._held(name, tensor, saved=id(tensor) in saved)
                (step.parameters if kind == "param" else step.buffers).append(kept_tensor)
                if kind == "param" and tensor.grad is not None:
                    step.gradients.append(self._held(name, tensor.grad, saved=False))
            names = {id(p): n for n, p in model.named_parameters()}
            if optimizer is not None:
                for parameter, state in optimizer.state.items():
                    for key, leaf in state.items():
                        for t in tensor_leaves(leaf):
                            step.state.append(self._held(f"{names.get(id(parameter), '')}:{key}", t))
        return step

    def _held(self, name: str, tensor: torch.Tensor, saved: bool = True) -> Held:
        meta = Describer().tensor(tensor)
        return Held(name, meta, self.recorder.values.of(tensor).storage, tensor.requires_grad, saved)

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


def _owners(model: nn.Module) -> dict[int, str]:
    return {
        id(p): path for path, module in reversed(list(model.named_modules())) for p in module.parameters(recurse=False)
    }


def paths_of(model: nn.Module) -> dict[int, list[str]]:
    """All names of each module. A compiled wrapper adds nothing to a name."""
    paths: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        clean = ".".join(p for p in name.split(".") if p != "_orig_mod")
        paths.setdefault(id(module), []).append(clean)
    return paths


def _all_tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """The tensors in an output, also those in the fields of objects such as caches."""
    for leaf in pytree.tree_leaves(dict(value) if isinstance(value, Mapping) else value):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (nn.Module, type)) and id(leaf) not in seen:
            seen.add(id(leaf))
            for field_value in vars(leaf).values():
                yield from _all_tensors(field_value, seen)


def plain_arguments(tree: Any, sizes: Mapping[str, int]) -> Any:
    """Dims among a program's arguments as the numbers that they are at these sizes."""
    at = point(sizes)

    def number(value: Any) -> Any:
        return int(value.expr.xreplace(at)) if isinstance(value, Dim) else value

    return pytree.tree_map(number, tree)
