"""`solve`: exact answers that fit, one more that does not, and what it says where there is none."""

from contextlib import suppress
from functools import cache, partial

import pytest
import torch
from torch import nn

import symacct as sa
from symacct.errors import AssumptionError, MissingSizeError, QuestionError, SpecError, UnitError, UnknownDimError
from symacct.formulas.grid import HELD
from symacct.hardware import device
from symacct.napkin import solve
from symacct.napkin.figures import NAMES, formula_of, unit_of
from symacct.napkin.growth import direction


class Block(nn.Module):
    """A residual feed-forward layer."""

    def __init__(self, D, F):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, F), nn.Linear(F, D)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """N such layers between an embedding and a head."""

    def __init__(self, N, D, F, V):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.layers = nn.ModuleList(Block(D, F) for _ in range(N))
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Heads(nn.Module):
    """Attention with H heads in a width that they divide."""

    def __init__(self, D, H):
        super().__init__()
        self.heads = H
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, x):
        B, L, D = x.shape
        assert D % self.heads == 0
        q, k, v = self.qkv(x).view(B, L, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, L, D))


ADAMW = partial(torch.optim.AdamW, fused=True)


@cache
def flat():
    """Two layers of free widths."""
    return sa.trace(
        sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, K))), "B D", optimizer=ADAMW
    )


@cache
def deep():
    """A net of any depth."""
    return sa.trace(sa.build(Net, depth="N"), "i64[B, L]", optimizer=ADAMW, check=False)


@cache
def heads():
    """Attention whose width is a multiple of the number of heads."""
    return sa.trace(sa.build(Heads, D=32, H=4), "B L D", optimizer=ADAMW, check=False)


@cache
def pixels():
    """A strided convolution, whose figures have floors."""
    return sa.trace(sa.build(lambda C: nn.Conv2d(3, C, 3, stride=2)), "B 3 S S", optimizer=ADAMW, check=False)


def figure(at, name):
    """A figure by an account at sizes itself."""
    if name in HELD:
        return getattr(at, name)
    phase, _, measure = name.partition("_")
    if name in ("flops", "pointwise", "bytes", "bytes_read", "bytes_written"):
        return getattr(at.total, name)
    return getattr(at.total if phase == "total" else at.phases[phase], measure)


CASES = [
    (
        flat,
        "D",
        {"B": 3, "K": 5},
        ("peak_bytes", "params", "optimizer_bytes", "forward_flops", "bytes", "checkpoint_bytes"),
    ),
    (flat, "B", {"D": 4, "K": 3}, ("peak_bytes", "activation_bytes", "total_pointwise", "input_bytes")),
    (flat, "K", {"D": 4, "B": 3}, ("peak_bytes", "grad_bytes", "backward_flops", "optimizer_bytes_written")),
    (deep, "N", {"B": 2, "L": 3, "D": 4, "F": 6, "V": 7}, ("peak_bytes", "param_bytes", "flops", "activation_bytes")),
    (deep, "D", {"B": 2, "L": 3, "N": 3, "F": 6, "V": 7}, ("peak_bytes", "params")),
    (heads, "D", {"B": 2, "L": 5, "H": 2}, ("peak_bytes", "params", "forward_flops")),
    (heads, "L", {"B": 2, "D": 16, "H": 4}, ("peak_bytes", "flops", "activation_bytes")),
    (pixels, "S", {"B": 2, "C": 4}, ("peak_bytes", "forward_flops", "bytes")),
]
QUESTIONS = [
    pytest.param(make, dim, sizes, name, id=f"{make.__name__}-{dim}-{name}")
    for make, dim, sizes, names in CASES
    for name in names
]


@cache
def accounts(make, dim, sizes):
    """The account at each of the first sizes of a dim that it accepts, by size."""
    account, found = make(), {}
    for size in range(2 if dim == "N" else 1, 17):
        with suppress(AssumptionError):
            found[size] = account.at(**dict(sizes), **{dim: size})
    return found


def tried(make, dim, sizes, name):
    """A figure at each of the first sizes that the account accepts."""
    found = accounts(make, dim, tuple(sizes.items()))
    assert len(found) >= 4
    return {size: figure(at, name) for size, at in found.items()}


