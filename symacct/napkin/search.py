"""Searching the sizes of a dim by halves."""

from __future__ import annotations

from collections.abc import Callable

BEYOND = 2**62  # no dim is as large


def last_size(holds: Callable[[int], bool], first: int) -> int | None:
    """The last size from ``first`` on at which something holds that, once it fails, fails for good.

    ``first - 1`` where it holds at none, None where it holds at all sizes that a dim can have.
    """
    low, high = first - 1, first
    while holds(high):
        low, high = high, 2 * high
        if high > BEYOND:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
