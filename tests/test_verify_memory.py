"""The memory part of a verification: it finds what is planted, in the record or in the run, at the right node.

That it finds nothing where nothing is wrong is tested over many programs in tests/test_memory_measured.py.
"""

import dataclasses
import random
from contextlib import ExitStack
from functools import cache, partial

import pytest
import torch
from torch import nn, optim

import symacct as sa
from symacct.errors import VerifyError
from symacct.program import Loop
from symacct.record import Node
from symacct.surroundings import enter_counted_world
from symacct.verify.allocations import courses
from symacct.verify.course import Order, Piece
from symacct.verify.cuda_memory import memory_stats_part
from symacct.verify.findings import BOUND, DIFFERENT, EQUAL
from symacct.verify.memory import memory_part, numbers_in
from symacct.verify.operators import align, nodes_of, steps_of
from symacct.verify.pairing import paired
from symacct.verify.profiled import Allocated, Called, Point, Seen, point, profiled

SIZES = {"B": 6, "D": 8, "F": 20}


class Hidden(nn.Module):
    """A layer that does in real runs what the trace did not see."""

    leak, clone, skip = False, False, False

    def __init__(self, D, F):
        super().__init__()
        self.up, self.down, self.kept = nn.Linear(D, F), nn.Linear(F, D), []

    def forward(self, x):
        h = torch.tanh(self.up(x))
        if Hidden.leak:
            self.kept.append(h)
        y = self.down(h if Hidden.skip else torch.relu(h))
        return y.clone() if Hidden.clone else y


class Block(nn.Module):
    """Attention and a layer as above, each added to what comes in."""

    def __init__(self, D, F):
        super().__init__()
        self.norm, self.qkv, self.mlp = nn.LayerNorm(D), nn.Linear(D, 3 * D), Hidden(D, F)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return x + self.mlp(x)


def mlp(D, F):
    """Two hidden layers."""
    return nn.Sequential(Hidden(D, F), Hidden(D, F))


def transformer(D, F):
    """Two blocks."""
    return nn.Sequential(Block(D, F), Block(D, F))


MODELS = {"mlp": (mlp, "B D"), "transformer": (transformer, "B 5 D")}


@cache
def account_of(name, **options):
    """A model's account, traced once."""
    builder, inputs = MODELS[name]
    return sa.trace(sa.build(builder), inputs, check=False, **{"optimizer": optim.AdamW, **options})


def really(account, steps=2, **otherwise):
    """Run the program's own loop for real: (what was seen, bytes alive before, bytes of the optimizer's state).

    What is ``otherwise`` than in the account are options of the program.
    """
    builder = MODELS["transformer" if "5" in account.inputs else "mlp"][0]
    shape = (SIZES["B"], 5, SIZES["D"]) if builder is transformer else (SIZES["B"], SIZES["D"])
    model, x = builder(SIZES["D"], SIZES["F"]).train(account.program.train), torch.randn(shape)
    loop = Loop(dataclasses.replace(account.program, **otherwise), model, (x,), {}, mark=point)

    def run():
        for n in range(steps):
            point(f"step {n + 1}")
            loop.run()

    seen = profiled(run)
    state = [t for each in loop.optimizer.state.values() for t in each.values()] if loop.optimizer is not None else []
    return seen, sum(t.nbytes for t in (*model.parameters(), x)), sum(t.nbytes for t in state)


@pytest.fixture(autouse=True)
def surroundings():
    """Runs in the surroundings that accounts describe; what is planted goes."""
    with ExitStack() as stack:
        enter_counted_world(stack)
        yield
    Hidden.leak = Hidden.clone = Hidden.skip = False


def part_of(account, run):
    """The comparison."""
    seen, alive, state = run
    matched = {}
    for calls, nodes in zip(steps_of(seen), nodes_of(account.step.record), strict=False):
        matched |= align(calls, nodes).matched
    return memory_part(account.at(**SIZES), seen, matched, alive, state)


