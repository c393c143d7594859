"""Pictures of a roofline: modules under the roof of a device, and a bar of where the time goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symacct.errors import MissingSizeError
from symacct.plot import picture, ready
from symacct.roofline.bounds import LIMITS, Bound
from symacct.roofline.rooflines import Roofline
from symacct.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, as in the picture of memory.
COLOURS = {"compute": "#0072B2", "vector": "#E69F00", "memory": "#D55E00"}
_INK, _GREY = "#333333", "#999999"
_SIZE = (10, 6)  # inches; 1000 x 600 pixels
_MOST, _LEAST = 12, 5e-4  # how many parts have a name in a picture, with which share at least; the rest are one


def plot_roofline(what: Roofline, path: str | Path | None = None, depth: int | None = 1) -> Figure:
    """The modules of a step under the roof of its device, on logarithmic axes; ``path`` (.png, .svg) also gets it.

    Across: FLOP per byte. Upwards: the most FLOP/s that a module reaches, all of its kernels one after another. The
    roof is the bandwidth up to the ridge, then the matrix peak; the vector peak is a lower ceiling. A dot's area is its
    share of the time, its colour what limits it. The figure is matplotlib's own.

    Raises `MissingSizeError` without sizes, `SpecError` for a file that cannot be drawn and without matplotlib.
    """
    return _picture(what, path, depth, _roof)


def plot_time(what: Roofline, path: str | Path | None = None, depth: int | None = 1) -> Figure:
    """Where the least time of a step goes: a bar for each phase and module, by what its kernels meet first.

    Raises as `plot_roofline` does.
    """
    return _picture(what, path, depth, _bars)


def _picture(what: Roofline, path: str | Path | None, depth: int | None, draw: Any) -> Figure:
    ready(path)
    account = what.account
    if account.sizes is None and account.dims:
        wanted = ",".join(f"{name}=..." for name in account.dims)
        raise MissingSizeError(f"plot: a picture needs sizes: roofline.at({wanted})")
    what = what if account.sizes is not None else what.at()
    with picture(path, _SIZE) as figure:
        draw(figure, what, depth)
    return figure


# -- under the roof ----------------------------------------------------------------------


def _roof(figure: Figure, what: Roofline, depth: int | None) -> None:
    from matplotlib.ticker import FuncFormatter

    total = what.total
    parts = [b for b in what.by_module(depth, repeats=True).values() if b.bytes and b.flops + b.pointwise]
    parts.sort(key=lambda b: -b.seconds)
    shown = [*parts, total] if parts else []
    axes = figure.add_axes((0.125, 0.11, 0.685, 0.76))
    axes.set_xscale("log")
    axes.set_yscale("log")
    lines = _ceilings(axes, what, shown)
    whole = sum(b.seconds for b in parts) or 1.0
    for part in parts[::-1]:
        axes.scatter(
            [float(part.intensity)], [part.flops_per_s], s=math.pi * _radius(part, whole) ** 2,
            color=COLOURS[part.limit], alpha=0.75, linewidth=0.8, edgecolor="white", zorder=3,
        )  # fmt: skip
    if shown:
        axes.plot([float(total.intensity)], [total.flops_per_s], marker="x", color=_INK, markersize=8, zorder=5)
        _names(figure, axes, parts, total, whole, lines)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: show(y, "FLOP/s")))
    axes.set_xlabel("FLOP per byte (contractions and pointwise)", color=_INK)
    axes.set_ylabel("FLOP/s, at most", color=_INK)
    _finish(figure, axes, what, f"roofline on {what.device.name}, bytes: {what.level}")
    _legend(figure, [b.limit for b in parts])


def _ceilings(axes: Any, what: Roofline, shown: Sequence[Bound]) -> list[Any]:
    """The roof, the other ceilings below it and the ridge, with their names; the lines, by their ends."""
    device, rate = what.device, what.device.bytes_per_s
    tf32 = {"float32": " (TF32)"} if what.tf32 and "tf32" in device.flops_per_s else {}
    peaks = {f"{dtype} matrix{tf32.get(dtype, '')}": device.peak(dtype, what.tf32) for dtype in what.ridges}
    if device.vector_flops_per_s:
        peaks["float32 vector"] = device.vector_flops_per_s
    top = max(peaks.values(), default=max((b.flops_per_s for b in shown), default=1.0))
    corner = top / rate
    intensities = [float(b.intensity) for b in shown]
    left, right = min([*intensities, corner / 100]) / 3, max([*intensities, corner]) * 12
    bottom = min([*(b.flops_per_s for b in shown), left * rate]) / 2
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top * 4)
    axes.plot([left, corner, right], [left * rate, top, top], color=_INK, linewidth=1.6, zorder=2)
    for peak in dict.fromkeys(peaks.values()):
        name = ", ".join(each for each, its_peak in peaks.items() if its_peak == peak)
        axes.plot([peak / rate, right], [peak, peak], color=_INK, linewidth=0.8, zorder=2)
        axes.annotate(
            f"{name} {show(peak, 'FLOP/s')}", (right, peak), xytext=(-4, 3), textcoords="offset points", ha="right",
            va="bottom", color=_INK,
        )  # fmt: skip
    axes.plot([corner, corner], [bottom, top], color=_GREY, linewidth=0.8, linestyle=":", zorder=1)
    axes.text(corner, bottom * 1.15, f" ridge {show(corner, 'FLOP/B')}", ha="left", va="bottom", color=_INK)
    _slope(axes, left, corner, rate)
    return [[(left, left * rate), (corner, top)], *([(p / rate, p), (right, p)] for p in peaks.values())]


def _radius(bound: Bound, whole: float) -> float:
    """Of a dot, in points: its area grows with the share of the time."""
    return math.sqrt((30 + 900 * bound.seconds / whole) / math.pi)


def _slope(axes: Any, left: float, corner: float, rate: float) -> None:
    """The bandwidth, written along its line."""
    x = (left * corner) ** 0.5
    (x0, y0), (x1, y1) = axes.transData.transform([(left, left * rate), (corner, corner * rate)])
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    axes.annotate(
        f"memory {show(rate, 'B/s')}", (x, x * rate), xytext=(-4, 5), textcoords="offset points", rotation=angle,
        rotation_mode="anchor", ha="center", va="bottom", color=_INK,
    )  # fmt: skip


def _names(figure: Figure, axes: Any, parts: Sequence[Bound], total: Bound, whole: float, lines: Sequence[Any]) -> None:
    """Names beside the dots, in the first of a few places in which they cover no name, no middle of a dot, no line."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    dots = [axes.transData.transform((float(b.intensity), b.flops_per_s)) for b in parts]
    scale = figure.dpi / 72  # pixels in a point
    for bound, (x, y) in zip(parts, list(dots), strict=True):
        rim = 0.7 * scale * _radius(bound, whole)
        dots += [(x + rim * dx, y + rim * dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
    for (x0, y0), (x1, y1) in (axes.transData.transform(line) for line in lines):
        dots += [(x0 + (x1 - x0) * i / 200, y0 + (y1 - y0) * i / 200) for i in range(201)]
    taken: list[Any] = [t.get_window_extent(renderer) for t in axes.texts]
    frame = axes.get_window_extent(renderer)
    wanted = [(total, "the step"), *((b, b.name or "(top level)") for b in parts[:_MOST])]
    for bound, name in wanted:
        radius = 6.0 if bound is total else _radius(bound, whole)
        for dx, dy, ha, va in _PLACES:
            label = axes.annotate(
                _shortened(name), (float(bound.intensity), bound.flops_per_s),
                xytext=(dx * (radius + 3), dy * (radius + 3)), textcoords="offset points", ha=ha, va=va, color=_INK,
                fontweight="bold" if bound is total else "normal", zorder=6,
            )  # fmt: skip
            box = label.get_window_extent(renderer)
            free = not any(box.overlaps(other) for other in taken) and not any(box.contains(*dot) for dot in dots)
            if free and frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1:
                taken.append(box)
                break
            label.remove()


_PLACES = (
    (1, 0, "left", "center"), (-1, 0, "right", "center"), (0, 1, "center", "bottom"), (0, -1, "center", "top"),
    (0.8, -0.8, "left", "top"), (-0.8, -0.8, "right", "top"), (0.8, 0.8, "left", "bottom"),
    (-0.8, 0.8, "right", "bottom"), (0.5, -2.6, "left", "top"), (-0.5, 2.6, "right", "bottom"), (1, -4, "left", "top"),
)  # fmt: skip


# -- where the time goes -------------------------------------------------------------------


def _bars(figure: Figure, what: Roofline, depth: int | None) -> None:
    phases = [(b.name, b) for b in what.phases.values() if b.seconds]
    parts = (
        sorted(what.by_module(depth, repeats=True).values(), key=lambda b: -b.seconds)
        if what.level != "minimal"
        else []
    )
    rows: list[tuple[str, dict[str, float]]] = [("the step", _split(what.total))]
    rows += [(name, _split(b)) for name, b in phases]
    whole = what.total.seconds or 1.0
    named = [b for b in parts[:_MOST] if b.seconds / whole >= _LEAST]
    rest = [b for b in parts[len(named) :] if b.seconds]
    modules = [(b.name or "(top level)", _split(b)) for b in named]
    if rest:
        modules.append(
            (f"{len(rest)} other{'s' * (len(rest) > 1)}", {k: sum(_split(b)[k] for b in rest) for k in LIMITS})
        )
    gap = 0.6
    places = [*(float(i) for i in range(len(rows))), *(len(rows) + gap + i for i in range(len(modules)))]
    rows += modules
    figure.set_size_inches(_SIZE[0], 1.5 + 0.3 * (len(rows) + gap))
    axes = figure.add_axes((0.2, 1.0 / figure.get_figheight() * 0.55, 0.61, 1 - 1.25 / figure.get_figheight()))
    for place, (_, split) in zip(places, rows, strict=True):
        start = 0.0
        for limit in LIMITS:
            axes.barh(place, split[limit], left=start, height=0.72, color=COLOURS[limit], linewidth=0)
            start += split[limit]
        words = f"{show(start, 's')}  {start / whole:.1%}"
        axes.text(start + 0.008 * whole, place, words, va="center", color=_INK)
    axes.set_yticks(places, [_shortened(name) for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(sum(split.values()) for _, split in rows) or 1.0)
    from matplotlib.ticker import FuncFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: show(x, "s") if x else "0"))
    _finish(figure, axes, what, f"least time on {what.device.name}, bytes: {what.level}")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    _legend(figure, [limit for limit in LIMITS if any(split[limit] for _, split in rows)])


def _split(bound: Bound) -> dict[str, float]:
    return {limit: bound.seconds_by_limit[limit] for limit in LIMITS}


# -- both -------------------------------------------------------------------------------


def _finish(figure: Figure, axes: Any, what: Roofline, below: str) -> None:
    account = what.account
    axes.tick_params(colors=_INK, length=3)
    axes.grid(color=_INK, alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    sizes = ", ".join(f"{n}={account.sizes[n]:,}" for n in account.dims) if account.sizes else ""
    high = figure.get_figheight()
    x = axes.get_position().x0 if axes.get_position().x0 < 0.15 else 0.03
    figure.text(x, 1 - 0.32 / high, _shortened(f"{account.title}({account.inputs})", 100), fontsize=12, color=_INK)
    figure.text(x, 1 - 0.54 / high, _shortened(f"{below}{f'; {sizes}' if sizes else ''}", 140), color=_INK)


def _legend(figure: Figure, limits: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    words = {"compute": "matrix peak", "vector": "vector peak", "memory": "bandwidth"}
    entries = [Patch(color=COLOURS[name], label=words[name]) for name in LIMITS if name in limits]
    figure.legend(
        handles=entries, title="limited by", loc="center left", bbox_to_anchor=(0.83, 0.5), frameon=False,
        labelcolor=_INK, alignment="left", handlelength=1.2,
    )  # fmt: skip


def _shortened(text: str, length: int = 34) -> str:
    half = (length - 3) // 2
    return text if len(text) <= length else f"{text[:half]}...{text[-half:]}"
