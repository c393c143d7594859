"""The memory entries of the napkin-math reference, by id, reproduced by tracing.

No formula is typed where a trace can give it: what is written here is the closed form that must come out. Where
the source counts something else than eager PyTorch does, the difference is asserted term by term. N090
is in test_eight_bit.py.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import sympy
import torch
from test_memory_cases import (
    FusedLayer,
    Latent,
    Layer,
    byte_masks,
    inference,
    llama_cache,
    outputs,
    same,
    saved,
    symbols,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

import symacct as sa
from symacct.account import Account
from symacct.eight_bit import AdamW8bit

GB, GIB = 10**9, 2**30


def constant(expr: Any) -> Any:
    """What is left of a formula when all dims are 0."""
    return expr.subs(dict.fromkeys(expr.free_symbols, 0))


def states(account: Account) -> Any:
    """Bytes of weights, gradients and optimizer state."""
    return account.param_bytes + account.grad_bytes + account.optimizer_bytes


def per_parameter(account: Account) -> tuple[Any, ...]:
    """Bytes of weights, gradients and state for each parameter, step counters apart."""
    held = (account.param_bytes, account.grad_bytes, account.optimizer_bytes)
    return tuple(sympy.cancel((found - constant(found)) / account.params) for found in held)


@pytest.fixture(scope="session")
def policy(example: Any) -> Any:
    """(weights, gradients, state) in bytes for each parameter under a policy of the example, traced."""
    return lambda name: per_parameter(example("mixed_precision").account(name))


# -- formats and tiny tensors ---------------------------------------------------------


def test_n001() -> None:
    """A float32 matrix takes 4*m*n bytes, 128 at (4, 8)."""
    m, n = symbols("m n")
    made = inference(lambda x, y: x.new_zeros(x.shape[0], y.shape[0]), "m", "n")
    assert same(outputs(made), 4 * m * n)
    assert outputs(made.at(m=4, n=8)) == 128


def test_n002() -> None:
    """Two 32x32 float32 matrices take 8,192 bytes."""
    assert inference(lambda x, y: x + y, "m m", "m m").at(m=32).input_bytes == 8192


def test_n003() -> None:
    """The first matrix of GPT-3's feed-forward is 2.416 GB, 2.25 GiB, 2304 MiB; never "2.3 GB" (E01, E02)."""
    d = symbols("d")
    step = inference(sa.build(lambda d: nn.Linear(d, 4 * d, bias=False)), "B d")
    assert same(step.params, 4 * d**2)
    assert same(step.param_bytes, 16 * d**2)
    at = step.at(B=1, d=12_288)
    assert (at.params, at.param_bytes) == (603_979_776, 2_415_919_104)
    assert at.param_bytes / GIB == 2.25
    assert at.param_bytes == 2304 * 2**20


def test_n005() -> None:
    """Element (1, 2) of a 4x4 tensor is at 6; a view costs nothing, only a copy moves 2*4*m*n bytes (E22)."""
    m, n = symbols("m n")
    (*_, last) = inference(lambda x: x[1, 2], "4 4").nodes
    assert last.outputs[0].offset == 6
    for view in (lambda x: x.t(), lambda x: x.view(-1), lambda x: x[1:], lambda x: x.reshape(-1)):
        found = inference(view, "m n")
        assert (found.total.bytes, found.total.flops, outputs(found)) == (0, 0, 0)
        assert same(found.peak_bytes, 4 * m * n)
    for copy in (lambda x: x.t().contiguous(), lambda x: x.t().reshape(-1)):
        found = inference(copy, "m n")
        assert same(found.total.bytes, 2 * 4 * m * n)
        assert same(outputs(found), 4 * m * n)


# -- training memory ------------------------------------------------------------------


def test_n025(policy: Any) -> None:
    """All float32: weights 4, gradients 4, two moments 8: 16 bytes for each parameter."""
    assert policy("float32") == (4, 4, 8)
    assert sum(policy("float32")) == 16


