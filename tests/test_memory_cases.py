"""What users have reported about memory, by id, with the answers that are right: sections C, E, G, I, J and K.

Bytes are logical: elements times their size. Where a case quotes a formula that leaves a term out, or that speaks
of another device, the test asserts what eager PyTorch on a CPU does, and its docstring names the difference.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import sympy
import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel, MixtralConfig, MixtralForCausalLM, Qwen3Config, Qwen3Model, logging

import symacct as sa
from symacct.account import Account

logging.set_verbosity_error()
MIB = 2**20


def symbols(names: str) -> Any:
    """The SymPy symbols of dims."""
    return sympy.symbols(names, integer=True, positive=True)


def same(found: Any, expected: Any) -> bool:
    """Whether two expressions are one polynomial."""
    return sympy.expand(found - expected) == 0


def outputs(account: Account) -> Any:
    """Bytes of what a forward pass returns, beyond its inputs."""
    return account.memory.later.moments[-1].by_kind().get("outputs", 0)


def inference(target: Any, *specs: Any, **options: Any) -> Account:
    """A forward pass."""
    return sa.trace(target, *specs, train=False, **options)


def moments(account: Account, op: str, phase: str = "forward") -> list:
    """The moments of a later step at which an operator had just run."""
    return [m for m in account.memory.later if m.op.startswith(f"aten.{op}.") and m.phase == phase]


def at_step_peak(account: Account) -> dict[str, Any]:
    """Bytes of each kind at the peak of the optimizer's part of a later step, in numbers."""
    step = [m for m in account.memory.later if m.phase == "optimizer"]
    return max(step, key=lambda m: m.nbytes).by_kind()


# -- C, E, G, I: memory in other sections --------------------------------------------


def test_b35_repeated_mask() -> None:
    """A repeat is new storage, an expanded view none, and a windowed mask is S*T bytes whatever the window."""
    S, T = symbols("S T")
    repeated = inference(lambda mask: mask.repeat(12, 1, 1), "1 S S")
    assert same(outputs(repeated), 48 * S**2)
    assert same(repeated.peak_bytes, 52 * S**2)
    assert outputs(repeated.at(S=7784)) == 2_908_351_488
    expanded = inference(lambda mask: mask.expand(12, -1, -1), "1 S S")
    assert outputs(expanded) == 0
    assert expanded.at(S=7784).peak_bytes == 242_362_624

    def window(queries: torch.Tensor, keys: torch.Tensor, width: int) -> torch.Tensor:
        rows, columns = torch.arange(queries.shape[0]), torch.arange(keys.shape[0])
        return (rows[:, None] - columns[None]).abs() < width

    for width in (4, 50):
        assert same(outputs(inference(lambda q, k, w=width: window(q, k, w), "S", "T")), S * T)


@pytest.mark.parametrize("tied", [True, False])
def test_b41_tied_embedding(tied: bool) -> None:
    """A head tied to its embedding has one weight, one gradient and one state: 400 elements, not 800."""

    def builder(V: int, D: int) -> nn.Module:
        model = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, V, bias=False))
        if tied:
            model[1].weight = model[0].weight
        return model

    step = sa.trace(sa.build(builder), "i64[B, L]", optimizer=torch.optim.AdamW).at(B=1, L=10, V=50, D=8)
    copies = 1 if tied else 2
    assert (step.params, step.param_bytes, step.grad_bytes) == (400 * copies, 1600 * copies, 1600 * copies)
    assert step.optimizer_bytes == (3200 + 4) * copies  # two moments and a step counter
    assert step.forward.flops == 8000


def test_b42_dense_gradient() -> None:
    """A lookup of L rows has a gradient for all V of them: V*d elements, whatever L is."""
    V, d = symbols("V d")
    step = sa.trace(sa.build(lambda V, d: nn.Embedding(V, d)), "i64[L]")
    assert same(step.grad_bytes, 4 * V * d)
    assert step.at(L=1, V=50_257, d=768).grad_bytes == 154_389_504
    assert step.forward.flops == 0


def test_b48_memory_has_all_experts() -> None:
    """A mixture of experts holds all its parameters, 46.7e9 at the sizes of the case, however few are active."""
    step = inference(sa.build(lambda: MixtralForCausalLM(MixtralConfig())), input_ids="i64[1, L]", check=False)
    assert step.params == 46_702_792_704
    assert step.param_bytes == 4 * step.params


