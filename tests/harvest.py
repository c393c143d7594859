"""Real calls of real operators: every sample of torch's own operator tests, forward and backward, recorded."""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from symacct.calls import describe
from symacct.cost import Call

PER_OP = 12
SAMPLES = 6


class Recorder(TorchDispatchMode):
    """Describes every call that passes, as (call, operator)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Call, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run, describe, keep."""
        result = func(*args, **(kwargs or {}))
        with contextlib.suppress(NotImplementedError):
            self.calls.append((describe(func, args, kwargs or {}, result), func))
        return result


def record(function: Any, *args: Any, **kwargs: Any) -> list[Call]:
    """The calls that a function makes, its backward included where its result requires grad."""
    with Recorder() as recorder:
        result = function(*args, **kwargs)
        outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    return [call for call, _ in recorder.calls]


def operator_samples() -> Any:
    """torch's own table of operators; it wants `expecttest` only for its own test cases."""
    if "expecttest" not in sys.modules:
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def sample_calls() -> Iterator[tuple[str, list[tuple[Call, Any]]]]:
    """The calls of the first samples of every operator in torch's table, on the CPU."""
    for op in operator_samples():
        if not op.dtypes:
            continue
        dtype = torch.float32 if torch.float32 in op.dtypes else next(iter(sorted(op.dtypes, key=str)))
        differentiable = op.supports_autograd and dtype.is_floating_point
        with contextlib.suppress(Exception):
            for i, sample in enumerate(op.sample_inputs_func(op, "cpu", dtype, differentiable)):
                if i >= SAMPLES:
                    break
                variants = [op.op, op.inplace_variant] if i == 0 else [op.op]
                for function in variants:
                    yield op.name, run(function, sample)


def run(function: Any, sample: Any) -> list[tuple[Call, Any]]:
    """Record one sample; what raises is recorded up to there."""
    recorder = Recorder()
    with contextlib.suppress(Exception), recorder:
        first = sample.input
        if function.__name__.endswith("_") and isinstance(first, torch.Tensor):
            first = first.detach().clone()
        result = function(first, *sample.args, **sample.kwargs)
        outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.randn_like(t) for t in outputs])
    return recorder.calls


@lru_cache(maxsize=1)
def harvest() -> dict[str, list[tuple[Call, Any]]]:
    """Distinct calls by operator's full name, at most `PER_OP` of each."""
    found: dict[str, list[tuple[Call, Any]]] = {}
    seen: set[str] = set()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of tiny kernels: threads only get in each other's way
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, calls in sample_calls():
            for call, func in calls:
                kept = found.setdefault(call.op, [])
                key = repr(call)
                if len(kept) < PER_OP and key not in seen:
                    seen.add(key)
                    kept.append((call, func))
    torch.set_num_threads(threads)
    return found
