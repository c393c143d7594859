"""A machine as a device: the fastest matrix products, other arithmetic and memory streams seen on it.

A device that was measured is used like one of the table. Its rates are the highest of many kernels, sizes and runs,
so that times by them are the least that this machine can take. ``bytes_per_s`` is that of memory: what stays in
caches may move faster.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

from symacct.cost import ITEMSIZE
from symacct.errors import DeviceError
from symacct.hardware import Device, find
from symacct.verify.bench import Clock, Kernel, between_events
from symacct.verify.ceilings import DTYPES, measure

_CPUINFO = Path("/proc/cpuinfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MAKERS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
_DIGITS = 4  # of rates: the fifth is another at every run


def measure_device(device: str = "cpu", seconds: float = 2.0) -> Device:
    """Measure this machine's "cpu" or "cuda" device, with torch's threads and settings.

    That takes the seconds that are given, and as many again for the first run of each kernel, more on a busy machine.
    Products are measured in float64, float32, float16 and bfloat16; a dtype is as fast as a wider one at least, since
    its numbers may be widened. ``vector_flops_per_s`` is the most FLOP per second, by the weights that an account
    counts with, of pointwise kernels within the caches, and not less than that of float32 products, which run on the
    same units where no TF32 is allowed. On a GPU that is in the table no rate is lower than its data sheet says.
    Raises `DeviceError` for a device that is not there.
    """
    if device not in ("cpu", "cuda"):
        raise DeviceError(f"{device!r} cannot be measured; cpu and cuda can")
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("there is no CUDA device on this machine that torch can use; cpu can be measured")
    ceilings = measure(device, DTYPES, 0.8 * seconds)
    pointwise = _pointwise(device, 0.2 * seconds)
    name, vendor, memory = _cuda() if device == "cuda" else _cpu()
    known = find(name, memory) if device == "cuda" else None
    vector = max(pointwise, ceilings.flops_per_s["float32"], (known and known.vector_flops_per_s) or 0.0)
    return Device(
        _slug(name),
        vendor,
        memory,
        _up(ceilings.bytes_per_s),
        {dtype: _up(rate) for dtype, rate in _widened(ceilings.flops_per_s).items()},
        f"measured by symacct: {ceilings.source}, torch {torch.__version__}",
        _up(vector),
        known.interconnect_bytes_per_s if known else None,
    )


def joined(one: Device, other: Device) -> Device:
    """The higher of each rate of a device that was measured at two moments; the rest is that of the first.

    What else runs on a machine lowers its rates, never raises them.
    """
    rates = {dtype: max(rate, other.flops_per_s.get(dtype, 0.0)) for dtype, rate in one.flops_per_s.items()}
    vectors = [each.vector_flops_per_s for each in (one, other) if each.vector_flops_per_s is not None]
    return replace(
        one,
        bytes_per_s=max(one.bytes_per_s, other.bytes_per_s),
        flops_per_s=rates,
        vector_flops_per_s=max(vectors, default=None),
    )


def _widened(rates: Mapping[str, float]) -> dict[str, float]:
    """Rates of which none is lower than that of a wider dtype."""
    return {
        dtype: max(rate for wide, rate in rates.items() if wide == dtype or ITEMSIZE[wide] > ITEMSIZE[dtype])
        for dtype in rates
    }


def _up(rate: float) -> float:
    """A rate with few digits, rounded up: a time by it is still the least."""
    shown = float(f"{rate:.{_DIGITS - 1}e}")
    return shown if shown >= rate else float(f"{rate * (1 + 0.5 * 10 ** (1 - _DIGITS)):.{_DIGITS - 1}e}")


# -- other arithmetic ------------------------------------------------------------------

# How many numbers: within the caches of one core, or of all; on a GPU, enough to keep it busy.
_ELEMENTS = {"cpu": (2**12, 2**14, 2**16, 2**18), "cuda": (2**20, 2**22, 2**24)}


def _pointwise(device: str, seconds: float) -> float:
    """The most FLOP per second, by the weights of accounts, of kernels that compute much and move little."""

    def kernels() -> list[Kernel]:
        filled = (torch.ones(n, device=device) for n in _ELEMENTS[device])
        return [Kernel(float(weight * x.numel()), run) for x in filled for weight, run in _kernels(x)]

    with torch.no_grad():
        if device == "cuda":
            return _fastest(kernels(), _seconds_on_cuda, seconds)
        threads = torch.get_num_threads()
        together = _fastest(kernels(), _seconds, seconds / 2)
        torch.set_num_threads(1)  # on a busy machine threads wait for each other
        try:
            return max(together, threads * _fastest(kernels(), _seconds, seconds / 2))
        finally:
            torch.set_num_threads(threads)


def _fastest(kernels: list[Kernel], clock: Clock, seconds: float) -> float:
    """The highest rate of kernels that are timed in turn until the time is up, each at least once."""
    end = time.perf_counter() + seconds
    while True:
        for kernel in kernels:
            for _ in range(5):
                kernel.time(clock)
        if time.perf_counter() >= end:
            return max(kernel.rate for kernel in kernels)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _seconds_on_cuda(run: Callable[[], object]) -> float:
    return between_events(run, 1)[0]


def _kernels(x: torch.Tensor) -> Iterable[tuple[int, Callable[[], object]]]:
    """FLOP for each element by rules/weights.py, and the kernel, without memory of its own."""
    y, z, small = torch.ones_like(x), torch.ones_like(x), torch.ones_like(x, dtype=torch.int8)
    flags = small.bool()
    yield 1, partial(torch.add, x, y, out=z)
    yield 1, x.neg_
    yield 2, partial(torch.addcmul, z, x, y, out=z)
    yield 3, partial(torch.lerp, x, y, z, out=z)
    yield 2, partial(functional.leaky_relu, z, 0.5, inplace=True)
    yield 2, partial(functional.hardtanh, z, inplace=True)
    yield 4, partial(functional.hardsigmoid, z, inplace=True)
    yield 5, partial(functional.hardswish, z, inplace=True)
    yield 1, partial(torch.add, small, small, out=small)
    yield 1, partial(torch.logical_not, flags, out=flags)
    yield 1, partial(torch.bitwise_and, flags, flags, out=flags)


# -- what it is ------------------------------------------------------------------------


def _cuda() -> tuple[str, str, int]:
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return found.name, "AMD" if torch.version.hip else "NVIDIA", found.total_memory


def _cpu() -> tuple[str, str, int]:
    """Its name, its maker and the bytes of memory that may be used, by Linux or whatever system this is."""
    said = _said()
    name = said.get("model name") or platform.processor() or platform.machine() or "cpu"
    maker = said.get("vendor_id", platform.system())
    return name, _MAKERS.get(maker, maker), _memory()


def _said() -> dict[str, str]:
    """What Linux says of the first processor."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _memory() -> int:
    """Bytes of memory: of the machine, or as many as this container may have."""
    if not hasattr(os, "sysconf"):
        raise DeviceError("the memory of this machine cannot be asked for: the system has no sysconf")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _LIMIT.read_text(encoding="utf-8").strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def _slug(name: str) -> str:
    """A processor's name in one word: "Intel(R) Xeon(R) CPU @ 2.20GHz" is "Intel-Xeon-2.20GHz"."""
    words = re.sub(r"\((R|TM)\)|\b(CPU|Processor|\d+-Core)\b|[@,()]", " ", name, flags=re.IGNORECASE).split()
    return "-".join(words) or "cpu"
