"""Pictures of memory: what they show, that they are the same each time, and what happens where none can be drawn."""

import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import nn
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.errors import MissingSizeError, SpecError
from symacct.plot import COLOURS, decimated, plot_memory
from symacct.printing import quantity
from symacct.storages import KINDS

model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K)))


class Checkpointed(nn.Module):
    """Layers of which the backward pass runs each again."""

    def __init__(self, D):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def accounts():
    """Steps of every kind: with state, without, forward only, in micro-batches, with checkpoints, a lone op."""
    sizes = {"B": 512, "D": 64, "K": 10}
    yield "adamw", sa.trace(model, "B D", optimizer=torch.optim.AdamW, check=False).at(**sizes)
    yield "sgd", sa.trace(model, "B D", optimizer=torch.optim.SGD, check=False).at(**sizes)
    yield "inference", sa.trace(model, "B D", train=False, check=False).at(**sizes)
    many = {"accumulate": 5, "set_to_none": False, "clip": 1.0, "optimizer": torch.optim.AdamW}
    yield "accumulate", sa.trace(model, "B D", check=False, **many).at(**sizes)
    yield "checkpoint", sa.trace(sa.build(Checkpointed), "B D", grad=True, check=False).at(B=512, D=64)
    yield "lone", sa.trace(torch.relu, "B D", check=False).at(B=2, D=3)
    yield "nothing", sa.trace(lambda x: x, "B D", train=False, check=False).at(B=2, D=3)


@pytest.fixture(scope="module")
def drawn():
    return {name: (account, plot_memory(account)) for name, account in accounts()}


@pytest.fixture(scope="module")
def adamw():
    return sa.trace(model, "B D", optimizer=torch.optim.AdamW).at(B=32, D=64, K=10)


def words(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


# -- what it shows -----------------------------------------------------------------------


def test_areas_are_the_timeline(drawn):
    """The areas reach as high as the timeline does, kind upon kind, with parameters on the ground."""
    for account, figure in drawn.values():
        timeline = account.memory.later
        totals, by_kind = timeline.totals(), timeline.totals_by_kind()
        kinds = [kind for kind in KINDS if any(by_kind[kind])]
        areas = [
            p for p in figure.axes[0].patches if matplotlib.colors.to_hex(p.get_facecolor()).upper() in COLOURS.values()
        ]
        assert len(areas) == len(kinds)
        for kind, area in zip(reversed(kinds), areas, strict=True):
            upto = kinds[: kinds.index(kind) + 1]
            heights = [sum(by_kind[k][i] for k in upto) for i in range(len(totals))]
            assert matplotlib.colors.to_hex(area.get_facecolor()).upper() == COLOURS[kind]
            corners = area.get_xy().tolist()
            assert max(x for x, _ in corners) == len(totals)
            assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
            # A stair holds from its node to the next one.
            assert [[y for x, y in corners[:-2] if x <= i][-1] for i in range(len(totals))] == heights


def test_the_peak_is_marked(drawn):
    """A dot stands on the peak, with its bytes and what ran; the legend has what each kind holds then."""
    for account, figure in drawn.values():
        peak = account.memory.later.peak
        dot = figure.axes[0].lines[-1]
        assert dot.get_marker() == "o"
        assert list(dot.get_ydata()) == [peak.nbytes]
        label = next(w for w in words(figure) if w.startswith("peak "))
        assert label.startswith(f"peak {quantity(peak.nbytes, 'B')}")
        assert peak.op.removesuffix(".default") in label
        legend = [text.get_text().split("\n") for text in figure.legends[0].get_texts()]
        held = peak.by_kind()
        assert [kind for kind, _ in legend] == [kind for kind in reversed(KINDS) if kind in dict(legend)]
        assert all(amount == quantity(held.get(kind, 0), "B") for kind, amount in legend)
        assert set(held) <= set(dict(legend))


def test_phases_are_named(drawn):
    """Every phase has its name at least once; what runs again is part of the backward pass."""
    assert {"forward", "backward", "optimizer"} <= set(words(drawn["adamw"][1]))
    assert {"forward", "backward", "optimizer"} <= set(words(drawn["accumulate"][1]))
    assert "backward" not in words(drawn["inference"][1])
    assert "backward (dark: recompute)" in words(drawn["checkpoint"][1])


def test_words_are_within_the_picture_and_apart(drawn):
    """No word is cut off, and no two lie over one another."""
    for name, (_, figure) in drawn.items():
        renderer = figure.canvas.get_renderer()
        figure.draw_without_rendering()
        ticks = {id(t) for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis) for t in axis.get_ticklabels()}
        texts = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible() and id(t) not in ticks]
        boxes = [t.get_window_extent(renderer) for t in texts]
        for box in boxes:
            assert min(box.x0, box.y0, 1200 - box.x1, 600 - box.y1) >= 0, name
        for (a, one), (b, other) in combinations(zip(boxes, texts, strict=True), 2):
            assert not a.overlaps(b), (name, one.get_text(), other.get_text())


