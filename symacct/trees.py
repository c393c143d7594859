"""Tensors within nested arguments and results: found, taken out, replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def flatten(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any] | None]:
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


def substitute(value: Any, items: Iterator[Any]) -> Any:
    """A copy of (nested) arguments in which each tensor is replaced by the next one of ``items``; lists are tuples."""
    if isinstance(value, torch.Tensor):
        return next(items)
    kind = type(value)
    if kind is list or kind is tuple or kind is torch.Size:
        return tuple([substitute(v, items) for v in value])
    if kind is dict:
        return {k: substitute(v, items) for k, v in value.items()}
    if kind is torch.SymInt:
        return value.node.dim
    return value


def swap(value: Any, tensors: list[Any]) -> Any:
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
