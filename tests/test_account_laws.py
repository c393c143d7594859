"""Laws of every account: its parts add up, its numbers are whole, and numbers in the specs change nothing."""

from functools import cache

import pytest
import sympy
import torch
from conftest import _account, _example
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import symacct as sa

FIELDS = ("flops", "pointwise", "bytes_read", "bytes_written")
NAMES = ("two_layer", "cruncher", "llama", "gpt2", "resnet50")
FEW = settings(derandomize=True, max_examples=8, deadline=None)
ANY = st.integers(1, 40)


def sums(phase):
    """The four sums of a phase."""
    return {field: getattr(phase, field) for field in FIELDS}


def added(phases):
    """The sums of several phases, added up by SymPy."""
    return {field: sympy.expand(sympy.Add(*(getattr(p, field) for p in phases))) for field in FIELDS}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
def test_modules_add_up_to_the_total(name, depth, account):
    """The sums by module, cut at any depth, are disjoint and add up to the total."""
    step = account(name)
    parts = step.by_module(depth)
    assert added(parts.values()) == sums(step.total)
    assert sum(part.count for part in parts.values()) == len(step.nodes)


@pytest.mark.parametrize("name", NAMES)
def test_ops_add_up_to_the_total(name, account):
    """The sums by operator add up to the total."""
    step = account(name)
    assert added(step.by_op().values()) == sums(step.total)


@pytest.mark.parametrize("name", NAMES)
def test_phases_add_up_to_the_total(name, account):
    """The sums by phase add up to the total, and each phase is the sum of its own modules and ops."""
    step = account(name)
    assert added(step.phases.values()) == sums(step.total)
    for phase, whole in step.phases.items():
        assert added(step.by_module(2, phase=phase).values()) == sums(whole)
        assert added(step.by_op(phase=phase).values()) == sums(whole)


@pytest.mark.parametrize("name", ["two_layer", "cruncher", "resnet50"])
def test_nodes_add_up_to_the_total(name, account):
    """The costs of all nodes, one by one, add up to the total."""
    step = account(name)
    assert added(step.nodes) == sums(step.total)


# -- sizes that hypothesis chooses -------------------------------------------------------


SIZES = {
    "two_layer": st.fixed_dictionaries({"B": ANY, "D": ANY, "K": ANY}),
    "cruncher": st.fixed_dictionaries({"B": ANY, "D": ANY}),
    "llama": st.fixed_dictionaries(
        {"B": ANY, "L": st.integers(2, 40), "G": ANY, "H": ANY, "Dh": ANY.map(lambda n: 2 * n), "F": ANY, "V": ANY}
    ),
    "gpt2": st.fixed_dictionaries({"B": ANY, "L": st.integers(2, 40), "H": ANY, "Dh": ANY, "V": ANY, "P": st.just(64)}),
    "resnet50": st.fixed_dictionaries({"B": ANY}),
}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_whole_and_add_up(name, account):
    """At any sizes, each sum is an int >= 0, and ops, modules and phases add up."""

    @FEW
    @given(SIZES[name])
    def check(sizes):
        step = account(name).at(**sizes)
        total = sums(step.total)
        assert all(type(n) is int and n >= 0 for n in total.values())
        for parts in (step.by_op(), step.by_module(2), step.phases):
            assert all(type(n) is int and n >= 0 for part in parts.values() for n in sums(part).values())
            assert {f: sum(getattr(part, f) for part in parts.values()) for f in FIELDS} == total
        for held in (step.params, step.param_bytes, step.grad_bytes, step.optimizer_bytes):
            assert type(held) is int
            assert held >= 0

    check()


def costed(step):
    """The nodes that cost something, in order (at size 1 torch may make a view less or more)."""
    return [(n.op, n.phase, n.path, n.cost) for n in step.nodes if n.cost != sa.Cost()]


@cache
def built_with(name, **sizes):
    """The account of an example whose dims are numbers from the start: a builder without dims, numbers in the specs."""
    example = _example(name)
    if name == "two_layer":
        d, k = sizes["D"], sizes["K"]
        model = sa.build(lambda: nn.Sequential(nn.Linear(d, d, bias=False), nn.Linear(d, k, bias=False)))
        return sa.trace(model, f"{sizes['B']} {d}", loss=lambda y: (y**2).mean())
    if name == "cruncher":
        model = sa.build(lambda: example.Cruncher(sizes["D"], example.LAYERS))
        return sa.trace(model, f"{sizes['B']} {sizes['D']}", loss=lambda y: (y**2).mean(), optimizer=torch.optim.AdamW)
    if name == "llama":
        model = sa.build(lambda: example.llama(**{n: sizes[n] for n in ("G", "H", "Dh", "F", "V")}))
    else:
        model = sa.build(lambda: example.gpt2(**{n: sizes[n] for n in ("H", "Dh", "V", "P")}))
    ids = f"i64[{sizes['B']}, {sizes['L']}]"
    return sa.trace(model, input_ids=ids, labels=ids, optimizer=torch.optim.AdamW)


@pytest.mark.parametrize("name", ["two_layer", "cruncher", "llama"])
def test_symbols_then_numbers_is_numbers(name):
    """Sizes above 1 put into the formulas give, node for node, what a trace gives that had them in its specs."""
    examples = 2 if name == "llama" else 8

    @settings(derandomize=True, max_examples=examples, deadline=None)
    @given(SIZES[name].filter(lambda sizes: min(sizes.values()) > 1))
    def check(sizes):
        ours, numbers = _account(name).at(**sizes), built_with(name, **sizes)
        assert numbers.dims == ()
        assert costed(ours) == costed(numbers)
        for phase, whole in numbers.phases.items():
            assert sums(ours.phases[phase]) == sums(whole)
        assert (ours.params, ours.param_bytes, ours.optimizer_bytes) == (
            numbers.params, numbers.param_bytes, numbers.optimizer_bytes,
        )  # fmt: skip

    check()


@pytest.mark.parametrize("ones", [("B",), ("G",), ("G", "H"), ("B", "G", "H", "F", "V")])
def test_size_one_changes_no_arithmetic(ones):
    """At size 1 torch leaves out copies that other sizes need, but every product and every function is the same."""
    sizes = {"B": 3, "L": 7, "G": 5, "H": 4, "Dh": 8, "F": 30, "V": 21, **dict.fromkeys(ones, 1)}
    ours, numbers = _account("llama").at(**sizes), built_with("llama", **sizes)
    for phase, whole in numbers.phases.items():
        assert ours.phases[phase].flops == whole.flops
        assert ours.phases[phase].pointwise == whole.pointwise
        assert ours.phases[phase].bytes >= whole.bytes