def test_long_names_are_shortened():
    """A title with many inputs, and a deep module path, stay within the picture."""

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            inner = nn.Linear(8, 8)
            for n in range(12):
                inner = nn.Sequential(*([inner] if n else [inner, nn.GELU()]))
            self.a_name_that_is_rather_long = inner

        def forward(self, *tensors):
            return self.a_name_that_is_rather_long(sum(tensors))

    figure = plot_memory(sa.trace(Deep(), *["Batch_axis 8"] * 9, check=False).at(Batch_axis=10**6))
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    for text in figure.findobj(Text):
        box = text.get_window_extent(renderer)
        assert box.x1 <= 1200, text.get_text()


def test_first_and_later_steps_differ(adamw):
    """The first step begins without optimizer state, a later one with it; the picture says which it shows."""
    first, later = plot_memory(adamw, step="first"), plot_memory(adamw, step="later")
    assert any("memory alive in the first step; D=64, K=10, B=32" in w for w in words(first))
    assert any("memory alive in any later step" in w for w in words(later))
    assert (
        plot_memory(adamw.with_allocator("cuda"))
        .texts[1]
        .get_text()
        .startswith("memory alive in any later step, in blocks of 512 bytes")
    )
    with pytest.raises(SpecError, match="plot: step='last' is neither 'first' nor 'later'"):
        plot_memory(adamw, step="last")


def test_an_account_hands_over_its_picture(adamw, tmp_path):
    """`Account.plot_memory` is this function."""
    assert isinstance(adamw.plot_memory(tmp_path / "a.svg"), Figure)
    plot_memory(adamw, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_model_without_dims_needs_no_sizes():
    """Fixed sizes are sizes."""
    assert any("peak 392 B" in w for w in words(plot_memory(sa.trace(nn.Linear(8, 4), "3 8"))))


# -- files -------------------------------------------------------------------------------


def test_png_is_a_png_of_1200_by_600(adamw, tmp_path):
    """The file has PNG's signature, and the size that it says."""
    plot_memory(adamw, tmp_path / "memory.PNG")
    data = (tmp_path / "memory.PNG").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1200, 600)
    assert [p.name for p in tmp_path.iterdir()] == ["memory.PNG"]