class Packed(nn.Module):
    """A linear layer of N outputs and 32*G inputs: two 4-bit weights a byte, a float16 scale for each 32."""

    def __init__(self, N: int, G: int) -> None:
        super().__init__()
        self.register_buffer("packed", torch.zeros(N, 16 * G, dtype=torch.uint8))
        self.register_buffer("scales", torch.zeros(N, G, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, groups = self.scales.shape
        nibbles = torch.stack((self.packed & 15, self.packed >> 4), -1).view(count, groups, 32)
        weight = (nibbles.to(torch.float16) - 8) * self.scales[..., None]
        return x @ weight.view(count, 32 * groups).t()


def test_b53_packed_weights() -> None:
    """Packed weights hold 4,608 bytes for 8,192 logical ones; the product is that of the dequantised weights."""
    N, G, n = symbols("N G n")
    step = inference(sa.build(Packed), "f16[n, (32 G)]")
    assert same(step.buffer_bytes, 16 * N * G + 2 * N * G)
    assert same(step.forward.flops, 2 * n * N * 32 * G)
    at = step.at(n=1, N=128, G=2)
    assert (at.buffer_bytes, at.forward.flops, at.params) == (4096 + 512, 2 * 8192, 0)
    (product,) = (m for m in at.memory.later if m.op == "aten.mm.default")
    assert product.by_kind()["temporaries"] >= 2 * 8192  # eager makes all weights before it multiplies


def test_b61_add_in_place() -> None:
    """`add_` allocates nothing, `+` a tensor as large as its result; both inputs have the same B."""
    B = symbols("B")

    def grown(add: Any) -> Any:
        def forward(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(F.relu(add(F.conv2d(x, w, padding=1), y)), 3)

        found = inference(forward, "B 3 256 256", "B 32 256 256", "32 3 3 3")
        memory = list(found.memory.later)
        return next(m.nbytes - memory[i - 1].nbytes for i, m in enumerate(memory) if "add" in m.op)

    assert grown(lambda a, b: a.add_(b)) == 0
    assert same(grown(lambda a, b: a + b), 4 * 32 * 256**2 * B)


def test_b66_repeated_keys() -> None:
    """Keys and values repeated over query heads are made in full: 1,024*S bytes each."""
    S = symbols("S")

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))

    found = inference(attention, "2 8 S 16", "2 2 S 16", "2 2 S 16")
    before = next(
        m for m, after in zip(found.memory.later, [*found.memory.later][1:], strict=False) if "scaled" in after.op
    )
    assert same(before.by_kind()["temporaries"], 2 * 1024 * S)


# -- J: memory -----------------------------------------------------------------------


class Repeated(nn.Module):
    """One layer, applied many times."""

    def __init__(self, D: int, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(D, D), times

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        outs = [x]
        for _ in range(self.times):
            outs.append(self.layer(outs[-1]))
        return outs[1:]


def test_b70_one_module_many_calls() -> None:
    """100 calls of one layer hold 101 activations and one weight, 4,044.00390625 MiB; 4 bytes more are the loss."""
    B, D = symbols("B D")
    step = sa.trace(
        sa.build(lambda D: Repeated(D, 100)), "B D", loss=lambda outs: outs[-1].sum(), keep_outputs=True
    )  # fmt: skip
    held = step.memory.later.after("forward")
    assert same(held, 101 * B * D * 4 + (D**2 + D) * 4 + 4)
    assert step.at(B=10_240, D=1024).memory.later.after("forward") - 4 == 4044.00390625 * MIB


@pytest.mark.parametrize("inplace", [True, False])
def test_b71_in_place_relu(inplace: bool) -> None:
    """256 bytes are saved for the backward pass either way; in place, the moment of the ReLU holds one tensor less."""
    B, D = symbols("B D")
    step = sa.trace(
        sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D), nn.ReLU(inplace), nn.Linear(D, K))), "B D", grad=True
    )
    loss = 4
    assert same(step.input_bytes + step.activation_bytes - loss, 8 * B * D)  # x and the ReLU's output
    at = step.at(B=4, D=8, K=8)
    assert at.input_bytes + at.activation_bytes - loss == 256
    (relu,) = moments(step, "relu_" if inplace else "relu")
    assert same(relu.nbytes - step.param_bytes, (2 if inplace else 3) * 4 * B * D)


