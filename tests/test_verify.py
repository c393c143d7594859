"""verify: accounts beside real runs, node by node; planted errors are found, at the node that has them."""

import json
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from typer.testing import CliRunner

import symacct as sa
from symacct.cli import app
from symacct.errors import SpecError, VerifyError

# -- every example, at three sizes -------------------------------------------------------

RANGES = {
    "two_layer": {"B": (2, 30), "D": (2, 40), "K": (2, 30)},
    "cruncher": {"B": (2, 30), "D": (2, 40)},
    "decode": {
        "B": (2, 3),
        "P": (3, 16),
        "G": (2, 3),
        "H": (2, 3),
        "Dh": (3, 6),
        "F": (5, 50),
        "V": (20, 90),
        "N": (2, 4),
    },
    "llama": {"B": (2, 4), "L": (3, 24), "G": (2, 3), "H": (2, 3), "Dh": (2, 6), "F": (5, 50), "V": (20, 90)},
    "gpt2": {"B": (2, 3), "L": (3, 16), "H": (2, 4), "Dh": (2, 12), "V": (20, 90), "P": (16, 40)},
    "resnet50": {"B": (2, 4)},
    "any_depth": {"B": (2, 3), "L": (3, 9), "H": (2, 3), "Dh": (2, 6), "V": (20, 60), "P": (16, 40), "N": (1, 4)},
    "mixed_precision": {"B": (2, 30), "D": (2, 40), "K": (2, 30)},
}  # fmt: skip


def random_sizes(name, seed):
    """Sizes that the model accepts; rotary embeddings split a head in two."""
    draw = random.Random(f"{name} {seed}")
    sizes = {dim: draw.randint(*bounds) for dim, bounds in RANGES[name].items()}
    return {n: 2 * s if n == "Dh" else s for n, s in sizes.items()}


def test_every_example_has_ranges(example_names):
    """No example is left out."""
    assert sorted(RANGES) == example_names


def runs():
    """Every example at three sizes. Two of ResNet-50's take long; docs/verification.md has their results."""
    for name in RANGES:
        for seed in (1, 2, 3):
            is_long = name == "resnet50" and seed > 1
            yield pytest.param(name, seed, marks=[pytest.mark.slow] if is_long else [])


@pytest.mark.parametrize(("name", "seed"), runs())
def test_an_example_is_as_a_real_run(name, seed, account):
    """The same operators of forward, backward and optimizer, FLOPs per op, bytes of memory; time above the bound."""
    found = account(name).verify(at=random_sizes(name, seed), steps=2)
    assert [str(r) for r in found.residuals] == []
    assert found.holds
    assert {part.name for part in found.parts if part.claims} == {"operators", "FLOPs", "bytes", "memory", "time"}


# -- planted errors ------------------------------------------------------------------------


class Planted(nn.Module):
    """Two linear layers with attention between them. What ``plant`` names happens in runs where `PLANT` says so."""

    def __init__(self, D, K):
        super().__init__()
        self.first, self.last = nn.Linear(D, D), nn.Linear(D, K)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        if PLANT.get("operator"):
            h = h + 0.0
        h = h.double().tanh() if PLANT.get("dtype") else h.float().tanh()
        if PLANT.get("leak"):
            KEPT.append(h)
        if PLANT.get("graph"):
            h = h.mul(2.0)
        h = F.scaled_dot_product_attention(*[h[None, None].float()] * 3)[0, 0]
        return self.last(h)


PLANT, KEPT = {}, []
SIZES = {"B": 7, "D": 12, "K": 5}


@pytest.fixture(scope="module")
def planted():
    """The account of the model above, in which nothing is planted."""
    return sa.trace(sa.build(Planted), "B D", optimizer=torch.optim.AdamW)


@pytest.fixture
def plant():
    """Plant something for the time of a test."""
    yield lambda what: PLANT.update({what: True})
    PLANT.clear()
    KEPT.clear()


def with_rules(account, rules):
    """The same account by other rules in place of some of its own."""
    return sa.Account(
        account.step, account.rules + rules, account.title, account.inputs, account.assumptions, account.trial_sizes,
        account.checked, program=account.program,
    )  # fmt: skip


