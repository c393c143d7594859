"""The timeline of memory as a picture: what is alive while the nodes of a step run, stacked by kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symacct.account import Account
from symacct.errors import MissingSizeError, SpecError
from symacct.files import must_be_writable, replacing
from symacct.memory_report import binary
from symacct.printing import quantity
from symacct.storages import KINDS
from symacct.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
# Okabe and Ito's colours, which people with any common colour blindness tell apart.
COLOURS = {
    "parameters": "#0072B2",
    "buffers": "#999999",
    "optimizer state": "#009E73",
    "gradients": "#E69F00",
    "inputs": "#CC79A7",
    "activations": "#56B4E9",
    "outputs": "#F0E442",
    "temporaries": "#D55E00",
}
_INK, _SHADES = "#333333", {"forward": "#FFFFFF", "backward": "#EEEEEE", "recompute": "#D5D5D5", "optimizer": "#FFFFFF"}
_POINTS = 4000  # of a timeline: four to a pixel
_SIZE = (12, 6)  # inches; 1200 x 600 pixels
_DPI = 100


def ready(path: str | Path | None) -> None:
    """Raise `SpecError` where a picture cannot be drawn, or not to this file."""
    if path is not None and Path(path).suffix.lower() not in SUFFIXES:
        raise SpecError(f"plot: {path} ends in neither {' nor '.join(SUFFIXES)}, the two kinds of picture there are")
    _library()
    if path is not None:
        must_be_writable(path, "plot")


@contextmanager
def picture(path: str | Path | None, size: tuple[float, float]) -> Iterator[Figure]:
    """An empty figure of so many inches to draw into, in one style wherever it is drawn; then ``path`` gets it too.

    The same drawing always gives the same file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib = _library()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's own style is
        # Names inside an SVG are hashes: with this salt they are the same each time.
        matplotlib.rcParams.update({"svg.hashsalt": "symacct", "font.size": 9, "text.parse_math": False})
        figure = Figure(figsize=size, dpi=_DPI)
        FigureCanvasAgg(figure)
        yield figure
        if path is not None:
            kind = Path(path).suffix.lower().removeprefix(".")
            with replacing(path, "plot") as file:
                figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)


def plot_memory(account: Account, path: str | Path | None = None, step: str = "later") -> Figure:
    """What is alive at each node of a step, by kind, at the account's sizes; ``path`` (.png, .svg) also gets it.

    ``step``: "first", in which gradients and optimizer state appear, or "later". The figure is
    matplotlib's own, for changes of taste. The same account always gives the same file.

    Raises `MissingSizeError` where dims have no sizes, `SpecError` for a file or a step that cannot be
    drawn, and where matplotlib is not installed.
    """
    if step not in ("first", "later"):
        raise SpecError(f"plot: step={step!r} is neither 'first' nor 'later'")
    ready(path)
    if account.sizes is None and account.dims:
        wanted = ",".join(f"{name}=..." for name in account.dims)
        raise MissingSizeError(f"plot: a picture needs sizes: account.at({wanted}), or --at {wanted}")
    account = account if account.sizes is not None else account.at()
    memory = account.memory
    timeline = memory.first if step == "first" else memory.later
    with picture(path, _SIZE) as figure:
        _draw(figure, account, timeline)
    return figure


def _library() -> Any:
    try:
        import matplotlib.figure
    except ImportError:
        raise SpecError("plot: pictures need matplotlib, which is not there: pip install 'symacct[plot]'") from None
    return matplotlib


# -- the picture -------------------------------------------------------------------------


