"""The memory report: what it says, in text, Markdown and JSON, and how it fits its width."""

import json
from functools import partial

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct import memory_report, report
from symacct.errors import DimError
from symacct.printing import quantity

SIZES = {"B": 32, "D": 64, "K": 10}


def mlp(D, K):
    return nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K))


class Named(nn.Module):
    """A layer whose name is wider than half a page."""

    def __init__(self, D):
        super().__init__()
        self.a_layer_with_a_name_that_is_longer_than_anyone_would_like_it = nn.LayerNorm(D)

    def forward(self, x):
        return self.a_layer_with_a_name_that_is_longer_than_anyone_would_like_it(x)


def deep(D):
    return nn.Sequential(*(nn.Sequential(nn.Linear(D, D), nn.GELU()) for _ in range(4)))


model = sa.build(mlp)


@pytest.fixture(scope="module")
def adamw():
    return sa.trace(model, "B D", optimizer=torch.optim.AdamW)


def entry(document, name):
    return document["bytes"][name]


def number(formula, sizes=SIZES):
    """What a formula of the JSON gives at sizes."""
    return int(sympy.sympify(formula, locals={n: sympy.Symbol(n) for n in sizes}).subs(sizes))


# -- closed forms ------------------------------------------------------------------------


def test_closed_forms_are_those_of_the_account(adamw):
    """Each line of the table is the account's own formula, and beside it at sizes the account's own value."""
    text = memory_report.to_text(adamw, width=120)
    attributes = ("param_bytes", "grad_bytes", "optimizer_bytes", "input_bytes", "activation_bytes", "checkpoint_bytes")
    names = ("parameters", "gradients", "optimizer state", "inputs", "activations", "checkpoint")
    for name, attribute in zip(names, attributes, strict=True):
        assert f" {name.ljust(15)}   {sa.formula(getattr(adamw, attribute))}\n" in text
    assert f" at rest           {sa.formula(adamw.memory.rest_bytes)}\n" in text
    at = adamw.at(**SIZES)
    document = json.loads(memory_report.to_json(at))
    for name, attribute in zip(names, attributes, strict=True):
        found = entry(document, name.replace(" ", "_"))
        assert found["value"] == getattr(at, attribute) == number(found["formula"])
    assert entry(document, "at_rest")["value"] == at.memory.rest_bytes
    assert document["peak"]["value"] == at.peak_bytes == number(document["peak"]["formula"])


@pytest.mark.parametrize(
    ("optimizer", "line"),
    [
        (torch.optim.AdamW, "16 bytes per parameter: 4 parameters + 4 gradients + 8 optimizer state; and 16 bytes of"),
        (partial(torch.optim.AdamW, amsgrad=True), "20 bytes per parameter: 4 parameters + 4 gradients + 12 optimizer"),
        (partial(torch.optim.SGD, momentum=0.9), "12 bytes per parameter: 4 parameters + 4 gradients + 4 optimizer"),
        (torch.optim.SGD, "8 bytes per parameter: 4 parameters + 4 gradients\n"),
        (None, "8 bytes per parameter: 4 parameters + 4 gradients\n"),
    ],
)
def test_bytes_per_parameter_N025_N089(optimizer, line):
    """All fp32: AdamW 16, with AMSGrad 20, SGD with momentum 12, without 8; the step counts of 4 tensors are apart."""
    assert line in memory_report.to_text(sa.trace(model, "B D", optimizer=optimizer, check=False), width=120)


def test_bytes_per_parameter_are_left_out_where_they_do_not_divide():
    """With a frozen layer gradients are of some parameters only, which is no number per parameter."""
    frozen = mlp(8, 4)
    frozen[0].weight.requires_grad_(False)
    account = sa.trace(frozen, "B 8", optimizer=torch.optim.AdamW)
    assert "per parameter" not in memory_report.to_text(account)
    assert json.loads(memory_report.to_json(account))["bytes_per_parameter"] is None


def test_how_the_step_is_run_is_in_the_heading():
    """The heading names the optimizer and what is out of the ordinary; inference is called that."""

    def heading(**options):
        return memory_report.heading(sa.trace(model, "B D", check=False, **options))[1]

    assert heading() == "training step without an optimizer"
    assert heading(train=False) == "forward only"
    assert heading(optimizer=partial(torch.optim.SGD, lr=0.1)) == "training step with SGD"
    unusual = {"accumulate": 4, "clip": 1.0, "set_to_none": False, "keep_outputs": True}
    assert heading(optimizer=torch.optim.SGD, **unusual) == (
        "training step with SGD, 4 micro-batches, gradients clipped to 1.0, gradients zeroed between steps, "
        "output kept until the step ends"
    )
    document = json.loads(memory_report.to_json(sa.trace(model, "B D", check=False, **unusual)))
    assert document["step"] == {"train": True, "optimizer": None, **unusual}


