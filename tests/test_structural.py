"""Dims that change the graph: depths, unrolled loops, experts. Every figure is a polynomial in them, or an error."""

import functools
import json
import re

import pytest
import sympy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.cost import COST_FIELDS
from symacct.depth.fitting import Lattice
from symacct.dim import symbol
from symacct.errors import CheckError, DimError, MissingSizeError, SpecError, StructuralError

B, D, K, N, L = map(symbol, ("B", "D", "K", "N", "L"))
FIGURES = (
    "params", "param_bytes", "buffer_bytes", "grad_bytes", "optimizer_bytes", "checkpoint_bytes", "input_bytes",
    "activation_bytes", "peak_bytes",
)  # fmt: skip


class Block(nn.Module):
    """A residual block."""

    def __init__(self, d, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Blocks in a row, and a head."""

    def __init__(self, d, k, n, recompute=False):
        super().__init__()
        self.layers = nn.ModuleList(Block(d, 4 * d) for _ in range(n))
        self.head = nn.Linear(d, k)
        self.recompute = recompute

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.head(x)


def same(account, plain, sizes, structure):
    """Compare all figures at sizes with those of an account that was traced at a fixed structure."""
    ours, theirs = account.at(**sizes, **structure), plain.at(**sizes)
    for name, phase in ours.phases.items():
        assert phase.count == theirs.phases[name].count, name
        for field in COST_FIELDS:
            assert getattr(phase, field) == getattr(theirs.phases[name], field), (name, field)
    for name in FIGURES:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.memory.rest_bytes == theirs.memory.rest_bytes
    by_op = {op: phase.cost for op, phase in theirs.by_op().items()}
    assert {op: phase.cost for op, phase in ours.by_op().items()} == by_op


# -- depth ------------------------------------------------------------------------------


def builder(recompute=False):
    """A stack of any depth."""
    return lambda D, K, N: Stack(D, K, N, recompute)


@functools.cache
def stack(recompute=False):
    """A training step of a stack with AdamW, with symbolic depth."""
    return sa.trace(sa.build(builder(recompute), depth="N"), "B D", optimizer=torch.optim.AdamW)


def test_a_deep_net_in_closed_form():
    """FLOPs, parameters, state and activations are the polynomials that one writes by hand."""
    account = stack()
    assert account.forward.flops == sympy.expand(N * 16 * B * D**2 + 2 * B * D * K)
    assert account.backward.flops == sympy.expand(2 * account.forward.flops)
    assert account.params == sympy.expand(N * (8 * D**2 + 7 * D) + D * K + K)
    assert account.grad_bytes == account.param_bytes == sympy.expand(4 * account.params)
    assert account.optimizer_bytes == sympy.expand(8 * account.params + 4 * (6 * N + 2))
    assert str(account.forward) == "16*B*D**2*N + 2*B*D*K"
    assert account.dims == ("D", "K", "B", "N") or set(account.dims) == {"D", "K", "B", "N"}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("sizes", [{"B": 40, "D": 16, "K": 7}, {"B": 3, "D": 64, "K": 900}])
def test_every_figure_is_that_of_a_trace_at_that_depth(recompute, depth, sizes):
    """At any depth, all costs, sums of tensors, activations and the peak are those of a model of that depth."""
    plain = sa.build(lambda D, K: Stack(D, K, depth, recompute))
    traced = sa.trace(plain, "B D", optimizer=torch.optim.AdamW, check=False)
    same(stack(recompute), traced, sizes, {"N": depth})


def test_the_peak_is_a_maximum_in_the_depth():
    """The peak is a Max of polynomials in the depth, and each candidate's kinds add up to it."""
    account = stack()
    peak = account.peak_bytes
    assert isinstance(peak, sympy.Max)
    assert all(N in each.free_symbols for each in peak.args)
    for moment in account.memory.candidates:
        assert sympy.expand(sum(moment.by_kind().values()) - moment.nbytes) == 0
    assert any(moment.path == "layers.(N - 1)" for moment in account.memory.candidates)


def test_modules_are_templates():
    """Layers are one row, whose costs are those of all of them."""
    modules = stack().by_module(2)
    assert [name for name in modules if not name.startswith("(")] == ["layers.*", "head"]
    assert modules["layers.*"].flops == sympy.expand(48 * N * B * D**2)
    assert sympy.expand(sum(m.bytes for m in modules.values()) - stack().total.bytes) == 0


def test_the_first_layer_without_an_input_gradient_is_a_constant():
    """What the first layer does not compute is a term without the depth (N031)."""

    def cruncher(D, N):
        return nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(N)), nn.Linear(D, 1, bias=False))

    account = sa.trace(sa.build(cruncher, depth="N"), "B D")
    assert account.params == sympy.expand(N * D**2 + D)
    assert account.forward.flops == sympy.expand(2 * B * account.params)
    assert account.backward.flops == sympy.expand(4 * B * account.params - 2 * B * D**2)


