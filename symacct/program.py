"""A program, and one step of it as a training loop in a function would run it, on whatever tensors there are.

A `Program` is what to run and how. A `Loop` runs it: on tensors without data when it is
traced, on real ones when that is verified, so that both are the same step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.errors import TraceError
from symacct.lowering import Lowering


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
    accumulate: int = 1
    clip: Any = None  # a norm, or a function of the parameters
    set_to_none: bool = True
    keep_outputs: bool = False
    lowering: Lowering = field(default_factory=Lowering)
    structure: Mapping[str, int] = field(default_factory=dict)  # dims that change the graph, as plain numbers


class Loop:
    """The parts of a step: gradients, clipping, the update.

    ``at(label, phase)`` is told where the loop is, ``mark(name)`` when it has passed a point.
    """

    def __init__(
        self,
        program: Program,
        model: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        at: Callable[[str, str], None] = lambda label, phase: None,
        mark: Callable[[str], None] = lambda name: None,
        device: str = "cpu",
    ) -> None:
        self.program = program
        self.model = model
        self.args, self.kwargs = args, kwargs
        self.at, self.mark = at, mark
        self.device = device
        self.optimizer = self._made_optimizer()

    # -- the step ----------------------------------------------------------------------

    def run(self) -> None:
        """A whole step, from freeing or zeroing the gradients to the update; what it holds goes when it returns."""
        if self.program.train:
            self.zero()
        self.mark("start")
        kept = self.gradients()
        self.mark("update")
        self.update()
        self.mark("end")
        del kept

    def zero(self) -> None:
        """Free or zero the gradients, as the program has it."""
        self.at("(zero_grad)", "optimizer")
        zeroed = self.optimizer if self.optimizer is not None else self.model
        if hasattr(zeroed, "zero_grad"):
            zeroed.zero_grad(set_to_none=self.program.set_to_none)

    def gradients(self) -> tuple[Any, Any]:
        """Forward and backward of each micro-batch, then clipping; returns what the caller still holds."""
        program = self.program
        loss = output = None
        for _ in range(program.accumulate):
            self.at("", "forward")
            with torch.set_grad_enabled(program.train), self._autocast():
                output = self.model(*self.args, **self.kwargs)
                self.at("(loss)", "forward")
                if program.train:
                    loss = self._loss(output)
            if program.train and not program.keep_outputs:
                output = None
            self.mark("forward")
            if loss is not None and loss.requires_grad:
                self.at("(backward)", "backward")
                loss.backward()  # type: ignore[no-untyped-call]
                self.mark("backward")
            elif program.train and self._trainable():
                raise TraceError(
                    "the loss does not depend on anything that requires a gradient (the model may run under no_grad, "
                    "or return integers); give a loss that does, or ask for inference with train=False"
                )
        if program.clip is not None and isinstance(self.model, nn.Module):
            self.at("(clip)", "optimizer")
            parameters = self._trainable()
            if callable(program.clip):
                program.clip(parameters)
            else:
                nn.utils.clip_grad_norm_(parameters, program.clip)
        return loss, output

    def update(self) -> None:
        """The optimizer's step."""
        self.at("(optimizer)", "optimizer")
        if self.optimizer is not None:
            self.optimizer.step()

    # -- its parts ---------------------------------------------------------------------

    def _autocast(self) -> Any:
        dtype = self.program.autocast
        return nullcontext() if dtype is None else torch.autocast(self.device, dtype=dtype)

    def _trainable(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad] if isinstance(self.model, nn.Module) else []

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
        for leaf in tensor_leaves(output):
            if leaf.requires_grad:
                part = leaf.sum() if leaf.dim() else leaf
                total = part if total is None else total + part
        return total

    def _made_optimizer(self) -> Any:
        if self.program.optimizer is None or not self.program.train:
            return None
        parameters = self._trainable()
        if not parameters:
            raise TraceError("optimizer: the target has no parameters that require a gradient")
        optimizer = self.program.optimizer(parameters)
        if not callable(getattr(optimizer, "step", None)):
            raise TraceError(f"optimizer: the factory gave a {type(optimizer).__name__}, which has no step()")
        wanted = inspect.signature(optimizer.step).parameters.values()
        if any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in wanted):
            raise TraceError(
                f"optimizer: {type(optimizer).__name__}.step() wants a closure that runs the model again as often as "
                "the data demands, so its cost is not a function of sizes; trace the model without it"
            )
        return optimizer


# -- helpers -----------------------------------------------------------------------


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """The distinct tensors in an output: containers, dicts, dataclasses and objects with fields."""
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, Mapping):
        value = [getattr(value, f) for f in value.__dataclass_fields__]
    leaves = pytree.tree_leaves(dict(value) if isinstance(value, Mapping) else value)
    found: dict[int, torch.Tensor] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            found.setdefault(id(leaf), leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found.update({id(t): t for t in tensor_leaves(leaf)})
    return list(found.values())
