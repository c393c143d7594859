"""`verify`: run the real model and lay the account beside what was seen."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch

from symacct.account import Account
from symacct.errors import SpecError, SymacctError, VerifyError
from symacct.lowering import DEVICES
from symacct.printing import quantity
from symacct.program import Program
from symacct.progress import say
from symacct.report import grounds
from symacct.verify.bytes import bytes_part
from symacct.verify.ceilings import measure
from symacct.verify.concrete import Concrete, real_world, realize
from symacct.verify.counters import counters_part
from symacct.verify.cuda_memory import POINTS, memory_stats_part
from symacct.verify.findings import Part
from symacct.verify.flops import counted, flops_part
from symacct.verify.memory import memory_part
from symacct.verify.operators import Expected, nodes_of, operators_part
from symacct.verify.profiled import Seen, point, profiled
from symacct.verify.timing import contraction_dtypes, time_part, timed_with_ceilings
from symacct.verify.verification import Verification, machine

_WARMUP = 2  # steps before those that are timed


def verify(
    account: Account, device: str = "cpu", at: Mapping[str, int] | None = None, steps: int = 20, seed: int = 0
) -> Verification:
    """Run the account's program for real and compare: operators, FLOPs, bytes, memory, time, hardware counters.

    ``device``: "cpu" or "cuda". ``at``: sizes (default: the account's, else its trial sizes). ``steps``: how many
    are timed (0: none, and nothing is said of time and counters). ``seed``: of parameters, inputs and dropout.
    Raises `VerifyError` where the run cannot be made, and what `Account.at` raises for sizes.
    """
    program = _runnable(account, device, steps)
    numbers = account.at(**(at or account.sizes or account.trial_sizes))
    parts = list(_profile(numbers, program, device, seed))
    if steps or device == "cuda":
        parts += _measure(numbers, program, device, steps, seed)
    return Verification(
        numbers.title,
        numbers.inputs,
        dict(numbers.sizes or {}),
        {"seed": seed, "steps": steps, **_settings(program)},
        machine(device),
        tuple(parts),
        (*_warnings(numbers, program, device), *grounds(numbers), numbers.convention),
    )


# -- runs ----------------------------------------------------------------------------------


def _profile(account: Account, program: Program, device: str, seed: int) -> Iterator[Part]:
    """Two steps of a new model under the profiler, and one more under FlopCounterMode."""
    expected = Expected(account.step.record, account.sizes or {})
    first_and_later = len(nodes_of(account.step.record))
    with real_world(seed), _failures(account, device):
        say("warming up")
        realize(account, program, device).run()  # what libraries keep from their first use on is there then
        gc.collect()  # two models need not fit at once
        concrete = realize(account, program, device)
        alive = concrete.alive()
        say("running under the profiler")
        seen = _seen(concrete, first_and_later, device)
        state = concrete.state_bytes()
        say("counting FLOPs")
        calls = counted(concrete.run)
    say("comparing")
    operators, matched = operators_part(expected, seen)
    yield operators
    yield flops_part(account, expected, calls)
    yield bytes_part(account, expected, matched, seen, device)
    yield memory_part(account, seen, matched, alive, state, device)


def _seen(concrete: Concrete, steps: int, device: str) -> Seen:
    def run() -> None:
        for n in range(steps):
            point(f"step {n + 1}")
            concrete.run()

    with concrete.telling():
        return profiled(run, device)


def _measure(account: Account, program: Program, device: str, steps: int, seed: int) -> Iterator[Part]:
    """Steps that nothing looks at from inside: the allocator's own statistics, the clock, hardware counters."""
    with real_world(seed), _failures(account, device):
        gc.collect()
        before = _requested() if device == "cuda" else {}
        concrete = realize(account, program, device)
        concrete.run()
        if device == "cuda":
            yield memory_stats_part(account, {**before, **_statistics(concrete)})
        if not steps:
            return
        say(f"timing {steps} steps")
        dtypes = contraction_dtypes(account)
        times, ceilings = timed_with_ceilings(concrete.run, device, dtypes, steps, _WARMUP)
        yield time_part(account, times, ceilings, lambda: measure(device, dtypes))
        yield counters_part(device, concrete.run, steps, account)


# -- CUDA's allocator ------------------------------------------------------------------------


def _requested() -> dict[str, int]:
    """What is allocated while none of the program's tensors live: the workspaces of libraries, after a warm-up."""
    torch.cuda.synchronize()
    found = torch.cuda.memory_stats()
    return {
        "workspace": found["requested_bytes.all.current"],
        "workspace_allocated": found["allocated_bytes.all.current"],
    }


def _statistics(concrete: Concrete) -> dict[str, Any]:
    """The allocator's statistics at the points of a step."""
    found: dict[str, Any] = {}

    def mark(name: str) -> None:
        if name in POINTS:
            torch.cuda.synchronize()
            if name == "start":
                torch.cuda.reset_peak_memory_stats()
            found[name] = torch.cuda.memory_stats()

    with concrete.marking(mark):
        concrete.run()
    return found


# -- what can go wrong -----------------------------------------------------------------------


def _runnable(account: Account, device: str, steps: int) -> Program:
    if device not in DEVICES:
        raise SpecError(f"verify(): device {device!r} is none of {', '.join(DEVICES)}")
    if steps < 0:
        raise SpecError(f"verify(): steps: expected a whole number >= 0, got {steps}")
    if device == "cuda" and not torch.cuda.is_available():
        raise VerifyError("verify(): torch sees no CUDA device here; run this where there is one, or with device='cpu'")
    if account.program is None:
        raise VerifyError("verify(): the account has no program to run; make it with sa.trace")
    return account.program


@contextmanager
def _failures(account: Account, device: str) -> Iterator[None]:
    """Turn what a real run raises into a `VerifyError` that says where and at which sizes."""
    try:
        yield
    except SymacctError:
        raise
    except torch.OutOfMemoryError as error:
        raise VerifyError(
            f"the run does not fit on {device}: its predicted peak is {quantity(account.peak_bytes, 'B')} "
            f"({str(error).splitlines()[0]}); take smaller sizes with at="
        ) from error
    except Exception as error:
        at = ", ".join(f"{n}={s}" for n, s in (account.sizes or {}).items())
        first = (str(error).strip() or "no message").splitlines()[0]
        raise VerifyError(
            f"the real run of {account.title} on {device} failed at {at or 'its sizes'}: "
            f"{type(error).__name__}: {first}"
        ) from error


def _settings(program: Program) -> dict[str, Any]:
    """How the step was run, as far as it was asked for otherwise than by default."""
    defaults = {field.name: field.default for field in fields(program)}
    names = ("autocast", "accumulate", "clip", "set_to_none", "keep_outputs", "train")
    asked = {name: value for name in names if (value := getattr(program, name)) != defaults[name]}
    words = {name: str(asked[name]).removeprefix("torch.") for name in ("autocast", "clip") if name in asked}
    return asked | words


def _warnings(account: Account, program: Program, device: str) -> Iterator[str]:
    described = program.lowering.device
    if described != device:
        yield (
            f"NOT of this device: the account describes the kernels of {described}, and the run was on {device}; "
            f"trace with device={device!r}"
        )