@pytest.mark.parametrize(
    ("options", "state", "transient"),
    [
        ({"foreach": True}, 8, 4),
        ({"foreach": False}, 8, 8),
        ({"fused": True}, 8, 0),
        ({"foreach": True, "amsgrad": True}, 12, 4),
    ],
)
def test_b72_optimizer_step(options: dict, state: int, transient: int) -> None:
    """AdamW, 10^6 parameters in one tensor: 16 MB held; a step adds 4 MB (foreach), nothing (fused), or two tensors.

    The case says one largest tensor for the for-loop; eager holds two at once, the root and the quotient.
    """
    D = symbols("D")
    step = sa.trace(
        sa.build(lambda D: nn.Linear(D, D, bias=False)), "1 D", optimizer=lambda p: torch.optim.AdamW(p, **options)
    )
    assert same(step.param_bytes + step.grad_bytes, 8 * D**2)
    assert same(step.optimizer_bytes, state * D**2 + 4)
    peak = at_step_peak(step.at(D=1000))
    held = {k: peak[k] for k in ("parameters", "gradients", "optimizer state")}
    assert held == {"parameters": 4_000_000, "gradients": 4_000_000, "optimizer state": state * 10**6 + 4}
    assert peak.get("temporaries", 0) // 10**6 == transient
    assert peak.get("temporaries", 0) % 10**6 <= 16  # scalars: bias corrections as tensors


def test_b72_optimizer_step_with_many_tensors() -> None:
    """Of two tensors the for-loop adds twice the larger one, foreach 4 bytes for every parameter."""
    found = {}
    for foreach in (True, False):
        model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
        step = sa.trace(model, "1 D", optimizer=lambda p, f=foreach: torch.optim.AdamW(p, foreach=f))
        found[foreach] = at_step_peak(step.at(D=100, K=50))["temporaries"]
    assert found == {True: 4 * 15_000, False: 2 * 4 * 10_000}


@pytest.mark.parametrize(("momentum", "state"), [(0.0, 0), (0.9, 4)])
def test_b72_sgd(momentum: float, state: int) -> None:
    """SGD keeps nothing, with momentum 4 bytes for each parameter."""
    D = symbols("D")
    optimizer = lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum)  # noqa: E731 - a factory
    step = sa.trace(sa.build(lambda D: nn.Linear(D, D, bias=False)), "1 D", optimizer=optimizer)
    assert same(step.optimizer_bytes, state * D**2)


class Tensors(nn.Module):
    """A matrix and a vector, each used once."""

    def __init__(self, M: int, N: int, K: int) -> None:
        super().__init__()
        self.matrix, self.vector = nn.Parameter(torch.empty(M, N)), nn.Parameter(torch.empty(K))

    def forward(self) -> torch.Tensor:
        return self.matrix.sum() + self.vector.sum()


def test_b73_factored_second_moment() -> None:
    """Adafactor keeps a row and a column of a matrix and all of a vector, AdamW two of everything."""
    M, N, K = symbols("M N K")
    factored = sa.trace(sa.build(Tensors), optimizer=torch.optim.Adafactor)
    full = sa.trace(sa.build(Tensors), optimizer=torch.optim.AdamW)
    counters = 2 * 4
    assert same(factored.optimizer_bytes, 4 * (M + N) + 4 * K + counters)
    assert same(full.optimizer_bytes, 8 * M * N + 8 * K + counters)
    assert factored.at(M=6, N=4, K=5).optimizer_bytes == 68
    assert full.at(M=6, N=4, K=5).optimizer_bytes == 240
    alone = {"M": 4096, "N": 4096, "K": 1}
    assert factored.at(**alone).optimizer_bytes - 4 - counters == 32_768
    assert full.at(**alone).optimizer_bytes - 8 - counters == 134_217_728


