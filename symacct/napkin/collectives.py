"""How long ranks take to talk: bytes that each one sends in a collective, over the bandwidth of one direction.

Factors: NVIDIA nccl-tests, PERFORMANCE.md ("bus bandwidth"): with n ranks an all-reduce sends 2*(n - 1)/n of the array
per rank, a reduce-scatter, all-gather or all-to-all (n - 1)/n of the whole array, a broadcast or reduce all of it.
Rings of many chips with links in both directions: Austin et al. 2025, "How to Scale Your Model", chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from symacct.device_file import device_or_file
from symacct.errors import DeviceError, SpecError
from symacct.hardware import Device
from symacct.napkin.amounts import over, reduced, shown, table, times
from symacct.shown import Shown
from symacct.units import read

_FACTORS: dict[str, Callable[[Any], Any]] = {
    "all-reduce": lambda n: over(2 * (n - 1), n),
    "reduce-scatter": lambda n: over(n - 1, n),
    "all-gather": lambda n: over(n - 1, n),
    "all-to-all": lambda n: over(n - 1, n),
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
}
# On a ring with W bytes/s, both directions together, and many ranks: array bytes over W, times this.
_RING = {"all-reduce": (2, 1), "reduce-scatter": (1, 1), "all-gather": (1, 1), "all-to-all": (1, 4)}


def factor(kind: str, ranks: Any) -> Any:
    """Bytes that one rank sends in a collective per byte of the whole array. Raises `SpecError` for an unknown one."""
    if kind not in _FACTORS:
        raise SpecError(f"collective: {kind!r} is none of {', '.join(_FACTORS)}")
    return reduced(_FACTORS[kind](ranks))


@dataclass(frozen=True)
class Communication(Shown):
    """A collective: bytes of the array, bytes that one rank sends, and seconds, where there is a bandwidth."""

    kind: str
    ranks: Any
    array_bytes: Any
    sent_bytes: Any
    bytes_per_s: float | None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> Any:
        """Seconds that sending takes; None where no bandwidth is known."""
        return None if self.bytes_per_s is None else over(self.sent_bytes, self.bytes_per_s)

    def __str__(self) -> str:
        rows = [
            ("array", shown(self.array_bytes, "byte")),
            ("sent by each rank", shown(self.sent_bytes, "byte")),
            ("bandwidth, one way", shown(self.bytes_per_s, "byte/second")),
            ("time, at least", shown(self.seconds, "second")),
        ]
        return table(f"{self.kind} over {shown(self.ranks)} ranks", rows, self.notes)


def collective(kind: str, nbytes: Any, ranks: Any, over_link: Any = None) -> Communication:
    """What a collective of an array takes. ``over_link``: a device or its name, or one way's bandwidth ("450 GB/s").

    The time has no latency and no work in it, so that it is a lower bound. Raises `SpecError` and `DeviceError`.
    """
    bandwidth, notes = one_way(over_link) if over_link is not None else (None, [])
    size = read(nbytes, "byte", "nbytes")
    notes.append("bandwidth alone: no latency, and nothing that computes meanwhile")
    return Communication(kind, ranks, size, times(factor(kind, ranks), size), bandwidth, tuple(notes))


def ring(kind: str, nbytes: Any, bytes_per_s: Any, axes: int = 1) -> Any:
    """Seconds of a collective on rings of many chips, ``bytes_per_s`` of a ring's link in both directions together.

    ``axes``: how many axes of a mesh share the work. The number of chips does not matter as long as it is large.
    """
    if kind not in _RING:
        raise SpecError(f"ring(): {kind!r} is none of {', '.join(_RING)}")
    top, below = _RING[kind]
    size, rate = read(nbytes, "byte", "nbytes"), read(bytes_per_s, "byte/second", "bytes_per_s")
    return over(times(top, size), times(below, axes, rate))


def one_way(link: Any) -> tuple[Any, list[str]]:
    """Bytes per second in one direction, with a note: half of what makers print, which is both directions together.

    Raises `DeviceError` for a device whose interconnect is not known.
    """
    if isinstance(link, Device) or (isinstance(link, str) and not link.strip()[:1].isdigit()):
        found = device_or_file(link)
        if found.interconnect_bytes_per_s is None:
            raise DeviceError(
                f'{found.name}: its interconnect is not in the table; give a bandwidth, such as "450 GB/s"'
            )
        both = found.interconnect_bytes_per_s
        note = f"{found.name}: its interconnect has {shown(both, 'byte/second')} in both directions, half of it one way"
        return over(both, 2), [note]
    return read(link, "byte/second", "bandwidth"), []
