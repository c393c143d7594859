"""What stands above a picture: what is drawn, the total, how to read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from symacct.drawing.colours import MUTED, STEPS, fill, text_on
from symacct.drawing.model import Drawing
from symacct.drawing.shares import TITLES, Amounts
from symacct.drawing.wording import amount, escaped, wrapped, written

_WIDE = 110  # characters of a line


def caption(drawing: Drawing, amounts: Amounts, moved: Iterable[Any]) -> str:
    """An HTML-like label: title, sizes, total, notes, and the legend. ``moved``: the bytes of the edges."""
    account = drawing.account
    what = drawing.phase or "whole step"
    title = wrapped(f"{account.title}({account.inputs})", 90, 2)
    rows = [f'<FONT POINT-SIZE="15"><B>{escaped(line)}</B></FONT>' for line in title]
    device = f" on {amounts.device.name}" if amounts.device is not None else ""
    figure = f"{what}, {TITLES[amounts.cost]}{device}: "
    total = written(amounts.total)
    if amounts.given:
        value = amount(amounts.value, amounts.unit)
        figure += value if amounts.cost == "seconds" or total == value.split(" ")[0] else f"{value} = {total}"
    else:
        figure += total
    rows += [escaped(line) for line in wrapped(figure, _WIDE, 4)]
    rows += [escaped(line) for line in wrapped(_sizes(amounts, account.dims), _WIDE, 3)]
    for note in drawing.notes:
        rows += [f'<FONT COLOR="{MUTED}">{escaped(line)}</FONT>' for line in wrapped(note, _WIDE, 3)]
    lines = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    legend = f'<TR><TD ALIGN="LEFT">{_legend(amounts, list(moved))}</TD></TR>'
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">{lines}{legend}</TABLE>'


def _sizes(amounts: Amounts, dims: Iterable[str]) -> str:
    sizes: Mapping[str, int] = amounts.sizes
    shown = ", ".join(f"{name}={sizes[name]:,}" for name in dims if name in sizes)
    if amounts.given:
        return f"at {shown}" if shown else ""
    return f"colours and shares are at the trial sizes {shown}" if shown else ""


def _legend(amounts: Amounts, moved: list[Any]) -> str:
    cells = ['<TD ALIGN="LEFT">share of all:  </TD>']
    for step in (0.0, *STEPS):
        colour = fill(step)
        ink = text_on(colour)
        words = f'<FONT COLOR="{ink}" POINT-SIZE="10"> {step:.0%} </FONT>'
        cells.append(f'<TD BGCOLOR="{colour}" BORDER="1" COLOR="#8FA0B0" WIDTH="44">{words}</TD>')
    if moved:
        low, high = amount(min(moved), "B"), amount(max(moved), "B")
        span = f"from {low} to {high}" if low != high else high
        cells.append(f'<TD ALIGN="LEFT">   the wider a line, the more bytes flow along it ({escaped(span)})</TD>')
    table = "".join(cells)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2"><TR>{table}</TR></TABLE>'
