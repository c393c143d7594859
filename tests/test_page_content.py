"""What a page knows, without a browser: its numbers are the account's, at every part, phase, dtype and depth."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import pytest
import torch
from conftest import EXAMPLES, _account, _example
from torch import nn

import symacct as sa
from symacct.depth.structural import StructuralAccount
from symacct.dim import point
from symacct.errors import DeviceError, SpecError
from symacct.hardware import Device, device, devices
from symacct.page import to_html
from symacct.page.content import content
from symacct.page.parts import kept_by_module
from symacct.page.rendering import _json, _script
from symacct.page.variants import variants
from symacct.record import PHASES

NAMES = ("two_layer", "cruncher", "gpt2", "llama", "resnet50", "any_depth")
MEASURES = ("flops", "pointwise", "bytes")
DEPTHS = range(1, 9)


@cache
def known(name):
    """An example's account and the content of its page, in the dtype that it was traced in."""
    step = _account(name)
    return step, content(step, variants(step, ()), device("h100"))


def sizes_for(step, rng, most=2000):
    """Sizes of all dims, small and large ones as likely, that satisfy all that the trace relied on."""
    while True:
        sizes = {name: round(2 ** rng.uniform(0, most.bit_length())) for name in step.dims}
        if all(each.holds(point(sizes)) for each in step.assumptions):
            return sizes


