"""From a torch operator and its tensors to a `Call` that rules understand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from symacct.cost import Call, Size, TensorMeta, tensors
from symacct.torch_private import (
    decomposes,
    is_question,
    may_be_in_place,
    schema_arguments,
    storage_key,
)


@dataclass(frozen=True, slots=True)
class Operator:
    """What needs to be known of an ``OpOverload``, read once."""

    func: Any
    name: str
    arguments: tuple[str, ...]
    defaults: tuple[Any, ...]
    mutated: tuple[str, ...]
    is_question: bool  # about a tensor, such as its device: no work
    is_silent: bool  # bookkeeping, no work
    is_composite: bool  # nothing but other operators
    may_be_in_place: bool  # where real tensors get its in-place variant
    writes_alike: bool  # arithmetic on its first argument in place, whose shape stays
    moves: bool  # gives a tensor another shape
    is_repeatable: bool  # equal shapes give equal shapes, whatever the data
    is_determined: bool  # results are neither random nor uninitialised


def operator_of(func: Any) -> Operator:
    """What needs to be known of an ``OpOverload``."""
    found = _operators.get(id(func))  # hashing it would run Python code, and what is kept keeps it from being freed
    if found is None:
        found = _operators[id(func)] = _read(func)
    return found


_SILENT = frozenset({"profiler", "rngprims"})
_operators: dict[int, Operator] = {}


def _read(func: Any) -> Operator:
    arguments = tuple(schema_arguments(func))
    mutated = tuple(name for name, _, written in arguments if written)
    tags, name, question = func.tags, str(func), is_question(func)
    return Operator(
        func=func,
        name=name,
        arguments=tuple(name for name, _, _ in arguments),
        defaults=tuple(default for _, default, _ in arguments),
        mutated=mutated,
        is_question=question,
        is_silent=func.namespace in _SILENT,
        is_composite=not question and decomposes(func),
        may_be_in_place=may_be_in_place(func),
        writes_alike=_is_in_place(name, tags) and mutated == tuple(n for n, _, _ in arguments[:1]),
        moves=torch.Tag.inplace_view in tags,
        is_repeatable=torch.Tag.dynamic_output_shape not in tags and torch.Tag.data_dependent_output not in tags,
        is_determined=torch.Tag.nondeterministic_seeded not in tags and "empty" not in name,
    )


def _is_in_place(name: str, tags: Any) -> bool:
    """Whether an operator, if it writes its first argument, leaves its shape: arithmetic, and random numbers."""
    random = torch.Tag.nondeterministic_seeded in tags and torch.Tag.inplace_view not in tags
    return torch.Tag.pointwise in tags or (random and name.split(".")[1].endswith("_"))


def bind_arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by schema name, in schema order, defaults filled in."""
    operator = operator_of(func)
    bound = dict(zip(operator.arguments, args, strict=False))
    for name, default in list(zip(operator.arguments, operator.defaults, strict=True))[len(args) :]:
        bound[name] = kwargs.get(name, default)
    return bound


def size_of(value: Any) -> Size:
    """A size as rules see it: a SymPy expression for a symbolic int, else the int itself."""
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr) if expr.is_Integer else expr
    expr = getattr(value, "expr", None)
    return value if expr is None else expr


class Describer:
    """Describes the tensors of one call, numbering storages by first appearance."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}

    def tensor(self, t: torch.Tensor) -> TensorMeta:
        """The meta of one tensor."""
        key = storage_key(t)
        number = self.storages.setdefault(key, len(self.storages))
        return TensorMeta(
            shape=tuple(size_of(n) for n in t.shape),
            stride=tuple(size_of(n) for n in t.stride()),
            dtype=str(t.dtype).removeprefix("torch."),
            storage=number,
            offset=size_of(t.storage_offset()),
            device=t.device.type,
        )

    def value(self, value: Any) -> Any:
        """An argument's value with its tensors and sizes described."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (list, tuple)):
            return tuple(self.value(v) for v in value)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return str(value)
        return size_of(value)


def describe(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Call:
    """The `Call` of an operator that has run: names, sizes, storages, what it wrote."""
    describer = Describer()
    operator = operator_of(func)
    bound = {name: describer.value(v) for name, v in bind_arguments(func, args, kwargs).items()}
    shared = len(describer.storages)
    outputs = tuple(describer.tensor(t) for t in _flat(result))
    if not outputs:
        outputs = tuple(t for name in operator.mutated for t in tensors(bound[name]))
    is_view = not operator.mutated and bool(outputs) and all(o.storage < shared for o in outputs)
    return Call(operator.name, bound, outputs, operator.mutated, is_view)


def _flat(result: Any) -> Iterable[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for each in result:
            yield from _flat(each)