POLICIES = {
    "float32": (4, 4, 8),
    "autocast to bfloat16": (4, 4, 8),
    "bfloat16, all of it": (2, 2, 4),
    "... and float32 master": (2, 2, 4 + 8),
    "... and float32 gradients": (2, 0, 4 + 4 + 8),
    "... beside bfloat16 ones": (2, 2, 4 + 4 + 8),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_b74_bytes_per_parameter(policy: str, example: Any) -> None:
    """16, 16, 8, 16, 18 and 20 bytes for each parameter, each with its weights, gradients and state.

    The float32 gradients of the last two are kept by the optimizer, so they count as its state. Step counters
    (4 bytes a tensor) are apart.
    """
    step = example("mixed_precision").account(policy)
    held = (step.param_bytes, step.grad_bytes, step.optimizer_bytes)
    counters = step.optimizer_bytes.subs(dict.fromkeys(step.optimizer_bytes.free_symbols, 0))
    assert counters == (8 if "..." not in policy else 0)
    for found, each, rest in zip(held, POLICIES[policy], (0, 0, counters), strict=True):
        assert same(found, each * step.params + rest)


def test_b74_autocast_casts(example: Any) -> None:
    """Autocast makes a bfloat16 copy of each weight; the forward pass ends with those that backward needs.

    The first layer's input is data, so its weight's copy is not needed again.
    """
    D, K = symbols("D K")
    step = example("mixed_precision").account("autocast to bfloat16")
    casts = [n for n in step.nodes if n.op == "aten._to_copy.default" and n.phase == "forward"]
    weights = [n.outputs[0].numel * n.outputs[0].itemsize for n in casts if n.inputs[0].shape in ((D, D), (K, D))]
    assert same(sum(weights), 2 * step.params)
    kept = [x for x in _held_after_forward(step) if x.dtype == "bfloat16" and x.shape in ((D, D), (K, D))]
    assert [x.nbytes for x in kept] == [2 * D * K]


def test_b75_sharded_states(example: Any) -> None:
    """Weights replicated, all else over G ranks: 2N + 14N/G and 2N + 18N/G bytes, 3.75 and 4.25 GB; never 6.

    One rank is traced; the division by G is algebra on what the account says weights, gradients and state take. How a
    rank lays its shards out (padding, buckets) is not covered.
    """
    N, G = 10**9, 8
    for policy, total in (("... and float32 master", 3_750_000_000), ("... beside bfloat16 ones", 4_250_000_000)):
        step = example("mixed_precision").account(policy)
        replicated = sympy.cancel(step.param_bytes / step.params)
        sharded = sympy.cancel((step.grad_bytes + step.optimizer_bytes) / step.params)
        assert replicated * N + sharded * N / G == total


class Twice(nn.Module):
    """One weight, used twice."""

    def __init__(self, D: int, trained: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, bias=False)
        self.layer.weight.requires_grad_(trained)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


def _held_after_forward(account: Account) -> list:
    """What a forward pass leaves alive."""
    timeline = account.memory.later
    return [timeline.live(s) for s in sorted(timeline.alive_at(timeline.marks("forward")[0]))]


@pytest.mark.parametrize(("trained", "casts"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("train", [True, False])
def test_b76_autocast_cache(trained: bool, casts: int, train: bool) -> None:
    """Autocast casts a weight that wants a gradient once and keeps it, a frozen one at each use and keeps none.

    CPU autocast is traced; its cache is the one that CUDA uses.
    """
    D = symbols("D")
    step = sa.trace(sa.build(lambda D: Twice(D, trained)), "B D", autocast="bf16", train=train)
    made = [n for n in step.nodes if n.op == "aten._to_copy.default" and n.inputs[0].shape == (D, D)]
    assert len([n for n in made if n.phase == "forward"]) == casts
    kept = [x for x in _held_after_forward(step) if x.shape == (D, D) and x.dtype == "bfloat16"]
    assert [x.nbytes for x in kept] == ([2 * D**2] if trained and train else [])
    if trained:  # a cached copy lives until the region ends, also where no gradient is wanted
        within = [m for m in step.memory.later if m.op == "aten.mm.default" and m.phase == "forward"][-1]
        assert [x.nbytes for x in within.live if x.shape == (D, D) and x.dtype == "bfloat16"] == [2 * D**2]
    at = step.at(B=8, D=1024)
    assert at.forward.flops == 33_554_432
    assert 2 * 1024**2 == 2_097_152


class Layer(nn.Module):
    """A transformer layer as the activation formula has it: fused projections, attention by two products."""

    def __init__(self, a: int, Dh: int, dropout: Any, float32_norms: bool = False) -> None:
        super().__init__()
        self.heads, self.size, self.dropout = a, Dh, dropout
        width = a * Dh
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.half()
        if float32_norms:
            self.norm1.float(), self.norm2.float()

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, self.size).transpose(1, 2)

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """QK^T, softmax, dropout, AV."""
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1)
        return (self.dropout(weights) @ v).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).split(x.shape[-1], -1)
        attended = self.core(self.split(q), self.split(k), self.split(v)).reshape(x.shape)
        x = x + self.dropout(self.out(attended))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class FusedLayer(Layer):
    """The same with fused attention, without dropout on its weights."""

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def byte_masks(x: torch.Tensor) -> torch.Tensor:
    """Dropout with a mask of one byte for each element, as CUDA has it."""
    return torch.native_dropout(x, 0.1, True)[0]


