"""The live page in headless Chromium: every number that it shows is Python's, wherever its inputs are moved."""

import random
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from browser import opened
from conftest import _account
from test_page_content import NAMES, sizes_for
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import symacct as sa
from symacct.errors import DeviceError, SymacctError
from symacct.hardware import device, devices
from symacct.page import to_html
from symacct.page.parts import kept_by_module
from symacct.page.variants import DEFAULT, variants
from symacct.record import PHASES

MEASURES = ("flops", "pointwise", "bytes", "seconds", "intensity")
OTHER = "A100-SXM4-80GB"
TRACED_ANEW = ("two_layer", "llama")  # pages with other dtypes; of the rest one is enough


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """The page of an example, made once, with the accounts of its dtypes by their labels."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}

    def page(name):
        if name not in made:
            path, step = folder / f"{name}.html", replace(_account(name), checked=())  # so that no dtype is checked
            found = variants(step, DEFAULT if name in TRACED_ANEW else ())
            with pytest.MonkeyPatch.context() as patch:  # each dtype is traced once, for the page and for the tests
                patch.setattr("symacct.page.rendering.variants", lambda *_: found)
                to_html(step, path)
            made[name] = path, {each.label: each.account for each in found if each.account}
        return made[name]

    return page


# -- what Python says ----------------------------------------------------------------------


def lacking(step, on):
    """The dtypes that a step multiplies and a device has no peak for."""
    known = step.roofline(replace(on, flops_per_s=dict.fromkeys(torch_dtypes(), 1e12))).total.flops_by_dtype
    return {dtype for dtype in known if dtype not in on.flops_per_s}


def torch_dtypes():
    return ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int64", "int8")


class Times:
    """The least times of an account on a device, None where the device has no peak for what a part multiplies."""

    def __init__(self, step, on):
        self.lacks = lacking(step, on)
        if self.lacks:
            with pytest.raises(DeviceError, match=next(iter(self.lacks))):
                step.roofline(on)
        peaks = {**on.flops_per_s, **dict.fromkeys(self.lacks, 1.0)}
        self.roofline = step.roofline(replace(on, flops_per_s=peaks))

    def of(self, bound):
        """The seconds of a bound."""
        return None if self.lacks & set(bound.flops_by_dtype) else float(bound.seconds)


def expected(step, on, phase="step"):
    """Every figure of a page by its name, from the account at its sizes: ints, floats, None for what is not known."""
    times, shown = Times(step, on), {}
    which = None if phase == "step" else phase

    def put(name, part, bound):
        for measure in ("flops", "pointwise", "bytes"):
            shown[f"{name}/{measure}"] = getattr(part, measure) if part else 0
        shown[f"{name}/seconds"] = times.of(bound) if bound else 0

    used = [name for name in PHASES if step.phases[name].count]
    for name, part in (("step", step.total), *((name, step.phases[name]) for name in used)):
        bound = times.roofline.total if name == "step" else times.roofline.phases[name]
        put(f"phase/{name}", part, bound)
        shown[f"phase/{name}/intensity"] = part.intensity
    for measure in ("flops", "bytes", "seconds", "intensity"):
        shown[f"total/{measure}"] = shown[f"phase/step/{measure}"]
    shown |= {"total/parameters": step.params, "total/peak": step.peak_bytes}
    whole, bounds = step.by_op(which), times.roofline.by_op(which)
    for op in step.by_op():
        put(f"op/{op}", whole.get(op), bounds.get(op))
    kept = kept_by_module(step.symbolic) if "backward" in used else None
    for depth in range(1, 2 + max(path.count(".") for path in step.by_module(None, repeats=True))):
        parts = step.by_module(depth, which, repeats=True)
        bounds = times.roofline.by_module(depth, which, repeats=True)
        for path in step.by_module(depth, repeats=True):
            if not path or path.count(".") + 1 == depth:
                put(f"module/{path}", parts.get(path), bounds.get(path))
                if kept is not None:
                    inside = path + "." if path else "\0"  # at the top level stands only what is in no module
                    below = [size for other, size in kept.items() if other == path or other.startswith(inside)]
                    shown[f"module/{path}/kept"] = step._value(sum(below))
    return shown | expected_memory(step)


def expected_memory(step):
    """The figures of memory: what is held, and the peak by kind."""
    held = {
        "parameters/count": step.params, "parameters/bytes": step.param_bytes, "gradients/bytes": step.grad_bytes,
        "optimizer state/bytes": step.optimizer_bytes, "buffers/bytes": step.buffer_bytes,
        "inputs/bytes": step.input_bytes, "activations/bytes": step.activation_bytes,
        "at rest/bytes": step.memory.rest_bytes, "checkpoint/bytes": step.checkpoint_bytes,
    }  # fmt: skip
    shown = {f"memory/{name}": value for name, value in held.items() if value != 0}
    kinds = {kind: 0 for moment in step.symbolic.memory.candidates for kind in moment.by_kind()}
    kinds |= step.memory.peak.by_kind()
    return shown | {f"peak/{kind}": value for kind, value in kinds.items()} | {"peak/bytes": step.peak_bytes}


def agree(page, step, on, phase="step"):
    """Whether all that the page shows is what Python says, whole numbers to the last digit."""
    assert page.banner() == ""
    found = {name: value for name, value in page.figures().items() if not name.startswith("graph/")}
    wanted = expected(step, on, phase)
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        if value is None:
            assert found[name] is None, name
        elif name.rpartition("/")[2] in ("seconds", "intensity"):
            assert float(found[name]) == pytest.approx(float(value), rel=1e-9, abs=0), name
        else:
            assert found[name] == str(value), name


# -- every figure --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_wherever_the_inputs_are(name, page_of):
    """At random sizes, on random devices, in each dtype, for each phase: all figures of the page are the account's."""
    path, accounts = page_of(name)
    rng = random.Random(name)
    with opened() as page:
        page.go(path)
        phases = [name for name in ("step", *PHASES) if name == "step" or _account(name_of(path)).phases[name].count]
        for turn, label in enumerate([*accounts, *accounts]):
            step = accounts[label]
            sizes = sizes_for(step, rng)
            on = device(rng.choice(list(devices())))
            page.set(**sizes).choose("dtype", label).choose("device", on.name)
            for phase in phases if turn == 0 else rng.sample(phases, 1):  # all of them once
                agree(page.choose("phase", phase), step.at(**sizes), on, phase)


