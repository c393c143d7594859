"""The recorder: sees every ATen call of a step on tensors without data.

It sits above the fake tensors. A call that it has seen before, with the same
symbolic shapes, is answered from its memo without asking torch again, which is
what makes 32 equal layers cheap. It holds no strong reference to any tensor:
autograd reuses what nobody else holds, and lifetimes are what memory is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from symacct import dim
from symacct.assumptions import current
from symacct.calls import operator_of
from symacct.errors import DataDependentError, TargetError, TraceError
from symacct.known_data import SMALL, KnownData
from symacct.memo import Memo, Use
from symacct.record import Mark, Node, Record, Watch
from symacct.sources import caller, recomputing, source
from symacct.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    UnsupportedOperatorException,
    answer_about,
    current_autograd_node,
    fake_of_real,
    in_place_variant,
    next_sequence_nr,
    no_dispatch,
    no_torch_function,
    run_symbolic,
    sequence_nr,
)
from symacct.trees import substitute, swap
from symacct.values import Values


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ATen calls that reach it while it is active, in the list of nodes of the moment."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap our dispatch in a decorator that imports its compiler

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mode = mode
        self.record = Record()
        self.phase = "forward"
        self.path: Callable[[], str] = lambda: ""
        self.nodes: list[Node] | None = self.record.nodes  # where nodes go; None: nowhere
        self.watch: Watch | None = None
        self.caller = caller()  # the line to name for what the step does beside the model
        self.failure: tuple[Exception, str] | None = None  # the last op that raised, and where
        self.unequal: list[tuple[Any, Any]] = []  # sizes that it found unequal
        self.values = Values(self.record)
        self.memo = Memo(mode, self.values)
        self.data = KnownData(self.values)
        self._leaves: dict[int, tuple[torch.Tensor, Any]] = {}  # real leaves that came along, and their gradients
        self._forward_of: dict[int, int] = {}
        self._parameter_paths: dict[int, str] = {}

    # -- dispatch --------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:  # autograd asks this of every gradient, several times
            return args[0].fake_device
        with no_torch_function():  # sizes are SymInts in here, also where a model's code runs in the backward pass
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        operator = operator_of(func)
        if operator.is_question:
            return answer_about(func, args)
        if operator.is_silent:
            return func(*args, **kwargs)
        if operator.is_composite:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if operator.may_be_in_place and self.phase != "optimizer":
            func = in_place_variant(func, args, kwargs, self._made_now)
            operator = operator_of(func)
        use = Use(operator, args, kwargs)
        born = len(self.record.storages)
        key = self._key(use)
        if func not in _LIFTS:  # torch.tensor(...) brings what it just made; others what was there before
            born = len(self.record.storages)
        if use.adopted:
            use.args, use.kwargs = swap((args, kwargs), use.tensors)
        data = [self.data.of(t, v) for t, v in zip(use.tensors, use.values, strict=True)]
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._scalar(use.tensors[0], data[0])
        known = self.memo.find(key)
        if known is not None:
            outputs, out_values = self.memo.replay(known, use)
            result = known.container(outputs) if known.container else outputs[0]
            call = known.call
        else:
            result = use.tensors[0] if _keeps_its_shape(use) else self._run(use, data)
            call, out_values = self.memo.learn(key, use, result)
        if func in _ALL:
            result.__dict__["_symacct_all"] = True
        self.data.carry(use, data, result)
        if self.nodes is not None:
            node = self._append(self.nodes, use, call, out_values)
            for storage in self.record.storages[born:]:
                storage.node, storage.outside = node, False
        self.values.lifetimes.free_replaced()
        return result

    def _key(self, use: Use) -> Any:
        """What the shapes of the result depend on; None if that cannot be told. Fills in the tensors of the call."""
        number: dict[int, int] = {}  # storages by first appearance: which operands overlap matters, not where
        args = tuple([self._part(a, use, number) for a in use.args])
        kwargs = tuple([(k, self._part(v, use, number)) for k, v in use.kwargs.items()])
        return (id(use.operator), args, kwargs) if use.tellable else None

    # A method and not a closure that calls itself: such a closure is a cycle, which would keep tensors alive.
    def _part(self, value: Any, use: Use, number: dict[int, int]) -> Any:
        if isinstance(value, torch.Tensor):
            if not (isinstance(value, FakeTensor) and value.fake_mode is self.mode):
                value = self._adopt(value)
                use.adopted = True
            known = self.values.of(value)
            use.tensors.append(value)
            use.values.append(known)
            return (known.layout, number.setdefault(known.storage, len(number)))
        kind = type(value)
        if kind is list or kind is tuple or kind is torch.Size:
            return tuple([self._part(v, use, number) for v in value])
        if kind is torch.SymInt:
            return value.node.expr
        if kind not in _PLAIN:
            use.tellable = False
        return (kind, value) if kind in _PLAIN else None

    def _run(self, use: Use, data: list[Any]) -> Any:
        func, name = use.operator.func, use.operator.name
        try:
            return run_symbolic(self.mode, func, use.args, use.kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            if None not in data:  # small and known: there is an answer
                real = use.with_data(data)
                return self._adopt(real) if isinstance(real, torch.Tensor) else real
            raise DataDependentError(
                f"{name} at {self.place()}: the shape of its result depends on data, and tensors without data have "
                "none; give the model inputs (or a setting) that avoid it"
            ) from None
        except UnsupportedOperatorException:
            raise TraceError(
                f"{name} at {self.place()}: torch has no shape function for this op with symbolic sizes; register one "
                "with torch.library.register_fake, or give the sizes as numbers"
            ) from None
        except Exception as error:
            if self.failure is None or self.failure[0] is not error:
                shapes = ", ".join(f"({', '.join(map(repr, t.size()))})" for t in use.tensors)
                self.failure = (error, f"{name} on {shapes or 'no tensors'} at {self.place()}")
                self.unequal = self._unequal_sizes(use)
            raise

    def _unequal_sizes(self, use: Use) -> list[tuple[Any, Any]]:
        """Run a failing op again to see which sizes it found unequal."""
        with dim.refusals() as pairs, suppress(Exception):
            run_symbolic(self.mode, use.operator.func, use.args, use.kwargs)
        return list(dict.fromkeys((a, b) for a, b in pairs if a.free_symbols or b.free_symbols))

    def _adopt(self, tensor: torch.Tensor) -> FakeTensor:
        """A real tensor that the program brought along, as a fake one with the same identity throughout."""
        if isinstance(tensor, FakeTensor):
            raise TargetError(
                "the program uses a tensor of a module from symacct.build that is not the one being traced; "
                "make the whole of it in one builder"
            )
        fake = fake_of_real(tensor, self.mode)
        if "_symacct" not in fake.__dict__:
            self.values.of(fake, "constant")
            if tensor.numel() <= SMALL and tensor.device.type == "cpu":
                with no_dispatch():  # a copy: the program may write to it
                    self.data.keep(fake, tensor.detach().clone())
            if tensor.requires_grad and tensor.is_leaf:
                self._leaves[id(tensor)] = (tensor, tensor.grad)
        return fake

    def restore_leaves(self) -> None:
        """Give real leaves that the program brought along the gradients that they had."""
        for tensor, grad in self._leaves.values():
            tensor.grad = grad

    def _scalar(self, tensor: Any, data: Any) -> Any:
        """``tensor.item()``: the value where it is known, else a stand-in that becomes an assumption."""
        if data is not None:
            with no_dispatch():
                return data.item()
        dtype = tensor.dtype
        if not dtype.is_floating_point and dtype is not torch.bool:
            raise DataDependentError(
                f"at {self.place()} the program asks for the value of an integer tensor ({dtype}), which tensors "
                "without data cannot give; pass that number as a plain argument instead"
            )
        # Whether something is the case nowhere or everywhere is asked to leave work out, or to find errors.
        answer = "_symacct_all" in tensor.__dict__ if dtype is torch.bool else 1.0
        scope = current()
        if scope is not None:
            scope.note(f"a value that depends on data was taken as {answer} at {self.place()}")
        return answer

    # -- nodes -------------------------------------------------------------------------

    def _append(self, nodes: list[Node], use: Use, call: int, outputs: Any) -> Node:
        index = len(nodes)
        phase, path, forward, autograd = self.phase, self.path(), -1, -1
        line = source() or self.caller
        if phase in ("forward", "backward"):
            node = current_autograd_node()
            if node is None:
                self._forward_of.setdefault(next_sequence_nr() - 1, index)
            else:
                autograd = sequence_nr(node)
                phase = "recompute" if recomputing() else "backward"
                if phase == "backward":
                    forward, path, line = self._origin(node, path, line)
                else:
                    self._forward_of.setdefault(next_sequence_nr() - 1, index)
        values = iter(use.values)
        args, kwargs = substitute(use.args, values), substitute(use.kwargs, values)
        clock = len(self.record.events)
        made = Node(index, use.operator.func, args, kwargs, call, outputs, phase, path, line, forward, clock, autograd)
        nodes.append(made)
        if self.watch is not None and nodes is self.record.nodes:
            self.watch(made, self.record.calls[call])
        return made

    def _origin(self, node: Any, path: str, line: str) -> tuple[int, str, str]:
        """The forward node, module path and source of what autograd is running now."""
        variable = getattr(node, "variable", None)
        if variable is not None:  # AccumulateGrad
            return -1, self._parameter_paths.get(id(variable), ""), line
        forward = self._forward_of.get(sequence_nr(node), -1)
        if forward < 0:
            return -1, path, line
        made = (self.nodes or self.record.nodes)[forward]
        return forward, made.path, made.source

    def _made_now(self, tensor: torch.Tensor) -> bool:
        """Whether the autograd node that runs now made a tensor: what it adds within is not the engine's doing."""
        made = self.record.storages[self.values.of(tensor).storage].node
        running = current_autograd_node()
        return made is None or running is None or made.autograd == sequence_nr(running)

    def own_parameters(self, paths: dict[int, str]) -> None:
        """Tell which module each parameter (by id) belongs to, for what is accumulated into it."""
        self._parameter_paths = paths

    def place(self) -> str:
        """Where the program is now, for messages: module path and source line."""
        line, path = source() or self.caller, self.path()
        return f"{path} ({line})" if path and line else path or line or "the top level"

    @contextmanager
    def recording_to(self, nodes: list[Node] | None) -> Iterator[None]:
        """Send nodes elsewhere, or nowhere (None); the memo keeps learning, and lifetimes are kept."""
        before, self.nodes = self.nodes, nodes
        before_forward, self._forward_of = self._forward_of, {}
        try:
            yield
        finally:
            self.nodes, self._forward_of = before, before_forward

    def note(self, tensor: torch.Tensor, origin: str) -> None:
        """Take in a real tensor that torch just made beside all operators, such as a generator's state."""
        self.values.of(tensor, origin, origin)
        storage = self.record.storages[self.values.of(tensor).storage]
        nodes = self.nodes or self.record.nodes
        storage.node, storage.outside = nodes[-1] if nodes else None, False

    def mark(self, name: str) -> None:
        """Note a point of the step."""
        record = self.record
        record.marks.append(Mark(name, len(record.events), len(record.nodes), len(record.aside)))


# -- helpers ---------------------------------------------------------------------------

_PLAIN = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
_ALL = tuple(getattr(torch.ops.aten.all, name) for name in ("default", "dim", "dims"))
_DEVICE = torch.ops.prim.device.default


def _keeps_its_shape(use: Use) -> bool:
    """Whether a call is arithmetic in place on floats that all look alike, so that there is nothing to ask torch."""
    if not use.operator.writes_alike or not use.tensors or not use.tensors[0].is_floating_point():
        return False
    return all(value.layout == use.values[0].layout for value in use.values)