def failing(found):
    """The parts that fail, with the first residual of each."""
    return {part.name: part.residuals[0] for part in found.parts if not part.holds}


def test_without_a_planted_error_all_holds(planted):
    """The model that errors are planted in is as a real run without them."""
    assert failing(planted.verify(at=SIZES, steps=0)) == {}


def test_bytes_are_those_of_one_step(planted):
    """What is compared adds up to the account's bytes of a later step, once."""
    part = planted.verify(at=SIZES, steps=0).part("bytes")
    total = planted.at(**SIZES).total
    for what, nbytes in (("read", total.bytes_read), ("written", total.bytes_written)):
        assert sum(f.predicted for f in part.figures if f.name.startswith(what)) == nbytes


def test_a_wrong_rule_for_flops_is_found(planted):
    """Three FLOP per multiply-add: FlopCounterMode disagrees at each matrix product, and the largest comes first."""
    rules = sa.Rules("wrong")
    rules.flops("aten.mm", "m k, k n -> m n")(lambda m, k, n: 3 * m * k * n)
    found = failing(with_rules(planted, rules).verify(at=SIZES, steps=0))
    assert list(found) == ["FLOPs"]
    assert str(found["FLOPs"]).startswith("aten.mm.default in first (backward, ")
    assert "3,024 FLOP by our rule, 2,016 by FlopCounterMode" in found["FLOPs"].text


def test_a_wrong_rule_in_a_gap_is_found(planted):
    """Attention on a CPU, which FlopCounterMode does not count, is compared with torch's formula for CUDA's."""
    rules = sa.Rules("wrong")
    rules.flops("aten._scaled_dot_product_flash_attention_for_cpu")(lambda: 1)
    found = failing(with_rules(planted, rules).verify(at=SIZES, steps=0))
    assert list(found) == ["FLOPs"]
    assert found["FLOPs"].op == "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert "by torch's formula on calls that amount to the same" in found["FLOPs"].text


@pytest.mark.parametrize(("read", "written"), [(100_000, 1), (1, 100_000)])
def test_a_wrong_rule_for_bytes_is_found(planted, read, written):
    """More than a kernel has operands or results is more than it can read or write."""
    rules = sa.Rules("wrong")
    rules.bytes("aten.tanh")(lambda: (read, written))
    found = failing(with_rules(planted, rules).verify(at=SIZES, steps=0))
    assert "bytes" in found
    assert found["bytes"].op == "aten.tanh.default"


@pytest.mark.parametrize("name", ["operator", "graph"])
def test_a_node_that_the_account_lacks_is_found(planted, plant, name):
    """An operator that really runs and was not recorded is named, with its operands and its module's neighbour."""
    plant(name)
    found = failing(planted.verify(at=SIZES, steps=0))
    assert found["operators"].op == {"operator": "aten.add.Tensor", "graph": "aten.mul.Tensor"}[name]
    assert "really run on float32[7, 12]" in found["operators"].text


@pytest.mark.parametrize("name", ["operator", "graph"])
def test_a_node_that_does_not_run_is_found(plant, name):
    """An operator that was recorded and does not run is named at its node."""
    plant(name)
    account = sa.trace(sa.build(Planted), "B D", check=False)
    PLANT.clear()
    found = failing(account.verify(at=SIZES, steps=0))
    assert found["operators"].op == {"operator": "aten.add.Tensor", "graph": "aten.mul.Tensor"}[name]
    assert "recorded, and not really run" in found["operators"].text


def test_a_wrong_dtype_is_found(planted, plant):
    """What is really float64 and was recorded as float32: the cast is named, and what reads another tensor."""
    plant("dtype")
    found = planted.verify(at=SIZES, steps=0)
    first, *others = found.part("operators").residuals
    assert str(first).startswith(
        "aten._to_copy.default in the top level (forward): really run on float32[7, 12], and not"
    )
    reader = next(r for r in others if r.op == "aten.tanh.default")
    assert "operand 0 is really float64[7, 12], predicted float32[7, 12]" in reader.text
    assert not found.part("memory").holds


