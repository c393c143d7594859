"""Bytes at three levels: what fusing saves, what no step does without, and that they never change places."""

import pytest
import sympy
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.algebra import always
from symacct.dim import symbol
from symacct.errors import AssumptionError
from symacct.roofline import LEVELS, roofline, step_bytes
from symacct.roofline.fusing import fused_groups
from symacct.roofline.operands import Operands

B, D, K, n = map(symbol, ("B", "D", "K", "n"))
PHASES = ("forward", "backward", "recompute", "optimizer", "total")


def traced(function, *specs, **options):
    """A function's account, not checked at other sizes."""
    return sa.trace(function, *specs, **{"train": False, "check": False, **options})


def forward_bytes(account):
    """The forward pass's bytes at each level."""
    return {level: found["forward"] for level, found in step_bytes(account).items()}


# -- models ------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Chunks of one weight, work in place, a running mean, an embedding, a normalisation, a cache that is written."""

    def __init__(self, D, V):
        super().__init__()
        self.table, self.norm, self.qkv = nn.Embedding(V, D), nn.LayerNorm(D), nn.Parameter(torch.empty(3 * D, D))
        self.batch = nn.BatchNorm1d(D)
        self.register_buffer("cache", torch.zeros(4, D))

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = (x @ w.T for w in self.qkv.chunk(3))
        self.cache[1:3].copy_(k[0, :2].detach())
        x = self.norm(x).add_((q * k).softmax(-1)) * v
        return self.batch(F.dropout(x).flatten(0, 1)).relu_()


class Varied(nn.Module):
    """A convolution, pooling, a sort, a sum along an axis and a choice by index, with rules of their own."""

    def __init__(self, D):
        super().__init__()
        self.conv = nn.Conv1d(D, D, 3, padding=1)

    def forward(self, x):
        y = F.avg_pool1d(self.conv(x).relu(), 3, stride=1, padding=1)
        return y.sort(-1)[0].cumsum(0).index_select(1, torch.arange(2)) / y.std()


def mixed():
    """One training step with SGD and momentum."""
    sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    return sa.trace(sa.build(Mixed), "i64[B, L]", optimizer=sgd, check=False)


def varied():
    """One training step with AdamW over lists."""
    adamw = lambda p: torch.optim.AdamW(p, foreach=True)  # noqa: E731
    return sa.trace(sa.build(Varied), "B D L", optimizer=adamw, check=False)


class Again(nn.Module):
    """A block that is computed again in the backward pass."""

    def __init__(self, D, K):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(D, K), nn.GELU(), nn.Linear(K, D), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False) + x


def checkpointed():
    """One training step of it with AdamW."""
    return sa.trace(sa.build(Again), "B D", check=False, optimizer=torch.optim.AdamW)


