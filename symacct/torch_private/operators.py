"""Operators: their names, schemas, and kinds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch


def schema_arguments(func: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, default, is written in place) for each argument of an operator."""
    for argument in func._schema.arguments:
        default = argument.default_value if argument.has_default_value() else None
        yield argument.name, default, argument.alias_info is not None and argument.alias_info.is_write


def decomposes(func: Any) -> bool:
    """Whether an operator is nothing but other operators: composite, and without a kernel of its own."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has_kernel(name, "CompositeImplicitAutograd") and not any(has_kernel(name, k) for k in ("CPU", "CUDA"))


@cache
def tensor_arguments(func: Any) -> dict[str, str]:
    """The arguments of an operator that take tensors: names and types ("Tensor", "List[Optional[Tensor]]" ...)."""
    return {a.name: str(a.type) for a in func._schema.arguments if "Tensor" in str(a.type)}


def operator_named(op: str) -> Any:
    """The operator of a full name such as "aten.mm.default"."""
    space, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload)


@cache
def makes_new_tensors(func: Any) -> bool:
    """Whether every result of an operator is a tensor on memory of its own."""
    returned = func._schema.returns
    return bool(returned) and all(r.alias_info is None and str(r.type) == "Tensor" for r in returned)


@cache
def makes_a_view(func: Any) -> bool:
    """Whether an operator only gives another look at a tensor (view, detach, in place too), and moves no data."""
    returned = [r.alias_info for r in func._schema.returns]
    return torch.Tag.inplace_view in func.tags or any(a is not None and not a.is_write for a in returned)