def test_a_tied_head_is_a_constant():
    """An embedding that is also the head is counted once, at any depth."""

    class Tied(nn.Module):
        def __init__(self, d, v, n):
            super().__init__()
            self.embed = nn.Embedding(v, d)
            self.layers = nn.Sequential(*(nn.Linear(d, d, bias=False) for _ in range(n)))

        def forward(self, ids):
            return self.layers(self.embed(ids)) @ self.embed.weight.t()

    V = symbol("V")
    account = sa.trace(sa.build(lambda D, V, N: Tied(D, V, N), depth="N"), "i64[B, L]")
    assert account.params == sympy.expand(N * D**2 + V * D)
    assert account.forward.flops == sympy.expand(2 * B * L * (N * D**2 + V * D))


def test_two_depths():
    """An encoder and a decoder, each of a depth of its own, and what the second takes from the first."""

    class Pair(nn.Module):
        def __init__(self, d, ne, nd):
            super().__init__()
            self.encoder = nn.ModuleList(nn.Linear(d, d) for _ in range(ne))
            self.decoder = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(nd))

        def forward(self, x, y):
            for layer in self.encoder:
                x = torch.relu(layer(x))
            for layer in self.decoder:
                y = torch.relu(layer(torch.cat((x, y), 1)))
            return y

    model = sa.build(lambda D, Ne, Nd: Pair(D, Ne, Nd), depth="Ne Nd")
    account = sa.trace(model, "B D", "B D", optimizer=torch.optim.SGD)
    Ne, Nd = symbol("Ne"), symbol("Nd")
    assert account.forward.flops == sympy.expand(2 * B * D**2 * Ne + 4 * B * D**2 * Nd)
    assert account.params == sympy.expand(Ne * (D**2 + D) + Nd * (2 * D**2 + D))
    with pytest.raises(MissingSizeError, match="no size for Nd"):
        account.at(B=9, D=50, Ne=1)
    for ne, nd in ((5, 3), (3, 6)):
        plain = sa.build(lambda D, ne=ne, nd=nd: Pair(D, ne, nd))
        same(
            account,
            sa.trace(plain, "B D", "B D", optimizer=torch.optim.SGD, check=False),
            {"B": 9, "D": 50},
            {"Ne": ne, "Nd": nd},
        )


def test_all_layers_in_one_operand():
    """An operand that grows with the depth is a polynomial of its own: the stack of all layers' results."""

    class Mixed(nn.Module):
        def __init__(self, d, n):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(n))

        def forward(self, x):
            return torch.stack([layer(x) for layer in self.layers]).mean(0)

    account = sa.trace(sa.build(lambda D, N: Mixed(D, N), depth="N"), "B D")
    assert account.by_op()["aten.stack.default"].bytes == sympy.expand(8 * N * B * D)
    plain = sa.trace(sa.build(lambda D: Mixed(D, 6)), "B D", check=False)
    same(account, plain, {"B": 7, "D": 40}, {"N": 6})


