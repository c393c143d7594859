"""The recorder: sees every ATen call of a step on tensors without data.

It sits above the fake tensors. A call that it has seen before, with the same
symbolic shapes, is answered from its memo without asking torch again, which is
what makes 32 equal layers cheap. It holds no strong reference to any tensor:
autograd reuses what nobody else holds, and lifetimes are what memory is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from symacct import dim
from symacct.assumptions import current
from symacct.calls import describe, schema_of, size_of
from symacct.cost import Size
from symacct.errors import DataDependentError, TargetError, TraceError
from symacct.lifetimes import Lifetimes
from symacct.record import Node, Record, Value, Watch
from symacct.sources import recomputing, source
from symacct.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    UnsupportedOperatorException,
    adds_in_place,
    answer_about,
    current_autograd_node,
    decomposes,
    is_symbolic,
    make_view,
    new_fake,
    next_sequence_nr,
    no_dispatch,
    no_torch_function,
    run_symbolic,
    sequence_nr,
)

SMALL = 4096  # elements up to which a tensor made of plain numbers also keeps its data
_SILENT = frozenset({"profiler", "rngprims"})  # namespaces that are bookkeeping, not work


@dataclass(slots=True)
class _Output:
    """How to make one result of a memoised call again."""

    kind: str  # "new", "view", "argument", "none"
    layout: int = -1
    argument: int = -1  # which tensor argument it views or is
    size: tuple[Any, ...] = ()
    stride: tuple[Any, ...] = ()
    offset: Any = 0
    dtype: torch.dtype = torch.float32
    device: torch.device | None = None
    nbytes: Size = 0  # of its storage, where it is new


@dataclass(slots=True)
class _Known:
    """A memoised call."""

    call: int
    outputs: list[_Output] | None  # None: the result is not made of plain tensors, run it again
    container: Callable[[list[Any]], Any] | None


@dataclass(slots=True)
class _Use:
    """A call as it passes by: its arguments, and the tensors among them in order."""

    func: Any
    args: Any
    kwargs: Any
    tensors: list[Any] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    adopted: bool = False  # whether a real tensor was among them
    tellable: bool = True  # whether its key says all that its result's shapes depend on

    def written(self) -> list[Any]:
        """The tensors that the call writes in place."""
        schema = schema_of(self.func)
        bound = dict(zip(schema.arguments, self.args, strict=False)) | self.kwargs
        found = (bound.get(name) for name in schema.mutated)
        return [t for v in found for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, torch.Tensor)]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ATen calls that reach it while it is active and not paused."""

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
        self.failure: tuple[Exception, str] | None = None  # the last op that raised, and where
        self.unequal: list[tuple[Any, Any]] = []  # sizes that it found unequal
        self._memo: dict[Any, _Known] = {}
        self._layout_ids: dict[tuple[Any, ...], int] = {}
        self.lifetimes = Lifetimes(self.record)
        self._writes: dict[int, int] = {}  # how often a storage was written with data that we do not know
        self._leaves: dict[int, tuple[torch.Tensor, Any]] = {}  # real leaves that came along, and their gradients
        self._token = object()
        self._forward_of: dict[int, int] = {}
        self._parameter_paths: dict[int, str] = {}

    # -- values ----------------------------------------------------------------------

    def value_of(self, tensor: torch.Tensor, origin: str = "", name: str = "") -> Value:
        """The graph's value for a tensor; tensors are known by an attribute that they carry."""
        known = tensor.__dict__.get("_symacct")
        if known is not None and known[0] is self._token:
            value: Value = known[1]
            if origin:
                value.origin, value.name = origin, name
                self.record.storages[value.storage].outside = True
            return value
        return self._new_value(tensor, self._layout(tensor), origin or "constant", name)

    def _new_value(
        self, tensor: torch.Tensor, layout: int, origin: str = "", name: str = "", nbytes: Size | None = None
    ) -> Value:
        number, born = len(self.record.values), len(self.record.storages)
        value = Value(number, layout, self.lifetimes.number(tensor, number, nbytes), origin, name)
        self.record.values.append(value)
        for storage in self.record.storages[born:]:
            storage.outside = bool(origin)
        tensor.__dict__["_symacct"] = (self._token, value)
        return value

    def _layout(self, tensor: torch.Tensor) -> int:
        return self._layout_id(
            (
                tuple(size_of(n) for n in tensor.size()),
                tuple(size_of(n) for n in tensor.stride()),
                size_of(tensor.storage_offset()),
                tensor.dtype,
                tensor.device,
            )
        )

    def _layout_id(self, layout: tuple[Any, ...]) -> int:
        found = self._layout_ids.get(layout)
        if found is None:
            found = self._layout_ids[layout] = len(self.record.layouts)
            self.record.layouts.append(layout)
        return found

    # -- dispatch --------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with no_torch_function():  # sizes are SymInts in here, also where a model's code runs in the backward pass
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        asked, answer = answer_about(func, args)
        if asked:
            return answer
        if func.namespace in _SILENT:
            return func(*args, **kwargs)
        if _is_composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if self.phase == "backward" and adds_in_place(func, args, kwargs) and not self._made_now(args[0]):
            func = torch.ops.aten.add_.Tensor
        use = _Use(func, args, kwargs)
        born = len(self.record.storages)
        key = self._key(use)
        if func not in _LIFTS:  # torch.tensor(...) brings what it just made; others what was there before
            born = len(self.record.storages)
        if use.adopted:
            use.args, use.kwargs = _swap((args, kwargs), use.tensors)
        data = [self._data_of(t, v) for t, v in zip(use.tensors, use.values, strict=True)]
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._scalar(use.tensors[0], data[0])
        known = self._memo.get(key) if key is not None else None
        if known is not None and known.outputs is not None:
            outputs, out_values = self._replay(known, use)
            result = known.container(outputs) if known.container else outputs[0]
            call = known.call
        else:
            result = self._run(use, data)
            call, out_values = self._learn(key, use, result)
        if func.overloadpacket is torch.ops.aten.all:
            result.__dict__["_symacct_all"] = True
        self._compute(use, data, result)
        if self.nodes is not None:
            node = self._append(self.nodes, use, call, out_values)
            for storage in self.record.storages[born:]:
                storage.node, storage.outside = node, False
        return result

    def _key(self, use: _Use) -> Any:
        """What the shapes of the result depend on; None if that cannot be told. Fills in the tensors of the call."""
        number: dict[int, int] = {}  # storages by first appearance: which operands overlap matters, not where
        args = tuple([self._part(a, use, number) for a in use.args])
        kwargs = tuple([(k, self._part(v, use, number)) for k, v in use.kwargs.items()])
        return (use.func, args, kwargs) if use.tellable else None

    # A method and not a closure that calls itself: such a closure is a cycle, which would keep tensors alive.
    def _part(self, value: Any, use: _Use, number: dict[int, int]) -> Any:
        if isinstance(value, torch.Tensor):
            if not (isinstance(value, FakeTensor) and value.fake_mode is self.mode):
                value = self._adopt(value)
                use.adopted = True
            known = self.value_of(value)
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

    def _run(self, use: _Use, data: list[Any]) -> Any:
        name = schema_of(use.func).name
        try:
            return run_symbolic(self.mode, use.func, use.args, use.kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            if None not in data:  # small and known: there is an answer
                by_id = {id(t): d for t, d in zip(use.tensors, data, strict=True)}
                with no_dispatch():
                    real = use.func(*_substitute(use.args, by_id), **_substitute(use.kwargs, by_id))
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

    def _unequal_sizes(self, use: _Use) -> list[tuple[Any, Any]]:
        """Run a failing op again to see which sizes it found unequal."""
        with dim.refusals() as pairs, suppress(Exception):
            run_symbolic(self.mode, use.func, use.args, use.kwargs)
        return list(dict.fromkeys((a, b) for a, b in pairs if a.free_symbols or b.free_symbols))

    def _adopt(self, tensor: torch.Tensor) -> FakeTensor:
        """A real tensor that the program brought along, as a fake one with the same identity throughout."""
        if isinstance(tensor, FakeTensor):
            raise TargetError(
                "the program uses a tensor of a module from symacct.build that is not the one being traced; "
                "make the whole of it in one builder"
            )
        fake = self.mode.from_tensor(tensor)
        if "_symacct" not in fake.__dict__:
            self.value_of(fake, "constant")
            if tensor.numel() <= SMALL and tensor.device.type == "cpu":
                with no_dispatch():  # a copy: the program may write to it
                    self._know(fake, tensor.detach().clone())
            if tensor.requires_grad and tensor.is_leaf:
                self._leaves[id(tensor)] = (tensor, tensor.grad)
        return fake

    def restore_leaves(self) -> None:
        """Give real leaves that the program brought along the gradients that they had."""
        for tensor, grad in self._leaves.values():
            tensor.grad = grad

    # -- the memo --------------------------------------------------------------------

    def _learn(self, key: Any, use: _Use, result: Any) -> tuple[int, list[Value | None]]:
        """Note what a call gave, for the next time; returns its number and its results' values."""
        moved = torch.Tag.inplace_view in use.func.tags
        if moved:
            for t in use.tensors:
                self.lifetimes.resized(t)
                t.__dict__.pop("_symacct", None)
        flat, container = _flatten(result)
        arguments = {id(t): i for i, t in enumerate(use.tensors)}
        storages = {v.storage: i for i, v in reversed(list(enumerate(use.values)))}
        outputs: list[_Output] = []
        values: list[Value | None] = []
        for t in flat:
            if not isinstance(t, FakeTensor):
                values.append(None)
                outputs.append(_Output("none"))
            elif id(t) in arguments:
                values.append(self.value_of(t))
                outputs.append(_Output("argument", argument=arguments[id(t)]))
            else:
                value = self._new_value(t, self._layout(t))
                values.append(value)
                outputs.append(_output_of(t, value, storages.get(value.storage, -1), self.record))
        again = self._memo.get(key) if key is not None else None
        if again is not None:
            return again.call, values
        index = len(self.record.calls)
        self.record.calls.append(describe(use.func, use.args, use.kwargs, result))
        if key is not None:
            repeatable = not moved and _repeatable(use.func) and _remakeable(flat, values, storages)
            self._memo[key] = _Known(index, outputs if repeatable else None, container)
        return index, values

    def _replay(self, known: _Known, use: _Use) -> tuple[list[Any], list[Value | None]]:
        """Make the results of a known call again, without torch."""
        outputs: list[Any] = []
        values: list[Value | None] = []
        for out in known.outputs or ():
            if out.kind == "argument":
                outputs.append(use.tensors[out.argument])
                values.append(use.values[out.argument])
            elif out.kind == "none":
                outputs.append(None)
                values.append(None)
            else:
                if out.kind == "new":
                    made = new_fake(self.mode, out.size, out.stride, out.dtype, out.device)
                else:
                    made = make_view(self.mode, use.tensors[out.argument], out.size, out.stride, out.offset, out.dtype)
                outputs.append(made)
                values.append(self._new_value(made, out.layout, nbytes=out.nbytes))
        return outputs, values

    # -- small data --------------------------------------------------------------------

    def _data_of(self, tensor: Any, value: Value) -> Any:
        """The data of a small tensor, if it is known and nobody wrote to its storage since."""
        found = tensor.__dict__.get("_symacct_data")
        return found[0] if found is not None and found[1] == self._writes.get(value.storage, 0) else None

    def _know(self, tensor: Any, data: torch.Tensor) -> None:
        value = self.value_of(tensor)
        tensor.__dict__["_symacct_data"] = (data, self._writes.get(value.storage, 0))

    def _compute(self, use: _Use, data: list[Any], result: Any) -> None:
        """Carry the data of small tensors that come from plain numbers: step counters, schedules, masks."""
        written = use.written() if schema_of(use.func).mutated else []
        flat = _flatten(result)[0] or written
        if None not in data and _has_plain_data(use.func, flat):
            by_id = {id(t): d for t, d in zip(use.tensors, data, strict=True)}
            with no_dispatch():  # what is written in place is written in its data too
                real = use.func(*_substitute(use.args, by_id), **_substitute(use.kwargs, by_id))
            for t, r in zip(_flatten(result)[0], _flatten(real)[0], strict=True):
                if isinstance(r, torch.Tensor):
                    self._know(t, r)
        else:
            for t in written:
                storage = self.value_of(t).storage
                self._writes[storage] = self._writes.get(storage, 0) + 1

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

    def _append(self, nodes: list[Node], use: _Use, call: int, outputs: Any) -> Node:
        refs = {id(t): v for t, v in zip(use.tensors, use.values, strict=True)}
        index = len(nodes)
        phase, path, forward, autograd = self.phase, self.path(), -1, -1
        line = source()
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
        args, kwargs = _substitute(use.args, refs), _substitute(use.kwargs, refs) if use.kwargs else {}
        clock = len(self.record.events)
        made = Node(index, use.func, args, kwargs, call, outputs, phase, path, line, forward, clock, autograd)
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
        made = self.record.storages[self.value_of(tensor).storage].node
        running = current_autograd_node()
        return made is None or running is None or made.autograd == sequence_nr(running)

    def own_parameters(self, paths: dict[int, str]) -> None:
        """Tell which module each parameter (by id) belongs to, for what is accumulated into it."""
        self._parameter_paths = paths

    def place(self) -> str:
        """Where the program is now, for messages: module path and source line."""
        line, path = source(), self.path()
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
        self.value_of(tensor, origin, origin)
        storage = self.record.storages[self.value_of(tensor).storage]
        nodes = self.nodes or self.record.nodes
        storage.node, storage.outside = nodes[-1] if nodes else None, False

    def mark(self, name: str) -> None:
        """Note a point of the step."""
        self.record.marks.append((name, len(self.record.events)))


# -- helpers ---------------------------------------------------------------------------

_PLAIN = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
_composite: dict[Any, bool] = {}
_repeat: dict[Any, bool] = {}


def _is_composite(func: Any) -> bool:
    found = _composite.get(func)
    if found is None:
        found = _composite[func] = decomposes(func)
    return found


def _output_of(tensor: FakeTensor, value: Value, base: int, record: Record) -> _Output:
    """How to make a tensor like this one: on its own storage, or as a view of argument number ``base``."""
    return _Output(
        "new" if base < 0 else "view",
        value.layout,
        base,
        tuple(tensor.size()),
        tuple(tensor.stride()),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.fake_device,
        record.storages[value.storage].nbytes,
    )


def _remakeable(flat: list[Any], values: list[Value | None], storages: dict[int, int]) -> bool:
    """Whether `_output_of` says all there is to say: plain strided tensors, no two new ones on one storage."""
    fresh = [v.storage for v in values if v is not None and v.storage not in storages]
    return len(fresh) == len(set(fresh)) and all(
        t is None or (isinstance(t, FakeTensor) and t.layout == torch.strided and not t.is_conj() and not t.is_neg())
        for t in flat
    )


def _repeatable(func: Any) -> bool:
    """Whether running an op again on equal shapes gives equal shapes whatever the data."""
    found = _repeat.get(func)
    if found is None:
        tags = func.tags
        found = _repeat[func] = not (torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags)
    return found


def _flatten(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any] | None]:
    """The tensors of a result in order, and how to put such a list back into its form."""
    if isinstance(result, torch.Tensor):
        return [result], None
    if isinstance(result, (list, tuple)):
        flat: list[Any] = []
        shape: list[int] = []
        for each in result:
            if isinstance(each, (list, tuple)):
                flat.extend(each)
                shape.append(len(each))
            else:
                flat.append(each)
                shape.append(-1)
        kind = type(result)

        def rebuild(items: list[Any]) -> Any:
            out: list[Any] = []
            at = 0
            for n in shape:
                if n < 0:
                    out.append(items[at])
                    at += 1
                else:
                    out.append(list(items[at : at + n]))
                    at += n
            return out if kind is list else tuple(out)

        return flat, rebuild
    return ([] if result is None else [result]), (lambda _: None) if result is None else None