def run_in_python(variant, sizes):
    """The values of a variant's program, each a whole number or a fraction, by its place."""
    source = re.sub(r"(\d)n\b", r"\1", variant["program"])
    before, _, after = source.rpartition("return ")
    names = {"s": [sizes[each["name"]] for each in variant["dims"]], "max": max, "min": min}
    names |= {"floor": lambda a, b: a // b, "mod": lambda a, b: a % b}
    for line in re.split(r",(?=t\d+=)", before.removeprefix("const ").removesuffix(";")):
        exec(line, names)
    flat = eval(after.removesuffix(";"), names)
    return [Fraction(top, below) if below else None for top, below in zip(flat[::2], flat[1::2], strict=True)]


def total(variant, values, runs, phase=None):
    """FLOP, pointwise arithmetic and bytes of runs: of a phase, or of all."""
    found = Counter()
    for each, parts in runs.items():
        for number, times, *place in parts if phase in (None, each) else ():
            kernel = variant["kernels"][number]
            count = values[place[0]] if place else times
            found["flops"] += count * sum(values[p] for p in kernel["flops"].values())
            found["pointwise"] += count * values[kernel["pointwise"]]
            found["bytes"] += count * values[kernel["bytes"]]
    return {measure: found[measure] for measure in MEASURES}


def inside(rows, path):
    """The rows of a module and of all below it; at the top level stands only what is in no module."""
    return [row for row in rows if row["name"] == path or (path and row["name"].startswith(path + "."))]


def measured(part):
    """The same figures of a phase of an account."""
    return {measure: getattr(part, measure) for measure in MEASURES}


@pytest.fixture(params=[(name, seed) for name in NAMES for seed in range(2)], ids=lambda case: f"{case[0]}-{case[1]}")
def at_sizes(request):
    """An account at random sizes, its variant of the page's content, and the values of that at these sizes."""
    name, seed = request.param
    step, made = known(name)
    sizes = sizes_for(step, random.Random(f"{name} {seed}"))
    (variant,) = made["variants"]
    return step.at(**sizes), variant, run_in_python(variant, sizes)


def test_phases(at_sizes):
    """The kernels of each phase add up to the account's own sums of it, and their FLOP by dtype to the roofline's."""
    step, variant, values = at_sizes
    assert [row["name"] for row in variant["phases"]] == list(PHASES)
    for row in variant["phases"]:
        assert total(variant, values, row["runs"]) == measured(step.phases[row["name"]])
    found = Counter()
    for row in variant["phases"]:
        for number, times, *place in (run for runs in row["runs"].values() for run in runs):
            for dtype, flops in variant["kernels"][number]["flops"].items():
                found[dtype] += values[flops] * (values[place[0]] if place else times)
    assert found == step.roofline("h100").total.flops_by_dtype


def test_ops(at_sizes):
    """The kernels of each op add up to the account's sums by op, in every phase and in all."""
    step, variant, values = at_sizes
    for phase in (None, *PHASES):
        expected = {op: measured(part) for op, part in step.by_op(phase).items()}
        found = {row["name"]: total(variant, values, row["runs"], phase) for row in variant["ops"]}
        assert {op: each for op, each in found.items() if op in expected} == expected
        assert not any(any(each.values()) for op, each in found.items() if op not in expected)
    assert [row["name"] for row in variant["ops"]] == list(step.by_op())


def test_modules(at_sizes):
    """At every depth, in every phase, a module with all below it is what the account says of it."""
    step, variant, values = at_sizes
    rows = variant["modules"]
    own = {row["name"]: {p: total(variant, values, row["runs"], p) for p in (None, *PHASES)} for row in rows}
    assert len(own) == len(rows)
    for depth in DEPTHS:
        for phase in (None, *PHASES):
            for path, part in step.by_module(depth, phase, repeats=True).items():
                if path.count(".") + 1 != depth and path:
                    continue
                found = [own[row["name"]][phase] for row in inside(rows, path)]
                assert {m: sum(each[m] for each in found) for m in MEASURES} == measured(part), (path, phase)
                assert next(row["times"] for row in rows if row["name"] == path) == part.times or phase
    summed = [own[row["name"]][None] for row in rows]
    assert {m: sum(each[m] for each in summed) for m in MEASURES} == measured(step.total)


def test_modules_are_a_tree_in_order():
    """A parent stands before its children, which follow it, and the depth is that of the path."""
    for name in NAMES:
        (variant,) = known(name)[1]["variants"]
        seen = []
        for row in variant["modules"]:
            path = row["name"]
            parent = path.rpartition(".")[0]
            assert row["depth"] == path.count(".")
            assert not parent or parent in seen
            seen.append(path)


def test_activations_that_are_kept(at_sizes):
    """What the modules keep for the backward pass adds up to the account's activations."""
    step, variant, values = at_sizes
    assert sum(values[row["kept"]] for row in variant["modules"]) == step.activation_bytes
    assert sum(kept_by_module(step.symbolic).values()) - step.symbolic.activation_bytes == 0


def test_memory(at_sizes):
    """Held tensors, the peak with what is alive by kind, and the timelines, each at its highest."""
    step, variant, values = at_sizes
    memory = variant["memory"]
    held = {(each["name"], each["unit"]): values[each["value"]] for each in memory["held"]}
    expected = {
        ("parameters", "count"): step.params, ("parameters", "bytes"): step.param_bytes,
        ("gradients", "bytes"): step.grad_bytes, ("optimizer state", "bytes"): step.optimizer_bytes,
        ("buffers", "bytes"): step.buffer_bytes, ("inputs", "bytes"): step.input_bytes,
        ("activations", "bytes"): step.activation_bytes, ("at rest", "bytes"): step.memory.rest_bytes,
        ("checkpoint", "bytes"): step.checkpoint_bytes,
    }  # fmt: skip
    assert held == {key: value for key, value in expected.items() if value != 0}
    top = max(memory["moments"], key=lambda moment: values[moment["bytes"]])
    assert values[top["bytes"]] == step.peak_bytes
    assert sum(values[place] for place in top["kinds"].values()) == step.peak_bytes
    assert memory["timelines"]
    assert max(max(bytes_of(each, values)) for each in memory["timelines"]) == step.peak_bytes


def moments_of(timeline, values):
    """The moments of a timeline in order: op, module path, phase, and what changes before each."""
    for segment in timeline["segments"]:
        rows = list(zip(*([timeline["texts"][n] for n in segment[key]] for key in NAMED), strict=True))
        count = len(rows) if segment["count"] < 0 else int(values[segment["count"]])
        for i in range(count):
            row, layer = i % len(rows), i // len(rows)
            last = (count - row - 1) // len(rows)  # the last layer that has this row
            which = "changes"
            if segment["count"] >= 0:
                which = "first" if layer == 0 else "last" if layer == last else "changes"
            yield *rows[row], amounts(segment[which][row], values)


NAMED = ("ops", "paths", "phases")


def amounts(flat, values):
    """How many (more) of each class: pairs of numbers, where 0 says that the next is the place of a formula."""
    rest, found = iter(flat), []
    for which in rest:
        times = next(rest)
        found.append((which, times or values[next(rest)]))
    return found


def bytes_of(timeline, values):
    """The bytes alive at each moment of a timeline."""
    sizes = [values[place] for _, place in timeline["classes"]]
    alive = sum(sizes[which] * times for which, times in amounts(timeline["start"], values))
    for *_, changes in moments_of(timeline, values):
        alive += sum(sizes[which] * more for which, more in changes)
        yield alive


@pytest.mark.parametrize("name", NAMES)
def test_timelines_are_those_of_the_account(name):
    """Every moment of both timelines has the op, module path, phase and bytes of the account, at any depth."""
    step, made = known(name)
    (variant,) = made["variants"]
    sizes = sizes_for(step, random.Random(7), 60)
    if isinstance(step, StructuralAccount):
        sizes["N"] = 5
    values = run_in_python(variant, sizes)
    if isinstance(step, StructuralAccount):
        step = sa.trace(build_at(name, sizes), check=False, optimizer=partial(torch.optim.AdamW, fused=True), **TOKENS)
        sizes = {dim: size for dim, size in sizes.items() if dim in step.dims}
    memory = step.at(**sizes).memory
    timelines = list(dict.fromkeys((memory.later, memory.first)))
    assert [each["step"] for each in variant["memory"]["timelines"]] == [each.name for each in timelines]
    for shown, timeline in zip(variant["memory"]["timelines"], timelines, strict=True):
        moments = timeline.moments
        named = getattr(_account(name), "templates", None)
        found = [row[:3] for row in moments_of(shown, values)]
        paths = [named.of(moment.path) if named else moment.path for moment in moments]
        assert found == [(m.op.removesuffix(".default"), path, m.phase) for m, path in zip(moments, paths, strict=True)]
        heights = list(bytes_of(shown, values))
        for i in random.Random(8).sample(range(len(heights)), min(len(heights), 40)):
            assert heights[i] == moments[i].nbytes
        assert max(heights) == timeline.peak.nbytes


TOKENS = {"input_ids": "i64[B, L]", "labels": "i64[B, L]"}


def build_at(name, sizes):
    """The model of an example of any depth, with as many blocks as its sizes say and all else symbolic."""
    builder = _example(name).gpt2
    return sa.build(lambda H, Dh, V, P: builder(sizes["N"], H, Dh, V, P))


def test_conditions():
    """What sizes must satisfy is there in words and as places, and holds exactly where `at` accepts the sizes."""
    step, made = known("llama")
    (variant,) = made["variants"]
    assert [each["text"] for each in variant["conditions"]] == [str(each) for each in step.assumptions]
    holds = {"==": int.__eq__, "<=": int.__le__, ">=": int.__ge__, "<": int.__lt__, ">": int.__gt__}
    sizes = sizes_for(step, random.Random(1))
    for wrong, accepted in (({}, True), ({"Dh": 258}, False), ({"Dh": 7}, False), ({"L": 1}, False)):
        values = run_in_python(variant, {**sizes, **wrong})
        found = [
            holds[each["relation"]](int(values[each["left"]]), int(values[each["right"]]))
            for each in variant["conditions"]
        ]
        assert all(found) == accepted
        if accepted:
            _ = step.at(**sizes, **wrong)
        else:
            with pytest.raises(sa.SymacctError):
                _ = step.at(**{**sizes, **wrong})


def test_the_start():
    """A page starts with the account's sizes, else with its trial sizes; a slider goes at least to 64 times that."""
    step, made = known("two_layer")
    assert made["sizes"] == [[name, str(step.trial_sizes[name])] for name in step.dims]
    large = step.at(B=16384, D=10**20, K=8192)
    made = content(large, variants(large, ()), device("h100"))
    assert made["sizes"] == [[name, str(large.sizes[name])] for name in step.dims]
    (variant,) = made["variants"]
    assert {each["name"]: each["most"] for each in variant["dims"]} == {"B": 2**20, "D": 64 * 10**20, "K": 2**20}
    assert {each["name"]: each["least"] for each in known("any_depth")[1]["variants"][0]["dims"]}["N"] == 2


def test_devices():
    """All devices of the table are there with their ceilings, the chosen one too where it is in no table."""
    step, made = known("two_layer")
    assert [each["name"] for each in made["devices"]] == list(devices())
    mine = Device("mine", "me", 2**30, 1e9, {"float32": 1e12}, "measured")
    made = content(step, variants(step, ()), mine)
    assert made["device"] == "mine"
    assert made["devices"][-1] == {
        "name": "mine", "vendor": "me", "memory": 2**30, "bandwidth": 1e9, "peaks": {"float32": 1e12}, "vector": None,
        "source": "measured",
    }  # fmt: skip


# -- graphs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_graphs(name):
    """The costs of the boxes of every graph add up to the phase's or the step's total, and each box is in its DOT."""
    step, made = known(name)
    (variant,) = made["variants"]
    sizes = sizes_for(step, random.Random(9))
    at, values = step.at(**sizes), run_in_python(variant, sizes)
    assert sum(graph["chosen"] for graph in variant["graphs"]) >= 1
    assert {graph["phase"] for graph in variant["graphs"] if graph["phase"]} <= {"step", *PHASES}
    for graph in variant["graphs"]:
        phase = None if graph["phase"] in (None, "", "step") else graph["phase"]
        found = [total(variant, values, {"": box["runs"]}) for box in graph["boxes"].values()]
        summed = {measure: sum(each[measure] for each in found) for measure in MEASURES}
        assert summed == measured(at.phases[phase] if phase else at.total)
        kept = sum(values[box["kept"]] for box in graph["boxes"].values())
        assert kept == (at.activation_bytes if phase in (None, "forward") else 0)
        assert all(f'"{each}"' in graph["dot"] for each in graph["boxes"])
    assert {graph["phase"] for graph in variant["graphs"]} >= {p for p in ("forward", "backward") if at.phases[p].count}


# -- dtypes --------------------------------------------------------------------------------


def test_dtypes():
    """bf16 halves parameters, autocast keeps them, and the FLOP are those of the step as it was traced."""
    step = _account("cruncher")
    found = {each.label: each.account for each in variants(step, ("autocast bf16", "bf16"))}
    assert list(found) == ["f32 (as traced)", "autocast bf16", "bf16"]
    assert found["f32 (as traced)"] is step
    assert found["bf16"].param_bytes * 2 == step.param_bytes
    assert found["bf16"].params == found["autocast bf16"].params == step.params
    assert found["autocast bf16"].param_bytes == step.param_bytes
    dtypes = {label: {t.dtype for node in each.forward.account for t in node.inputs} for label, each in found.items()}
    assert "bfloat16" not in dtypes["f32 (as traced)"]
    assert {"float32", "bfloat16"} <= dtypes["autocast bf16"]
    for each in found.values():
        assert each.total.flops == step.total.flops
        assert each.checked
    made = content(step, variants(step, ("bf16",)), device("h100"))["variants"]
    values = [run_in_python(each, {"B": 3, "D": 5}) for each in made]
    both = [
        {(held["name"], held["unit"]): value[held["value"]] for held in each["memory"]["held"]}
        for each, value in zip(made, values, strict=True)
    ]
    assert both[0]["parameters", "bytes"] == 2 * both[1]["parameters", "bytes"]
    assert both[0]["parameters", "count"] == both[1]["parameters", "count"]


def test_a_dtype_that_the_model_refuses():
    """What has no kernel in a dtype is a variant with its reason and without formulas; the others are there."""

    class Inverse(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.up = nn.Linear(D, D)

        def forward(self, x):
            return torch.linalg.inv(self.up(x))

    step = sa.trace(sa.build(Inverse), "D D")
    made = content(step, variants(step, ("bf16", "f64")), device("h100"))["variants"]
    by_label = {each["label"]: each for each in made}
    assert set(by_label["bf16"]) == {"label", "refusal"}
    assert "Low precision dtypes not supported. Got torch.bfloat16" in by_label["bf16"]["refusal"]
    assert by_label["f64"]["refusal"] == ""
    assert "program" in by_label["f64"]


def test_a_word_that_is_no_dtype():
    """A dtype that is none is refused with what there is, before anything is traced."""
    for word in ("bf17", "i64", "autocast", ""):
        with pytest.raises(SpecError, match=rf"^dtypes: '{word}' is neither a floating dtype \(f64, .*bf16.*\) nor "):
            variants(_account("two_layer"), (word,))


def test_an_account_without_a_program():
    """What cannot be traced anew has its own dtype alone."""
    step = replace(_account("two_layer"), program=None)
    assert [each.label for each in variants(step, ("bf16",))] == ["f32 (as traced)"]


# -- the file ------------------------------------------------------------------------------


def test_ops_without_a_rule():
    """They are named, and their modules say that the sums are incomplete."""

    def odd(x):
        return torch.special.bessel_j0(x) + 1

    step = sa.trace(odd, "B D", rules=sa.Rules("none"), train=False)
    (variant,) = content(step, variants(step, ()), device("h100"))["variants"]
    assert variant["incomplete"] == [str(each) for each in step.unknown] != []
    assert variant["total"]["step"]["incomplete"] == "no rule"


def test_scripts_cannot_be_ended_by_what_they_hold():
    """Names that look like the end of a script are escaped, in JSON and in programs."""
    text = _json({"name": "</script><script>alert(1)</script><!--"})
    assert "<" not in text
    assert json.loads(text)["name"] == "</script><script>alert(1)</script><!--"
    assert "</script" not in _script("a = '</script>'")


def test_wrong_files_and_devices(tmp_path):
    """A folder that is not there and a device that is none are refused before dtypes are traced."""
    step = _account("two_layer")
    with pytest.raises(SpecError, match=r"^explore: there is no folder"):
        to_html(step, tmp_path / "no" / "model.html")
    with pytest.raises(DeviceError, match="h1000"):
        to_html(step, device="h1000")
    assert list(tmp_path.iterdir()) == []


def test_the_same_page_in_every_process(outputs_by_seed):
    """A page, byte for byte, does not depend on the order of hashes."""
    code = f"""
import importlib.util, hashlib, sys
spec = importlib.util.spec_from_file_location("cruncher", {str(EXAMPLES / "cruncher.py")!r})
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
from symacct.page import to_html
print(hashlib.sha256(to_html(module.account(), dtypes=("bf16",)).encode()).hexdigest())
"""
    assert len(outputs_by_seed(code)) == 1
