"""Units as powers of base units, so that what is added, divided and shown can be checked."""

from __future__ import annotations

from collections.abc import Mapping

Unit = tuple[tuple[str, int], ...]  # base units with their powers; () for a bare number
_WORDS = {"B": "bytes", "s": "seconds", "USD": "money", "": "a bare number"}


def unit_of(text: str) -> Unit:
    """``"FLOP/s"`` as powers of base units."""
    above, _, below = text.partition("/")
    return joined({above: 1} if above not in ("", "1") else {}, {below: 1} if below else {}, -1)


def unit_text(unit: Unit) -> str:
    """Powers of base units as text: "FLOP/s"."""
    above, below = (
        "*".join(name if abs(p) == 1 else f"{name}^{abs(p)}" for name, p in unit if p * sign > 0) for sign in (1, -1)
    )
    return f"{above or 1}/{below}" if below else above


def unit_words(unit: Unit) -> str:
    """The same for sentences: "bytes"."""
    return _WORDS.get(unit_text(unit), unit_text(unit))


def joined(a: Mapping[str, int], b: Mapping[str, int], sign: int = 1) -> Unit:
    """The product of two units, or with ``sign`` -1 their quotient."""
    powers = dict(a)
    for name, power in b.items():
        powers[name] = powers.get(name, 0) + sign * power
    return tuple(sorted((name, power) for name, power in powers.items() if power))