def test_a_sum_over_pairs_of_layers_is_quadratic():
    """Layers that see all layers before them cost a square of the depth."""

    class Dense(nn.Module):
        def __init__(self, d, n):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(n))

        def forward(self, x):
            seen = [x]
            for layer in self.layers:
                seen.append(layer(sum(seen)))
            return seen[-1]

    account = sa.trace(sa.build(lambda D, N: Dense(D, N), depth="N"), "B D")
    assert (
        account.by_op()["aten.add.Tensor"].count.subs(N, 6)
        == sa.trace(sa.build(lambda D: Dense(D, 6)), "B D", check=False).by_op()["aten.add.Tensor"].count
    )
    with pytest.raises(StructuralError, match="the graph does not grow by equal layers"):
        _ = account.peak_bytes
    assert "no closed form: the graph does not grow by equal layers" in " ".join(account.report().split())
    plain = sa.trace(sa.build(lambda D: Dense(D, 6)), "B D", check=False)
    same(account, plain, {"B": 7, "D": 40}, {"N": 6})


# -- loops ------------------------------------------------------------------------------


class Cell(nn.Module):
    """A plain recurrent network as a Python loop."""

    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.inner, self.outer = nn.Linear(d, h), nn.Linear(h, h)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.h)
        for t in range(x.shape[1]):
            state = torch.tanh(self.inner(x[:, t]) + self.outer(state))
        return state


def test_a_loop_over_the_length():
    """A recurrent cell called once for each step has costs in closed form in the number of steps."""
    model = sa.build(lambda D, H: Cell(D, H))
    account = sa.trace(model, "B L D", structural="L", optimizer=torch.optim.AdamW)
    H = symbol("H")
    assert account.forward.flops == sympy.expand(2 * B * L * (D * H + H**2))
    assert account.params == sympy.expand(D * H + H**2 + 2 * H)
    plain = sa.trace(sa.build(lambda D, H: Cell(D, H)), "B 11 D", optimizer=torch.optim.AdamW, check=False)
    same(account, plain, {"B": 5, "D": 7, "H": 30}, {"L": 11})


def test_a_loop_that_is_not_declared_is_refuted():
    """Without saying so, a loop over a dim is an error that says what to write."""
    with pytest.raises(CheckError, match=r"structural='L'"):
        sa.trace(sa.build(lambda D, H: Cell(D, H)), "B L D")


def test_a_selective_scan():
    """The reference scan of Mamba, a loop over the length with a state: 9*B*L*D*n with its own count (N122)."""

    class Scan(nn.Module):
        def __init__(self, d, n):
            super().__init__()
            self.a = nn.Parameter(torch.zeros(d, n))
            self.steps, self.b, self.c = nn.Linear(d, d), nn.Linear(d, n), nn.Linear(d, n)

        def forward(self, u):
            delta, b, c = F.softplus(self.steps(u)), self.b(u), self.c(u)
            state = u.new_zeros(u.shape[0], u.shape[2], self.a.shape[1])
            out = []
            for t in range(u.shape[1]):
                state = (
                    torch.exp(delta[:, t, :, None] * self.a) * state
                    + (delta[:, t] * u[:, t])[..., None] * b[:, t, None]
                )
                out.append((state @ c[:, t, :, None])[..., 0])
            return torch.stack(out, 1)

    n = symbol("n")
    account = sa.trace(sa.build(lambda D, n: Scan(D, n)), "B L D", structural="L", train=False)
    assert account.forward.flops == sympy.expand(2 * B * L * (D**2 + 2 * D * n) + 2 * B * L * D * n)
    plain = sa.trace(sa.build(lambda D, n: Scan(D, n)), "B 9 D", train=False, check=False)
    same(account, plain, {"B": 5, "D": 7, "n": 3}, {"L": 9})