def name_of(path):
    return path.stem


@pytest.mark.parametrize("name", ["two_layer", "llama", "any_depth"])
def test_no_digit_is_lost(name, page_of):
    """Where totals exceed 2**53, 2**63 and what any float holds without rounding, every digit is shown."""
    path, accounts = page_of(name)
    step = next(iter(accounts.values()))
    base = dict.fromkeys(step.dims, 8)
    for dim, size in (("B", 2**53 + 1), ("B", 2**63 + 7), ("B", 3**50)):
        sizes = {**base, dim: size}
        with opened() as page:
            agree(page.go(path).set(**sizes), step.at(**sizes), device("h100"))
            assert step.at(**sizes).total.flops > size
            assert page.tab.locator('[id="size-B"]').input_value() == str(size)


def test_a_device_that_lacks_a_dtype(page_of):
    """Where a device has no peak for what is multiplied there is no time, and the page says which dtype that is."""
    path, accounts = page_of("two_layer")
    on = next(each for each in devices().values() if "float32" not in each.flops_per_s)
    with opened() as page:
        page.go(path).choose("device", on.name)
        figures = page.figures()
        assert figures["phase/step/seconds"] is None
        assert "float32" in page.tab.locator('[data-figure="phase/step/seconds"]').get_attribute("title")
        step = accounts["f32 (as traced)"]
        sizes = {dim: int(page.tab.locator(f'[id="size-{dim}"]').input_value()) for dim in step.dims}
        agree(page, step.at(**sizes), on)


