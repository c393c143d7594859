"""Colours of a picture: one hue from light to dark, which people with any colour vision and grey printers can read."""

from __future__ import annotations

from itertools import pairwise

INK, PAPER, MUTED, RED = "#1A1A1A", "#FFFFFF", "#5F6B76", "#C62828"
CLUSTER_FILL, CLUSTER_LINE, EDGE, BOX_LINE = "#F6F8FA", "#B8C2CC", "#7A8896", "#8FA0B0"
# Blues of even steps in lightness; grey printers see the same order.
_RAMP = ((0.0, (0xF1, 0xF6, 0xFC)), (0.25, (0xC9, 0xDF, 0xF2)), (0.5, (0x7D, 0xB3, 0xDE)), (0.75, (0x2F, 0x7A, 0xBD)),
         (1.0, (0x08, 0x30, 0x6B)))  # fmt: skip
STEPS = (0.01, 0.05, 0.2, 0.5, 1.0)  # shares that the legend shows


def fill(share: float) -> str:
    """The colour of a box with a share of the whole: white for none; small shares differ more than large ones."""
    if share <= 0:
        return PAPER
    at = min(1.0, share) ** 0.5
    for (low, first), (high, last) in pairwise(_RAMP):
        if at <= high:
            part = (at - low) / (high - low)
            return "#" + "".join(f"{round(a + part * (b - a)):02X}" for a, b in zip(first, last, strict=True))
    return "#08306B"


def text_on(colour: str) -> str:
    """Dark or white, where either has a contrast of 4.5 at the least, else black or white, one of which always has."""
    enough = (ink for ink in (INK, PAPER) if contrast(ink, colour) >= 4.5)
    return next(enough, max(("#000000", PAPER), key=lambda ink: contrast(ink, colour)))


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG 2.2 defines it, from 1 to 21."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
