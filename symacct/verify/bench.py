"""Kernels to time for the ceilings of a device: matrix products, and streams of memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import torch

Clock = Callable[[Callable[[], object]], float]  # the seconds of one run


@dataclass
class Kernel:
    """A kernel with its amount, in FLOP or bytes, and how long its runs took so far.

    ``overhead``: seconds that a call of such a kernel takes before it moves anything.
    """

    amount: float
    run: Callable[[], object]
    overhead: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The fastest run, but for one in ten: a thread's clock in a virtual machine may stand for some."""
        return sorted(self.times)[len(self.times) // 10] if self.times else math.inf

    @property
    def rate(self) -> float:
        """The amount per second, at most twice what it is with the overhead."""
        return self.amount / max(self.seconds - self.overhead, self.seconds / 2)

    def time(self, clock: Clock) -> None:
        """Run once more; a run for which the clock stood still says nothing."""
        seconds = clock(self.run)
        if seconds > 0:
            self.times.append(seconds)


@dataclass
class Bench:
    """The kernels of a device: products by dtype, streams by the bytes that they go over, and the clock for them."""

    clock: Clock
    products: dict[torch.dtype, list[Kernel]] = field(default_factory=dict)
    streams: dict[int, list[Kernel]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Kernel]:
        for kernels in (*self.products.values(), *self.streams.values()):
            yield from kernels

    def anew(self, clock: Clock) -> Bench:
        """The same kernels, not timed yet, for another clock."""
        return Bench(
            clock,
            {dtype: [replace(k, times=[]) for k in kernels] for dtype, kernels in self.products.items()},
            {nbytes: [replace(k, times=[]) for k in kernels] for nbytes, kernels in self.streams.items()},
        )

    def add_products(
        self, dtype: torch.dtype, shapes: Iterable[tuple[int, int, int]], device: str, longest: float
    ) -> None:
        """Products (m, k) times (k, n) of growing size, as long as none seems to take more than so many seconds.

        Each with none, the right or the left factor transposed, as forward and backward have them.
        """
        kernels = self.products.setdefault(dtype, [])
        slowest = math.inf
        for m, k, n in shapes:
            amount = 2.0 * m * k * n
            if amount > longest * slowest:
                break
            left, right = (torch.ones(shape, dtype=dtype, device=device) for shape in ((m, k), (k, n)))
            out = torch.empty(m, n, dtype=dtype, device=device)
            pairs = ((left, right), (left, right.view(n, k).t()), (left.view(k, m).t(), right))
            added = [Kernel(amount, partial(torch.mm, a, b, out=out)) for a, b in pairs]
            self._first(added)
            kernels += added
            slowest = min(kernel.rate for kernel in added)

    def add_streams(self, memory: torch.Tensor, nbytes: int) -> None:
        """Kernels that compute nearly nothing over ``nbytes`` of memory in all: in place, read, written, copied."""
        n = nbytes // memory.itemsize
        whole, left, right = memory[:n], memory[: n // 2], memory[n // 2 : 2 * (n // 2)]
        a, b, c = memory[: 3 * (n // 3)].view(3, -1)
        one = memory[:1]
        overhead = min(self.clock(one.neg_) for _ in range(10))
        amounts: tuple[tuple[torch.Tensor, int, Callable[[], object]], ...] = (
            (whole, 2, whole.neg_),
            (whole, 1, whole.sum),
            (whole, 1, whole.zero_),
            (left, 2, partial(left.copy_, right)),
            (left, 3, partial(left.add_, right)),
            (a, 3, partial(torch.add, a, b, out=c)),
        )
        self.streams[nbytes] = [Kernel(float(times * t.nbytes), run, overhead) for t, times, run in amounts]
        self._first(self.streams[nbytes])

    def rounds(self, seconds: float) -> None:
        """Time every kernel in turn until the time is up, at least once; those that take long not again."""
        self._first(kernel for kernel in self if not kernel.times)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for kernel in self:
                if kernel.seconds >= seconds / 4:
                    continue
                until = min(time.perf_counter() + seconds / 200, end)
                kernel.time(self.clock)
                while time.perf_counter() < until:
                    kernel.time(self.clock)

    def flops_per_s(self) -> dict[str, float]:
        """The highest rate of products, FLOP/s, by the name of their dtype."""
        best = {dtype: max(kernel.rate for kernel in kernels) for dtype, kernels in self.products.items()}
        return {str(dtype).removeprefix("torch."): rate for dtype, rate in best.items()}

    def bytes_per_s(self) -> dict[int, float]:
        """The highest rate of streams, reading and writing together, by the bytes that they go over."""
        return {nbytes: max(kernel.rate for kernel in kernels) for nbytes, kernels in self.streams.items()}

    def _first(self, kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            kernel.time(self.clock)
            kernel.time(self.clock)


def between_events(run: Callable[[], object], times: int) -> tuple[float, ...]:
    """The seconds of each of so many runs in a row on CUDA, from the end of the one before it to its own."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return tuple(float(start.elapsed_time(end)) / 1e3 for start, end in pairwise(events))