# -- inputs --------------------------------------------------------------------------------


def sizes_shown(page, step):
    """The sizes in the boxes."""
    return {dim: int(page.tab.locator(f'[id="size-{dim}"]').input_value()) for dim in step.dims}


def test_sliders(page_of):
    """A slider goes through whole sizes from the least one to its end, and all figures follow."""
    path, accounts = page_of("two_layer")
    step = accounts["f32 (as traced)"]
    with opened() as page:
        page.go(path)
        seen = []
        slide = page.tab.locator('[id="slide-D"]')
        low, high = (int(slide.get_attribute(name)) for name in ("min", "max"))
        for place in (low, (2 * low + high) // 3, (low + high) // 2, high):
            slide.fill(str(place))
            page.drawn()
            seen.append(sizes_shown(page, step)["D"])
            agree(page, step.at(**sizes_shown(page, step)), device("h100"))
        assert seen == sorted(set(seen))
        assert (seen[0], seen[-1]) == (1, 2**20)


def test_the_keyboard_alone(page_of):
    """Arrow keys move a slider by one size, End and Home to its ends; Tab goes on to the next control."""
    path, accounts = page_of("two_layer")
    step = accounts["f32 (as traced)"]
    with opened() as page:
        page.go(path)
        page.tab.locator('[id="slide-B"]').focus()
        before = sizes_shown(page, step)
        for key, holds in (
            ("ArrowRight", lambda a, b: a < b),
            ("ArrowLeft", lambda a, b: a > b),
            ("End", lambda a, b: b == 2**20),
            ("Home", lambda a, b: b == 1),
        ):
            page.tab.keyboard.press(key)
            after = sizes_shown(page.drawn(), step)
            assert holds(before["B"], after["B"]), key
            assert {**after, "B": 0} == {**before, "B": 0}
            agree(page, step.at(**after), device("h100"))
            before = after
        seen = set()
        for _ in range(12):
            page.tab.keyboard.press("Tab")
            seen.add(page.tab.evaluate("() => document.activeElement.id"))
        assert {"device", "dtype"} <= seen


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4_096", 4096),
        ("4,096", 4096),
        ("1e6", 10**6),
        ("2**20", 2**20),
        (" 7 ", 7),
        ("1_000_000", 10**6),
    ],
)
def test_a_size_is_written_as_people_do(text, size, page_of):
    """Plain digits, digits in groups, powers of ten and of two."""
    path, accounts = page_of("two_layer")
    step = accounts["f32 (as traced)"]
    with opened() as page:
        page.go(path).write("B", text)
        assert page.figures()["phase/step/flops"] == str(step.at(**{**sizes_shown(page, step), "B": size}).total.flops)


@pytest.mark.parametrize(
    "text", ["", "abc", "0", "-3", "1.5", "1e-3", "2**", "4,09", "B", "<b>7</b>", "9" * 60, "9**99999"]
)
def test_what_is_no_size_is_said_at_the_box(text, page_of):
    """The box says what a size is and is marked as invalid; all else stays as it was, until a size is written."""
    path, _ = page_of("two_layer")
    with opened() as page:
        before = page.go(path).figures()
        page.write("B", text)
        assert "size" in page.tab.locator('[id="said-B"]').inner_text()
        assert page.tab.locator('[id="size-B"]').get_attribute("aria-invalid") == "true"
        assert page.figures() == before
        page.write("B", "5")
        assert page.tab.locator('[id="said-B"]').inner_text() == ""
        assert page.tab.locator('[id="size-B"]').get_attribute("aria-invalid") is None