# -- the peak ----------------------------------------------------------------------------


def test_candidates_are_the_common_part_and_their_own(adamw):
    """What is common plus what is beyond it is the moment; the largest of them is the account's peak, at all sizes."""
    peak = json.loads(memory_report.to_json(adamw))["peak"]
    assert len(peak["candidates"]) == len(adamw.memory.candidates) > 2
    assert peak["value"] is peak["first"] is peak["by_kind"] is peak["tensors"] is None
    for sizes in ({"B": 1, "D": 1, "K": 1}, {"B": 4096, "D": 16, "K": 3}, {"B": 2, "D": 8, "K": 999}, SIZES):
        values = [number(c["formula"], sizes) for c in peak["candidates"]]
        common = number(peak["common"], sizes)
        assert values == [common + number(c["beyond_common"], sizes) for c in peak["candidates"]]
        assert max(values) == adamw.at(**sizes).peak_bytes
        assert min(number(c["beyond_common"], sizes) for c in peak["candidates"]) >= 0


def test_the_largest_moment_stands_first(adamw):
    """Moments are in falling order, and the first is the peak that the closed forms state."""
    for sizes in ({"B": 4096, "D": 16, "K": 3}, {"B": 2, "D": 999, "K": 3}):
        at = adamw.at(**sizes)
        values = [c["value"] for c in json.loads(memory_report.to_json(at))["peak"]["candidates"]]
        assert values == sorted(values, reverse=True)
        assert values[0] == at.peak_bytes
        assert (
            f"peak at these sizes: {at.peak_bytes:,} bytes, {memory_report.both(at.peak_bytes)}"
            in memory_report.to_text(at)
        )


def test_many_moments_are_cut_to_the_largest(adamw):
    """Only the largest are shown, at the trial sizes where there are no others; how many are left out is said."""
    count = len(adamw.memory.candidates)
    text = memory_report.to_text(adamw, top=2, width=200)
    assert f"The 2 largest at D=88, K=104, B=136 are shown; {count - 2} more can be the peak at other sizes." in text
    assert "--least L=128, or memory.where(L=128)" in text
    assert f"The 2 largest are shown; {count - 2} more" in memory_report.to_text(adamw.at(**SIZES), top=2, width=200)
    assert "more can be the peak" not in memory_report.to_text(adamw, width=200)


def test_least_sizes_leave_fewer_moments(adamw):
    """With dims that are known to be large fewer moments are left; the heading says which sizes that holds for."""
    least = {"B": 100_000}
    text = memory_report.to_text(adamw, least=least, width=200)
    found = json.loads(memory_report.to_json(adamw, least=least))["peak"]
    assert found["least"] == least
    assert len(found["candidates"]) == len(adamw.memory.where(**least).candidates) < len(adamw.memory.candidates)
    assert f"Max of {len(found['candidates'])} moments where B >= 100,000" in text
    with pytest.raises(DimError, match="there is no dim 'Q'; they are D, K, B"):
        memory_report.to_text(adamw, least={"Q": 3})
    with pytest.raises(DimError, match="least B=128, but the account is at B=32"):
        memory_report.to_text(adamw.at(**SIZES), least={"B": 128})