def _substitute(value: Any, by_id: dict[int, Any]) -> Any:
    """A copy of (nested) arguments in which tensors are replaced by what stands under their id."""
    if isinstance(value, torch.Tensor):
        return by_id.get(id(value), value)
    kind = type(value)
    if kind is list or kind is tuple or kind is torch.Size:
        return tuple([_substitute(v, by_id) for v in value])
    if kind is dict:
        return {k: _substitute(v, by_id) for k, v in value.items()}
    if kind is torch.SymInt:
        return value.node.dim
    return value


def _swap(value: Any, tensors: list[Any]) -> Any:
    """The arguments with real tensors replaced by the fake ones that were made of them, in order."""
    return _take(value, iter(tensors))


def _take(value: Any, tensors: Iterator[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if type(value) in (list, tuple):
        return type(value)([_take(v, tensors) for v in value])
    if type(value) is dict:
        return {k: _take(v, tensors) for k, v in value.items()}
    return value


def _has_plain_data(func: Any, flat: list[Any]) -> bool:
    """Whether a result is small, of known size, on the CPU, and neither random nor uninitialised."""
    if torch.Tag.nondeterministic_seeded in func.tags or "empty" in schema_of(func).name:
        return False
    return bool(flat) and all(
        isinstance(t, FakeTensor) and t.fake_device.type == "cpu" and not is_symbolic(t) and t.numel() <= SMALL
        for t in flat
    )