def test_n026(policy: Any) -> None:
    """Mixed precision: 2 + 2 + 4 + 4 is 12, not "about 16" (E12); 16 with a master copy, 18 with float32 gradients.

    A report must say which: 16 bytes all in float32 are others (E18), and so are those under autocast.
    """
    assert policy("bfloat16, float32 moments") == (2, 2, 8)
    assert policy("... and float32 master") == (2, 2, 12)
    assert policy("... and float32 gradients") == (2, 0, 16)  # the optimizer keeps the gradients
    assert policy("... beside bfloat16 ones") == (2, 2, 16)
    assert policy("bfloat16, all of it") == (2, 2, 4)
    assert policy("autocast to bfloat16") == (4, 4, 8)
    totals = [12, 16, 18, 20, 8, 16]
    names = ["bfloat16, float32 moments", "... and float32 master", "... and float32 gradients"]
    names += ["... beside bfloat16 ones", "bfloat16, all of it", "autocast to bfloat16"]
    assert [sum(policy(name)) for name in names] == totals


@pytest.mark.parametrize("options", [{"master": False}, {}, {"main_grad": "beside"}, {"main_grad": "instead"}])
def test_n026_optimizer_is_adamw(options: dict, example: Any) -> None:
    """The example's optimizer trains: on float32 weights it takes the steps of torch's AdamW, to rounding."""
    torch.manual_seed(0)
    weights = {
        name: nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float32).view(3, 4)) for name in ("own", "torch")
    }
    own = example("mixed_precision").MixedAdamW([weights["own"]], lr=0.1, **options)
    reference = torch.optim.AdamW([weights["torch"]], lr=0.1)
    for _ in range(5):
        for w, optimizer in ((weights["own"], own), (weights["torch"], reference)):
            optimizer.zero_grad()
            (w**2).sin().sum().backward()
            optimizer.step()
    torch.testing.assert_close(weights["own"], weights["torch"])


def test_n026_adagrad_of_the_lecture() -> None:
    """A hand-written AdaGrad keeps one float32 for each parameter: 4 + 4 + 4 = 12 bytes."""

    class AdaGrad(torch.optim.Optimizer):
        """As the lecture writes it: a sum of squares, and a step divided by its root."""

        def __init__(self, params: Any, lr: float = 0.01) -> None:
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    squares = state.get("squares", torch.zeros_like(p.grad))
                    state["squares"] = squares = squares + torch.square(p.grad)
                    p -= group["lr"] * p.grad / torch.sqrt(squares + 1e-5)

    step = sa.trace(sa.build(lambda D, K: nn.Linear(D, K, bias=False)), "B D", optimizer=AdaGrad)
    assert per_parameter(step) == (4, 4, 4)
    assert step.unknown == []


def test_n027(policy: Any) -> None:
    """Llama-2-7B has 6,738,415,616 parameters, 107.8 GB at 16 bytes each; 7e9 would be 112 GB, above 80."""
    model = sa.build(lambda: LlamaForCausalLM(LlamaConfig(use_cache=False)))  # the defaults are Llama-2-7B
    step = sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW, check=False)
    assert step.params == 6_738_415_616
    counters = 4 * len(step.step.parameters)
    assert states(step) - counters == 107_814_649_856
    assert sum(policy("... and float32 master")) * 7 * 10**9 == 112_000_000_000 > 80 * GB


MULTIPLES = {"SGD": 0, "momentum": 1, "Adagrad": 1, "RMSprop": 1, "Adam": 2}


@pytest.mark.parametrize("name", MULTIPLES)
def test_n028(name: str) -> None:
    """The state of SGD, momentum, Adagrad, RMSProp and Adam is 0, 1, 1, 1 and 2 float32 for each parameter."""
    optimizers = {n: getattr(torch.optim, n) for n in MULTIPLES if n != "momentum"}
    optimizers["momentum"] = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)
    step = sa.trace(sa.build(lambda D, K: nn.Linear(D, K, bias=False)), "B D", optimizer=optimizers[name])
    assert per_parameter(step)[2] == 4 * MULTIPLES[name]