def test_attention_by_chunks():
    """Attention that a loop computes block by block, over a number of blocks: its square is in the formula."""

    def chunked(q, k, v):
        out = []
        for rows in q.split(4, 1):
            out.append(torch.cat([rows @ k.transpose(1, 2)], 1).softmax(-1) @ v)
        return torch.cat(out, 1)

    specs = ("B (n 4) D",) * 3
    n = symbol("n")
    account = sa.trace(chunked, *specs, structural="n", train=False)
    assert account.forward.flops == sympy.expand(4 * B * (4 * n) ** 2 * D)


def test_experts_in_a_loop():
    """The number of experts in a Python loop is a depth like any other."""

    class Experts(nn.Module):
        def __init__(self, d, e):
            super().__init__()
            self.gate = nn.Linear(d, e, bias=False)
            self.experts = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(e))

        def forward(self, x):
            weights = self.gate(x).softmax(-1)
            return sum(weights[:, i, None] * expert(x) for i, expert in enumerate(self.experts))

    E = symbol("E")
    account = sa.trace(sa.build(lambda D, E: Experts(D, E), depth="E"), "B D")
    assert account.params == sympy.expand(E * D**2 + D * E)
    assert account.forward.flops == sympy.expand(2 * B * D * E + 2 * B * D**2 * E)


# -- what is refused -----------------------------------------------------------------------


def test_layers_in_a_pattern_are_refused_with_the_place():
    """A cost that alternates from layer to layer is no polynomial, and the error says which op and which values."""

    def model(D, N):
        return nn.Sequential(*(nn.Linear(D, D) if i % 2 else nn.Identity() for i in range(N)))

    with pytest.raises(StructuralError, match=r"aten\.t\.default in \* \(forward\).* at N=2.*pattern"):
        sa.trace(sa.build(model, depth="N"), "B D")


def test_a_branch_farther_off_is_found_by_the_proof():
    """A change of the graph beyond the depths of the fit is found by the run that is deeper."""

    def model(D, N):
        return nn.Sequential(*(nn.Linear(D, D) if i < 6 else nn.Identity() for i in range(N)))

    with pytest.raises(CheckError, match=r"at .*N=9.* a run there gives"):
        sa.trace(sa.build(model, depth="N"), "B D")


def test_layers_that_are_alike_from_some_depth_on():
    """Where the formulas hold from a larger depth on, they say so, and smaller ones are traced as they are."""

    def model(D, N):
        return nn.Sequential(*(nn.Linear(D, D) if i else nn.Linear(D, D, bias=N > 2) for i in range(N)))

    account = sa.trace(sa.build(model, depth="N"), "B D")
    assert "N >= 3" in map(str, account.assumptions)
    assert account.params == sympy.expand(N * (D**2 + D))
    assert account.at(N=2, B=5, D=8).params == 2 * 64 + 8


def test_what_was_traced_in_vain_is_not_traced_again(monkeypatch):
    """Depths below the least are there already where looking for the formulas came by them."""

    def model(D, N):
        return nn.Sequential(*(nn.Linear(D, D) if i else nn.Linear(D, D, bias=N > 2) for i in range(N)))

    account = sa.trace(sa.build(model, depth="N"), "B D", check=False)

    def run_step(*args, **options):
        raise AssertionError("the program ran again")

    monkeypatch.setattr("symacct.tracing.run_step", run_step)
    assert account.at(N=2, B=5, D=8).params == 2 * 64 + 8
    with pytest.raises(AssertionError, match="ran again"):
        account.at(N=1, B=5, D=8)