# -- conditions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("llama", {"Dh": 512}), ("llama", {"Dh": 7}), ("llama", {"L": 1}), ("any_depth", {"L": 1}), ("gpt2", {"L": 1})],
)
def test_sizes_that_break_a_condition(name, wrong, page_of):
    """The banner says what Python's error says, no figure is shown, and all come back with good sizes."""
    path, accounts = page_of(name)
    step = next(iter(accounts.values()))
    sizes = sizes_for(step, random.Random(5))
    with pytest.raises(SymacctError) as raised:
        step.at(**{**sizes, **wrong})
    with opened() as page:
        page.go(path).set(**sizes).set(**wrong)
        said = page.banner()
        assert said
        assert str(raised.value).startswith(said.rstrip("."))
        assert set(page.figures().values()) == {None}
        assert page.tab.locator("#main.broken").count() == 1
        page.set(**sizes)
        agree(page, step.at(**sizes), device("h100"))
        assert page.tab.locator("#main.broken").count() == 0


def test_below_the_least_depth(page_of):
    """Where the formulas of any depth do not hold yet, the page says from where on they do."""
    path, _ = page_of("any_depth")
    with opened() as page:
        page.go(path).set(N=1)
        assert "N >= 2" in page.banner() or "N=2" in page.banner()
        assert set(page.figures().values()) == {None}
        assert page.tab.locator('[id="size-N"]').input_value() == "1"


def test_ops_without_a_rule_are_named(tmp_path):
    """A red banner names what is in no figure, beside the figures of the rest."""

    def odd(x, w):
        return torch.special.bessel_j0(x) @ w

    rules = sa.Rules("matmul only")
    rules.flops("aten.mm", "m k, k n -> m n")(lambda m, k, n: 2 * m * k * n)
    step = sa.trace(odd, "B D", "D K", rules=rules, train=False, check=False)
    to_html(step, tmp_path / "odd.html", dtypes=())
    with opened() as page:
        page.go(tmp_path / "odd.html")
        assert "aten.special_bessel_j0.default" in page.banner()
        sizes = sizes_shown(page, step)
        assert page.figures()["phase/step/flops"] == str(step.at(**sizes).total.flops) != "0"


# -- the address ---------------------------------------------------------------------------


def test_a_link_shows_the_same_view(page_of):
    """The address of a view, opened elsewhere, gives the same inputs, figures and choices."""
    path, accounts = page_of("llama")
    label = "bf16"
    sizes = sizes_for(accounts[label], random.Random(3))
    with opened() as page, opened() as other:
        page.go(path).set(**sizes).choose("dtype", label).choose("device", OTHER).choose("phase", "backward")
        agree(page, accounts[label].at(**sizes), device(OTHER), "backward")
        other.follow(page.tab.url)
        assert other.figures() == page.figures()
        assert sizes_shown(other, accounts[label]) == sizes
        for menu, value in (("dtype", label), ("device", OTHER), ("phase", "backward")):
            assert other.tab.locator(f"#{menu}").input_value() == value
        assert other.tab.url == page.tab.url


def test_back_and_forward(page_of):
    """Going back shows what was there before a choice, going forward what came after."""
    path, _ = page_of("two_layer")
    with opened() as page:
        first = page.go(path).set(B=64).figures()
        second = page.choose("device", OTHER).figures()
        third = page.set(D=4096).figures()
        assert len({str(first), str(second), str(third)}) == 3
        for go, figures in (("back", second), ("back", first), ("forward", second), ("forward", third)):
            getattr(page.tab, f"go_{go}")()
            assert page.drawn().figures() == figures, go


@pytest.mark.parametrize(
    "state",
    ["B=abc&D=0", "device=none&dtype=none", "phase=none&graph=99&points=x&step=no&folded=x.y", "%", "B=%zz&&=", "B"],
)
def test_an_address_that_makes_no_sense_still_opens(state, page_of):
    """What an address says wrongly is as at first."""
    path, _ = page_of("two_layer")
    with opened() as page, opened() as plain:
        assert page.go(path, state).figures() == plain.go(path).figures()


# -- names ---------------------------------------------------------------------------------

NASTY = (
    "a\"b'c", "</script><script>harmed = 1</script>", "<b>bold</b>", "back\\slash", "αβγ", "${1}`", "{x|y}",
    "<img src=x onerror='harmed = 1'>", "&lt;", "__proto__", "constructor", "a b", "-->", "%s", "]]>",
)  # fmt: skip


