"""Kinds of programs that once broke the engine, each as its smallest case."""

import collections
import math
import random
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symacct as sa
from symacct.errors import CheckError, SpecError, TargetError, TraceError


def relations(account):
    """The account's assumptions as text."""
    return [str(a) for a in account.assumptions]


# -- surroundings ------------------------------------------------------------------------


def linear_step():
    """A step that has every phase."""
    return sa.trace(nn.Linear(8, 4), "B 8", optimizer=torch.optim.AdamW).to_json()


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.device("cpu"),
    ],
    ids=["no_grad", "inference_mode", "autocast", "meta", "cpu"],
)
def test_surroundings_change_nothing(around):
    """A trace gives the same account whatever context it is called in."""
    expected = linear_step()
    with around():
        assert linear_step() == expected


def test_a_loss_without_a_gradient_is_an_error():
    """A backward pass that cannot be is said so, and is not an empty phase."""
    with pytest.raises(TraceError, match="the loss does not depend on anything that requires a gradient"):
        sa.trace(nn.Linear(8, 4), "B 8", loss=lambda y: y.detach().sum())
    assert sa.trace(nn.Linear(8, 4), "B 8", train=False).backward.count == 0


def test_threads_take_turns():
    """Traces in threads do not mix, and leave torch as it was."""
    before, results = nn.Module.__call__, {}

    def work(name):
        results[name] = str(sa.trace(lambda x: x @ x.T if x.shape[0] > 9 else x, f"{name} 8", check=False).forward)

    threads = [threading.Thread(target=work, args=(f"B{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {f"B{i}": f"16*B{i}**2" for i in range(4)}
    assert nn.Module.__call__ is before


def test_random_numbers_are_the_same_in_every_run_and_are_given_back():
    """A model that draws from Python's generator traces the same each time, and the process goes on as before."""

    def drop(x):
        return x * 2 if random.random() < 0.5 else x * 2 + 1

    state = random.getstate()
    assert sa.trace(drop, "B D").to_json() == sa.trace(drop, "B D").to_json()
    assert random.getstate() == state


def test_a_built_module_is_not_changed_by_a_trace():
    """What a forward pass leaves in a module (a counter, a cache, a buffer) is gone for the next trace."""

    class Counting(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.layer = nn.Linear(D, D)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            for _ in range(self.calls):
                x = self.layer(x)
            self.cache = x
            return x

    model = sa.build(Counting)
    assert [str(sa.trace(model, "B D", train=False).forward) for _ in range(3)] == ["2*B*D**2"] * 3
    assert model.calls == 0
    assert not hasattr(model, "cache")


def test_a_function_that_closes_over_a_real_module():
    """Its gradients are computed, and the module's own .grad stays what it was."""
    layer = nn.Linear(8, 8)
    account = sa.trace(lambda x: layer(x).sum(), "B 8")
    assert str(account.backward) == "128*B"
    assert layer.weight.grad is None


def test_a_built_module_inside_of_something_else():
    """It cannot be built again at other sizes there, so that is an error and not a wrong check."""
    inner = sa.build(lambda D: nn.Linear(D, D))
    with pytest.raises(TargetError, match="make the whole of it in one builder"):
        sa.trace(nn.Sequential(inner), "B D")
    with pytest.raises(TargetError, match="make the whole of it in one builder"):
        sa.trace(lambda x: inner(x), "B D")


def test_a_module_changed_after_build():
    """The check says that, and does not blame the dims."""
    model = sa.build(lambda D: nn.Sequential(nn.Linear(D, D)))
    model[0] = nn.Identity()
    with pytest.raises(CheckError, match=r"the module was changed after symacct.build made it"):
        sa.trace(model, "B D", grad=True)


# -- kernels -----------------------------------------------------------------------------


def test_ops_with_a_kernel_of_their_own_stay_whole():
    """silu_backward is one kernel although torch could also compose it."""
    ops = sa.trace(nn.SiLU(), "B D", grad=True).by_op()
    assert "aten.silu_backward.default" in ops
    assert "aten.sigmoid.default" not in ops


def test_attention_layers_in_eval_mode_B32():
    """The fast path of encoder layers is not taken, neither symbolically nor in the check."""
    account = sa.trace(nn.TransformerEncoderLayer(512, 4, 512, batch_first=True), "1 S 512", train=False)
    assert account.at(S=64).forward.flops == 209_715_200
    built = sa.build(lambda H, Dh, F: nn.TransformerEncoderLayer(H * Dh, H, F, batch_first=True))
    assert str(sa.trace(built, "B L (H Dh)", train=False).forward) == "4*B*Dh*H*L*(2*Dh*H + F + L)"


def test_copies_of_symbolic_modules():
    """nn.TransformerEncoder deep-copies its layer, whose parameters have no data to copy."""
    built = sa.build(
        lambda H, Dh, F: nn.TransformerEncoder(nn.TransformerEncoderLayer(H * Dh, H, F, batch_first=True), 2)
    )
    assert str(sa.trace(built, "B L (H Dh)").forward) == "8*B*Dh*H*L*(2*Dh*H + F + L)"


@pytest.mark.parametrize("move", [lambda m: m.to(torch.bfloat16), lambda m: m.double(), lambda m: m.half()])
def test_modules_converted_in_the_builder(move):
    """.to(dtype) inside of a builder works at symbolic and at plain sizes."""
    model = sa.build(lambda D: move(nn.Linear(D, D)))
    dtype = next(model.parameters()).dtype
    account = sa.trace(model, {"bfloat16": "bf16", "float64": "f64", "float16": "f16"}[str(dtype)[6:]] + "[B, D]")
    assert str(account.forward) == "2*B*D**2"
    assert account.param_bytes == dtype.itemsize * account.params


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_B36_B38(directions):
    """An LSTM is its matrix products, for any batch."""
    model = nn.LSTM(10, 20, num_layers=2, bidirectional=directions == 2)
    account = sa.trace(model, "5 B 10", train=False)
    per_layer = [2 * 5 * 4 * 20 * (i + 20) * directions for i in (10, 20 * directions)]
    assert account.forward.flops == sum(per_layer) * account.forward.flops / account.at(B=1).forward.flops
    assert relations(account) == []


def test_ops_that_take_sizes_as_numbers():
    """Padding by a dim, resizing, unfolding: the symbol is kept, or the number is an assumption, never silent."""
    padded = sa.trace(lambda x: F.pad(x, (0, x.shape[0])) * 2, "B D")
    assert sa.formula(padded.forward.pointwise) == "B*D + B**2"
    resized = sa.trace(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") * 2, "B 3 8 8")
    assert relations(resized) == []
    assert resized.forward.pointwise.free_symbols


def test_convolutions_do_not_depend_on_the_batch():
    """Which library convolves depends on the batch in eager PyTorch; what is counted does not."""
    block = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.GELU(), nn.Conv2d(8, 8, 1))
    account = sa.trace(block, "B 8 16 16", grad=True)
    assert relations(account) == []
    small = sa.trace(block, "3 8 16 16", grad=True)
    assert account.at(B=3).total.cost == small.total.cost


def test_resizing_has_a_backward():
    """The gradient of a resize has the shape of what was resized, also with a symbolic batch."""
    for mode in ("nearest", "bilinear", "bicubic"):
        account = sa.trace(lambda x, m=mode: F.interpolate(x, size=(12, 9), mode=m), "B 3 7 7", grad=True)
        assert (
            account.at(B=2).backward.bytes
            == sa.trace(lambda x, m=mode: F.interpolate(x, size=(12, 9), mode=m), "2 3 7 7", grad=True).backward.bytes
        )


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2.0},
        {"scale_factor": (0.5, 1.5), "mode": "bilinear"},
        {"scale_factor": 2, "mode": "bicubic", "antialias": True},
        {"scale_factor": 2.0, "mode": "nearest-exact"},
    ],
    ids=str,
)
def test_resizing_by_a_scale_keeps_height_and_width(options):
    """Height and width stay symbols through a resize by a simple scale, forward and backward, as at given sizes."""
    account = sa.trace(lambda x: F.interpolate(x, **options), "B 3 (4 m) (4 n)", grad=True)
    assert relations(account) == []
    there = sa.trace(lambda x: F.interpolate(x, **options), "2 3 12 20", grad=True)
    assert account.at(B=2, m=3, n=5).forward.cost == there.forward.cost
    assert account.at(B=2, m=3, n=5).backward.cost == there.backward.cost


def test_resizing_to_a_size_that_is_computed():
    """A size that is computed from another is one; a scale that no fraction gives pins what it scales."""
    account = sa.trace(lambda x: F.interpolate(x, size=(x.shape[-2] * 2, x.shape[-1] + 1)), "B 3 h w", train=False)
    assert sa.formula(account.forward.bytes_written) == "24*B*h*w + 24*B*h"
    odd = sa.trace(lambda x: F.interpolate(x, scale_factor=0.3), "B 3 (8 m) 8", train=False)
    assert relations(odd) == ["m == 104"]


def test_a_resize_that_loses_the_symbol_is_refused():
    """A height that went through a float in torch is found by the check, never a constant in silence."""
    with pytest.raises(CheckError, match="m"):
        sa.trace(lambda x: F.interpolate(x, scale_factor=2.0, mode="area"), "B 3 (8 m) 8", train=False)


def test_real_tensors_that_share_memory_share_it_when_traced():
    """Constants, parameters and buffers on one storage are one storage in the account; the same tensor is one."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.zeros(4, 6)
            self.whole, self.part = nn.Parameter(whole), nn.Buffer(whole[1:3])
            self.tied = self.whole

        def forward(self, x):
            return x @ self.whole + self.tied.sum() + self.part.sum()

    account = sa.trace(Shared(), "B 4", train=False)
    assert account.param_bytes == 96
    assert {t.storage for t in account.step.parameters} == {t.storage for t in account.step.buffers}
    constant = torch.ones(4)
    twice = sa.trace(lambda x: (x + constant) * constant, "B 4", train=False)
    assert [v.origin for v in twice.step.record.values].count("constant") == 1


def test_elementwise_and_in_place_ops_without_shape_functions():
    """What the schema says is enough for ops that torch gives no symbolic shape function."""
    assert sa.trace(nn.Softshrink(), "B D", grad=True).backward.pointwise != 0
    for options in ({"foreach": True}, {"fused": True}):
        account = sa.trace(
            sa.build(lambda D: nn.Linear(D, D)), "B D", optimizer=lambda p, o=options: torch.optim.SGD(p, 0.1, **o)
        )
        assert str(account.optimizer.pointwise) == "2*D**2 + 2*D"


def test_grouped_products_of_any_dtype():
    """_grouped_mm has a shape function that does not insist on bfloat16."""
    account = sa.trace(lambda a, b: torch._grouped_mm(a, b), "E M K", "E K N", train=False)
    assert str(account.forward) == "2*E*K*M*N"


# -- data --------------------------------------------------------------------------------

WEIGHT = torch.randn(8, 8)


def test_small_tensors_of_plain_numbers_keep_their_data():
    """Schedules and counters answer .item(), until something unknown is written to them, also through a view."""

    def known(x):
        steps = torch.linspace(0, 1, 3)
        return x * 2 if steps[2].item() == 1.0 else x @ WEIGHT

    assert relations(sa.trace(known, "B 8")) == []

    def written(x):
        flags = torch.zeros(4)
        flags[1] = x.abs().sum()
        return x @ WEIGHT @ WEIGHT if flags.sum() > 0 else x @ WEIGHT

    assert relations(sa.trace(written, "B 8"))[0].startswith("a value that depends on data was taken as False at ")


def test_optimizer_state_is_read_from_the_optimizer_N089():
    """State bytes per parameter, for loops and foreach, without stand-ins for the step counters."""
    expected = {"SGD": 0, "Adagrad": 4, "RMSprop": 4, "Adam": 8, "AdamW": 8, "NAdam": 8, "RAdam": 8, "Adamax": 8}
    model = sa.build(lambda D: nn.Linear(D, D, bias=False))
    for name, size in expected.items():
        for options in ({}, {"foreach": True}):
            account = sa.trace(
                model, "B D", optimizer=lambda p, n=name, o=options: getattr(torch.optim, n)(p, 0.1, **o)
            )
            assert account.optimizer_bytes.coeff(sa.dims("D") ** 2) == size if size else account.optimizer_bytes == 0
            assert relations(account) == []


# -- dims --------------------------------------------------------------------------------


def test_comparisons_with_floats_count():
    """x.shape[1] > 1e3 is an assumption like x.shape[1] > 1000."""

    def branch(x):
        return x @ WEIGHT @ WEIGHT if x.shape[1] > 1e3 else x @ WEIGHT

    account = sa.trace(branch, "B L 8", train=False)
    assert relations(account) == ["L <= 1000"]


def test_kernels_are_chosen_by_equal_sizes():
    """Attention with values of another size takes another kernel, so that the sizes differ is an assumption."""
    attention = F.scaled_dot_product_attention
    account = sa.trace(lambda q, k, v: attention(q, k, v), "B H L A", "B H S A", "B H S V", train=False)
    assert relations(account) == ["A != V"]
    assert str(account.forward) == "2*A*B*H*L*S + 2*B*H*L*S*V"


def test_dims_among_the_arguments():
    """A dim that is passed as an int has its own size in the check."""
    (n,) = (sa.dims("N"),)
    assert sa.formula(sa.trace(lambda x, k: x.new_zeros(k) + x, "N", n).forward.pointwise) == "N"
    top = sa.trace(lambda x, k: x.topk(k).values * 2, "B L", sa.dims("K", K=4))
    assert "K" in top.dims


def test_sizes_as_data():
    """torch.tensor(L) is a value: no size depends on it."""
    assert relations(sa.trace(lambda x: x / torch.tensor(x.shape[1]), "B L")) == []
    assert relations(sa.trace(lambda x: x * math.sqrt(x.shape[1]), "B L")) == []


def test_what_could_not_be_checked_is_said():
    """When no other size of a dim satisfies the assumptions, the report names it."""

    def pinned(x, y):
        return x * 2, y.reshape(8 * 8)

    account = sa.trace(pinned, "B L", "H E", sizes={"H": 4, "E": 16})
    assert relations(account) == ["E*H == 64"]
    assert account.unchecked in ((), ("H", "E"))
    assert all(sizes["B"] != account.trial_sizes["B"] for sizes in account.checked)


def test_size_one_is_mentioned():
    """Numbers at a size of 1 carry the caveat that eager may skip copies there."""
    account = sa.trace(nn.Linear(8, 8), "B 8")
    assert "at a size of 1" in account.at(B=1).report()
    assert "at a size of 1" not in account.at(B=2).report()


# -- inputs ------------------------------------------------------------------------------


def test_named_tuples_as_inputs():
    """A named tuple of specs arrives as the same named tuple of tensors."""
    Pair = collections.namedtuple("Pair", "left right")
    account = sa.trace(lambda pair: pair.left @ pair.right, Pair("B D", "D K"), train=False)
    assert str(account.forward) == "2*B*D*K"


def test_options_of_a_wrong_kind():
    """loss= and optimizer= must be callable, and a target must be something to run."""
    with pytest.raises(SpecError, match="optimizer: expected a function or class, got str"):
        sa.trace(nn.Linear(2, 2), "B 2", optimizer="AdamW")
    with pytest.raises(SpecError, match="loss: expected a function or class, got int"):
        sa.trace(nn.Linear(2, 2), "B 2", loss=3)
    for wrong in (3, nn.Linear(2, 2)):
        with pytest.raises(TargetError, match=r"expected a function that makes a module, got (int|Linear)"):
            sa.build(wrong)


def test_output_is_the_same_in_every_process(outputs_by_seed):
    """Report, JSON and graph do not depend on the order of hashes."""
    code = (
        "import symacct as sa, torch; from torch import nn\n"
        "m = sa.build(lambda H, Dh, F: nn.TransformerEncoderLayer(H*Dh, H, F, batch_first=True))\n"
        "a = sa.trace(m, 'B L (H Dh)', optimizer=torch.optim.AdamW)\n"
        "print(a.report(), a.to_json(), a.to_markdown(), a.graph)"
    )
    assert len(outputs_by_seed(code)) == 1