def test_only_the_depth_that_must_begins_later():
    """Of two depths, the one whose first layers are like the others keeps its least size, and few are traced."""

    def model(D, Ne, Nd):
        first = [nn.Linear(D, D) for _ in range(Ne)]
        return nn.Sequential(*first, *(nn.Linear(D, D, bias=i > 0 or Nd > 2) for i in range(Nd)))

    account = sa.trace(sa.build(model, depth="Ne Nd"), "B D")
    assert {"Ne >= 2", "Nd >= 3"} <= set(map(str, account.assumptions))
    assert account.params == sympy.expand((symbol("Ne") + symbol("Nd")) * (D**2 + D))
    plain = sa.trace(sa.build(lambda D: model(D, 2, 5)), "B D", check=False)
    same(account, plain, {"B": 9, "D": 50}, {"Ne": 2, "Nd": 5})


def test_names_that_are_no_dims():
    """A depth or a structural dim that is not there is an error that names it."""
    with pytest.raises(DimError, match="depth 'M' is none of the builder's dims D, K, N"):
        sa.build(builder(), depth="M")
    model = sa.build(lambda D, H: Cell(D, H))
    with pytest.raises(SpecError, match="'T' occurs in no spec"):
        sa.trace(model, "B L D", structural="T")
    with pytest.raises(SpecError, match=r"'D' is a dim of the model.*depth='D'"):
        sa.trace(model, "B L D", structural="D")


def test_a_dim_called_depth():
    """A builder may have a dim of that very name."""
    model = sa.build(lambda depth: nn.Linear(depth, 3), depth=16)
    assert sa.trace(model, "B depth").forward.flops == 6 * B * symbol("depth")


def test_nodes_exist_at_a_fixed_depth():
    """Without a depth there are no nodes: the error says where they are; with one they are that model's."""
    account = stack()
    with pytest.raises(StructuralError, match=r"account\.unrolled\(N=2\)"):
        _ = account.nodes
    plain = account.unrolled(N=3)
    assert len(plain.nodes) == plain.total.count == account.total.count.subs(N, 3)
    sized = account.at(N=3, B=5, D=16, K=7)
    assert sum(node.flops for node in sized.nodes) == sized.total.flops
    assert sized.memory.peak.nbytes == sized.peak_bytes


def test_sizes_are_asked_for():
    """The depth is a dim like others: it must be given, and be a whole number."""
    with pytest.raises(MissingSizeError, match="no size for N"):
        stack().at(B=2, D=8, K=3)
    with pytest.raises(DimError, match="whole number"):
        stack().at(B=2, D=8, K=3, N=0)


def test_reports_say_how_it_was_proven():
    """The report names the depths that were traced and the run that proves the rest."""
    report = stack().report()
    assert "polynomials in N, from traces at N=2; N=3; N=4" in report
    assert "proven, figure by figure, by a run at" in report
    assert "NOT checked" not in report
    assert '"polynomials' not in report


def test_memory_reports_at_any_depth():
    """The report of memory has formulas in the depth, and at sizes what is alive in a model of that depth."""
    account = stack()
    report = account.memory_report()
    assert "24*B*D*N + 8*B*N + 4" in report
    assert "24*N + 8 bytes of" in report
    assert "backward: aten.threshold_backward in" in report
    sizes = {"B": 5, "D": 16, "K": 7}
    plain = sa.trace(sa.build(lambda D, K: Stack(D, K, 6)), "B D", optimizer=torch.optim.AdamW, check=False)
    reports = (a.memory_report(form="json") for a in (account.at(N=6, **sizes), plain.at(**sizes)))
    # What the step does beside the model has the line that called for the trace, which is not the same one here.
    ours, theirs = (json.loads(re.sub(r"test_structural\.py:\d+", "test_structural.py", report)) for report in reports)
    assert {n: b["value"] for n, b in ours["bytes"].items()} == {n: b["value"] for n, b in theirs["bytes"].items()}
    for name in ("value", "first", "later", "by_kind", "by_module", "tensors"):
        assert ours["peak"][name] == theirs["peak"][name], name


