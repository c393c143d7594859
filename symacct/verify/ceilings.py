"""The fastest that a device was seen to run: matrix products, and memory streams in and beyond its caches.

A ceiling is a maximum over many kernels, sizes and rounds, because whatever else runs on the machine can only
lower a rate. Measured ceilings grow with more rounds, and `Ceilings.raised` joins those of several moments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from symacct.hardware import Device, find
from symacct.verify.bench import Bench, between_events

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # of matrix products that are measured
_CACHES = Path("/sys/devices/system/cpu")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at most, as far as seen or printed on its data sheet.

    ``flops_per_s``: of matrix products, by dtype name, FLOP/s. ``bytes_per_s``: beyond the caches, reading and
    writing together. ``cache_bytes_per_s``: at any size. ``cache_bytes``: of all caches together, inf where
    unknown. ``source``: a sentence that says where these come from. ``device``: the data sheet, if there is one;
    ``tf32``: whether float32 products may use TF32.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    cache_bytes_per_s: float
    cache_bytes: float
    source: str
    kind: str = "cpu"
    device: Device | None = None
    tf32: bool = False

    def raised(self, other: Ceilings) -> Ceilings:
        """The higher of each ceiling, for measurements of the same device at two moments."""
        names = dict.fromkeys((*self.flops_per_s, *other.flops_per_s))
        return replace(
            self,
            flops_per_s={n: max(self.flops_per_s.get(n, 0.0), other.flops_per_s.get(n, 0.0)) for n in names},
            bytes_per_s=max(self.bytes_per_s, other.bytes_per_s),
            cache_bytes_per_s=max(self.cache_bytes_per_s, other.cache_bytes_per_s),
            cache_bytes=max(self.cache_bytes, other.cache_bytes),
        )

    def peak(self, dtype: str) -> float:
        """The peak to judge a run by, FLOP/s: the data sheet's, else the fastest seen; 0 where neither is known."""
        if self.device is not None and dtype in self.device.flops_per_s:
            return self.device.peak(dtype, tf32=self.tf32)
        return self.flops_per_s.get(dtype, 0.0)


def measure(device: str, dtypes: Iterable[torch.dtype], seconds: float = 2.0) -> Ceilings:
    """Measure the ceilings of "cpu" or "cuda" for about so many seconds, with the threads and settings of the caller.

    ``dtypes``: of the matrix products; those that are not in `DTYPES` are left out. On a device whose data sheet
    is in the table, the ceilings are not lower than it says. On CUDA this takes memory from torch's allocator and
    gives it back to the driver at the end; the workspaces of libraries stay.
    """
    wanted = [d for d in DTYPES if d in set(dtypes)]
    with torch.no_grad():
        return _on_cuda(wanted, seconds) if device == "cuda" else _on_cpu(wanted, seconds)


# -- the CPU ---------------------------------------------------------------------------

# From small to large: one core is fastest at some hundred, many cores at some thousand.
_SHAPES = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (384, 384, 384), (1024, 192, 320), (1024, 128, 512),
    (512, 512, 512), (512, 2048, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
)  # fmt: skip
_WITHIN = (2**18, 2**20, 2**22, 2**24)  # bytes of streams within caches