def saved(layer: type[Layer], dropout: Any, **options: Any) -> tuple[Account, Any]:
    """The account of a layer, and the bytes that it saves for the backward pass, its input with them."""
    step = sa.trace(sa.build(lambda a, Dh: layer(a, Dh, dropout, **options)), "f16[b, s, (a Dh)]")
    loss = 2
    return step, step.activation_bytes + step.input_bytes - loss


def test_b77_transformer_activations() -> None:
    """34*s*b*h + 5*a*s^2*b, 2,496 bytes at the sizes of the case; the norms' statistics are 8*s*b more on a CPU.

    The case has 2*4*s*b for each of two norms: CUDA keeps mean and rstd in float32, a CPU in the float16 of its
    operands. Each norm's input is 2*s*b*h, two norms 4*s*b*h.
    """
    s, b, a, Dh = symbols("s b a Dh")
    h = a * Dh
    step, total = saved(Layer, byte_masks)
    statistics = 2 * 2 * 2 * s * b  # mean and rstd, two norms, 2 bytes
    assert same(total, 34 * s * b * h + 5 * a * s**2 * b + statistics)
    at = {s: 4, b: 2, a: 2, Dh: 4}
    assert (total - statistics).subs(at) == 2496
    norms = [x for x in _held_after_forward(step) if x.path.startswith("norm") and x.kind == "activations"]
    assert same(sum(x.nbytes for x in norms), 4 * s * b * h + statistics)  # outputs: what the projections read
    for name in ("norm1", "norm2"):
        read = next(n.inputs[0] for n in step.nodes if n.op == "aten.native_layer_norm.default" and n.path == name)
        assert same(read.numel * read.itemsize, 2 * s * b * h)


def test_b77_fused_attention() -> None:
    """Fused attention saves no s*s tensor, and a float32 log-sum-exp of 4*a*s*b bytes instead."""
    s, b, a, Dh = symbols("s b a Dh")
    _, total = saved(FusedLayer, byte_masks)
    assert same(total, 34 * s * b * a * Dh + 4 * a * s * b + 8 * s * b)