def test_machines_get_formulas_in_the_depth():
    """JSON has counts of nodes as formulas, and as numbers at sizes."""
    document = json.loads(stack().to_json())
    assert document["dims"] == list(stack().dims)
    assert document["evidence"] == stack().evidence
    assert "N" in document["phases"]["forward"]["nodes"]
    assert document["phases"]["forward"]["flops"]["formula"] == "16*B*D**2*N + 2*B*D*K"
    sized = json.loads(stack().at(B=5, D=16, K=7, N=6).to_json())
    assert isinstance(sized["phases"]["forward"]["nodes"], int)


def test_arrays_of_depths():
    """Depth is a dim like any other where sizes are arrays."""
    numpy = pytest.importorskip("numpy")
    depths = numpy.array([2, 3, 50])
    found = stack().at(B=5, D=16, K=7, N=depths)
    each = [stack().at(B=5, D=16, K=7, N=int(n)) for n in depths]
    assert found.peak_bytes.tolist() == [account.peak_bytes for account in each]
    assert found.total.flops.tolist() == [account.total.flops for account in each]


def test_other_devices_at_any_depth():
    """What CUDA runs is described at any depth too: its optimizer works on lists that grow with it."""
    account = sa.trace(sa.build(builder(), depth="N"), "B D", optimizer=torch.optim.AdamW, device="cuda")
    plain = sa.trace(
        sa.build(lambda D, K: Stack(D, K, 6)), "B D", optimizer=torch.optim.AdamW, device="cuda", check=False
    )
    same(account, plain, {"B": 9, "D": 24, "K": 5}, {"N": 6})


def test_checking_at_more_sizes():
    """`check` runs the model at a depth and at sizes of one's own."""
    account = stack()
    account.check(N=6, B=5, D=8, K=3)
    wrong = sa.trace(sa.build(builder(), depth="N"), "B D", check=False)
    wrong._costs[0] = wrong._costs[0] + wrong._costs[0]
    with pytest.raises(CheckError, match="native_layer_norm"):
        wrong.check(N=6, B=5, D=8, K=3)


def test_memory_in_blocks():
    """With CUDA's blocks of 512 bytes, memory at any depth is still that of a model of that depth."""
    account = stack().with_allocator("cuda")
    plain = sa.trace(sa.build(lambda D, K: Stack(D, K, 6)), "B D", optimizer=torch.optim.AdamW, check=False)
    sizes = {"B": 9, "D": 24, "K": 5}
    assert account.at(N=6, **sizes).peak_bytes == plain.with_allocator("cuda").at(**sizes).peak_bytes


# -- fitting -------------------------------------------------------------------------------


def test_polynomials_are_exact():
    """A polynomial comes back from its values; one of a higher degree does not pass."""
    x, y = symbol("x"), symbol("y")
    lattice = Lattice({x: 2, y: 3}, 3)

    def values(expr):
        return {o: expr.subs({x: 2 + o[0], y: 3 + o[1]}) for o in lattice.offsets}

    wanted = sympy.expand(3 * x * y + 2 * x**2 * D - 7 * y + B)
    assert lattice.polynomial(values(wanted)) == wanted
    assert lattice.polynomial(values(x**2 * y)) is None


def test_what_does_not_matter_does_not_matter_at_any_depth() -> None:
    """A comparison that the check found to be without consequence binds no sizes: not of nodes, not below the least."""

    class Asks(nn.Module):
        def __init__(self, D: int, N: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(N))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[0] > 0
            self.is_large = x.shape[0] > 500
            for layer in self.layers:
                x = layer(x)
            return x

    account = sa.trace(sa.build(Asks, depth="N"), "B D")
    assert not any("B" in str(a) for a in account.assumptions)
    for N in (1, 2, 3, 9):
        assert account.at(B=600, D=4, N=N).forward.flops == 2 * 600 * 4 * 4 * N
        assert len(account.at(B=600, D=4, N=N).nodes) > 0
