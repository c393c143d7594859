"""The memo: a call seen before, with the same symbolic shapes, is answered without asking torch again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from symacct.calls import describe, schema_of
from symacct.cost import Size
from symacct.record import Record, Value
from symacct.torch_private import FakeTensor, FakeTensorMode, make_view, new_fake
from symacct.trees import flatten
from symacct.values import Values


@dataclass(slots=True)
class Use:
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
        if schema.mutated == schema.arguments[:1] and self.args and self.tensors and self.args[0] is self.tensors[0]:
            return self.tensors[:1]
        bound = dict(zip(schema.arguments, self.args, strict=False)) | self.kwargs
        found = (bound.get(name) for name in schema.mutated)
        return [t for v in found for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, torch.Tensor)]


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
class Known:
    """A memoised call."""

    call: int
    outputs: list[_Output] | None  # None: the result is not made of plain tensors, run it again
    container: Callable[[list[Any]], Any] | None


class Memo:
    """The calls of a step by what their results' shapes depend on."""

    def __init__(self, mode: FakeTensorMode, values: Values) -> None:
        self.mode = mode
        self.values = values
        self.record = values.record
        self._known: dict[Any, Known] = {}

    def find(self, key: Any) -> Known | None:
        """A call that can be answered from the memo."""
        known = self._known.get(key) if key is not None else None
        return known if known is not None and known.outputs is not None else None

    def learn(self, key: Any, use: Use, result: Any) -> tuple[int, list[Value | None]]:
        """Note what a call gave, for the next time; returns its number and its results' values."""
        moved = torch.Tag.inplace_view in use.func.tags
        if moved:
            for t in use.tensors:
                self.values.moved(t)
        flat, container = flatten(result)
        arguments = {id(t): i for i, t in enumerate(use.tensors)}
        storages = {v.storage: i for i, v in reversed(list(enumerate(use.values)))}
        outputs: list[_Output] = []
        values: list[Value | None] = []
        for t in flat:
            if not isinstance(t, FakeTensor):
                values.append(None)
                outputs.append(_Output("none"))
            elif id(t) in arguments:
                values.append(self.values.of(t))
                outputs.append(_Output("argument", argument=arguments[id(t)]))
            else:
                value = self.values.new(t, self.values.layout(t))
                values.append(value)
                outputs.append(_output_of(t, value, storages.get(value.storage, -1), self.record))
        again = self._known.get(key) if key is not None else None
        if again is not None:
            return again.call, values
        index = len(self.record.calls)
        self.record.calls.append(describe(use.func, use.args, use.kwargs, result))
        if key is not None:
            repeatable = not moved and _repeatable(use.func) and _remakeable(flat, values, storages)
            self._known[key] = Known(index, outputs if repeatable else None, container)
        return index, values

    def replay(self, known: Known, use: Use) -> tuple[list[Any], list[Value | None]]:
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
                values.append(self.values.new(made, out.layout, nbytes=out.nbytes))
        return outputs, values


# -- helpers ---------------------------------------------------------------------------

_repeat: dict[Any, bool] = {}


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