def attention():
    """Fused attention on a GPU with autocast."""

    def run(x, w):
        q = (x @ w).unflatten(-1, (2, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    return sa.trace(run, "f32[B, L, 8]", "f32[8, 8]", grad=True, autocast="bf16", device="cuda", check=False)


OWN = {"mixed": mixed, "varied": varied, "checkpointed": checkpointed, "attention": attention}
EXAMPLES = ("two_layer", "cruncher", "llama", "resnet50", "any_depth")


@pytest.fixture(scope="module")
def step(account):
    """An account by name, of a model here or of an example."""
    known = {}

    def get(name):
        if name not in known:
            known[name] = OWN[name]() if name in OWN else account(name)
        return known[name]

    return get


# -- laws --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OWN, *EXAMPLES])
def test_levels_are_ordered_at_all_sizes(step, name):
    """The difference of two levels has no negative term, or is at least 0 from the smallest sizes on."""
    found = step_bytes(step(name))
    for less, more in (("fused", "eager"), ("minimal", "fused")):
        for phase in PHASES:
            difference = sympy.expand(sympy.sympify(found[more][phase]) - found[less][phase])
            if not difference.has(sympy.Max, sympy.floor, sympy.ceiling):  # those at random sizes below
                grows = all(c >= 0 for c in difference.as_coefficients_dict().values())
                assert grows or always(">=", difference, sympy.Integer(0)), f"{phase}: {less} over {more}"


@pytest.mark.parametrize("name", [*OWN, *EXAMPLES])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_levels_are_ordered_at_any_sizes(step, name, data):
    """minimal <= fused <= eager in bytes for each phase and the step, and in time for the step."""
    account = step(name)
    least = account._least
    sizes = {d: data.draw(st.integers(max(1, least.get(d, 1)), max(least.get(d, 1), 40))) for d in account.dims}
    try:
        at = account.at(**sizes)
    except AssumptionError:
        assume(False)
    found = step_bytes(at)
    for phase in PHASES:
        assert 0 <= found["minimal"][phase] <= found["fused"][phase] <= found["eager"][phase]
    assert found["eager"]["total"] == at.total.bytes
    assert found["fused"]["total"] == sum(found["fused"][phase] for phase in PHASES[:-1])
    assert found["minimal"]["total"] <= sum(found["minimal"][phase] for phase in PHASES[:-1])


@pytest.mark.parametrize("name", [*OWN, "two_layer", "llama", "resnet50"])
def test_every_byte_is_split(step, name):
    """What a node reads and writes by regions, with the rest that has none, is what it costs."""
    account = step(name)
    operands = Operands(account)
    for node in account.step.record.nodes:
        cost = account._costs[node.call]
        access = operands.of(node)
        split = [*(r.nbytes for r in (*access.reads, *access.writes)), *access.rest]
        assert sympy.expand(sympy.sympify(cost.bytes) - sum(split)) == 0, node.op


@pytest.mark.parametrize("name", [*OWN, "two_layer", "llama"])
def test_groups_can_run_one_after_another(step, name):
    """No two groups of a phase wait for each other, so that each of them can be one kernel."""
    groups = fused_groups(step(name))
    of = {member.place: (i, member) for i, group in enumerate(groups) for member in group.members}
    after = {i: set() for i in range(len(groups))}
    wrote, read = {}, {}
    for place in sorted(of):
        number, member = of[place]
        for storage in member.access.touched:
            before = [wrote[storage]] if storage in wrote else []
            before += read.get(storage, []) if storage in member.access.changed else []
            after[number] |= {b for b in before if b != number and groups[b].phase == groups[number].phase}
        for storage in member.access.touched:
            if storage in member.access.changed:
                wrote[storage], read[storage] = number, []
            else:
                read.setdefault(storage, []).append(number)
    done, left = set(), set(after)
    while left:
        ready = {i for i in left if after[i] <= done}
        assert ready, "groups that wait for each other"
        done |= ready
        left -= ready


# -- what is saved -----------------------------------------------------------------------


def test_a_chain_touches_memory_once():
    """Of (x*2 + 1).relu() eager reads and writes six tensors, a fused kernel two; so does the least."""
    assert forward_bytes(traced(lambda x: (x * 2 + 1).relu(), "n")) == {
        "eager": 24 * n,
        "fused": 8 * n,
        "minimal": 8 * n,
    }


def test_a_product_takes_in_what_follows_it():
    """Activation and bias after a product cost no bytes of the product's result; a second product reads it again."""
    one = forward_bytes(traced(lambda x, w: (x @ w).relu(), "B D", "D K"))
    assert one["fused"] == one["minimal"] == 4 * (B * D + D * K + B * K)
    assert sympy.expand(one["eager"] - one["fused"]) == 8 * B * K
    two = forward_bytes(traced(lambda x, w: (x @ w).relu() @ w.T, "B D", "D K"))
    assert sympy.expand(two["fused"]) == 4 * (B * D + D * K + B * K) + 4 * (B * K + D * K + B * D)
    assert sympy.expand(two["minimal"]) == 4 * (B * D + D * K + B * D)


def test_a_gated_product_is_one_kernel():
    """silu(x @ a) * (x @ b) reads x once for both and writes one result."""
    found = forward_bytes(traced(lambda x, a, b: F.silu(x @ a) * (x @ b), "B D", "D K", "D K"))
    assert found["fused"] == sympy.expand(4 * (B * D + 2 * D * K + B * K))


def test_reductions_and_views_fuse():
    """A normalisation written out, with views between, reads its input once and writes its result once."""

    def norm(x):
        y = x.view(-1, 8).view(x.shape)
        return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)

    assert forward_bytes(traced(norm, "B 8"))["fused"] == 64 * B


def test_work_in_place():
    """What is updated in place is read and written once, however often it changes; what is overwritten is not read."""
    assert forward_bytes(traced(lambda x: x.mul_(2).add_(1).relu_(), "n"))["fused"] == 8 * n
    assert forward_bytes(traced(lambda x, y: x.copy_(y).add_(1), "n", "n"))["fused"] == 8 * n
    assert forward_bytes(traced(lambda x: x.zero_().add_(1), "n"))["fused"] == 4 * n


def test_what_is_saved_is_written_once():
    """The backward pass reads what the forward pass saves for it, so that fusing does not take that away."""
    step = sa.trace(lambda x: (x.sin() * x.exp()).sum(), "n", grad=True, check=False)
    found = step_bytes(step)
    saved = 4 * n * 2  # sin(x) and exp(x); x itself is there
    assert found["fused"]["forward"] == found["minimal"]["forward"] == 4 * n + saved + 4
    assert found["minimal"]["total"] < found["fused"]["total"]


def test_random_masks_are_made_where_they_are_used():
    """A mask that nothing but its own kernel needs is not written to memory."""
    found = forward_bytes(traced(lambda x, w: F.dropout(x @ w, 0.1, training=True), "B D", "D K"))
    assert found["fused"] == 4 * (B * D + D * K + B * K)


def test_a_residual_stream_is_not_one_kernel():
    """What a later kernel needs is written: a sum before and after a product is two groups."""
    step = traced(lambda x, w: (x + 1) + ((x + 1) @ w), "B D", "D D")
    one, two = 8 * B * D, 4 * (B * D + D * D + 2 * B * D)  # x + 1; the product, and x again for the sum
    assert forward_bytes(step)["fused"] == sympy.expand(one + two)


def test_tables_are_read_where_data_say():
    """Of a table only the rows that are chosen count, at each level; of a tied one in a product all of it."""
    step = traced(lambda i, w: F.embedding(i, w), "i64[B]", "K D")
    assert set(map(sympy.expand, forward_bytes(step).values())) == {8 * B + 8 * B * D}


def test_parts_of_one_weight_count_as_the_whole():
    """Three chunks of one weight make it up, so that the least reads all of it."""
    step = traced(lambda x, w: sum(x @ part for part in w.chunk(3, dim=1)), "B D", "D (3 K)")
    assert forward_bytes(step)["minimal"] == sympy.expand(4 * (B * D + 3 * D * K + B * K))


def test_least_of_a_training_step(account):
    """Least bytes of a step: inputs, parameters and state read once, gradients, parameters and state written once."""
    step = account("cruncher")
    found = step_bytes(step)["minimal"]["total"]
    state = sympy.expand(2 * step.param_bytes + step.optimizer_bytes * 2 + step.grad_bytes + step.input_bytes)
    assert set((sympy.expand(found - state)).free_symbols) == set()
    assert abs(sympy.expand(found - state)) < 64


@pytest.mark.parametrize("level", LEVELS)
def test_levels_count_the_same_arithmetic(step, level):
    """Fusing changes bytes alone: FLOP and pointwise are those of the account."""
    account = step("mixed")
    total = roofline(account, "h100", level=level).total
    assert sympy.expand(total.flops - account.total.flops) == 0
    assert sympy.expand(total.pointwise - account.total.pointwise) == 0


def test_an_intermediate_is_seen_through_views():
    """What a kernel makes it need not read again in another shape."""
    step = traced(lambda x: (x * 2).view(-1).add(1), "B 8")
    assert forward_bytes(step)["fused"] == 64 * B