def test_a_leaked_tensor_is_found(planted, plant):
    """A tensor that the model keeps is named at the node that made it; operators and FLOPs hold."""
    plant("leak")
    found = failing(planted.verify(at=SIZES, steps=0))
    assert list(found) == ["memory"]
    assert found["memory"].op == "aten.tanh.default"
    assert found["memory"].phase == "forward"


def test_a_time_under_the_bound_is_a_failure(planted):
    """Bytes or FLOPs so many that no machine could move them in the measured time refute the account."""
    rules = sa.Rules("wrong")
    rules.bytes("aten.tanh")(lambda: (10**15, 1))
    found = failing(with_rules(planted, rules).verify(at=SIZES, steps=2))
    assert "is under the bound" in found["time"].text
    assert found["time"].op == "aten.tanh.default"


# -- what is run ---------------------------------------------------------------------------


def held(account, **options):
    """The failing parts of a verification without a clock."""
    return failing(account.verify(steps=0, **options))


def test_a_module_as_it_is_is_verified_and_left_as_it_was():
    """A real module is copied: its parameters and gradients are what they were."""
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert held(sa.trace(module, "B 6", optimizer=torch.optim.AdamW), at={"B": 5}) == {}
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_a_module_on_meta_gets_data():
    """A module without data is given some for the run."""
    with torch.device("meta"):
        module = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 4))
    assert held(sa.trace(module, "i64[B, L]"), at={"B": 5, "L": 3}) == {}


def test_a_function_of_tensors_is_verified():
    """Functions need no module."""

    def attend(q, k):
        return (q @ k.transpose(1, 2)).softmax(-1)

    account = sa.trace(attend, "B L D", "B S D", grad=True)
    assert held(account, at={"B": 2, "L": 5, "S": 7, "D": 3}) == {}


def test_inference_is_verified():
    """One forward pass in eval mode; its output lives to the end."""
    account = sa.trace(sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Dropout())), "B D", train=False)
    found = account.verify(at={"B": 5, "D": 7}, steps=0)
    assert failing(found) == {}
    assert [f.name for f in found.part("operators").figures] == ["operators"]


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 3}, {"set_to_none": False}, {"clip": 1.0}, {"keep_outputs": True}, {"autocast": "bf16"},
        {"accumulate": 2, "set_to_none": False, "clip": 0.5, "autocast": "bf16"},
    ],
)  # fmt: skip
def test_a_step_is_run_as_it_was_described(options):
    """Micro-batches, gradients that are zeroed, clipping, held outputs, autocast."""
    build = sa.build(lambda D, F: nn.Sequential(nn.Linear(D, F), nn.LayerNorm(F), nn.GELU(), nn.Linear(F, D)))
    account = sa.trace(build, "B D", optimizer=torch.optim.AdamW, **options)
    assert held(account, at={"B": 5, "D": 7, "F": 9}) == {}


def test_without_sizes_the_trial_sizes_are_run(planted):
    """``at`` may be left out: the account's own sizes, or else those of the trace."""
    assert planted.verify(steps=0).sizes == planted.trial_sizes
    assert planted.at(**SIZES).verify(steps=0).sizes == SIZES


def test_torch_tensor_in_a_model_is_one_operator():
    """``torch.tensor(...)`` allocates, copies and lifts; the graph has the one operator."""

    def scaled(x):
        return x * torch.tensor([2.0, 3.0]).sum()

    assert held(sa.trace(scaled, "B D", train=False), at={"B": 5, "D": 7}) == {}


class Picks(nn.Module):
    """Sorts, picks and scatters, whose backward works in place."""

    def __init__(self, D):
        super().__init__()
        self.first = nn.Linear(D, D)

    def forward(self, x):
        h = self.first(x)
        h = h.gather(1, h.detach().argsort(1)) + h.sort(1).values
        return h[:, torch.arange(3)] + h.topk(3).values + h.index_select(1, torch.arange(3))


