"""Times that are predicted for this machine beside times that are measured on it: products, copies, GPT-2 steps.

    python benchmarks/predicted.py [--device cpu|cuda] [--seconds 2] [--runs 5] [--one-thread]

The machine is measured as `symacct measure` does it, before and after the runs, and the higher ceilings count: what
else runs on a machine slows both, and only ever makes a ceiling lower and a run longer. Each prediction is the least
time by a roofline, at the bytes that eager kernels move (each reads and writes memory), at those of fused ones, and at
the least of all. ``measured`` is the fastest run. Only the last is a bound where a kernel's operands stay in caches,
which are faster than the memory that was measured. With --one-thread the clock is the thread's own, which stands while
others have the processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import symacct as sa
from symacct.hardware import Device
from symacct.measuring import joined, measure_device
from symacct.roofline import LEVELS, roofline
from symacct.units import show


@dataclass(frozen=True)
class Case:
    """A step: what it costs, and how it runs."""

    name: str
    account: sa.Account
    run: Callable[[], object]


def product(n: int, dtype: torch.dtype, device: str) -> Case:
    """A product of two (n, n) matrices."""
    spec = f"{'bf16' if dtype is torch.bfloat16 else 'f32'}[N, N]"
    x, y = (torch.randn(n, n).to(device, dtype) for _ in range(2))
    out = torch.empty_like(x)
    account = sa.trace(lambda x, y: x @ y, spec, spec, train=False).at(N=n)
    return Case(f"product of {n} x {n}, {str(dtype).removeprefix('torch.')}", account, lambda: torch.mm(x, y, out=out))


def copy(nbytes: int, device: str) -> Case:
    """A copy of so many bytes."""
    source = torch.ones(nbytes // 4, device=device)
    target = torch.empty_like(source)
    account = sa.trace(lambda x: x.clone(), "N", train=False).at(N=nbytes // 4)
    return Case(f"copy of {show(nbytes, 'B', binary=True)}", account, lambda: target.copy_(source))


def gpt2(batch: int, length: int, layers: int, device: str) -> Case:
    """A training step of GPT-2 small with AdamW, dropout left out, as symacct traces it and as it runs."""
    from transformers import GPT2Config, GPT2LMHeadModel

    def made() -> nn.Module:
        rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return GPT2LMHeadModel(GPT2Config(n_layer=layers, **rates))

    account = sa.trace(made(), input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW)
    model = made().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 50257, (batch, length), device=device)

    def run() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    at = account.at(B=batch, L=length)
    return Case(f"GPT-2 step, {layers} layers, {batch} x {length} tokens, float32", at, run)


def fastest(run: Callable[[], object], runs: int, device: str, clock: Callable[[], float]) -> float:
    """The least seconds of so many runs by a clock, after one to warm up."""
    times = []
    for _ in range(runs + 1):
        start = clock()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return min(times[1:])


def main() -> None:
    """Measure, run, measure again, and print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=2.0, help="for the ceilings, each time")
    parser.add_argument("--runs", type=int, default=5, help="of each case")
    parser.add_argument("--one-thread", action="store_true", help="run on one thread, by its own clock")
    options = parser.parse_args()
    if options.one_thread:
        torch.set_num_threads(1)
    clock = time.thread_time if options.one_thread else time.perf_counter
    large = options.device == "cuda"
    cases = [
        product(8192 if large else 2048, torch.float32, options.device),
        *([product(8192, torch.bfloat16, options.device)] if large else []),  # minutes on a CPU that has no bfloat16
        copy(2**32 if large else 2**30, options.device),
        gpt2(8 if large else 1, 1024 if large else 128, 12, options.device),
    ]
    machine = measure_device(options.device, options.seconds)
    measured: dict[str, float] = {}
    for case in cases:
        measured[case.name] = fastest(case.run, options.runs, options.device, clock)
        print(f"{case.name}: {show(measured[case.name], 's')}", file=sys.stderr, flush=True)
    machine = joined(machine, measure_device(options.device, options.seconds))
    print_table(machine, cases, measured)


def print_table(machine: Device, cases: list[Case], measured: dict[str, float]) -> None:
    """The ceilings, and for each case measured over predicted."""
    rates = ", ".join(f"{dtype} {show(rate, 'FLOP/s')}" for dtype, rate in machine.flops_per_s.items())
    print(f"{machine.name}: {rates}; memory {show(machine.bytes_per_s, 'B/s')}\n{machine.source}\n")
    rows: list[tuple[Any, ...]] = [("", "measured", *(f"{level}, measured over it" for level in LEVELS))]
    for case in cases:
        seconds = measured[case.name]
        least = [roofline(case.account, machine, level=level).total.seconds for level in LEVELS]
        shown = (f"{show(bound, 's')}, {seconds / bound:.2f}" for bound in least)
        rows.append((case.name, show(seconds, "s"), *shown))
    for name, *cells in rows:
        print(f"| {name} | {' | '.join(cells)} |")
        if not name:
            print(f"| --- |{' --: |' * len(cells)}")


if __name__ == "__main__":
    main()