def test_svg_is_an_svg(adamw, tmp_path):
    """The file is XML with an svg at its root."""
    plot_memory(adamw, str(tmp_path / "memory.svg"))
    assert ET.parse(tmp_path / "memory.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


CODE = """
import sys, symacct as sa, torch
from torch import nn
model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K)))
account = sa.trace(model, "B D", optimizer=torch.optim.AdamW).at(B=32, D=64, K=10)
for path in sys.argv[1:]:
    account.plot_memory(path)
print("matplotlib.pyplot" in sys.modules)
"""


def test_files_are_the_same_each_time(adamw, tmp_path):
    """SVG and PNG of one account are equal to the byte, in this process and in another, whatever the user's style."""
    first, second, third = ([tmp_path / f"{n}.{kind}" for kind in ("svg", "png")] for n in range(3))
    for path in first:
        plot_memory(adamw, path)
    with matplotlib.rc_context({"font.size": 20, "axes.edgecolor": "red", "lines.linewidth": 9}):
        for path in second:
            plot_memory(adamw, path)
        assert matplotlib.rcParams["font.size"] == 20
    run = subprocess.run([sys.executable, "-c", CODE, *third], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"  # pyplot keeps figures of its own, and opens windows
    for paths in zip(first, second, third, strict=True):
        assert len({path.read_bytes() for path in paths}) == 1


def test_pictures_of_long_timelines_are_light(tmp_path):
    """Six thousand nodes, each with a rise and a fall, make a file of less than a megabyte."""

    def many(x):
        for n in range(3000):
            x = (x + 1).sum(0, keepdim=True).expand(8, 16) if n % 7 == 0 else torch.relu(x + 1)
        return x

    account = sa.trace(many, "8 16", train=False)
    figure = plot_memory(account, tmp_path / "long.svg")
    assert len(account.memory.later.moments) > 6000
    assert (tmp_path / "long.svg").stat().st_size < 1_000_000
    assert any(quantity(int(account.memory.peak.nbytes), "B") in w for w in words(figure))


# -- decimation --------------------------------------------------------------------------

totals = st.lists(st.integers(0, 9), min_size=1, max_size=200)


def maxima(values):
    """Where a value is higher than the last other one before it and the first other one after it."""
    runs = [i for i in range(len(values)) if i == 0 or values[i] != values[i - 1]]
    return [
        i
        for n, i in enumerate(runs)
        if (n == 0 or values[runs[n - 1]] < values[i]) and (n == len(runs) - 1 or values[runs[n + 1]] < values[i])
    ]


@given(totals, st.integers(4, 60))
def test_decimation_keeps_every_local_maximum(values, points):
    """Where there are no more turning points than asked for all are kept; the highest of all always is."""
    kept = decimated(values, points)
    assert kept == sorted(set(kept))
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    assert max(values[i] for i in kept) == max(values)
    turning = len(maxima(values)) + len(maxima([-v for v in values]))
    if turning + 2 <= points or len(values) <= points:
        assert set(maxima(values)) <= set(kept)
    assert len(kept) <= 2 * points + 2 or len(values) <= points


@given(totals, st.integers(4, 60))
def test_decimation_leaves_no_gap(values, points):
    """What lies between two kept points is as narrow as a pixel, so that a long slope stays one."""
    kept = decimated(values, points)
    widest = max((b - a for a, b in pairwise(kept)), default=0)
    assert widest <= max(1, 4 * len(values) // points)


def test_short_timelines_are_drawn_whole():
    """Nothing is left out of what is short."""
    assert decimated([3, 3, 3, 4, 5, 5], 6) == [0, 1, 2, 3, 4, 5]


# -- where none can be drawn -------------------------------------------------------------


def test_sizes_are_needed(adamw, tmp_path):
    """An account in formulas has no heights; the message says how to give sizes."""
    with pytest.raises(
        MissingSizeError, match=r"plot: a picture needs sizes: account.at\(D=...,K=...,B=...\), or --at"
    ):
        plot_memory(adamw.symbolic, tmp_path / "memory.png")
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_optional(adamw, tmp_path, monkeypatch):
    """Without matplotlib the error says what to install; nothing else needs it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for path in (None, tmp_path / "memory.png"):
        with pytest.raises(SpecError, match=r"pip install 'symacct\[plot\]'"):
            plot_memory(adamw, path)
    assert "peak" in adamw.memory_report()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("memory.pdf", "memory.pdf ends in neither .png nor .svg"),
        ("memory", "memory ends in neither .png nor .svg"),
        ("nowhere/memory.png", "there is no folder .*nowhere to write memory.png to"),
        ("file/memory.png", "there is no folder .*file to write memory.png to"),
        ("folder.png", "folder.png is a folder"),
        (f"{'m' * 300}.png", "cannot be written: File name too long"),
    ],
)
def test_files_that_cannot_be_written(adamw, tmp_path, name, message):
    """A wrong suffix, a folder that is not there, a name that is too long: one sentence, and nothing is left behind."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SpecError, match=f"^plot: .*{message}"):
        plot_memory(adamw, tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_may_not_be_written_to(adamw, tmp_path, monkeypatch):
    """Permission is asked for before anything is drawn (the one who runs the tests may have it everywhere)."""
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(SpecError, match="plot: nothing may be written to the folder"):
        plot_memory(adamw, tmp_path / "memory.png")


def test_nothing_half_written_is_left(adamw, tmp_path, monkeypatch):
    """When the disk is full half way the old picture is still there, and no part of the new one."""
    path = tmp_path / "memory.svg"
    path.write_text("the old one")

    def full(self, file, **options):
        file.write(b"<svg")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(SpecError, match=r"memory.svg cannot be written: No space left on device"):
        plot_memory(adamw, path)
    assert [p.name for p in tmp_path.iterdir()] == ["memory.svg"]
    assert path.read_text() == "the old one"