def _on_cpu(dtypes: list[torch.dtype], seconds: float) -> Ceilings:
    """All threads by the clock on the wall, and one thread by its own, which runs only when the thread does.

    On a busy machine threads wait for each other, at times far longer than a kernel takes. Then no kernel shows what
    the threads could do, had they the processor: what one of them did, times their number.
    """
    caches, threads = _caches(), torch.get_num_threads()
    largest = min(max(8 * caches, 2**28), 2**31)
    memory = torch.ones(largest // 4, dtype=torch.float32)
    alone = Bench(partial(_seconds, _clock_of_a_thread()))
    with _one_thread():
        for dtype in dtypes:
            alone.add_products(dtype, _SHAPES, "cpu", min(threads, 8) * seconds / 40)
        for size in (*_WITHIN, largest // 4, largest):
            alone.add_streams(memory, size)
        alone.rounds(0.3 * seconds)
    together = alone.anew(partial(_seconds, time.perf_counter))
    together.rounds(0.5 * seconds)
    rates, rates_alone = together.bytes_per_s(), alone.bytes_per_s()
    flops, flops_alone = together.flops_per_s(), alone.flops_per_s()
    return Ceilings(
        {name: max(rate, threads * flops_alone[name]) for name, rate in flops.items()},
        max(rates[largest], rates_alone[largest]),
        max(*rates.values(), *(threads * rate for rate in rates_alone.values())),
        max(caches, _reach(rates_alone)) if caches else math.inf,
        f"the fastest seen on this machine with {threads} threads, or with one, times {threads}"
        if threads > 1
        else "the fastest seen on this machine with one thread",
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run kernels on one thread, the caller's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _clock_of_a_thread() -> Callable[[], float]:
    """The clock that runs only while this thread does, where it is fine enough."""
    return time.thread_time if time.get_clock_info("thread_time").resolution < 1e-6 else time.perf_counter


def _seconds(clock: Callable[[], float], run: Callable[[], object]) -> float:
    start = clock()
    run()
    return clock() - start


def _reach(rates: Mapping[int, float]) -> int:
    """The largest size that ran half as fast again as the largest of all: it was in a cache, whatever the system says.

    A virtual machine may show smaller caches than the processor below it has.
    """
    beyond = rates[max(rates)]
    return max((size for size, rate in rates.items() if rate > 1.5 * beyond), default=0)


def _caches() -> int:
    """Bytes of all data caches of the system, by Linux; 0 where it does not say."""
    found = {}
    for index in _CACHES.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            kind, size, shared, level = (
                (index / name).read_text().strip() for name in ("type", "size", "shared_cpu_list", "level")
            )
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            found[level, kind, shared] = int(size[:-1]) * _UNITS.get(size[-1], 1)
    return sum(found.values())


# -- CUDA ------------------------------------------------------------------------------


def _on_cuda(dtypes: list[torch.dtype], seconds: float) -> Ceilings:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    cache = properties.L2_cache_size
    bench = Bench(_seconds_on_cuda)
    for dtype in dtypes:
        bench.add_products(dtype, ((n, n, n) for n in (1024, 2048, 4096, 8192)), "cuda", seconds / 40)
    largest = min(2**30, properties.total_memory // 16)
    memory = torch.ones(largest // 4, dtype=torch.float32, device="cuda")
    for size in (2**20, cache // 8, cache // 4, cache // 2, largest):
        bench.add_streams(memory, size)
    bench.rounds(0.6 * seconds)
    flops, rates = bench.flops_per_s(), bench.bytes_per_s()
    del bench, memory
    torch.cuda.empty_cache()
    found = find(properties.name, properties.total_memory)
    tf32 = torch.get_float32_matmul_precision() != "highest"
    seen = Ceilings(
        flops, rates[largest], max(rates.values()), cache, f"the fastest seen on this {properties.name}", "cuda"
    )
    return _with_data_sheet(seen, found, tf32) if found is not None else seen


def _with_data_sheet(seen: Ceilings, device: Device, tf32: bool) -> Ceilings:
    """Ceilings that are not lower than those of the data sheet."""
    names = dict.fromkeys((*seen.flops_per_s, *(d for d in device.flops_per_s if d != "tf32")))
    printed = {n: device.peak(n, tf32=tf32) if n in device.flops_per_s else 0.0 for n in names}
    return replace(
        seen,
        flops_per_s={n: max(seen.flops_per_s.get(n, 0.0), printed[n]) for n in names},
        bytes_per_s=max(seen.bytes_per_s, device.bytes_per_s),
        cache_bytes_per_s=max(seen.cache_bytes_per_s, device.bytes_per_s),
        source=f"the data sheet of {device.name}, or {seen.source} where that was faster",
        device=device,
        tf32=tf32,
    )


def _seconds_on_cuda(run: Callable[[], object]) -> float:
    """Seconds of one of ten runs in a row, by the device's own clock."""
    run()
    return between_events(lambda: [run() for _ in range(10)], 1)[0] / 10