class WarmsUp(torch.optim.Optimizer):
    """Plain descent that in its first step also makes eight copies of each parameter."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter not in self.state:
                    self.state[parameter]["size"] = parameter.repeat(8, *[1] * (parameter.dim() - 1)).sum()
                parameter.add_(parameter.grad)


def test_a_moment_of_the_first_step_is_called_that():
    """Where the first step needs most, its moments say so, and so does the peak at sizes."""
    account = sa.trace(sa.build(lambda D: nn.Linear(D, D, bias=False)), "B D", optimizer=WarmsUp)
    assert "\n first step, optimizer: aten.sum in" in memory_report.to_text(account, width=120)
    at = account.at(B=1, D=1000)
    assert ", in the first step\n" in memory_report.to_text(at)
    peak = json.loads(memory_report.to_json(at))["peak"]
    assert peak["value"] == peak["first"]["value"] > peak["later"]["value"]
    assert peak["candidates"][0]["step"] == "first"


def test_one_moment_needs_no_maximum():
    """Where one moment is the peak at all sizes it is written out, and nothing is called common."""
    text = memory_report.to_text(sa.trace(torch.relu, "B D"))
    assert "peak: the same moment at all sizes" in text
    assert "common" not in text
    assert "\n peak     8*B*D\n" in text
    assert "\n forward: aten.relu in the top level   8*B*D\n" in text


# -- what is alive -----------------------------------------------------------------------


@pytest.mark.parametrize("allocator", ["logical", "cuda"])
def test_kinds_modules_and_tensors_add_up_to_the_peak(adamw, allocator):
    """What is alive at the peak is all there, whichever way it is grouped."""
    at = adamw.with_allocator(allocator).at(**SIZES)
    peak = json.loads(memory_report.to_json(at))["peak"]
    assert peak["value"] == max(peak["first"]["value"], peak["later"]["value"])
    assert sum(peak["by_kind"].values()) == sum(peak["by_module"].values()) == peak["value"]
    assert sum(t["bytes"] for t in peak["tensors"]) == peak["value"]
    assert [t["bytes"] for t in peak["tensors"]] == sorted((t["bytes"] for t in peak["tensors"]), reverse=True)


def test_tensors_have_dims_and_origins(adamw):
    """A tensor's shape is in dims; it has the name that it goes by, or the op, module and line that made it."""
    text = memory_report.to_text(adamw.at(B=32, D=256, K=10), width=120)
    assert " optimizer state   float32 (4*D, D)   0.weight:exp_avg_sq\n" in text
    assert " temporaries       float32 (4*D, D)   aten.sqrt in (optimizer) (test_memory_report.py:" in text
    tensors = json.loads(memory_report.to_json(adamw.at(**SIZES)))["peak"]["tensors"]
    weight = next(t for t in tensors if t["name"] == "2.weight" and t["kind"] == "parameters")
    assert weight["shape"] == ["K", "4*D"]
    assert (weight["bytes"], weight["dtype"], weight["module"]) == (4 * 10 * 4 * 64, "float32", "2")


def test_tensors_of_equal_layers_are_one_line():
    """Four equal layers' weights are one line, with how many there are and the bytes of all."""
    account = sa.trace(sa.build(deep), "B D", check=False).at(B=2, D=100)
    text = memory_report.to_text(account)
    assert f"\n {4 * 4 * 100 * 100 / 1000:.0f} kB   parameters    4 x float32 (D, D)   *.0.weight\n" in text


def test_what_is_left_out_is_summed(adamw):
    """A short table says how much is not in it."""
    at = adamw.at(**SIZES)
    modules = at.memory.peak.by_module(1)
    text = memory_report.to_text(at, top=1)
    rest = sum(modules.values()) - max(modules.values())
    assert f" ({len(modules) - 1} more)" in text
    assert quantity(rest, "B") in text


def test_a_model_without_dims_is_at_its_sizes():
    """A module and inputs of fixed sizes need none: the report has its values."""
    text = memory_report.to_text(sa.trace(nn.Linear(8, 4), "3 8"))
    assert "\n parameters    144   144 B\n" in text
    assert "alive at the peak, by kind" in text


def test_without_sizes_nothing_is_said_about_them(adamw):
    """An account in formulas has closed forms and moments, and no shares."""
    text = memory_report.to_text(adamw)
    assert "Max of" in text
    for words in ("alive at the peak", "at these sizes", "largest tensors", " MB"):
        assert words not in text


def test_the_convention_is_stated(adamw):
    """Logical bytes or blocks, and what is in neither, is said below; blocks are multiples of 512 bytes."""
    assert "what an allocator adds" in memory_report.to_text(adamw, width=200)
    cuda = adamw.with_allocator("cuda").at(B=3, D=7, K=5)
    text = memory_report.to_text(cuda, width=200)
    assert "\nmemory, in blocks of 512 bytes\n" in text
    assert "as CUDA's caching allocator hands them out; its fragmentation" in text
    document = json.loads(memory_report.to_json(cuda))
    assert document["allocator"] == "cuda"
    assert all(t["bytes"] % 512 == 0 for t in document["peak"]["tensors"])
    assert entry(document, "parameters")["value"] == cuda.memory.rest_bytes // 4 - 512


def test_what_the_bytes_rest_on_is_stated():
    """Assumptions and the check at other sizes are in the footnotes."""
    halves = sa.trace(lambda x: x.view(2, -1) + 1, "B D")
    assert halves.assumptions
    text = memory_report.to_text(halves, width=200)
    assert f"holds when: {'; '.join(map(str, halves.assumptions))}" in text
    assert "checked, node by node, at B=" in text
    assert "at a size of 1" in memory_report.to_text(sa.trace(torch.relu, "B D").at(B=1, D=2))