def test_backward_formulas_are_those_of_plain_tensors():
    """Where ATen's formulas differ under a recorder, the recorded operators are those that really run."""
    assert held(sa.trace(sa.build(Picks), "B D"), at={"B": 5, "D": 12}) == {}


def test_clipping_is_that_of_plain_tensors():
    """Clipping takes the gradients as a list, as it does for plain tensors."""
    account = sa.trace(sa.build(lambda D: nn.Linear(D, D)), "B D", clip=1.0)
    assert {"aten._foreach_norm.Scalar", "aten._foreach_mul_.Tensor"} <= set(account.by_op("optimizer"))
    assert account.unknown == []


class Checkpointed(nn.Module):
    """Two blocks that are computed again in the backward pass; each ends in an operator that keeps its operands."""

    def __init__(self, D):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def test_a_checkpoint_that_stops_early_is_as_a_real_run():
    """What is entered and left before its kernel runs has not run."""
    account = sa.trace(sa.build(Checkpointed), "B D", optimizer=torch.optim.AdamW)
    assert account.recompute.count
    assert held(account, at={"B": 5, "D": 12}) == {}


# -- inputs --------------------------------------------------------------------------------


class Ranges(nn.Module):
    """Whole numbers that are used as token ids, positions, labels, indices, a mask."""

    def __init__(self, V, P, C):
        super().__init__()
        self.tokens, self.positions, self.head = nn.Embedding(V, 8), nn.Embedding(P, 8), nn.Linear(8, C)

    def forward(self, ids, places, labels, mask, rows):
        shifted = F.pad(ids[:, 1:], (0, 1), value=0).to(torch.int32)
        h = self.tokens(shifted) + self.positions(places.clone())
        h = h * mask[..., None] + h.index_select(1, rows).sum(1, keepdim=True)
        return F.cross_entropy(self.head(h).flatten(0, 1), labels.flatten())


def test_whole_numbers_are_within_what_they_index():
    """Token ids within the vocabulary, positions within theirs, labels within the classes, rows within the length."""
    from symacct.verify.ranges import bounds

    account = sa.trace(
        sa.build(Ranges), "i64[B, L]", "i64[B, L]", "i64[B, L]", "i64[B, L]", "i64[R]", loss=lambda loss: loss
    )
    sizes = {"B": 3, "L": 9, "V": 13, "P": 10, "C": 4, "R": 5}
    assert bounds(account.step.record, sizes) == {"input_0": 13, "input_1": 10, "input_2": 4, "input_4": 9}
    assert held(account, at=sizes) == {}


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_cuda_is_refused(planted):
    """What is missing and what to do."""
    with pytest.raises(VerifyError, match=r"torch sees no CUDA device here; run this where there is one, or with dev"):
        planted.verify("cuda", at=SIZES)


def test_wrong_arguments_are_refused(planted):
    """An unknown device, no steps, sizes that are missing, an account that has no program."""
    with pytest.raises(SpecError, match=r"device 'tpu' is none of cpu, cuda"):
        planted.verify("tpu", at=SIZES)
    with pytest.raises(SpecError, match="steps: expected a whole number >= 0, got -1"):
        planted.verify(at=SIZES, steps=-1)
    with pytest.raises(sa.SymacctError, match="no size for D"):
        planted.verify(at={"B": 2, "K": 3})
    bare = with_rules(planted, sa.Rules())
    bare.program = None
    with pytest.raises(VerifyError, match="no program to run"):
        bare.verify(at=SIZES)


def test_a_run_that_fails_says_where(plant):
    """An error of the model itself becomes one sentence with the sizes."""

    def fails(x):
        if PLANT:
            raise ValueError("this model has a bad day")
        return x * 2

    account = sa.trace(fails, "B", train=False)
    plant("error")
    message = "the real run of fails on cpu failed at B=3: ValueError: this model has a bad day"
    with pytest.raises(VerifyError, match=message):
        account.verify(at={"B": 3})