class Row(nn.Module):
    """One linear layer with one output, squeezed as its target is (E10)."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(D, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss((x @ self.w).squeeze(-1), y)


@pytest.mark.parametrize(("optimizer", "nbytes"), [(torch.optim.Adagrad, 80), (torch.optim.Adam, 96)])
def test_n029(optimizer: Any, nbytes: int) -> None:
    """A linear head, B=2, D=4: parameters, inputs, gradients and state are 80 bytes with Adagrad, 96 with Adam.

    Beside those, eager keeps the targets and the predictions (4*B each) for the loss, a step counter, and 4*B
    bytes under the loss: the CPU kernel of `mse_loss` writes its squares there before it adds them up.
    """
    B, D = symbols("B D")
    assert F.mse_loss(torch.ones(7), torch.ones(7)).untyped_storage().nbytes() == 4 * 7
    step = sa.trace(sa.build(Row), "B D", "B", optimizer=optimizer)
    targets, predictions, loss, counter = 4 * B, 4 * B, 4 * B, 4
    assert same(step.input_bytes - targets, 4 * B * D)
    assert same(step.activation_bytes, predictions + loss)
    at = step.at(B=2, D=4)
    assert states(at) - counter + at.input_bytes - 4 * 2 == nbytes


@pytest.mark.parametrize(("optimizer", "nbytes"), [(torch.optim.Adagrad, 496), (torch.optim.Adam, 640)])
def test_n030(optimizer: Any, nbytes: int, example: Any) -> None:
    """The Cruncher, B=2, D=4, two layers: 496 bytes with Adagrad, 640 with Adam, where data is not charged (E11).

    The B*D*L of the source are the layers' outputs. Beside those, eager keeps the head's output (4*B) for the
    square, the loss, and a step counter for each of three tensors.
    """
    B, D = symbols("B D")
    model = sa.build(lambda D: example("cruncher").Cruncher(D, 2))
    step = sa.trace(model, "B D", loss=lambda y: (y**2).mean(), optimizer=optimizer)
    assert same(step.params, 2 * D**2 + D)
    assert same(step.activation_bytes, 4 * (2 * B * D) + 4 * B + 4)
    at = step.at(B=2, D=4)
    assert at.params == 36
    assert states(at) - 3 * 4 + at.activation_bytes - 4 * 2 - 4 == nbytes
    assert step.at(B=8, D=64).params == 8256


def test_n031(example: Any, account: Any) -> None:
    """Autograd saves (L+1)*B*D elements for L layers and a head: the data and each layer's output (E11)."""
    B, D = symbols("B D")
    step, layers = account("cruncher"), example("cruncher").LAYERS
    predictions, loss = 4 * B, 4
    saved_bytes = step.input_bytes + step.activation_bytes - predictions - loss
    assert same(saved_bytes, 4 * (layers + 1) * B * D)
    assert saved_bytes.subs({B: 2, D: 4}) == 4 * 24


def test_n033() -> None:
    """What a layer saves grows with tokens times width, and with tokens times context; a checkpoint of it with one."""
    s, b, a, Dh, w = symbols("s b a Dh w")
    _, total = saved(Layer, byte_masks)
    # with heads of one size, width grows by heads: a = w/Dh
    terms = sympy.Poly(sympy.expand(total.subs(a, w / Dh) * Dh), s, b, w).monoms()
    assert set(terms) == {(1, 1, 1), (2, 1, 1), (1, 1, 0)}  # s*b*w, s^2*b*w/Dh, and the statistics
    model = sa.build(lambda a, Dh: Checkpointed(Layer(a, Dh, byte_masks)))
    step = sa.trace(model, "f16[b, s, (a Dh)]")
    state, loss = _random_state(), 2
    assert same(step.activation_bytes - state - loss, 0)  # all that is kept is the input
    assert same(step.input_bytes, 2 * s * b * a * Dh)


def _random_state() -> int:
    """Bytes of the generator's state, which a checkpoint keeps so that dropout can be repeated."""
    return torch.get_rng_state().numel()