# -- forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_longer_than_the_width(adamw, width):
    """At 80, 100 and 120 columns no line is longer, no value is cut off, and words that fit stay whole."""
    for account in (adamw, adamw.at(B=4096, D=1024, K=1000)):
        for text in (memory_report.to_text(account, width=width), report.to_text(account, width=width)):
            assert max(map(len, text.splitlines())) <= width
    at = adamw.at(B=4096, D=1024, K=1000)
    text = memory_report.to_text(at, width=width)
    for candidate in json.loads(memory_report.to_json(at))["peak"]["candidates"]:
        assert quantity(candidate["value"], "B") + "\n" in text
    assert "aten.sum.dim_IntList" in text
    norm = sa.trace(sa.build(Named), "B L D", check=False).at(B=4096, L=1024, D=1000)
    text = report.to_text(norm, width=width)
    for part in (*norm.by_op().values(), *norm.by_module().values()):
        assert part.bytes == 0 or quantity(part.bytes, "B") + "\n" in text


def test_markdown_tables_are_whole(adamw):
    """Every row of a Markdown table has as many cells as its heading."""
    text = memory_report.to_markdown(adamw.at(**SIZES))
    assert text.startswith("## `Sequential(f32[B, D])`\n")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 6
    for table in tables:
        assert len({row.count("|") for row in table}) == 1
        assert set(table[1]) == set("| -")
    assert text.count("### ") == 6


def test_the_account_hands_over_its_report(adamw):
    """`Account.memory_report` is this report."""
    at = adamw.at(**SIZES)
    assert at.memory_report(depth=2, top=3) == memory_report.to_text(at, depth=2, top=3)


def test_output_is_the_same_in_every_process(outputs_by_seed):
    """Text, Markdown and JSON do not depend on the order of hashes."""
    code = (
        "import symacct as sa, torch; from torch import nn\n"
        "from symacct import memory_report as m\n"
        "model = sa.build(lambda H, Dh, F: nn.TransformerEncoderLayer(H*Dh, H, F, batch_first=True))\n"
        "a = sa.trace(model, 'B L (H Dh)', optimizer=torch.optim.AdamW, check=False)\n"
        "at = a.at(B=2, L=8, H=2, Dh=4, F=16)\n"
        "print(m.to_text(a), m.to_json(a), m.to_text(at), m.to_json(at), m.to_markdown(at))"
    )
    assert len(outputs_by_seed(code)) == 1


# -- the ordinary report -----------------------------------------------------------------


def test_the_ordinary_report_has_the_memory_of_the_step(adamw):
    """Its memory section has what stays and what the step needs; a peak of many moments refers to the memory report."""
    text = adamw.at(**SIZES).report()
    section = text.split("\nmemory\n")[1].split("by module")[0]
    names = [line.split("  ")[0].strip() for line in section.splitlines() if line.strip()]
    assert names == [
        "parameters", "parameters", "gradients", "optimizer state", "inputs", "activations", "at rest", "checkpoint",
        "peak",
    ]  # fmt: skip
    assert "see memory_report()" in section
    assert quantity(adamw.at(**SIZES).peak_bytes, "B") in section
    few = sa.trace(torch.relu, "B D")
    assert "\n peak     bytes   8*B*D\n" in few.report()
    assert "| `peak` | bytes | `8*B*D` |" in few.to_markdown()


def test_the_ordinary_json_has_the_memory_of_the_step(adamw):
    """Its "memory" object has formulas and values."""
    at = adamw.at(**SIZES)
    found = json.loads(at.to_json())["memory"]
    assert found["allocator"] == "logical"
    assert list(found) == ["allocator", "inputs", "activations", "at_rest", "checkpoint", "peak"]
    assert found["peak"]["value"] == at.peak_bytes == number(found["peak"]["formula"])
    assert found["activations"]["value"] == at.activation_bytes
    assert json.loads(adamw.to_json())["memory"]["at_rest"]["value"] is None


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [
        (0, "0 B"),
        (1000, "1 kB"),
        (2**20, "1.049 MB (1 MiB)"),
        (30066228824, "30.07 GB (28 GiB)"),
        (2**50, "1.126 PB (1 PiB)"),
    ],
)
def test_bytes_in_both_ways(nbytes, words):
    """Powers of 1000, and from a MiB on of 1024."""
    assert memory_report.both(nbytes) == words
