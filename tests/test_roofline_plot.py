"""Pictures of a roofline: they are drawn, the same each time, and refuse what cannot be drawn."""

import pytest

from symacct.errors import MissingSizeError, SpecError
from symacct.roofline import plot_roofline, plot_time, roofline

SIZES = {"B": 2, "L": 256, "G": 2, "H": 4, "Dh": 64, "F": 1024, "V": 4096}


@pytest.fixture(scope="module")
def found(account):
    """The roofline of the Llama example at sizes."""
    return roofline(account("llama"), "h100").at(**SIZES)


def words(figure):
    """All texts of a picture."""
    return [t.get_text() for axes in figure.axes for t in axes.texts] + [t.get_text() for t in figure.texts]


@pytest.mark.parametrize("draw", [plot_roofline, plot_time])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_are_files(found, tmp_path, draw, suffix):
    """A picture goes to a file, and the same roofline gives the same file."""
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    draw(found, first, depth=4)
    draw(found, second, depth=4)
    assert first.stat().st_size > 5000
    assert first.read_bytes() == second.read_bytes()


def test_a_roofline_names_its_ceilings_and_modules(found):
    """The picture has the peaks, the bandwidth, the ridge, the largest modules, the sizes and the level."""
    said = " | ".join(words(plot_roofline(found, depth=4)))
    wanted = (
        "float32 matrix, float32 vector 67 TFLOP/s",
        "memory 3.35 TB/s",
        "ridge 20 FLOP/B",
        "lm_head",
        "mlp",
        "the step",
        "B=2",
        "eager",
    )
    for each in wanted:
        assert each in said


def test_modules_lie_below_the_roof(found):
    """No dot is above the roof: at most its intensity times the bandwidth, and at most the peaks together."""
    for part in found.by_module(4).values():
        if part.intensity:
            assert part.flops_per_s <= float(part.intensity) * found.device.bytes_per_s * (1 + 1e-12)


def test_bars_add_up_to_the_time(found):
    """The bar of the step is as long as its least time; equal layers are one bar."""
    figure = plot_time(found, depth=3)
    axes = figure.axes[0]
    first = [p.get_width() for p in axes.patches if p.get_y() < 0.5]
    assert sum(first) == pytest.approx(found.total.seconds)
    assert any("layers.0-1" in t.get_text() for t in axes.get_yticklabels())


def test_the_least_has_phases_alone(found):
    """At the level "minimal" there are bars of phases; modules have no place under the roof."""
    least = roofline(found.account, "h100", level="minimal")
    assert plot_time(least).axes
    with pytest.raises(SpecError, match="a phase is one kernel"):
        plot_roofline(least)


def test_refusals(found, tmp_path):
    """Sizes are needed, and a file that can be written with a suffix that is a picture."""
    with pytest.raises(MissingSizeError, match="a picture needs sizes"):
        plot_roofline(found.symbolic)
    with pytest.raises(SpecError, match="ends in neither"):
        plot_time(found, tmp_path / "a.txt")
    with pytest.raises(SpecError, match="there is no folder"):
        plot_time(found, tmp_path / "none" / "a.png")