class Head(nn.Module):
    """Logits in bfloat16, their cross entropy in float32."""

    def __init__(self, D: int, V: int) -> None:
        super().__init__()
        self.head = nn.Linear(D, V, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.head(x)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def test_b78_logits_and_loss() -> None:
    """Of logits in bfloat16, their float32 copy and the log-softmax, only the last is saved; backward has three of it.

    The case counts one gradient of the logits at the peak; eager has two there, of the log-probabilities and of the
    logits, beside the saved log-softmax. Then the bfloat16 one is left.
    """
    B, S, D, V = symbols("B S D V")
    step = sa.trace(sa.build(Head), "bf16[B, S, D]", "i64[B, S]")
    scalars = 4 + 4  # the loss, and the weight that it was divided by
    assert same(step.activation_bytes, 4 * B * S * V + scalars)
    assert same(step.input_bytes, 2 * B * S * D + 8 * B * S)
    rows = {"shape": (B * S, V)}
    at = {"B": 2, "S": 512, "D": 64, "V": 32_000}

    def large(moment: Any) -> list:
        """Bytes of tensors with one element for each logit."""
        numbers = {symbols(n): v for n, v in at.items()}
        found = [x.nbytes for x in moment.live if sympy.prod(x.shape) == rows["shape"][0] * V]
        return sorted(int(n.subs(numbers)) for n in found)

    (forward,) = moments(step, "_log_softmax")
    assert large(forward) == [65_536_000, 131_072_000, 131_072_000]  # logits, their copy, the result
    (softmax,) = moments(step, "_log_softmax_backward_data", "backward")
    assert large(softmax) == [131_072_000] * 3
    after = next(m for m in step.memory.later if m.phase == "backward" and m.op == "aten.mm.default")
    assert large(after) == [65_536_000]
    assert step.at(**at).input_bytes - 2 * 2 * 512 * 64 == 8192


def test_b78_small() -> None:
    """Cross entropy of (6, 10) saves 240 + 48 + 4 bytes: log-softmax, targets, the sum of weights."""
    step = sa.trace(F.cross_entropy, "B V", "i64[B]", grad=(0,)).at(B=6, V=10)
    logits, loss = 240, 4
    assert step.input_bytes - logits + step.activation_bytes - loss == 240 + 48 + 4


@pytest.mark.parametrize(("deleted", "factor"), [(True, lambda i: i), (False, lambda i: 2 * i - 1)])
def test_b79_rebinding(deleted: bool, factor: Any) -> None:
    """A name bound anew holds the old value while the new one is made: 4e6*(2i - 1) bytes, after `del` 4e6*i.

    What the device reserves, and what its driver shows, no graph can tell.
    """
    D = symbols("D")

    def loop(x: torch.Tensor) -> None:
        a = None
        for i in range(1, 5):
            if deleted:
                del a
            a = torch.rand(x.shape[0], 1000, i)

    held = [m.nbytes - 4 * D for m in inference(loop, "D").memory.later if "rand" in m.op or "uniform" in m.op]
    assert held == [4000 * D * factor(i) for i in range(1, 5)]
    assert held[3].subs(D, 1000) == 4_000_000 * factor(4)


@pytest.mark.parametrize(("dtype", "nbytes"), [("f32", 1536), ("bf16", 768)])
def test_b80_index_tensors(dtype: str, nbytes: int) -> None:
    """A max-pool saves its input and int64 indices: 768 bytes of them in any dtype."""
    B, C, H, W = symbols("B C H W")
    step = sa.trace(nn.MaxPool2d(2), f"{dtype}[B, C, H, W]", grad=True)
    item = {"f32": 4, "bf16": 2}[dtype]
    assert same(step.input_bytes, item * B * C * H * W)
    assert step.activation_bytes - item == 8 * B * C * sympy.floor(H / 2) * sympy.floor(W / 2)
    at = step.at(B=2, C=3, H=8, W=8)
    assert (at.input_bytes, at.activation_bytes - item) == (nbytes, 768)


def test_b81_norm_under_autocast() -> None:
    """Under CPU autocast a norm of a bfloat16 tensor stays bfloat16: 64 bytes for (4, 8).

    CUDA's autocast runs it in float32 (128 bytes); that policy is CUDA's, and no CPU trace shows it.
    """
    step = inference(sa.build(lambda D: nn.LayerNorm(D)), "bf16[B, D]", autocast="bf16")
    norm = next(n for n in step.nodes if n.op == "aten.native_layer_norm.default")
    assert norm.outputs[0].dtype == "bfloat16"
    assert outputs(step.at(B=4, D=8)) == 64


# -- K: caches of keys and values -------------------------------------------------------


class WithCache(nn.Module):
    """A decoder that returns the tensors of its cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.to(torch.bfloat16)

    def forward(self, ids: torch.Tensor) -> list:
        return [(layer.keys, layer.values) for layer in self.model(ids, use_cache=True).past_key_values.layers]


@cache
def llama_cache(layers: int) -> Account:
    """The cache of a Llama with G heads of keys, R queries for each, size Dh, in bfloat16."""

    def builder(G: int, R: int, Dh: int) -> nn.Module:
        return WithCache(
            LlamaModel(
                LlamaConfig(
                    hidden_size=G * R * Dh, num_attention_heads=G * R, num_key_value_heads=G, head_dim=Dh,
                    intermediate_size=32, vocab_size=64, num_hidden_layers=layers,
                )
            )
        )  # fmt: skip

    return inference(sa.build(builder), "i64[B, L]")


@pytest.fixture(scope="module")
def per_layer() -> Any:
    """Bytes of one layer's cache, which two layers have twice."""
    one, two = (outputs(llama_cache(n)) for n in (1, 2))
    assert same(two, 2 * one)
    return one


def test_b82_cache_has_key_heads(per_layer: Any) -> None:
    """A cache has 2*Hkv*D elements for each layer and token; query heads do not occur in it."""
    B, L, G, Dh = symbols("B L G Dh")
    assert same(per_layer, 2 * B * L * G * Dh * 2)
    token = {B: 1, L: 1, Dh: 128}
    assert 32 * per_layer.subs(token | {G: 32}) == 524_288
    assert 32 * per_layer.subs(token | {G: 8}) == 131_072


def test_b83_groups(per_layer: Any) -> None:
    """With 32 query heads "8 groups" is 24,576 bytes a token as 8 key heads, 12,288 as 8 queries for each."""
    B, L, G, Dh = symbols("B L G Dh")
    token = {B: 1, L: 1, Dh: 64}
    assert 12 * per_layer.subs(token | {G: 8}) == 24_576
    assert 12 * per_layer.subs(token | {G: sympy.Integer(32) // 8}) == 12_288


def test_b84_head_size_of_its_own() -> None:
    """A head size that is not hidden/heads is what counts: 262,144 bytes a token, and an attention twice as wide."""
    B, L, E, G, R, Dh = symbols("B L E G R Dh")

    def builder(E: int, G: int, R: int, Dh: int) -> nn.Module:
        return WithCache(
            Qwen3Model(
                Qwen3Config(
                    hidden_size=E, num_attention_heads=G * R, num_key_value_heads=G, head_dim=Dh,
                    intermediate_size=32, vocab_size=64, num_hidden_layers=1,
                )
            )
        )  # fmt: skip

    step = inference(sa.build(builder), "i64[B, L]")
    assert 64 * outputs(step.at(B=1, L=2, E=5120, G=8, R=8, Dh=128)) == 2 * 262_144
    parts = step.by_module(depth=None)
    for name in ("q_proj", "o_proj"):
        assert same(parts[f"model.layers.0.self_attn.{name}"].flops, 2 * B * L * E * (G * R * Dh))
    assert same(parts["model.layers.0.self_attn"].flops, 4 * B * L**2 * G * R * Dh)
    assert (G * R * Dh).subs({G: 8, R: 8, Dh: 128}) == 2 * 4096


class Latent(nn.Module):
    """The keys and values of latent attention: one latent vector and one rotary part for each token, all heads."""

    def __init__(self, D: int, a: int, c: int, r: int, n: int, expanded: bool) -> None:
        super().__init__()
        self.heads, self.expanded = a, expanded
        self.down, self.up = nn.Linear(D, c + r, bias=False), nn.Linear(c, a * 2 * n, bias=False)
        self.sizes = (c, r)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        compressed = self.down(x)
        if not self.expanded:
            return compressed
        latent, rotary = compressed.split(self.sizes, -1)
        keys, values = self.up(latent).unflatten(-1, (self.heads, -1)).chunk(2, -1)
        rotary = rotary[:, :, None].expand(-1, -1, self.heads, -1)
        return torch.cat((keys, rotary), -1), values.contiguous()


@pytest.mark.parametrize(("expanded", "token"), [(False, 70_272), (True, 4_997_120)])
def test_b85_latent_cache(expanded: bool, token: int) -> None:
    """A latent cache is one vector of 512 + 64 for each layer and token, 70,272 bytes; for each head it is 4,997,120.

    The minimal module stands for DeepSeek's; its 61 layers are equal.
    """
    B, L, a, c, r, n = symbols("B L a c r n")
    builder = lambda D, a, c, r, n: Latent(D, a, c, r, n, expanded)  # noqa: E731 - its parameters are the dims
    found = outputs(inference(sa.build(builder), "bf16[B, L, D]"))
    assert same(found, 2 * B * L * (a * (2 * n + r) if expanded else c + r))
    assert 61 * found.subs({B: 1, L: 1, a: 128, c: 512, r: 64, n: 128}) == token


@pytest.mark.parametrize(
    ("trial", "context", "nbytes"), [(200, 8192, 306_708_480), (200, 128, 128 * 73_728), (104, 100, 100 * 73_728)]
)
def test_b86_window_layers(trial: int, context: int, nbytes: int) -> None:
    """Of 36 layers every other keeps the last 128 tokens: C + min(C, 128) for each pair, in a ring buffer.

    One pair is traced, on each side of the window. Engines that reserve full pages keep more than any graph says.
    """

    def pair(k: torch.Tensor, v: torch.Tensor) -> list:
        return [t.clone() for t in (k, v, k[:, :, -128:], v[:, :, -128:])]

    step = inference(pair, *["bf16[B, G, C, Dh]"] * 2, sizes={"C": trial}).at(B=1, G=8, C=context, Dh=64)
    assert 18 * outputs(step) == nbytes
    assert 18 * outputs(step) == 18 * 2048 * (context + min(context, 128))
