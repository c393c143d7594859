"""The check at other sizes: what it catches, whom it blames, which assumptions it drops."""

import math

import pytest
import torch
from torch import nn

import symacct as sa
from symacct.errors import AssumptionError, CheckError, MissingSizeError, TraceError, UnknownDimError


def refuted(target, *specs, **options):
    """The message of the CheckError that a trace raises."""
    with pytest.raises(CheckError) as caught:
        sa.trace(target, *specs, **options)
    return str(caught.value)


def test_a_python_loop_over_a_dim():
    """A loop that unrolls at the trial size is found, with the dim to blame."""

    def cumulate(x):
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i]
        return total

    message = refuted(cumulate, "L D")
    assert "the graph itself changes with the sizes: at aten.select.int in the top level" in message or (
        "the graph itself changes with the sizes" in message
    )
    assert "The dim to blame is L; likely cause: a Python loop over a dim" in message
    assert sa.trace(cumulate, "5 D").forward.pointwise == 4 * sa.trace(lambda a, b: a + b, "D", "D").forward.pointwise


def test_a_size_that_went_through_a_float():
    """int(8 * D / 3) keeps its formula; what goes through math.sqrt is found, with both values and the cause."""

    class Gated(nn.Module):
        def __init__(self, D, width):
            super().__init__()
            self.up = nn.Linear(D, width(D), bias=False)

        def forward(self, x):
            return self.up(x)

    account = sa.trace(sa.build(lambda D: Gated(D, lambda d: int(8 * d / 3))), "B D")
    assert str(account.forward) == "2*B*D*((8*D)//3)"
    assert account.at(B=2, D=10).forward.flops == 2 * 2 * 10 * 26
    message = refuted(sa.build(lambda D: Gated(D, lambda d: int(math.sqrt(d) * 9))), "B D")
    assert message.startswith("aten.t.default in up (forward")
    assert (
        "The dim to blame is D; likely cause: a size computed through a float or int(...) (use // instead;" in message
    )


def test_a_hidden_constant_in_a_function():
    """A size that came from math.sqrt is a constant at the trial size, and refuted."""
    message = refuted(lambda x: x.new_ones(int(math.sqrt(x.shape[0]) * 2), 4) @ x.new_ones(4, 4), "B 4")
    assert "The dim to blame is B" in message


def test_widths_as_models_write_them():
    """int(dim * 4.0) and int(hidden / heads), as timm and transformers write them, keep their symbols."""

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.size = heads, int(width / heads)
            self.qkv = nn.Linear(width, 3 * self.heads * self.size, bias=False)
            self.up = nn.Linear(width, int(width * 4.0), bias=False)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, self.size).unbind(2)
            return self.up((q + k + v).flatten(2))

    account = sa.trace(sa.build(lambda H, Dh: Block(H * Dh, H)), "B L (H Dh)")
    assert str(account.forward) == "14*B*Dh**2*H**2*L"
    assert account.assumptions == ()


def test_a_branch_that_matters_stays_an_assumption():
    """Code that does something else for long inputs makes an assumption that .at() enforces."""

    def attend(x):
        return x @ x.T if x.shape[0] <= 256 else x @ x.T @ x

    account = sa.trace(attend, "L D")
    assert [str(a) for a in account.assumptions] == ["L <= 256"]
    assert account.at(L=256, D=2).forward.flops == 2 * 256 * 256 * 2
    with pytest.raises(AssumptionError, match=r"L=257: the traced program relied on L <= 256"):
        account.at(L=257, D=2)


def test_a_comparison_without_consequence_is_dropped():
    """A warning for large sizes changes nothing, which a run on its other side shows."""
    seen = []

    def warn(x):
        if x.shape[0] > 1000 or x.shape[1] == 3:
            seen.append("large")
        return x * 2

    account = sa.trace(warn, "L D")
    assert account.assumptions == ()
    assert seen
    unchecked = sa.trace(warn, "L D", check=False)
    assert [str(a) for a in unchecked.assumptions] == ["L <= 1000", "D != 3"]
    assert unchecked.checked == ()


def test_a_branch_behind_a_branch():
    """A comparison that is only made on the other side of another keeps the first one an assumption."""

    def nested(x):
        return x * 2 + 1 if x.shape[0] > 1000 and x.shape[1] > 2000 else x * 2

    account = sa.trace(nested, "L D")
    assert [str(a) for a in account.assumptions] == ["L <= 1000"]
    with pytest.raises(AssumptionError):
        account.at(L=1001, D=2001)