class Checkpointed(nn.Module):
    """A module that runs again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


# -- optimizer state ------------------------------------------------------------------

STATES = {  # bytes for each float32 parameter, scalars of 4 bytes for each tensor
    "SGD": (0, 0), "Adagrad": (4, 1), "RMSprop": (4, 1), "Adam": (8, 1), "AdamW": (8, 1), "NAdam": (8, 2),
    "RAdam": (8, 1), "Adamax": (8, 1), "Adadelta": (8, 1), "Rprop": (8, 1), "ASGD": (4, 3), "Muon": (4, 0),
}  # fmt: skip
FACTORED = {"Adafactor"}  # see test_n089_adafactor
UNFIT = {"LBFGS", "SparseAdam"}  # steps by a closure; wants sparse gradients


class Matrix(nn.Module):
    """One parameter."""

    def __init__(self, M: int, N: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(M, N, dtype=dtype))

    def forward(self) -> torch.Tensor:
        return self.w.sum()


def state_of(optimizer: Any, dtype: torch.dtype = torch.float32) -> Any:
    """State of one step on a parameter of M*N elements, read from the optimizer that ran."""
    return sa.trace(sa.build(lambda M, N: Matrix(M, N, dtype)), optimizer=optimizer).optimizer_bytes


def test_n089_every_class_is_here() -> None:
    """Every optimizer of torch.optim is tested below, or cannot step on dense gradients alone."""
    found = {
        name
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
    }
    assert found - {"Optimizer"} == set(STATES) | FACTORED | UNFIT


@pytest.mark.parametrize(("dtype", "part"), [(torch.float32, 1), (torch.bfloat16, 2)])
@pytest.mark.parametrize("name", STATES)
def test_n089(name: str, dtype: torch.dtype, part: int) -> None:
    """State follows the parameter's dtype, so half of it for bfloat16; step scalars stay float32."""
    M, N = symbols("M N")
    each, scalars = STATES[name]
    assert same(state_of(getattr(torch.optim, name), dtype), each // part * M * N + 4 * scalars)


@pytest.mark.parametrize(
    ("optimizer", "each", "scalars"),
    [
        (lambda p: torch.optim.SGD(p, momentum=0.9), 4, 0),
        (lambda p: torch.optim.RMSprop(p, momentum=0.9), 8, 1),
        (lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True), 12, 1),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), 12, 1),
        (lambda p: torch.optim.AdamW(p, foreach=True), 8, 1),
        (lambda p: torch.optim.AdamW(p, fused=True), 8, 1),
    ],
)
def test_n089_options(optimizer: Any, each: int, scalars: int) -> None:
    """Momentum, centering and AMSGrad keep one more each; how a step is run changes nothing."""
    M, N = symbols("M N")
    assert same(state_of(optimizer), each * M * N + 4 * scalars)


def test_n089_adafactor() -> None:
    """Adafactor keeps m + n float32 of a matrix, 61,440 at (12288, 49152), Adam 8*m*n bytes; all of a vector."""
    M, N = symbols("M N")
    found = state_of(torch.optim.Adafactor)
    assert same(found, 4 * (M + N) + 4)
    large = {M: 12_288, N: 49_152}
    assert (found - 4).subs(large) / 4 == 61_440
    assert (state_of(torch.optim.Adam) - 4).subs(large) == 4_831_838_208
    vector = sa.trace(sa.build(Vector), optimizer=torch.optim.Adafactor)
    assert same(vector.optimizer_bytes, 4 * symbols("K") + 4)


class Vector(nn.Module):
    """One parameter of one axis."""

    def __init__(self, K: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(K))

    def forward(self) -> torch.Tensor:
        return self.w.sum()