def changed(account, **changes):
    """The account of a record with something planted in it."""
    record = dataclasses.replace(account.step.record, **changes)
    return dataclasses.replace(account, step=dataclasses.replace(account.step, record=record))


def without(account, event):
    """The account without a birth or a death: in its place is the birth of a parameter, which is there already."""
    there = account.step.parameters[0].storage
    return changed(account, events=[there if e == event else e for e in account.step.record.events])


def born_at(account, op, path, phase="forward"):
    """The first storage that a node of an operator makes in a module, and the node."""
    found = ((n, s.node) for n, s in enumerate(account.step.record.storages) if s.node is not None)
    return next((n, node) for n, node in found if (node.op, node.path, node.phase) == (op, path, phase))


# -- pairing -----------------------------------------------------------------------------


def test_storages_are_paired_in_order_and_only_equal_sequences_are_all_equal():
    """Random sequences of few sizes and makers: each storage stands once, in order; the law of equal sizes holds."""
    rng = random.Random(0)
    makers = [Node(i, None, (), {}, 0, (), "forward", "", "") for i in range(4)]

    def pieces():
        return [Piece(rng.randint(1, 3), rng.choice([None, *makers])) for _ in range(rng.randint(0, 6))]

    for _ in range(2000):
        real, ours = pieces(), pieces()
        pairs = paired(real, ours)
        assert [r for r, _ in pairs if r is not None] == real
        assert [o for _, o in pairs if o is not None] == ours
        all_equal = all(r is not None and o is not None and r.nbytes == o.nbytes for r, o in pairs)
        assert all_equal == ([r.nbytes for r in real] == [o.nbytes for o in ours])


def test_storages_are_paired_by_their_makers():
    """An additional storage of a common size, and one that is missing, are found by who made the others."""
    a, b, c, d = (Node(i, None, (), {}, 0, (), "forward", "", "") for i in range(4))
    real, ours = [Piece(8, m) for m in (a, c, d, None)], [Piece(8, m) for m in (a, b, c, d)]
    assert paired(real, ours) == [(real[0], ours[0]), (real[1], ours[1]), (real[2], ours[2]), (real[3], ours[3])]
    real, ours = [Piece(8, m) for m in (a, None, b, c)], [Piece(8, m) for m in (a, b, c)]
    assert paired(real, ours) == [(real[0], ours[0]), (real[1], None), (real[2], ours[1]), (real[3], ours[2])]
    real, ours = [Piece(8, a), Piece(4), Piece(8, b)], [Piece(8, a), Piece(8, b), Piece(6, c)]
    assert paired(real, ours) == [(real[0], ours[0]), (real[1], None), (real[2], ours[1]), (None, ours[2])]
    real, ours = [Piece(4, a), Piece(9, b), Piece(4, c)], [Piece(4, a), Piece(4, None), Piece(5, b), Piece(4, c)]
    assert paired(real, ours) == [(real[0], ours[0]), (None, ours[1]), (real[1], ours[2]), (real[2], ours[3])]


def test_births_of_one_call_come_in_any_order():
    """They are sorted by size, then by death, unless something dies between them; others keep their order."""

    def births(*steps):
        order, known = Order(), {}
        for nbytes, maker, name in steps:
            if maker == "dies":
                order.died(known[name])
            else:
                known[name] = Piece(nbytes)
                order.born(known[name], maker)
        return [(p.nbytes, p.dies) for p in order.births]

    dies = (0, "dies", "a")
    assert births((9, 1, "a"), (4, 1, "b"), (7, 1, "c"), (5, 2, "d")) == [(4, None), (7, None), (9, None), (5, None)]
    assert births((4, 1, "b"), (4, 1, "a"), dies) == births((4, 1, "a"), (4, 1, "b"), dies) == [(4, 2), (4, None)]
    assert births((9, 1, "a"), dies, (4, 1, "b")) == [(9, 1), (4, None)]
    assert births((9, None, "a"), (4, None, "b")) == [(9, None), (4, None)]