def test_relations_that_torch_forces():
    """Equalities and divisibilities come from the ops themselves, are printed, and are enforced."""
    account = sa.trace(lambda x, y: x + y, "B D", "B (H Dh)")
    assert [str(a) for a in account.assumptions] == ["D == Dh*H"]
    assert account.checked
    assert account.at(B=2, D=12, H=3, Dh=4).forward.pointwise == 24
    with pytest.raises(AssumptionError, match=r"D=13, Dh=4, H=3: the traced program relied on D == Dh\*H"):
        account.at(B=2, D=13, H=3, Dh=4)


def test_b63_a_dim_that_a_constant_forces():
    """Concatenated with a (5, 5) constant, x (A, W) must have W == 5, which the account says."""
    constant = torch.zeros(5, 5)
    account = sa.trace(lambda x, w: torch.cat([x, constant]) @ w, "A W", "5 3")
    assert [str(a) for a in account.assumptions] == ["W == 5"]
    assert str(account.forward) == "6*A*W + 30*W"  # 30*(A + 5), once W is 5
    assert account.at(A=7, W=5).forward.flops == 30 * (7 + 5)


def test_b62_divisibility_from_a_reshape():
    """x (B, S, 32) viewed as (B, -1, 64) needs an even S, leaves no floor, and refuses an odd S."""
    account = sa.trace(lambda x, w: x.reshape(x.shape[0], -1, 64) @ w, "B S 32", "64 10")
    assert str(account.forward) == "640*B*S"
    assert [str(a) for a in account.assumptions] == ["S % 2 == 0"]
    assert account.at(B=2, S=6).forward.flops == 7680
    with pytest.raises(AssumptionError, match="S=7: the traced program relied on S % 2 == 0"):
        account.at(B=2, S=7)
    assert "holds when: S % 2 == 0" in account.report()


def test_values_that_only_data_could_give_are_assumptions():
    """A comparison with a random number is answered, recorded and printed."""

    def layer_drop(x):
        return x * 2 if torch.rand([]) < 0.1 else x * 3

    account = sa.trace(layer_drop, "B D")
    (assumption,) = account.assumptions
    assert str(assumption).startswith("a value that depends on data was taken as ")
    assert "test_check.py" in str(assumption)


def test_at_needs_every_dim_and_no_other():
    """Missing and unknown sizes are errors that list the dims."""
    account = sa.trace(nn.Linear(8, 4), "B L 8")
    with pytest.raises(MissingSizeError, match=r"at\(\): no size for L; give one for each of B, L"):
        account.at(B=2)
    with pytest.raises(UnknownDimError, match=r"at\(\): there is no dim 'T'; the account's dims are B, L"):
        account.at(B=2, T=3)
    assert account.at(B=2, L=3).forward.flops == 2 * 2 * 3 * 8 * 4


def test_check_on_demand():
    """check() runs at the sizes that are asked for."""
    account = sa.trace(nn.Linear(8, 4), "B 8", check=False)
    assert account.check(B=5) == ({"B": 5},)
    assert len(account.check()) == 1


def test_a_program_that_only_runs_at_multiples():
    """A need that the code does not state is found when no other size runs."""

    def halves(x):
        if int(x.shape[0]) % 96:  # int() hides the question
            raise ValueError("the batch must be a multiple of 96")
        return x * 2

    with pytest.raises(CheckError, match="it needs a relation between sizes") as caught:
        sa.trace(halves, "B D", sizes={"B": 96})
    assert "the batch must be a multiple of 96" in str(caught.value)


def test_a_failing_model_names_place_and_shapes():
    """An op that fails on fake tensors names op, shapes with symbols, module path and trial sizes."""
    net = sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Linear(D + 1, D)))
    with pytest.raises(TraceError) as caught:
        sa.trace(net, "B D")
    message = str(caught.value)
    assert message.startswith("running the model failed in aten.addmm.default on (D), (B, D), (D + 1, D) at 1")
    assert "trial sizes D=" in message


def test_the_border_of_an_inequality_is_no_other_side():
    """The last 128 of 104 are all of them, and of exactly 128 too; only more than that tell that it matters."""
    short = sa.trace(lambda keys: keys[-128:].clone(), "C", train=False, sizes={"C": 104})
    assert [str(a) for a in short.assumptions] == ["C < 128"]
    long = sa.trace(lambda keys: keys[-128:].clone(), "C", train=False, sizes={"C": 200})
    assert [str(a) for a in long.assumptions] == ["C >= 128"]


def test_a_guard_of_64_bits_is_no_assumption():
    """Whether sizes overflow 64 bits is torch's own question; it is neither printed nor tried on its other side."""
    account = sa.trace(sa.build(lambda C, w: nn.Conv1d(C, C, w, groups=C, padding=w - 1)), "B C L", train=False)
    assert not account.assumptions
    assert all(size < 2**20 for sizes in account.checked for size in sizes.values())