def _draw(figure: Figure, account: Account, timeline: Timeline) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    totals, by_kind = timeline.totals(), timeline.totals_by_kind()
    kinds = [kind for kind in KINDS if any(by_kind[kind])]
    highest = max(range(len(totals)), key=totals.__getitem__)
    axes = figure.add_axes((0.075, 0.09, 0.735, 0.75))
    axes.set_xlim(0, len(totals))
    axes.set_ylim(0, 1.2 * totals[highest] or 1)  # above the data there is room for the peak's label
    _areas(axes, kinds, totals, by_kind)
    _phases(figure, axes, timeline)
    _mark(axes, timeline, highest, totals[highest])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: quantity(y, "B") if y else "0"))
    axes.grid(axis="y", color=_INK, alpha=0.15, linewidth=0.6)
    axes.set_xlabel("nodes of the graph, in the order in which they ran", color=_INK)
    axes.tick_params(colors=_INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _legend(figure, kinds, by_kind, highest)
    _title(figure, account, timeline)


def _areas(axes: Any, kinds: Sequence[str], totals: list[Any], by_kind: dict[str, list[Any]]) -> None:
    """The sums up to each kind, the largest first: what is drawn later covers all but its own part."""
    kept = decimated(totals, _POINTS)
    upto = [0] * len(kept)
    layers = []
    for kind in kinds:
        upto = [sum_ + by_kind[kind][i] for sum_, i in zip(upto, kept, strict=True)]
        layers.append((kind, upto))
    for kind, heights in reversed(layers):
        x, y = _steps(kept, heights, len(totals))
        axes.fill(x, y, color=COLOURS[kind], linewidth=0)
        if kind == layers[-1][0]:  # an edge, since what lives for one node is narrower than a pixel in a long timeline
            axes.plot(x, y, color=_INK, linewidth=0.5, zorder=2)


def _steps(xs: Sequence[int], heights: Sequence[Any], end: int) -> tuple[list[int], list[Any]]:
    """The outline of stairs on the ground; of equal heights in a row only the first has a corner."""
    x, y = [xs[0]], [0]
    for i, height in enumerate(heights):
        if i == 0 or height != heights[i - 1]:
            x += [xs[i], xs[i]]
            y += [y[-1], height]
    return [*x, end, end], [*y, y[-1], 0]


def decimated(totals: Sequence[Any], points: int) -> list[int]:
    """The positions to draw: all, or where there are many every local maximum and minimum, and some in between.

    Those in between are as far apart as a pixel is wide, so that slopes keep their shape. Where there are more than
    ``points`` maxima and minima, only the highest and the lowest of every half pixel are left.
    """
    count = len(totals)
    if count <= points:
        return list(range(count))
    turns = _turns(totals)
    if len(turns) > points:
        parts: dict[int, list[int]] = {}
        for i in turns:
            parts.setdefault(i * points // (2 * count), []).append(i)
        turns = [best(part, key=totals.__getitem__) for part in parts.values() for best in (min, max)]
    return sorted({*turns, *range(0, count, max(1, 4 * count // points)), count - 1})


def _turns(totals: Sequence[Any]) -> list[int]:
    """The ends, and where rising turns to falling or back; of equal totals in a row the first."""
    turns, last, direction = [0], 0, 0
    for i, total in enumerate(totals):
        if total != totals[last]:
            now = 1 if total > totals[last] else -1
            if now == -direction:
                turns.append(last)
            last, direction = i, now
    return [*turns, last] if last != turns[-1] else turns


def _phases(figure: Any, axes: Any, timeline: Timeline) -> None:
    """Shades behind the areas, and above them the names of phases wherever they have room."""
    axes.set_facecolor("white")
    spans = list(_spans([moment.phase for moment in timeline.moments], joined=False))
    for phase, begin, end in spans:
        axes.axvspan(begin, end, color=_SHADES[phase], linewidth=0, zorder=0)
    named = list(_spans([moment.phase for moment in timeline.moments], joined=True))
    for _, begin, _ in named[1:]:
        axes.axvline(begin, color=_INK, linewidth=0.6, alpha=0.5, zorder=3)
    recomputes = any(phase == "recompute" for phase, _, _ in spans)
    renderer, taken = figure.canvas.get_renderer(), float("-inf")
    seen: set[str] = set()
    for phase, begin, end in named:
        words = "backward (dark: recompute)" if phase == "backward" and recomputes else phase
        label = axes.text(
            (begin + end) / 2, 1.015, words, ha="center", va="bottom", color=_INK, transform=axes.get_xaxis_transform()
        )
        box = label.get_window_extent(renderer)
        wide = box.width > axes.transData.transform((end, 0))[0] - axes.transData.transform((begin, 0))[0]
        # One that is wider than its phase may still stand, if it is the first of its name and beside no other.
        if box.x0 < taken + 6 or (wide and words in seen):
            label.remove()
        else:
            taken = box.x1
            seen.add(words)


def _spans(phases: Sequence[str], joined: bool) -> Iterator[tuple[str, int, int]]:
    """(phase, begin, end) of equal phases in a row; ``joined`` takes what runs again as part of the backward pass."""
    names = [_joined(phase) if joined else phase for phase in phases]
    names[0] = names[1] if len(names) > 1 else "forward"  # the start comes before the first node
    begin = 0
    for i in range(1, len(names) + 1):
        if i == len(names) or names[i] != names[begin]:
            yield names[begin], begin, i
            begin = i


def _joined(phase: str) -> str:
    return "backward" if phase == "recompute" else phase


def _mark(axes: Any, timeline: Timeline, highest: int, nbytes: Any) -> None:
    """A dot on the peak and, in the free room above, its bytes and what had just run."""
    moment = timeline.moments[highest]
    place = _shortened(moment.path, 60) or "the top level"
    ran = f"{moment.op.removesuffix('.default')} in {place}" if moment.op else "before the first op"
    small = f" ({binary(nbytes)})" if binary(nbytes) else ""
    at = (highest + 0.5) / len(timeline.moments)
    side = "left" if at < 0.35 else "right" if at > 0.65 else "center"
    axes.plot([highest + 0.5], [nbytes], "o", color=_INK, markersize=6, markeredgecolor="white", zorder=5)
    axes.annotate(
        f"peak {quantity(nbytes, 'B')}{small}\n{ran}", xy=(highest + 0.5, nbytes), xytext=(0, 10),
        textcoords="offset points", ha=side, va="bottom", color=_INK, zorder=5,
        bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )  # fmt: skip


def _legend(figure: Any, kinds: Sequence[str], by_kind: dict[str, list[Any]], highest: int) -> None:
    """Kinds in the order in which they are stacked, and what each holds at the peak."""
    from matplotlib.patches import Patch

    entries = [
        Patch(color=COLOURS[kind], label=f"{kind}\n{quantity(by_kind[kind][highest], 'B')}") for kind in reversed(kinds)
    ]
    figure.legend(
        handles=entries, title="alive at the peak", loc="center left", bbox_to_anchor=(0.82, 0.465), frameon=False,
        labelcolor=_INK, alignment="left", labelspacing=0.9, handlelength=1.2,
    )  # fmt: skip


def _title(figure: Any, account: Account, timeline: Timeline) -> None:
    step = {"first": " in the first step", "later": " in any later step", "only": ""}[timeline.name]
    figure.text(0.075, 0.945, _shortened(f"{account.title}({account.inputs})", 110), fontsize=12, color=_INK)
    sizes = ", ".join(f"{n}={account.sizes[n]:,}" for n in account.dims) if account.sizes else ""
    blocks = ", in blocks of 512 bytes" if account.allocator == "cuda" else ""
    below = f"memory alive{step}{blocks}{f'; {sizes}' if sizes else ''}"
    figure.text(0.075, 0.905, _shortened(below, 150), color=_INK)


def _shortened(text: str, length: int) -> str:
    """The two ends of a text that is too long."""
    half = (length - 3) // 2
    return text if len(text) <= length else f"{text[:half]}...{text[-half:]}"
