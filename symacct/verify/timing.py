"""How long a step takes, beside the least time that its account allows on this device."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from symacct.account import Account
from symacct.surroundings import without_collection
from symacct.verify.bench import between_events
from symacct.verify.bound import Bound, bound, contraction_dtypes
from symacct.verify.ceilings import Ceilings, measure
from symacct.verify.findings import BOUND, DIFFERENT, INFORMATION, Figure, Part, Residual, residual_at

__all__ = ["Bound", "Times", "bound", "contraction_dtypes", "duration", "time_part", "timed", "timed_with_ceilings"]

# -- measured --------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """The seconds of each measured step, in the order in which they ran."""

    seconds: tuple[float, ...]

    @property
    def fastest(self) -> float:
        """The least of them."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Half of the steps were not slower."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the steps were not slower than the first, a quarter not faster than the second."""
        if len(self.seconds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    def __add__(self, other: Times) -> Times:
        return Times(self.seconds + other.seconds)


def timed(step: Callable[[], object], device: str, steps: int, warmup: int) -> Times:
    """Run a step ``warmup`` times, then ``steps`` times with the clock on: a monotonic one, on "cuda" its events.

    On CUDA a step lasts from the end of the one before it to its own, with the gaps in which the device waits.
    Python collects no garbage meanwhile.
    """
    gc.collect()
    with without_collection():
        for _ in range(warmup):
            step()
        return Times(between_events(step, steps) if device == "cuda" else tuple(_once(step) for _ in range(steps)))


def _once(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def timed_with_ceilings(
    step: Callable[[], object],
    device: str,
    dtypes: Iterable[torch.dtype],
    steps: int,
    warmup: int,
    rounds: int = 3,
    seconds: float = 0.3,
) -> tuple[Times, Ceilings]:
    """Time steps in rounds, and the ceilings before, between and after them, so that both see the machine alike.

    What else runs on a machine slows both. Ceilings that were measured at a busier moment than the steps would be
    too low, and a bound from them too high. Each round measures for ``seconds`` and warms up anew.
    """
    wanted = list(dtypes)
    ceilings = measure(device, wanted, seconds)
    times = Times(())
    for index in range(min(rounds, steps)):
        share = steps // min(rounds, steps) + (index < steps % min(rounds, steps))
        times += timed(step, device, share, warmup)
        ceilings = ceilings.raised(measure(device, wanted, seconds))
    return times, ceilings


# -- side by side ----------------------------------------------------------------------

_AGAIN = 3  # how often ceilings are measured anew before a bound counts as refuted


def time_part(
    account: Account,
    times: Times,
    ceilings: Ceilings,
    measure_again: Callable[[], Ceilings] | None = None,
) -> Part:
    """The time of a step beside its bound: the achieved FLOP/s, the share of peak that is useful, and a verdict.

    A bound has to hold for every step, so the fastest one is what it is tested on. Chance can only make a step
    slower, but it can also make ceilings lower and the bound higher: where the bound seems refuted,
    ``measure_again`` is asked a few times for other ceilings, and the higher ones count.
    """
    least = bound(account, ceilings)
    for _ in range(_AGAIN if measure_again is not None else 0):
        if times.fastest >= least.seconds:
            break
        ceilings = ceilings.raised(measure_again())  # type: ignore[misc]
        least = bound(account, ceilings)
    holds = times.fastest >= least.seconds
    low, high = times.quartiles
    median = times.median
    flops = sum(int(phase.flops) for phase in account.phases.values())
    figures = (
        Figure(
            "fastest step", least.seconds, times.fastest, "s", BOUND if holds else DIFFERENT,
            f"at least, by {ceilings.source}",
        ),
        Figure(
            "median step", least.seconds, median, "s", INFORMATION,
            f"of {len(times.seconds)}; half of them between {duration(low)} and {duration(high)}",
        ),
        Figure("bound / median step", None, least.seconds / median, "1", INFORMATION),
        Figure("achieved FLOP/s", None, flops / median, "FLOP/s", INFORMATION, "all contractions"),
        *_utilization(least, median, ceilings),
    )  # fmt: skip
    return Part("time", "s", figures, () if holds else (_refuted(account, least, times),), _notes(account, least))


def _utilization(least: Bound, median: float, ceilings: Ceilings) -> tuple[Figure, ...]:
    """MFU and HFU; with several dtypes, the time that each phase's contractions take at their peaks over the median."""
    by_peak = (
        f"of the dense peak on the data sheet of {ceilings.device.name}"
        if ceilings.device is not None
        else "of the fastest products seen, as no data sheet is known"
    )
    model = sum(least.ideal_seconds.get(phase, 0.0) for phase in ("forward", "backward"))
    hardware = model + least.ideal_seconds.get("recompute", 0.0)
    return (
        Figure("MFU", None, model / median, "1", INFORMATION, f"forward and backward, {by_peak}"),
        Figure("HFU", None, hardware / median, "1", INFORMATION, "the same with what checkpoints compute again"),
    )


def _refuted(account: Account, least: Bound, times: Times) -> Residual:
    op, seconds = least.by_op()[0]
    node = account.step.record.nodes[least.largest(op).index]
    return residual_at(
        node,
        f"the measured time {duration(times.fastest)} is under the bound {duration(least.seconds)}: the account's "
        f"FLOPs or bytes are too large, or the ceilings too low; the largest share, {seconds / least.seconds:.0%}, "
        f"is that of {op}",
        least.seconds - times.fastest,
    )


def _notes(account: Account, least: Bound) -> tuple[str, ...]:
    """Where the bound's seconds come from, and what it lacks."""
    shares = [f"{op} {seconds / least.seconds:.0%}" for op, seconds in least.by_op()[:5]]
    notes = [f"the bound is made of {', '.join(shares)}"] if shares else []
    if least.unrated:
        notes.append(f"{least.unrated:,} FLOP are of dtypes whose peak is not known, and are in no bound, MFU or HFU")
    if account.unknown:
        notes.append(f"ops without a rule take no time here: {', '.join(str(u) for u in account.unknown)}")
    return tuple(notes)


def duration(seconds: float) -> str:
    """Seconds with an SI prefix and four digits.

    >>> duration(0.00123456)
    '1.235 ms'
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
