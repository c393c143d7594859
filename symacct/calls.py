"""From a torch operator and its tensors to a `Call` that rules understand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from symacct.cost import Call, Size, TensorMeta, tensors
from symacct.torch_private import schema_arguments, storage_key


@dataclass(frozen=True, slots=True)
class Schema:
    """What a call needs to know of an operator's schema."""

    name: str
    arguments: tuple[str, ...]
    defaults: tuple[Any, ...]
    mutated: tuple[str, ...]


@cache
def schema_of(func: Any) -> Schema:
    """The schema of an ``OpOverload``, read once per operator."""
    arguments = tuple(schema_arguments(func))
    return Schema(
        name=str(func),
        arguments=tuple(name for name, _, _ in arguments),
        defaults=tuple(default for _, default, _ in arguments),
        mutated=tuple(name for name, _, written in arguments if written),
    )


def bind_arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by schema name, in schema order, defaults filled in."""
    schema = schema_of(func)
    bound = dict(zip(schema.arguments, args, strict=False))
    for name, default in list(zip(schema.arguments, schema.defaults, strict=True))[len(args) :]:
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
    schema = schema_of(func)
    bound = {name: describer.value(v) for name, v in bind_arguments(func, args, kwargs).items()}
    shared = len(describer.storages)
    outputs = tuple(describer.tensor(t) for t in _flat(result))
    if not outputs:
        outputs = tuple(t for name in schema.mutated for t in tensors(bound[name]))
    is_view = not schema.mutated and bool(outputs) and all(o.storage < shared for o in outputs)
    return Call(schema.name, bound, outputs, schema.mutated, is_view)


def _flat(result: Any) -> Iterable[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for each in result:
            yield from _flat(each)