def test_a_run_is_read_from_its_start():
    """What is freed before a step's start is in no peak; scratch and numbers are in the allocator's own peak alone."""
    calls = [Called(time, time, "aten.mm.default", (), index) for index, time in enumerate((30, 40))]
    memory = [
        Allocated(11, 640, 1, "cpu", -1),  # gone before the start
        Allocated(12, -640, 1, "cpu", -1),
        Allocated(31, 100, 2, "cpu", 0),  # scratch
        Allocated(32, 24, 3, "cpu", 0),
        Allocated(33, -100, 2, "cpu", 0),
        Allocated(35, 8, 4, "cpu", -1),  # a number
        Allocated(41, -24, 3, "cpu", 1),  # dies in another call
        Allocated(42, 20, 5, "cpu", 1),
        Allocated(45, -30, 6, "cpu", -1),  # was there before
    ]
    points = [Point(10, "step 1"), Point(20, "start"), Point(43, "forward"), Point(44, "end")]
    events = sorted([*calls, *memory, *points], key=lambda event: event.time)
    (course,) = courses(Seen(calls, events, threads=3), {}, alive=1000)
    assert (course.start, course.peak, course.forward, course.rest) == (1000, 1024, 1020, 990)
    assert (course.raw_peak, course.numbers) == (1124, 8)
    assert [(p.nbytes, p.dies, p.call) for p in course.births] == [(24, 1, calls[0]), (20, None, calls[1])]
    assert [(p.nbytes, p.dies) for p in course.freed] == [(30, 2)]
    assert course.sequence == [24, -24, 20]
    assert [(u.scratch, u.results, u.threads) for u in course.uses.values()] == [(100, 24, 3), (0, 20, 3)]


# -- nothing planted ---------------------------------------------------------------------