def test_n089_lion() -> None:
    """A hand-written Lion keeps one float32 for each parameter."""

    class Lion(torch.optim.Optimizer):
        """Chen et al. 2023: the sign of an average of gradients."""

        def __init__(self, params: Any, lr: float = 1e-4) -> None:
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self) -> None:
            for p in self.param_groups[0]["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_(self.param_groups[0]["lr"] * average.lerp(p.grad, 0.1).sign_())
                average.lerp_(p.grad, 0.01)

    M, N = symbols("M N")
    assert same(state_of(Lion), 4 * M * N)


def test_n091(policy: Any, example: Any) -> None:
    """State for each parameter: AdamW with its master copy 12, SGD momentum with one 8, 8-bit with one 6; JAX 2 + 8.

    An 8-bit optimizer on float32 weights has its master copy in the weights: 4 + 2 (+ 2*4/256 and two tables).
    """
    assert policy("... and float32 master")[2] == 12
    assert policy("... and float32 master")[0] in (2, 4)
    momentum = sa.trace(
        sa.build(lambda M, N: Matrix(M, N)), optimizer=lambda p: torch.optim.SGD(p, momentum=0.9)
    )  # float32 weights are the master copy
    assert sum(per_parameter(momentum)[::2]) == 8
    eight = sa.trace(sa.build(lambda M, N: Matrix(M, N)), optimizer=AdamW8bit).at(M=4096, N=4096)
    count = 4096**2
    assert eight.param_bytes + eight.optimizer_bytes == 6 * count + 2 * 4 * count // 256 + 2 * 1024
    weights, _, state = policy("bfloat16, float32 moments")
    assert weights + state == 10
    assert 96 * GB // (weights + state) == 9_600_000_000


def test_n093(policy: Any) -> None:
    """ZeRO: of 2 + 2 + 12 bytes, stage 1 shards the state, 2 the gradients too, 3 all: 120, 31.4, 16.6 and 1.9 GB.

    The three parts are traced, on one rank; who holds which is the algebra of the paper. Communication is not covered.
    """
    weights, gradients, state = policy("... and float32 master")
    P, n = 7_500_000_000, sympy.Integer(64)
    assert P * (weights + gradients + state) == 120 * GB
    assert P * (weights + gradients + state / n) == sympy.Rational("31.40625") * GB
    assert P * (weights + (gradients + state) / n) == sympy.Rational("16.640625") * GB
    assert P * (weights + gradients + state) / n == sympy.Rational("1.875") * GB
    assert 1_500_000_000 * (weights + gradients + state) == 24 * GB


# -- activations ----------------------------------------------------------------------

GPT3 = {"s": 2048, "b": 1, "a": 96, "Dh": 128}


def at(expr: Any, **sizes: int) -> Any:
    """A formula in numbers."""
    return expr.subs({symbols(name): size for name, size in sizes.items()})


def test_n094() -> None:
    """A layer saves s*b*h*(34 + 5*a*s/h) bytes, 2,868,903,936 for GPT-3; beside that its norms' statistics.

    Those are mean and rstd of two norms, 8*s*b bytes: on a CPU they have the dtype of the norm's operands, float16.
    (The loss of the trace, 2 bytes, is taken off in `saved`.) Of the formula, 11*s*b*h + 5*a*s^2*b belong to
    attention, 19*s*b*h to the MLP and 4*s*b*h to the norms' inputs.
    """
    s, b, a, Dh = symbols("s b a Dh")
    h = a * Dh
    step, total = saved(Layer, byte_masks)
    statistics = 2 * 2 * (2 * s * b)
    formula = total - statistics
    assert same(formula, s * b * h * 34 + 5 * a * s**2 * b)
    assert at(formula, **GPT3) == 2_868_903_936
    assert at(step.activation_bytes + step.input_bytes, **GPT3) == 2_868_903_936 + 8 * 2048 + 2
    assert at(5 * a * s / h, **GPT3) == 80
    assert at(5 * a * s / h, s=2048, a=128, Dh=160) == 64
    # by part: what the operators of a part read or made, each storage once
    timeline = step.memory.later
    held = [timeline.live(x) for x in sorted(timeline.alive_at(timeline.marks("forward")[0]))]
    mlp = [x for x in held if x.path in ("up", "norm2") or x.op.startswith("aten.gelu")]
    mask = s * b * h  # of the last dropout
    big = sum(x.nbytes for x in mlp if x.kind == "activations") - statistics / 2
    assert same(big + mask, 19 * s * b * h)
    assert at(19 * s * b * h, **GPT3) == 478_150_656
    norms = [n.inputs[0] for n in step.nodes if n.op == "aten.native_layer_norm.default"]
    assert same(sum(x.numel * x.itemsize for x in norms), 4 * s * b * h)
    attention = formula - 19 * s * b * h - 4 * s * b * h
    assert same(attention, 11 * s * b * h + 5 * a * s**2 * b)
    assert at(attention, **GPT3) == 2_290_089_984
    assert at(4 * s * b * h, **GPT3) == 100_663_296


MEASURED = {"s": 2048, "b": 1, "a": 16, "Dh": 64}


def test_n095_statistics_are_the_kernels() -> None:
    """The statistics of a norm on a CPU have the dtype that a real kernel gives them."""
    for norm in (torch.float16, torch.float32):
        x, w = torch.ones(4, 8, dtype=torch.float16), torch.ones(8, dtype=norm)
        real = torch.native_layer_norm(x, [8], w, w, 1e-5)
        assert [t.dtype for t in real] == [torch.float16, norm, norm]


@pytest.mark.parametrize(
    ("dropout", "width", "square", "nbytes"),
    [
        (byte_masks, 34, 5, 406_880_256),
        (lambda x: F.dropout(x, 0.1), 36, 6, 478_183_424),
        (lambda x: x, 32, 2, 201_359_360),
    ],
    ids=["byte masks", "masks of the CPU", "no dropout"],
)
def test_n095(dropout: Any, width: int, square: int, nbytes: int) -> None:
    """Masks of one byte (CUDA) give 34 and 5, masks in float16 (`F.dropout` on a CPU) 36 and 6, none 32 and 2.

    The bytes of the source have 16*s*b of float32 statistics (CUDA, meta); float16 norms on a CPU keep half of that.
    """
    s, b, a, Dh = symbols("s b a Dh")
    _, total = saved(Layer, dropout)
    assert same(total, width * s * b * a * Dh + square * a * s**2 * b + 8 * s * b)
    assert at(total + 8 * s * b, **MEASURED) == nbytes


def test_n095_float32_norms() -> None:
    """With norms kept in float32, as most mixed precision has them, the statistics are 16*s*b bytes: 406,880,256."""
    s, b, a, Dh = symbols("s b a Dh")
    _, total = saved(Layer, byte_masks, float32_norms=True)
    assert same(total, 34 * s * b * a * Dh + 5 * a * s**2 * b + 16 * s * b)
    assert at(total, **MEASURED) == 406_880_256


def test_n098() -> None:
    """Fused attention saves q, k, v, its result and float32 log-sum-exps of 4*B*H*T bytes: 131,072 at (1, 16, 2048)."""
    B, H, T, Dh = symbols("B H T Dh")
    step = sa.trace(F.scaled_dot_product_attention, *["f16[B, H, T, Dh]"] * 3, grad=True)
    result, loss = 2 * B * H * T * Dh, 2
    sums = step.activation_bytes - result - loss
    assert same(step.input_bytes, 3 * 2 * B * H * T * Dh)
    assert same(sums, 4 * B * H * T)
    assert at(sums, B=1, H=16, T=2048) == 131_072
    _, layer = saved(FusedLayer, byte_masks)
    assert sympy.degree(layer, symbols("s")) == 1  # 5*a*s^2*b is gone


class Block(nn.Module):
    """The block of CS336's first assignment, without rotary embeddings, which neither list nor parameters have."""

    def __init__(self, H: int, Dh: int, F: int) -> None:
        super().__init__()
        d = H * Dh
        self.heads, self.size = H, Dh
        self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w2, self.w3 = (nn.Linear(*sizes, bias=False) for sizes in ((d, F), (F, d), (d, F)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        y = self.norm1(x)
        q, k, v = (p(y).view(batch, length, self.heads, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        hidden = ~torch.ones(length, length, dtype=torch.bool).tril()
        weights = torch.softmax((q @ k.transpose(-1, -2) / 8.0).masked_fill(hidden, float("-inf")), -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Language(nn.Module):
    """Embedding, blocks, norm, head, cross entropy."""

    def __init__(self, H: int, Dh: int, F: int, V: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, H * Dh), nn.Linear(H * Dh, V, bias=False)
        self.blocks = nn.Sequential(*(Block(H, Dh, F) for _ in range(layers)))
        self.norm = nn.RMSNorm(H * Dh, eps=1e-5)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.blocks(self.embedding(ids))))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_n100() -> None:
    """GPT-2 XL's size in CS336's model: 2,127,057,600 parameters; the list of components is not what eager keeps.

    The list has 16*T*d + 2*H*T^2 elements for each layer, then T*d + 2*T*V. Eager keeps, for each layer:
    +2*T*d, each norm's result before its weight; +8*T*d, the third matrix of SwiGLU and the gated product; the
    residual sums (2*T*d) in place of the outputs of two projections; -H*T^2, since softmax needs its result alone;
    2*T inverse norms, and the causal mask, T^2 bytes. At the end +2*T*d for the last norm and the sum that it
    reads, T inverse norms, and -T*V: the logits go once their log-softmax is there. 13.4 GB instead of 15.5.
    """
    B, T, H, Dh, F_, V = symbols("B T H Dh F V")
    d = H * Dh

    def account(layers: int) -> Account:
        builder = lambda H, Dh, F, V: Language(H, Dh, F, V, layers)  # noqa: E731 - its parameters are the dims
        return sa.trace(sa.build(builder), "i64[B, T]", "i64[B, T]")

    one, two = account(1), account(2)
    layers = 48

    def deep(of: Any) -> Any:
        """A figure of all layers: the blocks are equal."""
        return of(one) + (layers - 1) * (of(two) - of(one))

    sizes = {B: 1, T: 1024, H: 25, Dh: 64, F_: 6400, V: 50_257}
    P = deep(lambda x: x.params).subs(sizes)
    assert P == 2_127_057_600
    assert 16 * P == 34_032_921_600

    scalars = 8  # the loss, and the weight that it was divided by
    kept = (deep(lambda x: x.activation_bytes) - scalars).subs(F_, 4 * d)
    component_list = 4 * B * (layers * (16 * T * d + 2 * H * T**2) + T * d + 2 * T * V)
    per_layer = 4 * B * (2 * T * d + 8 * T * d - H * T**2 + 2 * T) + T**2
    at_the_end = 4 * B * (2 * T * d + T - T * V)
    assert same(kept, component_list + layers * per_layer + at_the_end)

    assert component_list.subs(sizes) == 15_517_753_344
    for activations, decimal, binary in ((component_list, 2, 3), (kept, 3, 3)):
        assert (80 * GB - 16 * P) // activations.subs(sizes) == decimal
        assert (80 * GIB - 16 * P) // activations.subs(sizes) == binary


CACHES = {  # layers, key heads, head size, tokens, bytes
    "52B of kipply": (64, 64, 128, 1, 2_097_152),
    "Llama-2-7B": (32, 32, 128, 1, 524_288),
    "Llama-2-13B at 8192": (40, 40, 128, 8192, 6_710_886_400),
    "Llama-2-70B, Llama-3-70B, Qwen2.5-72B": (80, 8, 128, 1, 327_680),
    "Llama-3.1-405B": (126, 8, 128, 1, 516_096),
    "GPT-3": (96, 96, 128, 1, 4_718_592),
    "PaLM 540B": (118, 1, 256, 1, 120_832),
}
IN_INT8 = {
    "Llama-3-70B": (80, 8, 128, 1, 163_840),
    "64 layers, K*hd = 8192, 8192 tokens": (64, 64, 128, 8192, 8_589_934_592),
    "JAX book, ch. 4 Q1": (64, 32, 128, 1, 524_288),
}


def test_n101() -> None:
    """A cache has 2*2*L*K*hd bytes for each token (X01: two for keys and values, and K, not query heads)."""
    B, L, G, Dh = symbols("B L G Dh")
    one, two = (outputs(llama_cache(n)) for n in (1, 2))
    assert same(one, 2 * 2 * B * L * G * Dh)
    assert same(two, 2 * one)
    for layers, heads, size, tokens, nbytes in CACHES.values():
        assert layers * one.subs({B: 1, L: tokens, G: heads, Dh: size}) == nbytes


def test_n101_int8() -> None:
    """A cache of int8 has half of that."""
    K, hd, T = symbols("K hd T")
    pair = outputs(inference(lambda k, v: (k.to(torch.int8), v.to(torch.int8)), *["bf16[1, K, T, hd]"] * 2))
    assert same(pair, 2 * K * T * hd)
    for layers, heads, size, tokens, nbytes in IN_INT8.values():
        assert layers * pair.subs({K: heads, T: tokens, hd: size}) == nbytes


@pytest.mark.parametrize(("layers", "nbytes"), [(61, 70_272), (60, 69_120)])
def test_n101_latent(layers: int, nbytes: int) -> None:
    """DeepSeek's latent caches have 2*(c + r) bytes for each layer and token."""
    builder = lambda D, a, c, r, n: Latent(D, a, c, r, n, False)  # noqa: E731 - its parameters are the dims
    found = outputs(inference(sa.build(builder), "bf16[B, L, D]"))
    assert layers * at(found, B=1, L=1, c=512, r=64) == nbytes


def test_n104() -> None:
    """A fused AdamW step moves 28 bytes for each float32 parameter: four tensors read, three written."""
    P = 6_738_415_616
    step = sa.trace(
        sa.build(lambda M, N: Matrix(M, N)), optimizer=lambda p: torch.optim.AdamW(p, fused=True, weight_decay=0.1)
    )
    (update,) = (n for n in step.nodes if n.op.startswith("aten._fused_adamw"))
    assert sympy.cancel((update.bytes_read - constant(update.bytes_read)) / step.params) == 16
    assert sympy.cancel((update.bytes_written - constant(update.bytes_written)) / step.params) == 12
    assert constant(update.bytes) <= 8  # the step counter
    assert round(28 * P / 3.35e12 * 1000, 4) == 56.3211


class Adapted(nn.Module):
    """A frozen linear layer with an adapter of rank r."""

    def __init__(self, i: int, o: int, r: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(i, o, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(i, r, bias=False), nn.Linear(r, o, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


def test_n105() -> None:
    """LoRA: gradients and state for r*(di + do) parameters alone, 131,072; backward is about once forward."""
    i, o, r, T = symbols("i o r T")
    step = sa.trace(sa.build(Adapted), "T i", grad=True, optimizer=torch.optim.AdamW)
    adapter = r * (i + o)
    assert same(step.params, i * o + adapter)
    assert same(step.grad_bytes, 4 * adapter)
    assert same(step.optimizer_bytes, 8 * adapter + 2 * 4)
    assert same(step.forward.flops, 2 * T * i * o + 2 * T * adapter)
    assert same(step.backward.flops, 2 * T * i * o + 4 * T * adapter)
    numbers = step.at(T=1024, i=4096, o=4096, r=16)
    assert numbers.grad_bytes // 4 == 131_072
    assert (numbers.forward.flops, numbers.backward.flops) == (34_628_173_824, 34_896_609_280)


class Selective(Layer):
    """The layer with attention's core computed again in the backward pass."""

    def core(self, *qkv: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().core, *qkv, use_reentrant=False)


class Stack(nn.Module):
    """Embeddings of tokens and positions, layers, norm and head."""

    def __init__(self, a: int, Dh: int, V: int, s: int, layers: int) -> None:
        super().__init__()
        h = a * Dh
        self.tokens, self.positions = nn.Embedding(V, h), nn.Embedding(s, h)
        self.layers = nn.Sequential(*(Layer(a, Dh, nn.Identity()) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(h), nn.Linear(h, V, bias=False)
        self.half()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.tokens(ids) + self.positions.weight)))


def test_n106(policy: Any) -> None:
    """20B, 44 layers: 17.53 GiB of activations with attention recomputed (34*s*b*h, X03), 18 bytes a parameter.

    What a layer saves beyond the script's formula: 8*s*b of statistics, and the generator's state. Its parameters
    lack the 5*h biases of each layer that are beside its 8*h.
    """
    s, b, a, Dh, V = symbols("s b a Dh V")
    h, L = a * Dh, 44
    _, total = saved(Selective, byte_masks)
    activations = total - 8 * s * b - _random_state()
    assert same(activations, 34 * s * b * h)
    sizes = {s: 2048, b: 1, a: 64, Dh: 96, V: 51_200}
    assert (L * activations).subs(sizes) / sympy.Integer(GIB) == sympy.Rational("17.53125")

    def traced(layers: int) -> Any:
        builder = lambda a, Dh, V, s: Stack(a, Dh, V, s, layers)  # noqa: E731 - its parameters are the dims
        return inference(sa.build(builder), "i64[b, s]").params

    one, two = traced(1), traced(2)
    params = one + (L - 1) * (two - one) - 5 * h * L
    assert same(params, 2 * V * h + h * s + 8 * h * L + 2 * h + 4 * L * h**2 + 8 * L * h**2)
    P = params.subs(sizes)
    assert P == 20_575_236_096
    weights, gradients, state = policy("... and float32 gradients")
    main_gradients = 4  # kept by the optimizer
    parts = (weights, gradients + main_gradients, state - main_gradients)
    assert parts == (2, 4, 12)
    in_gib = [round(float(x * P / GIB), 2) for x in parts]
    assert in_gib == [38.32, 76.65, 229.95]
    assert round(float(sum(parts) * P / GIB) + 17.53125, 2) == 362.45