ALPHA = "\u03b1"


class Nasty(nn.Module):
    """Layers whose names are no names in any notation."""

    def __init__(self, α, constructor):
        super().__init__()
        self.parts = nn.Module()
        for name in NASTY:
            self.parts.add_module(name, nn.Linear(α, α, bias=False))
        self.head = nn.Linear(α, constructor, bias=False)

    def forward(self, x):
        for part in self.parts.children():
            x = part(x)
        return self.head(x)


def test_names_of_any_kind(tmp_path):
    """Names with quotes, tags, backslashes and Greek letters are shown as they are, and nothing in them is run."""
    step = sa.trace(sa.build(Nasty), f"class_ {ALPHA}")
    path = tmp_path / "a 'nasty' #1?.html"
    to_html(step, path, dtypes=())
    with opened() as page:
        page.go(path)
        sizes = {ALPHA: 12, "constructor": 5, "class_": 3}
        agree(page.set(**sizes), step.at(**sizes), device("h100"))
        shown = page.tab.locator("#module-table .label").all_inner_texts()
        assert set(NASTY) <= set(shown)
        assert page.tab.evaluate("() => window.harmed") is None
        assert page.tab.locator("b, img").count() == 0
        with opened() as other:
            other.follow(page.tab.url)
            assert other.figures() == page.figures()


# -- the graph -----------------------------------------------------------------------------


def drawn(page):
    """Wait until the graph is laid out."""
    page.tab.evaluate("() => Symacct.layout.then(() => null)")
    return page.drawn()


def options(page, menu):
    """The values of a menu."""
    return page.tab.eval_on_selector_all(f"#{menu} option", "options => options.map((each) => each.value)")


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_adds_up(name, page_of):
    """In each graph that a page offers, the costs in its boxes add up to those of the step or the phase it is of."""
    path, accounts = page_of(name)
    step = next(iter(accounts.values()))
    sizes = sizes_for(step, random.Random(11))
    at, times = step.at(**sizes), step.at(**sizes).roofline("h100")
    with opened() as page:
        drawn(page.go(path).set(**sizes))
        views = [key.split("-") for key in options(page, "graph-which")]
        phases = ["step", *(each for each in ("forward", "backward", "optimizer") if at.phases[each].count)]
        assert list(dict.fromkeys(phase for phase, _ in views)) == phases
        for phase, depth in views:
            drawn(page.choose("graph-which", f"{phase}-{depth}"))
            part, bound = (at.total, times.total) if phase == "step" else (at.phases[phase], times.phases[phase])
            whole = {"flops": part.flops, "pointwise": part.pointwise, "bytes": part.bytes}
            whole["activation_bytes"] = at.activation_bytes if phase in ("step", "forward") else 0
            for cost in options(page, "cost"):
                found = graph_figures(page.choose("cost", cost), cost)
                assert found
                if cost == "seconds":
                    assert sum(map(float, found)) == pytest.approx(float(bound.seconds), rel=1e-9)
                else:
                    assert sum(map(int, found)) == whole[cost], (phase, depth, cost)


def graph_figures(page, cost):
    """The values in the boxes of the graph that is drawn."""
    shown = page.figures().items()
    return [value for key, value in shown if key.startswith("graph/") and key.endswith(f"/{cost}")]