@pytest.mark.parametrize(("make", "dim", "sizes", "name"), QUESTIONS)
def test_largest_is_that_of_trying_all(make, dim, sizes, name):
    """The answer is the largest accepted size that fits by trying every size, and the next accepted one does not."""
    values = tried(make, dim, sizes, name)
    ordered = sorted(values)
    amounts = sorted(set(values.values()))
    for i in (0, len(amounts) // 2, len(amounts) - 2):
        for amount in (amounts[i], amounts[i + 1] - 1):
            answer = solve(make(), dim, **{name: amount}, **sizes)
            fitting = [size for size in ordered if values[size] <= amount]
            assert answer.size == fitting[-1]
            assert answer.next == ordered[len(fitting)]
            assert answer.figures[0].value == values[answer.size] <= amount < values[answer.next]
            assert answer.figures[0].beyond == values[answer.next]


@pytest.mark.parametrize(("make", "dim", "sizes", "name"), QUESTIONS[::3])
def test_least_is_that_of_trying_all(make, dim, sizes, name):
    """With ">=" the answer is the least accepted size with as much, and the one before it has less."""
    values = tried(make, dim, sizes, name)
    ordered = sorted(values)
    for amount in sorted(set(values.values()))[1::4]:
        answer = solve(make(), dim, **{name: f">= {amount}"}, **sizes)
        less = [size for size in ordered if values[size] < amount]
        assert (answer.kind, answer.size, answer.next) == ("least", ordered[len(less)], less[-1])


@pytest.mark.parametrize("amount", ["80 GB", "80 GiB"])
def test_a_rule_ties_dims(amount):
    """With F = 4*D as text, function or in ``tied`` the answer is the same, it fits, and one more does not."""
    account = deep()
    rules = ({"F": "4*D"}, {"F": lambda D: 4 * D}, {"tied": {"F": "4*D"}}, {"F": "W", "W": "4*D"})
    answers = [solve(account, "D", peak_bytes=amount, B=8, L=512, N=6, V=50257, **rule) for rule in rules]
    assert len({answer.size for answer in answers}) == 1
    size = answers[0].size
    limit = 80 * (10**9 if amount == "80 GB" else 2**30)
    peaks = [account.at(B=8, L=512, N=6, V=50257, D=D, F=4 * D).peak_bytes for D in (size, size + 1)]
    assert peaks[0] <= limit < peaks[1]
    assert answers[0].sizes["F"] == 4 * size


def test_a_rule_that_is_not_whole_leaves_sizes_out():
    """With F = 8*D/3 only multiples of 3 are answers; with 64 in the rule the unknown may be a name of its own."""
    answer = solve(flat(), "D", params="1M", K="8*D/3")
    assert (answer.size % 3, answer.next) == (0, answer.size + 3)
    heads_answer = solve(flat(), "H", params="1M", D="64*H", K=10)
    assert heads_answer.sizes["D"] == 64 * heads_answer.size
    assert heads_answer.figures[0].value <= 10**6 < heads_answer.figures[0].beyond


def test_a_rule_in_numbers_is_tried_size_by_size():
    """A function that compares numbers is a rule too: no bisection, and the answer says so."""
    answer = solve(flat(), "D", params="100k", K=lambda D: 7 if D > 20 else 1)
    assert answer.size == max(D for D in range(1, 400) if D * D + D + (7 if D > 20 else 1) * (D + 1) <= 10**5)
    assert "every size" in answer.notes[0]


def test_several_conditions():
    """All conditions hold at the answer, and one of them breaks at the next size."""
    answer = solve(flat(), "D", peak_bytes="1 GB", flops="1 GFLOP", B=8, K=16)
    at = flat().at(D=answer.size, B=8, K=16)
    beyond = flat().at(D=answer.next, B=8, K=16)
    assert at.peak_bytes <= 10**9
    assert at.total.flops <= 10**9
    assert beyond.peak_bytes > 10**9 or beyond.total.flops > 10**9
    assert len(answer.figures) == 2


def test_account_at_sizes_and_a_device():
    """The sizes of an account that has some are taken, and a device stands for its memory."""
    card = device("h100")
    answer = solve(flat().at(B=64, D=8, K=8), "D", peak_bytes=card)
    assert flat().at(B=64, D=answer.size, K=8).peak_bytes <= card.memory_bytes
    assert any(card.name in note for note in answer.notes)
    assert int(answer) == answer.size


def test_depth_below_the_least_of_the_formulas():
    """A depth of 1, which the formulas for any depth leave out, is that of its own trace."""
    answer = solve(deep(), "B", peak_bytes="10 MB", N=1, L=16, D=32, F=64, V=100)
    one = deep().unrolled(N=1)
    sizes = {"L": 16, "D": 32, "F": 64, "V": 100}
    assert one.at(B=answer.size, **sizes).peak_bytes <= 10**7 < one.at(B=answer.size + 1, **sizes).peak_bytes


def test_conventions_and_allocators():
    """An account by a convention or another allocator is asked by its own figures."""
    sizes = {"B": 2, "L": 64, "F": "4*D", "N": 4, "V": 1000}
    plain, palm = (solve(a, "D", flops="1 TFLOP", **sizes).size for a in (deep(), deep().under("palm")))
    assert palm != plain
    blocks = flat().with_allocator("cuda")
    answer = solve(blocks, "D", peak_bytes="1 MB", B=3, K=5)
    peaks = [blocks.at(D=D, B=3, K=5).peak_bytes for D in (answer.size, answer.next)]
    assert peaks[0] <= 10**6 < peaks[1]


def test_nothing_fits():
    """Where not even the least size fits, the error says how much that takes and what its largest part is."""
    with pytest.raises(
        QuestionError, match=r"even B=1 does not fit: peak_bytes is .*, of which .* is the largest part"
    ):
        solve(flat(), "B", peak_bytes="1 MB", D=4096, K=4096)
    with pytest.raises(QuestionError, match=r"even N=2 does not fit: flops is"):
        solve(deep(), "N", flops=100, B=8, L=8, D=8, F=8, V=8)


def test_nothing_is_too_large():
    """A figure that does not depend on the dim, and one that never breaks, are told apart."""
    with pytest.raises(QuestionError, match="params does not depend on B"):
        solve(flat(), "B", params="7B", D=8, K=8)
    with pytest.raises(QuestionError, match=r"params does not depend on B: it is .* which is not <= 3"):
        solve(flat(), "B", params=3, D=8, K=8)
    with pytest.raises(QuestionError, match=r"at no size|together"):
        solve(flat(), "D", params="1k", forward_flops=">= 1 TFLOP", B=8, K=8)


def test_units_are_checked():
    """Bytes where FLOP are meant, FLOP where bytes are, and bytes where a number is."""
    for wrong in ({"flops": "80 GB"}, {"peak_bytes": "1e15 FLOP"}, {"params": "80 GB"}, {"peak_bytes": "lots"}):
        with pytest.raises(UnitError, match=next(iter(wrong))):
            solve(flat(), "D", B=8, K=8, **wrong)


def test_names_are_checked():
    """Unknown names, missing sizes, sizes of the unknown, circles and questions without a condition."""
    with pytest.raises(UnknownDimError, match="no dim and no figure 'Q'"):
        solve(flat(), "D", params="1M", K=4, Q=3)
    with pytest.raises(UnknownDimError, match="'Z'"):
        solve(flat(), "Z", params="1M", K=4, D=3)
    with pytest.raises(MissingSizeError, match="no size for K"):
        solve(flat(), "D", params="1M")
    with pytest.raises(SpecError, match="is the unknown"):
        solve(flat(), "D", params="1M", D=3, K=3)
    with pytest.raises(SpecError, match="circle"):
        solve(flat(), "B", params="1M", D="K", K="D")
    with pytest.raises(SpecError, match="what has to fit"):
        solve(flat(), "D", K=3)
    with pytest.raises(AssumptionError, match="relied on"):
        solve(heads(), "L", flops="1 TFLOP", B=1, D=33, H=2)
    with pytest.raises(SpecError, match="has no size for Z"):
        solve(flat(), "D", params="1M", K="Z*D")


def test_every_figure_can_be_asked():
    """Each name has a unit and a formula that is the account's own."""
    account = flat()
    for name in NAMES:
        assert unit_of(name) in ("byte", "FLOP", "")
        formula_of(account, name)
    assert formula_of(account, "forward_flops") == account.forward.flops
    assert formula_of(account, "rest_bytes") == account.memory.rest_bytes


def test_what_is_shown_to_grow():
    """Growing, falling and neither; rounding and Max keep a direction, a remainder has none."""
    import sympy

    x = sa.dim.symbol("x")
    assert direction(x**2 - 3 * x, x, 2) == 1
    assert direction(x**2 - 30 * x, x, 2) is None
    assert direction(x**2 - 30 * x, x, 15) == 1
    assert direction(x**3 - 30 * x**2 + 200 * x, x, 1) is None  # it grows at first and in the end, and falls between
    assert direction(sympy.Max(x, 7, evaluate=False) + sympy.ceiling(x / 8) * x, x, 1) == 1
    assert direction((sympy.floor((x - 3) / 2) + 1) ** 2 - sympy.floor((x - 3) / 2), x, 3) == 1
    assert direction((sympy.floor(x / 2) - 4) ** 2, x, 1) is None
    assert direction(64 / x, x, 1) == -1
    assert direction(3 - x, x, 1) == -1
    assert direction(sympy.floor(64 / x), x, 1) == -1
    assert direction(x + sympy.Mod(x, 5), x, 1) is None
    assert direction(sympy.Integer(3), x, 1) == 0


def test_table():
    """The answer as text has the size, both figures in full and what it rests on."""
    text = str(solve(flat(), "D", params="1M", K=10))
    assert "the largest D is 994 at K=10" in text
    assert "998,980" in text
