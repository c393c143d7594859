"""The memo: a call seen before, with the same symbolic shapes, is answered without asking torch again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from symacct.calls import Operator, describe
from symacct.cost import Size
from symacct.record import Record, Value
from symacct.torch_private import FakeTensor, FakeTensorMode, Pattern, no_dispatch
from symacct.trees import flatten, substitute
from symacct.values import Values


@dataclass(slots=True)
class Use:
    """A call as it passes by: its arguments, and the tensors among them in order."""

    operator: Operator
    args: Any
    kwargs: Any
    tensors: list[Any] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    adopted: bool = False  # whether a real tensor was among them
    tellable: bool = True  # whether its key says all that its result's shapes depend on

    def with_data(self, data: list[Any]) -> Any:
        """Call the operator on its tensors' data."""
        items = iter(data)
        args, kwargs = substitute(self.args, items), substitute(self.kwargs, items)
        with no_dispatch():  # what is written in place is written in its data too
            return self.operator.func(*args, **kwargs)

    def written(self) -> list[Any]:
        """The tensors that the call writes in place."""
        schema = self.operator
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
    nbytes: Size = 0  # of its storage, where it is new
    pattern: Pattern | None = None  # what it looks like, where it is new or a view


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
        if use.operator.moves:
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
        self.record.calls.append(describe(use.operator.func, use.args, use.kwargs, result))
        if key is not None:
            repeatable = not use.operator.moves and use.operator.is_repeatable and _remakeable(flat, values, storages)
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
                assert out.pattern is not None
                new = out.kind == "new"
                made = out.pattern.new(self.mode) if new else out.pattern.view(self.mode, use.tensors[out.argument])
                outputs.append(made)
                values.append(self.values.new(made, out.layout, nbytes=out.nbytes))
        return outputs, values


# -- helpers ---------------------------------------------------------------------------


def _output_of(tensor: FakeTensor, value: Value, base: int, record: Record) -> _Output:
    """How to make a tensor like this one: on its own storage, or as a view of argument number ``base``."""
    nbytes = record.storages[value.storage].nbytes
    return _Output("new" if base < 0 else "view", value.layout, base, nbytes, Pattern(tensor))


def _remakeable(flat: list[Any], values: list[Value | None], storages: dict[int, int]) -> bool:
    """Whether `_output_of` says all there is to say: plain strided tensors, no two new ones on one storage."""
    fresh = [v.storage for v in values if v is not None and v.storage not in storages]
    return len(fresh) == len(set(fresh)) and all(
        t is None or (isinstance(t, FakeTensor) and t.layout == torch.strided and not t.is_conj() and not t.is_neg())
        for t in flat
    )
