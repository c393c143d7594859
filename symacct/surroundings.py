"""What a run must not depend on: the caller's modes and devices, random numbers, garbage, fast paths, compilers."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from symacct.torch_private import as_if_real, quiet, torchs_own_kernels, without_other_modes

CPU = torch.device("cpu")


def enter_plain_world(stack: ExitStack) -> None:
    """Leave whatever the caller's surroundings would change: inference mode, autocast, default devices, log noise."""
    stack.enter_context(quiet())
    stack.enter_context(as_if_real())
    stack.enter_context(without_other_modes())
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())
    if torch.is_autocast_enabled("cpu"):
        stack.enter_context(torch.autocast("cpu", enabled=False))
    if torch.get_default_device().type != "cpu":
        stack.enter_context(CPU)


def enter_counted_world(stack: ExitStack) -> None:
    """The same for a step that is counted, on tensors without data or real ones: torch's own kernels, op by op."""
    enter_plain_world(stack)
    stack.enter_context(fixed_random_state())
    stack.enter_context(without_collection())
    if "torch._dynamo" in sys.modules:  # else nothing can be compiled, and importing it takes seconds
        stack.enter_context(torch.compiler.set_stance("force_eager"))
    stack.enter_context(without_fast_path())
    stack.enter_context(torchs_own_kernels())


@contextmanager
def fixed_random_state() -> Iterator[None]:
    """Give every run the same random numbers, and the process its own back: torch's, Python's and NumPy's."""
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        if numpy is not None:
            numpy.random.seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(state)


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from freeing tensors in reference cycles at some chance moment of a step."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Keep attention layers off their inference fast path, which they leave anyway where a `DimMode` is active."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
