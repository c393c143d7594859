"""What inputs are called: by the parameters of the model's forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from symacct.account import Account
from symacct.specs import Spec


def input_names(account: Account) -> dict[str, str]:
    """For the name of each input in the record ("input_0") the one that the model's code has for it."""
    program = account.program
    if program is None:
        return {}
    names = [*_leaves(program.args, _parameters(program.target)), *_leaves(*_named(program.kwargs))]
    return {f"input_{number}": name for number, name in enumerate(names) if name}


def _named(kwargs: Any) -> tuple[list[Any], list[str]]:
    return list(kwargs.values()), list(kwargs)


def _leaves(values: Any, names: list[str]) -> Iterator[str]:
    """A name for each tensor among the arguments; those within containers are numbered."""
    for position, value in enumerate(values):
        name = names[position] if position < len(names) else ""
        tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, (Spec, torch.Tensor))]
        for number, _ in enumerate(tensors):
            yield f"{name}[{number}]" if len(tensors) > 1 and name else name


def _parameters(target: Any) -> list[str]:
    """The positional parameters of a model's forward pass, or of a function."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