OPTIONS = {
    "as usual": {},
    "micro-batches": {"accumulate": 2},
    "gradients zeroed": {"set_to_none": False},
    "micro-batches, gradients zeroed, clipped": {"accumulate": 3, "set_to_none": False, "clip": 1.0},
    "SGD, outputs held": {"optimizer": optim.SGD, "keep_outputs": True},
    "no optimizer": {"optimizer": None},
    "inference": {"optimizer": None, "train": False},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_run_of_the_programs_own_loop_is_as_predicted(name, option):
    """All figures are equal, the allocator's own peak is in its bound, and there are no residuals."""
    account = account_of(name, **OPTIONS[option])
    part = part_of(account, really(account))
    assert part.residuals == ()
    assert part.holds
    assert {f.name: f.verdict for f in part.figures} == {
        "optimizer's state": EQUAL,
        **{
            f"{what}, {step} step": verdict
            for step in ("first", "later")
            for what, verdict in {
                "at the start": EQUAL, "end of forward": EQUAL, "peak": EQUAL, "at rest": EQUAL,
                "allocator's own peak": BOUND,
            }.items()
        },
    }  # fmt: skip


def test_figures_are_those_of_the_account():
    """What stands as predicted is what the account says; one step of inference has plain names."""
    account = account_of("mlp")
    figures = {f.name: f for f in part_of(account, really(account)).figures}
    memory = account.at(**SIZES).memory
    for step, timeline in (("first", memory.first), ("later", memory.later)):
        assert figures[f"peak, {step} step"].predicted == timeline.peak.nbytes
        assert figures[f"end of forward, {step} step"].predicted == timeline.after("forward")
        assert figures[f"at rest, {step} step"].predicted == memory.rest_bytes + account.at(**SIZES).input_bytes
    assert figures["optimizer's state"].measured == account.at(**SIZES).optimizer_bytes
    inference = account_of("mlp", optimizer=None, train=False)
    names = [f.name for f in part_of(inference, really(inference, steps=1)).figures]
    assert names == [
        "optimizer's state", "at the start", "end of forward", "peak", "at rest", "allocator's own peak",
    ]  # fmt: skip


def test_a_run_without_steps_is_refused():
    """A profile that names no step says nothing about steps."""
    with pytest.raises(VerifyError, match="saw no step"):
        memory_part(account_of("mlp").at(**SIZES), profiled(lambda: torch.ones(3) + 1), {}, 0)


# -- planted in the record ---------------------------------------------------------------


PLACES = [
    ("mlp", "aten.tanh.default", "0", "forward"),
    ("mlp", "aten.relu.default", "1", "forward"),
    ("mlp", "aten.mm.default", "1.down", "backward"),
    ("transformer", "aten._softmax.default", "1", "forward"),
    ("transformer", "aten.bmm.default", "0", "backward"),
    ("transformer", "aten.add.Tensor", "0", "forward"),
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_death_that_the_account_lacks_is_told_of_at_the_maker(place):
    """A storage that is predicted to live on is told of once, for both steps, even where it changes no peak."""
    name, *where = place
    account = account_of(name)
    number, node = born_at(account, *where)
    part = part_of(without(account, ~number), really(account))
    assert [r.node for r in part.residuals] == [node.index]
    (residual,) = part.residuals
    assert (residual.op, residual.path, residual.phase) == tuple(where)
    assert residual.amount == account.at(**SIZES).memory.storages.numbers[number]
    assert "predicted to outlive the step (first step and later step)" in residual.text


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_storage_of_another_size_is_told_of_at_the_maker(place):
    """Both sizes stand in the text, their difference is the amount."""
    name, *where = place
    account = account_of(name)
    number, node = born_at(account, *where)
    storages = list(account.step.record.storages)
    storages[number] = dataclasses.replace(storages[number], nbytes=storages[number].nbytes + 12)
    part = part_of(changed(account, storages=storages), really(account))
    assert [(r.node, r.op, r.amount) for r in part.residuals] == [(node.index, where[0], 12)]
    size = account.at(**SIZES).memory.storages.numbers[number]
    assert part.residuals[0].text.startswith(f"{size:,} bytes are really made here, predicted {size + 12:,} bytes")


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_birth_that_the_account_lacks_is_told_of_at_the_maker(place):
    """A storage that the account does not have, and, the other way round, one that only the account has."""
    name, *where = place
    account = account_of(name)
    number, node = born_at(account, *where)
    part = part_of(without(account, number), really(account))
    size = account.at(**SIZES).memory.storages.numbers[number]
    text = f"{size:,} bytes are really made here that the account does not have (first step and later step)"
    assert [(r.node, r.op, r.path, r.text) for r in part.residuals] == [(node.index, *where[:2], text)]


@pytest.fixture(scope="module")
def traced_and_run():
    """An account and one run, for the many accounts that are made of it."""
    with ExitStack() as stack:
        enter_counted_world(stack)
        account = account_of("mlp")
        return account, really(account)


def events_of(account):
    """The positions of births and deaths of the step, of storages that hold anything."""
    record = account.step.record
    at = {mark.name: mark.events for mark in record.marks}
    sizes = account.at(**SIZES).memory.storages.numbers
    return [i for i in range(at["start"], at["rest"]) if sizes[max(record.events[i], ~record.events[i])]]


def test_no_birth_or_death_can_be_left_out_unnoticed(traced_and_run):
    """For each birth and death of the step: without it the part fails, at the storage's own node.

    `torch.tensor` is recorded as a lift, and is a call of `empty` in a run.
    """
    account, run = traced_and_run
    record = account.step.record
    for event in dict.fromkeys(record.events[i] for i in events_of(account)):
        part = part_of(without(account, event), run)
        made = record.storages[max(event, ~event)].node
        assert not part.holds
        names = {(made.index, made.op)}
        names |= {(None, "aten.empty.memory_format")} if made.op == "aten.lift_fresh.default" else set()
        assert names & {(r.node, r.op) for r in part.residuals}, event


def test_no_death_can_be_moved_past_a_birth_unnoticed(traced_and_run):
    """For each death before a birth: in the other order one of the two is told of, also where no figure changes."""
    account, run = traced_and_run
    record, silent, moved = account.step.record, 0, 0
    for i in set(events_of(account)) & {i - 1 for i in events_of(account)}:
        dies, born = record.events[i : i + 2]
        if dies < 0 <= born:
            events = [*record.events[:i], born, dies, *record.events[i + 2 :]]
            part = part_of(changed(account, events=events), run)
            nodes = [record.storages[n].node for n in (~dies, born)]
            assert {(n.index, n.op) for n in nodes} & {(r.node, r.op) for r in part.residuals}
            moved += 1
            silent += not any(f.verdict == DIFFERENT for f in part.figures)
    assert moved > 20
    assert silent > 10


# -- planted in the run ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "paths"), [("mlp", ["0", "1"]), ("transformer", ["0.mlp", "1.mlp"])])
def test_a_tensor_that_a_module_keeps_is_told_of_at_its_maker(name, paths):
    """A list in a module takes what `tanh` makes: it is never freed, and figures of both steps differ."""
    account = account_of(name)
    Hidden.leak = True
    part = part_of(account, really(account))
    assert [(r.op, r.path, r.phase) for r in part.residuals] == [("aten.tanh.default", p, "forward") for p in paths]
    for residual, path in zip(part.residuals, paths, strict=True):
        number, node = born_at(account, "aten.tanh.default", path)
        assert residual.node == node.index
        assert residual.amount == account.at(**SIZES).memory.storages.numbers[number]
        assert "made here are never freed; predicted to die before aten." in residual.text
    unequal = {f.name for f in part.figures if f.verdict == DIFFERENT}
    assert {"at rest, first step", "at the start, later step", "at rest, later step"} <= unequal


@pytest.mark.parametrize(("name", "paths"), [("mlp", ["0", "1"]), ("transformer", ["0.mlp", "1.mlp"])])
def test_a_copy_that_only_the_run_makes_is_told_of_where_it_is_made(name, paths):
    """First the copies, near the nodes before them; then what they are copies of, which dies earlier."""
    account = account_of(name)
    Hidden.clone = True
    part = part_of(account, really(account))
    sums = [("aten.addmm.default", f"{path}.down") for path in paths]
    copies = [("aten.clone.default", path) for _, path in sums]
    assert [(r.op, r.path) for r in part.residuals] == copies + sums
    assert [r.node for r in part.residuals] == [None, None, *(born_at(account, *where)[1].index for where in sums)]
    assert f"(after aten.addmm.default in {paths[0]}.down)" in part.residuals[0].text
    assert "made here die before" in part.residuals[-1].text


def test_a_storage_that_only_the_account_has_is_told_of_at_its_maker():
    """The run leaves out `relu`, whose result and gradient then are never made."""
    account = account_of("mlp")
    Hidden.skip = True
    part = part_of(account, really(account))
    never = [(r.op, r.path, r.amount) for r in part.residuals if "are never really made here" in r.text]
    relu, gradient = ("aten.relu.default", "aten.threshold_backward.default")
    assert set(never) == {(op, path, 480) for op in (relu, gradient) for path in "01"}
    _, node = born_at(account, relu, "0")
    assert node.index in {r.node for r in part.residuals}
    assert "480 bytes float32[6, 20] are never" in next(r.text for r in part.residuals if r.node == node.index)


def test_gradients_that_stay_or_go_between_steps_are_told_of():
    """Zeroed where the account has them freed, and freed where it has them zeroed: at what made each gradient."""
    freed, zeroed = account_of("mlp", optimizer=None), account_of("mlp", optimizer=None, set_to_none=False)
    for account, otherwise, text in (
        (freed, False, "made here outlive the step; predicted to be freed"),
        (zeroed, True, "made here are freed; predicted to outlive the step"),
    ):
        part = part_of(account, really(account, set_to_none=otherwise))
        sizes = sorted(r.amount for r in part.residuals if text in r.text)
        assert sizes == [32, 32, 80, 80, 640, 640, 640, 640]
        assert {r.phase for r in part.residuals if text in r.text} == {"backward"}
        assert "at the start, later step" in {f.name for f in part.figures if f.verdict == DIFFERENT}


def test_what_was_there_before_the_run_and_is_freed_in_it_is_told_of():
    """Really, and in the account: an input has no maker, so it stands with its name."""
    account = account_of("mlp")
    seen, alive, state = really(account)
    call = next(c for c in seen.calls if c.op == "aten.tanh.default")
    events = sorted([*seen.events, Allocated(call.time - 1, -192, 1, "cpu")], key=lambda event: event.time)
    found = part_of(account, (Seen(seen.calls, events, seen.threads), alive, state)).residuals
    where = "before aten.tanh.default in 0 (forward); predicted otherwise (first step)"
    assert [str(r) for r in found] == [f"192 bytes that were there before the run are freed {where}"]
    number, node = born_at(account, "aten.tanh.default", "0")
    (given,) = {v.storage for v in account.step.record.values if v.origin == "input"}
    events = [~given if e == ~number else e for e in account.step.record.events]
    found = part_of(changed(account, events=events), (seen, alive, state)).residuals
    assert {r.node for r in found} == {node.index, None}
    text = "the inputs input_0: 192 bytes float32[6, 8] is predicted to be freed before"
    assert [r.text.startswith(text) for r in found if r.node is None] == [True]


def test_a_state_of_another_size_is_told_of():
    """Where no storage of the run differs, what was there before it does."""
    account = account_of("mlp")
    seen, alive, state = really(account)
    part = part_of(account, (seen, alive + 4, state))
    assert [f.name for f in part.figures if f.verdict == DIFFERENT][:2] == [
        "at the start, first step",
        "end of forward, first step",
    ]
    assert part.residuals[0].text.startswith("at the start, first step: 4 bytes more than predicted")
    part = part_of(account, (seen, alive, state - 8))
    assert [r.text.partition(",")[0] for r in part.residuals] == ["optimizer's state: 8 bytes less than predicted"]


def test_scratch_is_told_of_at_its_node():
    """A call that takes more than the table allows: at the recorded node that it is."""
    account = account_of("mlp")
    seen, alive, state = really(account)
    call = next(c for c in seen.calls if c.op == "aten.tanh.default")
    taken = [Allocated(call.time + 1, 64, 1, "cpu", call.index), Allocated(call.time + 2, -64, 1, "cpu", call.index)]
    events = sorted([*seen.events, *taken], key=lambda event: event.time)
    part = part_of(account, (Seen(seen.calls, events, seen.threads), alive, state))
    (residual,) = part.residuals
    assert (residual.node, residual.path, residual.amount) == (born_at(account, call.op, "0")[1].index, "0", 64)
    assert residual.text.startswith("64 bytes of scratch on float32[6, 20], not in the table")


def test_numbers_beyond_their_bound_are_told_of():
    """More numbers that become tensors than the recorded calls take; each is too small to be a storage."""
    account = account_of("mlp", optimizer=None)
    seen, alive, state = really(account)
    allowed = numbers_in(account.step.record)
    first = next(e.time for e in seen.events if isinstance(e, Point) and e.name == "forward")
    many = [Allocated(first + 1, 16, 100 + i, "cpu") for i in range(allowed + 2)]
    events = sorted([*seen.events, *many], key=lambda event: event.time)
    found = part_of(account, (Seen(seen.calls, events, seen.threads), alive, state)).residuals
    text = f"numbers that became tensors took {16 * allowed + 32:,} bytes, allowed {16 * allowed:,}"
    assert [r.text for r in found] == [f"{text} (first step)"]


def test_equal_residuals_stand_once_with_their_number():
    """Storages that no operator makes have no other name than their size."""
    account = account_of("mlp", optimizer=None)
    seen, alive, state = really(account)
    time = next(e.time for e in seen.events if isinstance(e, Point) and e.name == "forward")
    three = [Allocated(time + 1, nbytes, nbytes, "cpu") for nbytes in (100, 40, 60)]
    twice = [Allocated(time + 2, 40, 1, "cpu"), Allocated(time + 3, 40, 2, "cpu")]
    events = sorted([*seen.events, *three, *twice], key=lambda event: event.time)
    found = part_of(account, (Seen(seen.calls, events, seen.threads), alive, state)).residuals
    text = "bytes are really made here that the account does not have (first step"
    assert [(r.amount, r.text) for r in found] == [
        (120, f"40 {text}, 3 times)"), (100, f"100 {text})"), (60, f"60 {text})"),
    ]  # fmt: skip


# -- CUDA --------------------------------------------------------------------------------


def in_blocks(nbytes):
    """Bytes in blocks of 512."""
    return nbytes // abs(nbytes) * -(-abs(nbytes) // 512) * 512 if nbytes else 0


def beside_blocks(account, on_host="none"):
    """An account beside a run whose storages are blocks on a GPU, but for numbers, and for what an op makes."""
    seen, _, state = really(account)
    device, host = [], set()
    for event in (e for e in seen.events if isinstance(e, Allocated)):
        op = seen.calls[event.call].op if event.call >= 0 else ""
        state -= event.nbytes if event.nbytes > 0 and op == on_host else 0  # what it makes is state
        if event.nbytes > 0 and (op == on_host or (not op and event.nbytes <= 16)):
            host.add(event.ptr)
        elif event.nbytes > 0 or event.ptr not in host:
            device.append(dataclasses.replace(event, nbytes=in_blocks(event.nbytes), device="cuda"))
        else:
            host.remove(event.ptr)
    events = sorted([*seen.events, *device], key=lambda event: event.time)
    given = {h.storage for h in account.step.parameters} | {
        v.storage for v in account.step.record.values if v.origin == "input"
    }
    sizes = account.at(**SIZES).with_allocator("cuda").memory.storages.numbers
    alive = sum(sizes[n] for n in given)
    return memory_part(account.at(**SIZES), Seen(seen.calls, events, seen.threads), {}, alive, state, device="cuda")


def test_events_of_another_device_are_left_out():
    """Blocks on a GPU beside the account in blocks: what the host allocates plays no role, and nothing is claimed."""
    account = account_of("mlp", optimizer=optim.SGD)
    part = beside_blocks(account)
    assert (part.residuals, part.claims, len(part.notes)) == ((), False, 1)
    assert {f.verdict for f in part.figures} == {EQUAL}
    memory = account.at(**SIZES).with_allocator("cuda").memory
    peaks = [f.measured for f in part.figures if f.name.startswith("peak")]
    assert peaks == [memory.first.peak.nbytes, memory.later.peak.nbytes]


def test_what_the_record_has_on_the_host_is_left_out():
    """Counters of steps that an optimizer keeps on the host, where the record says so."""
    account = account_of("mlp")
    record = account.step.record
    counters = {h.storage for h in account.step.state if h.meta.shape == ()}
    layouts = [(*layout[:-1], torch.device("cuda")) for layout in record.layouts]
    layouts.append(((), (), 0, torch.float32, torch.device("cpu")))
    values = [dataclasses.replace(v, layout=len(layouts) - 1) if v.storage in counters else v for v in record.values]
    split = changed(account, layouts=layouts, values=values)
    part = beside_blocks(split, "aten.empty.memory_format")
    assert len(counters) == 8
    assert part.residuals == ()
    whole = account.at(**SIZES).with_allocator("cuda").memory
    rest = next(f.measured for f in part.figures if f.name == "at rest, later step")
    assert rest == whole.rest_bytes + in_blocks(192) - 8 * 512


def readings_of(account, workspace=0, more=0):
    """What CUDA's allocator would say of a later step; AdamW's step counters, four bytes each, stay on the host."""
    found, counters = {}, sum(held.meta.shape == () for held in account.step.state)
    for what, allocator in (("requested", "logical"), ("allocated", "cuda")):
        timeline = account.with_allocator(allocator).memory.later
        workspace_here = workspace - counters * (512 if what == "allocated" else 4)
        at_end = timeline.bytes_of(timeline.alive_at(10**9))
        now = {"start": timeline.moments[0].nbytes, "forward": timeline.after("forward"), "end": at_end}
        for name, nbytes in now.items():
            found.setdefault(name, {})[f"{what}_bytes.all.current"] = (
                nbytes + workspace_here + more * (what == "allocated")
            )
        found["end"][f"{what}_bytes.all.peak"] = timeline.peak.nbytes + workspace_here + more * (what == "allocated")
    for name in ("start", "forward", "end"):
        found[name] |= {"reserved_bytes.all.current": 2**21, "reserved_bytes.all.peak": 2**22}
    return {**found, "workspace": workspace}


def test_the_allocators_own_statistics_are_compared_at_each_point():
    """Requested bytes are the account's, allocated ones in blocks, workspaces in both; reserved is for information."""
    account = account_of("transformer").at(**SIZES)
    part = memory_stats_part(account, readings_of(account, workspace=8_519_680))
    assert part.residuals == ()
    assert {f.name: f.verdict for f in part.figures if f.predicted is not None} == {
        f"{what}, {name}": EQUAL for what in ("requested", "allocated") for name in ("start", "forward", "end", "peak")
    }
    assert {f.name: f.measured for f in part.figures if f.predicted is None} == {
        "reserved, start": 2**21, "reserved, forward": 2**21, "reserved, end": 2**21, "reserved, peak": 2**22,
        "workspaces of libraries": 8_519_680,
    }  # fmt: skip


def test_a_statistic_that_differs_is_told_of():
    """Largest first; small storages are in blocks that are always split, so that they can add nothing."""
    account = account_of("transformer").at(**SIZES)
    readings = readings_of(account)
    readings["forward"]["requested_bytes.all.current"] += 4
    readings["end"]["allocated_bytes.all.peak"] += 512
    part = memory_stats_part(account, readings)
    assert [r.text for r in part.residuals] == [
        "allocated, peak: 512 bytes more than predicted", "requested, forward: 4 bytes more than predicted",
    ]  # fmt: skip
    peak = account.memory.later.peak.node
    assert [(r.node, r.op) for r in part.residuals] == [(peak.index, peak.op), (None, "")]
    assert not part.holds


def test_blocks_that_were_not_split_are_within_a_bound():
    """Each storage above 1 MiB may sit in a block that is up to 1 MiB larger; more than that is a difference."""
    account = sa.trace(sa.build(lambda D: nn.Linear(D, D, bias=False)), "B D", optimizer=optim.SGD, check=False)
    large = account.at(B=3, D=600)  # 600 * 600 * 4 bytes of weight and of gradient
    for more, verdict in ((0, EQUAL), (2**20, BOUND), (2**20 + 1, DIFFERENT)):
        figures = {f.name: f for f in memory_stats_part(large, readings_of(large, more=more)).figures}
        assert figures["allocated, start"].verdict == verdict
        assert figures["requested, start"].verdict == EQUAL


def test_random_states_stay_on_the_host():
    """What a checkpoint keeps of a generator is no memory of the device."""

    class Checkpointed(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.inner = nn.Linear(D, D)

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    account = sa.trace(sa.build(Checkpointed), "B D", optimizer=optim.SGD, check=False).at(B=3, D=5)
    states = {v.storage for v in account.step.record.values if v.origin == "random state"}
    timeline = account.memory.later
    kept = timeline.bytes_of(states & timeline.alive_at(timeline.marks("forward")[-1]))
    readings = readings_of(account)
    readings["forward"]["requested_bytes.all.current"] -= kept
    figures = {f.name: f for f in memory_stats_part(account, readings).figures}
    assert kept
    assert figures["requested, forward"].verdict == figures["allocated, forward"].verdict == EQUAL


@pytest.mark.parametrize(("how", "counters"), [({}, 2), ({"foreach": True}, 2), ({"fused": True}, 0)])
def test_step_counters_stay_on_the_host_unless_one_kernel_does_the_update(how, counters):
    """torch's optimizers make them there; a fused update wants them beside the parameters."""
    from symacct.verify.course import host_storages

    build = sa.build(lambda D: nn.Linear(D, D))
    account = sa.trace(build, "B D", optimizer=partial(torch.optim.AdamW, **how), device="cuda", check=False)
    assert len(host_storages(account.step)) == counters