def test_a_box_tells_what_it_is(page_of):
    """A click on a box, or Enter, shows its op, module path, shapes, formulas and lines; search dims all others."""
    path, _ = page_of("two_layer")
    with opened() as page:
        drawn(page.go(path))
        page.tab.locator("#graph").scroll_into_view_if_needed()
        box = page.tab.locator("#graph-drawing g.box:has(text[data-figure])").first
        box.focus()
        page.tab.keyboard.press("Enter")
        panel = page.drawn().tab.locator("#graph-panel")
        assert panel.is_visible()
        said = panel.inner_text()
        assert all(fact in said for fact in ("aten.mm", "f32[B, D]", "two_layer.py:"))
        assert panel.locator("dd var").count() > 0  # of its formulas
        page.tab.locator("#graph-close").click()
        assert not panel.is_visible()
        page.tab.locator("#graph-search").fill("mm")
        page.drawn()
        dimmed, boxes = page.tab.locator("#graph-drawing g.unmatched").count(), page.tab.locator("g.box").count()
        assert 0 < dimmed < boxes
        page.tab.locator("#graph-search").fill("no such thing")
        assert page.drawn().tab.locator("#graph-said").inner_text() == "nothing matches"


# -- the page itself -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_alone(name, page_of):
    """A page opens from disk without a network, an error or a warning, in light and dark, on screens of any width."""
    path, _ = page_of(name)
    text = path.read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:,)", text)
    for options in ({}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}):
        with opened(**options) as page:
            page.go(path)
            assert page.figures()
            wide, room = page.tab.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
            assert wide <= room


def test_a_page_prints(page_of):
    """On paper the inputs are not there, their sizes are, in words."""
    path, _ = page_of("two_layer")
    with opened() as page:
        page.go(path, "B=4096&D=77&K=5")
        page.tab.emulate_media(media="print")
        assert not page.tab.locator('[id="size-B"]').is_visible()
        assert "B=4,096" in page.tab.locator("#given").inner_text()
        assert page.tab.locator("#given").is_visible()
        assert page.tab.pdf()[:5] == b"%PDF-"


def test_parts_are_sorted_and_folded(page_of):
    """A click on a head sorts the ops by its figures; what is in a module can be folded away and is back again."""
    path, _ = page_of("llama")
    with opened() as page:
        page.go(path)
        head = page.tab.locator("#op-table th button", has_text="bytes")
        head.click()
        cells = "() => [...document.querySelectorAll('#op-table [data-figure$=\"/bytes\"]')].map(e => e.dataset.value)"
        values = [int(value) for value in page.drawn().tab.evaluate(cells)]
        assert values == sorted(values, reverse=True)
        assert page.tab.locator("#op-table th[aria-sort=descending]").inner_text() == "bytes"
        rows = page.tab.locator("#module-table tbody tr")
        count = rows.count()
        page.tab.locator("#module-table tr[aria-expanded=true] button.fold").first.click()
        assert page.drawn().tab.locator("#module-table tbody tr").count() < count
        page.tab.locator("#module-table tr[aria-expanded=false] button.fold").first.click()
        assert page.drawn().tab.locator("#module-table tbody tr").count() == count


def test_the_size_of_the_file(tmp_path):
    """The page of GPT-2 with 12 layers, an optimizer and three dtypes is smaller than 3 MB."""
    text = to_html(replace(_account("gpt2"), checked=()), tmp_path / "gpt2.html")
    assert (tmp_path / "gpt2.html").read_text() == text
    assert (tmp_path / "gpt2.html").stat().st_size < 3_000_000


def test_a_model_of_many_layers(tmp_path):
    """A Llama of eight equal layers shows them as one row, whose figures are those of all of them."""

    def llama(H, Dh, F, V):
        config = {"num_attention_heads": H, "num_key_value_heads": H, "head_dim": Dh, "intermediate_size": F}
        return LlamaForCausalLM(LlamaConfig(hidden_size=H * Dh, vocab_size=V, num_hidden_layers=8, **config))

    step = sa.trace(
        sa.build(llama), input_ids="i64[B, L]", labels="i64[B, L]", check=False, autocast="bf16",
        optimizer=partial(torch.optim.AdamW, foreach=False),
    )  # fmt: skip
    to_html(step, tmp_path / "llama.html", dtypes=())
    sizes = sizes_for(step, random.Random(8))
    with opened() as page:
        agree(page.go(tmp_path / "llama.html").set(**sizes), step.at(**sizes), device("h100"))
        assert page.tab.locator("#module-table .times").first.inner_text() == "\u00d78"