def test_nothing_is_left_behind(planted):
    """Random numbers, threads, modes: as before."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    planted.verify(at=SIZES, steps=0)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert torch.backends.mha.get_fastpath_enabled()
    assert not torch._C._len_torch_dispatch_stack()


# -- the record ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verification(planted):
    """A verification that holds."""
    return planted.verify(at=SIZES, steps=2)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_report_fits_its_width(verification, width):
    """No line is longer; figures are not folded."""
    text = verification.report(width)
    assert max(map(len, text.splitlines())) <= width
    assert "holds: operators, FLOPs, bytes, memory, time" in text


def test_the_record_for_machines_has_everything(verification):
    """Versions, device, sizes, seed, every figure."""
    document = json.loads(verification.to_json())
    assert document["holds"] is True
    assert document["sizes"] == SIZES
    assert document["settings"]["seed"] == 0
    assert document["machine"]["torch"] == torch.__version__
    assert {part["name"] for part in document["parts"]} == {part.name for part in verification.parts}
    figures = {f["name"]: f for part in document["parts"] for f in part["figures"]}
    assert figures["peak, later step"]["predicted"] == figures["peak, later step"]["measured"]


def test_parts_and_figures_are_found_by_name(verification):
    """A wrong name lists those that there are."""
    assert verification.part("memory").holds
    assert verification.figure("optimizer's state").verdict == "equal"
    with pytest.raises(KeyError, match="'mems' is none of operators, FLOPs, bytes, memory, time, hardware counters"):
        verification.part("mems")
    with pytest.raises(KeyError, match="is none of operators, first step, "):
        verification.figure("nothing")


def test_markdown_has_the_same_tables(verification):
    """A heading, and a table for each part."""
    text = verification.to_markdown()
    assert text.startswith("## `Planted(f32[B, D])`")
    assert text.count("### ") == len(verification.parts)


# -- gaps of FlopCounterMode ---------------------------------------------------------------


PROGRAMS = {  # gap's operator: program, specs
    "aten.mv": (lambda a, b: torch.mv(a, b), ("M N", "N")),
    "aten.dot": (lambda a, b: torch.dot(a, b), ("N", "N")),
    "aten.vdot": (lambda a, b: torch.vdot(a, b), ("N", "N")),
    "aten.addmv": (lambda a, b, c: torch.addmv(a, b, c), ("M", "M N", "N")),
    "aten.addbmm": (lambda a, b, c: torch.addbmm(a, b, c), ("M K", "B M N", "B N K")),
    "aten.mm": (lambda a, b: a @ b, ("c64[M, N]", "c64[N, K]")),
    "aten.bmm": (lambda a, b: torch.bmm(a, b), ("c64[B, M, N]", "c64[B, N, K]")),
}
DIMS = {"B": 3, "M": 5, "N": 7, "K": 4}


@pytest.mark.parametrize("op", PROGRAMS)
def test_a_known_gap_is_compared_all_the_same(op):
    """What FlopCounterMode does not count, or counts wrongly, has a second opinion, and its figure says so."""
    program, specs = PROGRAMS[op]
    account = sa.trace(program, *specs, train=False)
    found = account.verify(at={n: s for n, s in DIMS.items() if n in account.dims}, steps=0)
    assert failing(found) == {}
    (figure,) = found.part("FLOPs").figures
    assert figure.name == f"{op} x1"
    assert (figure.verdict, figure.predicted) == ("known gap", figure.measured)
    assert figure.note.startswith("FlopCounterMode counts ")


def test_the_gap_of_grouped_convolutions_is_compared_group_by_group():
    """Forward is counted right, both gradients by as many small dense ones."""
    account = sa.trace(
        sa.build(lambda C: nn.Conv1d(4 * C, 8 * C, 3, groups=4)), "B C4 12", grad=True, sizes={"C4": 352}
    )
    found = account.verify(at={"B": 2, "C": 3, "C4": 12}, steps=0)
    assert failing(found) == {}
    verdicts = {f.name: f.verdict for f in found.part("FLOPs").figures}
    assert verdicts == {"aten.convolution x1": "equal", "aten.convolution_backward x1": "known gap"}
    assert found.figure("aten.convolution_backward x1").note.startswith("FlopCounterMode counts ")


def test_what_nothing_else_counts_is_reported_as_absent():
    """FLOPs of an operator that FlopCounterMode has no formula for, nor torch another: no verdict of equality."""
    account = sa.trace(lambda a, b, w: F.bilinear(a, b, w), "B M", "B N", "K M N", train=False)
    found = account.verify(at=DIMS, steps=0)
    (figure,) = (f for f in found.part("FLOPs").figures if f.verdict == "absent")
    assert figure.name.startswith("aten._trilinear")
    assert figure.measured is None
    assert found.holds


# -- the command line ----------------------------------------------------------------------

FILE = str(Path(__file__).parent / "data" / "cli_models.py")


def command(*arguments):
    """Run `symacct verify ARGUMENTS`: exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["verify", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_command_line_verifies(tmp_path):
    """Tables, a record beside them, exit code 0 where all holds."""
    record = tmp_path / "run.json"
    options = ("--build", "B D", "--optimizer", "AdamW", "--at", "B=3,D=6,K=5", "--steps", "0", "--record", str(record))
    code, out, err = command(f"{FILE}:Net", *options)
    assert (code, err) == (0, "")
    assert "holds: operators, FLOPs, bytes, memory" in out
    assert json.loads(record.read_text())["holds"] is True


def test_the_command_line_prints_json():
    """--json is one document."""
    code, out, _ = command(f"{FILE}:matmul", "B D", "D K", "--at", "B=2,D=3,K=5", "--steps", "0", "--json")
    assert code == 0
    assert json.loads(out)["sizes"] == {"B": 2, "D": 3, "K": 5}


def test_the_command_line_fails_where_something_does_not_hold():
    """A wrong rule: exit code 1, and the residual at its node."""
    rules = f"{Path(__file__).parent / 'data' / 'cli_models.py'}:wrong_rules"
    code, out, _ = command(f"{FILE}:matmul", "B D", "D K", "--at", "B=2,D=3,K=5", "--steps", "0", "--rules", rules)
    assert code == 1
    assert "FAILS: FLOPs" in out
    assert "90 FLOP by our rule, 60 by FlopCounterMode" in " ".join(out.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_line_says_what_is_missing(tmp_path):
    """No CUDA: exit code 1 and a sentence. A record that cannot be written: 2, before anything runs."""
    code, _, err = command(f"{FILE}:matmul", "B D", "D K", "--at", "B=2,D=3,K=5", "--device", "cuda")
    assert (code, err.splitlines()) == (1, [err.strip()])
    assert "torch sees no CUDA device here" in err
    code, _, err = command(f"{FILE}:matmul", "B D", "D K", "--record", str(tmp_path / "no" / "run.json"))
    assert code == 2
    assert "--record: there is no folder" in err


def test_an_account_can_be_described_for_another_device():
    """--device traces an account that is there already anew, with the kernels of that device."""
    from symacct.tracing import described

    account = sa.trace(sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Dropout())), "B D", check=False)
    assert "aten.native_dropout.default" not in account.by_op()
    again = described(account, "cuda", check=False)
    assert "aten.native_dropout.default" in again.by_op()
    assert again.trial_sizes == account.trial_sizes
    assert again.params == account.params


# -- the page ------------------------------------------------------------------------------


def test_the_page_has_the_gaps_and_the_records():
    """The generated tables of docs/verification.md are those of the code and of docs/runs; every run there holds."""
    import sweep_verification as sweep

    page = sweep.PAGE.read_text()
    for name, lines in (("gaps", sweep.gaps()), ("runs", sweep.runs())):
        begin, end = f"<!-- begin generated {name} -->\n\n", f"\n\n<!-- end generated {name} -->"
        assert page.partition(begin)[2].partition(end)[0] == "\n".join(lines)
    grid = page.partition("<!-- begin generated grid -->")[2].partition("<!-- end generated grid -->")[0]
    rows = [line for line in grid.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 3 * len(RANGES) + 48
    assert all(row.endswith("| yes |") for row in rows)
