"""Rooflines: least times by kernel, module and phase, ridges, thresholds that are solved, and MFU."""

import time
from dataclasses import replace

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.dim import symbol
from symacct.errors import (
    DeviceError,
    MissingSizeError,
    QuestionError,
    SpecError,
    UnitError,
    UnknownDimError,
)
from symacct.hardware import Device, device, devices
from symacct.roofline import LEVELS, compute_bound_when, hfu, mfu, ridge, roofline, step_bytes

B, D, K, n = map(symbol, ("B", "D", "K", "n"))
V5E = device("TPU-v5e")
GPT2_SIZES = {"B": 8, "L": 1024, "N": 32, "H": 12, "Dh": 64, "V": 50256, "P": 1024}


def with_rates(name, bytes_per_s, **changes):
    """A device of the table with the rates that a text uses."""
    return replace(device(name), bytes_per_s=bytes_per_s, **changes)


def printed(text):
    """A number as it is printed: right to half of its last digit."""
    digits, _, power = text.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return pytest.approx(float(text), rel=0, abs=0.5000001 * last)


def product(dtype="bf16", out=None):
    """x (B, D) times w (D, K), forward alone."""
    return sa.trace(lambda x, w: x @ w, f"{dtype}[B, D]", f"{dtype}[D, K]", train=False)


@pytest.fixture(scope="module")
def linear():
    """A linear layer without bias in bfloat16, forward alone."""
    return product()


@pytest.fixture(scope="module")
def square():
    """The same in float32."""
    return product("f32")


# -- bounds --------------------------------------------------------------------------


def test_a_product_is_the_larger_of_two_times(linear):
    """One kernel takes its FLOP at the peak of its dtype or its bytes at the bandwidth, in symbols and at sizes."""
    symbolic = roofline(linear, "h100")
    by_compute, by_memory = (
        2 * B * D * K / sympy.Integer(9895 * 10**11),
        (2 * B * D + 2 * D * K + 2 * B * K) / (335 * 10**10),
    )
    assert set(symbolic.total.seconds.args) == {by_compute, sympy.expand(by_memory)}
    small, large = symbolic.at(B=1, D=4096, K=4096).total, symbolic.at(B=8192, D=4096, K=4096).total
    assert (small.limit, large.limit) == ("memory", "compute")
    assert small.seconds == pytest.approx(2 * (4096 + 4096**2 + 4096) / 3.35e12, rel=1e-12)
    assert large.seconds == pytest.approx(2 * 8192 * 4096**2 / 989.5e12, rel=1e-12)
    assert large.seconds_by_limit == {"compute": large.seconds, "vector": 0.0, "memory": 0.0}
    assert float(symbolic.total.seconds.subs({B: 8192, D: 4096, K: 4096})) == pytest.approx(large.seconds, rel=1e-12)
    assert large.flops_per_s == pytest.approx(989.5e12)


def test_parts_add_up(account):
    """Kernels run one after another: phases, modules and ops each add up to the total, at two levels."""
    step = account("llama").at(B=2, L=256, G=2, H=4, Dh=64, F=1024, V=4096)
    for level in ("eager", "fused"):
        found = roofline(step, "h100", level=level)
        for parts in (
            found.phases,
            found.by_module(),
            found.by_module(None),
            found.by_module(4, repeats=True),
            found.by_op(),
        ):
            for figure in ("seconds", "flops", "pointwise", "bytes", "count"):
                assert sum(getattr(b, figure) for b in parts.values()) == pytest.approx(getattr(found.total, figure))
            assert sum(sum(b.seconds_by_limit.values()) for b in parts.values()) == pytest.approx(found.total.seconds)
        assert found.total.flops == step.total.flops
        assert found.total.pointwise == step.total.pointwise
    assert roofline(step, "h100").total.bytes == step.total.bytes
    assert roofline(step, "h100").by_module(2).keys() == step.by_module(2).keys()


def test_symbols_agree_with_sizes(account):
    """The formula of the least time gives what the roofline at sizes gives, phase by phase, at each level."""
    step = account("two_layer")
    sizes = {"B": 37, "D": 513, "K": 91}
    for level in LEVELS:
        symbolic, numeric = (
            roofline(step, "a100-sxm4-80gb", level=level),
            roofline(step.at(**sizes), "a100-sxm4-80gb", level=level),
        )
        for name, bound in {**symbolic.phases, "total": symbolic.total}.items():
            value = sympy.sympify(bound.seconds).subs({symbol(d): s for d, s in sizes.items()})
            other = numeric.total if name == "total" else numeric.phases[name]
            assert float(value) == pytest.approx(other.seconds, rel=1e-12)
            assert sympy.sympify(bound.bytes).subs({symbol(d): s for d, s in sizes.items()}) == other.bytes


def test_any_depth_agrees_with_a_plain_trace(account):
    """A roofline of a symbolic depth gives at 5 layers what a trace of 5 layers gives, at each level."""
    step = account("any_depth")
    sizes = {**GPT2_SIZES, "N": 5}
    plain = step.unrolled(N=5).at(**{d: s for d, s in sizes.items() if d != "N"})
    for level in LEVELS:
        deep, flat = roofline(step.at(**sizes), "h100", level=level), roofline(plain, "h100", level=level)
        for name in ("forward", "backward", "optimizer"):
            assert deep.phases[name].bytes == flat.phases[name].bytes
            assert deep.phases[name].flops == flat.phases[name].flops
            assert deep.phases[name].seconds == pytest.approx(flat.phases[name].seconds, rel=1e-9)
        assert deep.total.seconds == pytest.approx(flat.total.seconds, rel=1e-9)


def test_sizes_are_fast(account):
    """A step of 32 layers at sizes takes well under a second at each level, once its kernels are known."""
    for level in LEVELS:
        found = roofline(account("any_depth"), "h100", level=level)
        begin = time.perf_counter()
        at = found.at(**GPT2_SIZES)
        assert at.total.seconds > 0
        assert at.phases["backward"].seconds > 0
        assert time.perf_counter() - begin < 0.5


def test_pointwise_runs_at_the_vector_peak():
    """Much arithmetic on few bytes is limited by the vector peak; without one that term is left out, with a note."""
    step = sa.trace(lambda x: torch.special.i0e(x), "n", train=False).at(n=1000)
    slow = with_rates("h100", 3.35e12, vector_flops_per_s=1e9)
    assert roofline(step, slow).total.limit == "vector"
    assert roofline(step, slow).total.seconds == pytest.approx(step.total.pointwise / 1e9)
    unknown = roofline(step, with_rates("h100", 3.35e12, vector_flops_per_s=None))
    assert unknown.total.limit == "memory"
    assert any("no vector peak" in note for note in unknown.notes)


def test_the_dtype_is_that_of_the_operands(linear):
    """Scales and logsumexp do not slow a product; integer weights are converted; TF32 is used where it is asked for."""
    assert roofline(linear, "h100").ridges == {"bfloat16": pytest.approx(989.5 / 3.35)}
    packed = sa.trace(torch.ops.aten._weight_int8pack_mm, "bf16[B, D]", "i8[K, D]", "bf16[K]", train=False, check=False)
    assert list(roofline(packed, "h100").ridges) == ["bfloat16"]
    full = product("f32").at(B=8192, D=8192, K=8192)
    assert roofline(full, "h100").total.seconds == pytest.approx(
        494.5 / 67 * roofline(full, "h100", tf32=True).total.seconds
    )


def test_attention_runs_at_the_rate_of_its_queries():
    """Fused attention's backward in bfloat16 reads a logsumexp in float32, and multiplies bfloat16 all the same."""
    step = sa.trace(
        nn.functional.scaled_dot_product_attention, *["bf16[B, 2, L, 8]"] * 3, grad=True, device="cuda", check=False
    )
    assert step.backward.flops != 0
    assert list(roofline(step, "h100").ridges) == ["bfloat16"]


def test_a_dtype_that_the_device_lacks():
    """The error names the op, the module, the phase and what the device has."""
    model = sa.build(lambda D: nn.Sequential(nn.Linear(D, D, bias=False, dtype=torch.bfloat16)))
    step = sa.trace(model, "bf16[B, D]", check=False)
    with pytest.raises(DeviceError) as error:
        roofline(step, "V100-SXM2-32GB")
    assert str(error.value) == (
        "aten.mm.default in 0 (forward) multiplies bfloat16: V100-SXM2-32GB has no peak rate for bfloat16; it has "
        "float64, float32, float16"
    )
    with pytest.raises(DeviceError, match="there is no device 'h1000'"):
        roofline(step, "h1000")


def test_what_needs_sizes_says_so(linear):
    """Limits and pictures need sizes; a level that is none is refused, and so are parts of the minimal level."""
    found = roofline(linear, "h100")
    with pytest.raises(MissingSizeError, match="limit depends on the sizes"):
        _ = found.total.limit
    with pytest.raises(SpecError, match="level: 'best' is none of eager, fused, minimal"):
        roofline(linear, "h100", level="best")
    with pytest.raises(SpecError, match="at the level 'minimal' a phase is one kernel"):
        roofline(linear, "h100", level="minimal").by_module()
    with pytest.raises(SpecError, match="phase: 'fwd' is none of"):
        found.by_op(phase="fwd")


def test_a_roofline_is_a_table(linear):
    """Its text says the device, the level, the limit of each part, and what the times rest on."""
    said = str(roofline(linear, "h100").at(B=16, D=1024, K=1024))
    for part in ("on H100-SXM5-80GB, eager", "B=16", "by op", "aten.mm", "memory", "dense peaks bfloat16 990 TFLOP/s"):
        assert part in said
    assert "Max(" in str(roofline(linear, "h100"))
    assert "source of the peaks" in " ".join(roofline(linear, "h100").notes)


def test_a_convention_does_not_change_what_runs(account):
    """A roofline is of the kernels that run, whatever a convention counts."""
    step = account("two_layer").at(B=64, D=128, K=32)
    assert roofline(step.under("palm"), "h100").total == roofline(step, "h100").total


# -- the speed of light --------------------------------------------------------------------

EXAMPLES = {
    "two_layer": {"B": 64, "D": 512, "K": 128},
    "llama": {"B": 2, "L": 128, "G": 2, "H": 4, "Dh": 64, "F": 512, "V": 2048},
    "resnet50": {"B": 4},
    "any_depth": {**GPT2_SIZES, "B": 1, "L": 256},
}


@pytest.mark.parametrize(("short", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16), ("f64", torch.float64)])
def test_nothing_beats_the_speed_of_light_in_other_dtypes(short, dtype):
    """The same for a step in one dtype on every device that has it; TPUs have no other than that of two bytes."""
    block = sa.build(lambda D: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)).to(dtype))
    step = sa.trace(block, f"{short}[B, D]", optimizer=torch.optim.SGD).at(B=64, D=512)
    nothing_beats_the_speed_of_light(step, str(dtype).removeprefix("torch."), 5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_beats_the_speed_of_light(account, name):
    """On every device with the dtype no time is below its FLOP at the peak, its bytes at the bandwidth or a part.

    That holds at each level, and what fuses more takes no longer.
    """
    nothing_beats_the_speed_of_light(account(name).at(**EXAMPLES[name]), "float32", 20)


def nothing_beats_the_speed_of_light(step, dtype, at_least):
    """On so many devices and more that have the dtype, at every level of bytes."""
    tried = 0
    for each in devices().values():
        if dtype not in each.flops_per_s:
            continue
        tried += 1
        times = []
        for level in LEVELS:
            found = roofline(step, each, level=level)
            total = found.total
            least = 1 - 1e-12  # sums of floats
            assert total.seconds >= least * float(step.total.flops) / each.peak(dtype)
            assert total.seconds >= least * float(step_bytes(step)[level]["total"]) / each.bytes_per_s
            if each.vector_flops_per_s:
                assert total.seconds >= least * float(step.total.pointwise) / each.vector_flops_per_s
            if level != "minimal":  # there phases meet what is handed from one to the next, the step does not
                parts = [*found.phases.values(), *found.by_module(2).values(), *found.by_op().values()]
                assert all(total.seconds >= least * part.seconds for part in parts)
            times.append(total.seconds)
        assert times[0] * (1 + 1e-12) >= times[1] >= times[2] * (1 - 1e-12)
    assert tried > at_least


# -- from the lecture notes -----------------------------------------------------------------


def test_ridge_points():
    """N034, N038, N042: peak over bandwidth, dense; and over a link."""
    assert ridge("H100-SXM5-80GB", "bf16") == printed("295.373")
    assert ridge(with_rates("h100", 3e12, flops_per_s={"bfloat16": 1e15}), "bf16") == printed("333.333")
    assert ridge(with_rates("TPU-v5e", 820e9), "bf16") == printed("240.244")
    assert ridge(with_rates("TPU-v5e", 810e9, flops_per_s={"int8": 394e12}), "int8") == printed("486.42")
    a100 = with_rates("A100-SXM4-40GB", 1.5e12, interconnect_bytes_per_s=300e9)
    assert ridge(a100, "bf16") == 208
    assert ridge(a100, "bf16", over="interconnect") == ridge(a100, "bf16", over="300 GB/s") == 1040


def test_a_ridge_over_pcie():
    """N114: the critical batch where weights come over PCIe, 920 TFLOP/s over 15 GB/s."""
    v6e = with_rates("TPU-v6e", 1600e9, flops_per_s={"bfloat16": 920e12})
    assert ridge(v6e, "bf16", over="15 GB/s") == printed("61333.3")
    with pytest.raises(UnitError, match="over: '15 GB' is bytes"):
        ridge(v6e, "bf16", over="15 GB")
    with pytest.raises(DeviceError, match="no rate of an interconnect"):
        ridge("Trainium1", "bf16", over="interconnect")


def test_intensity_of_a_product(linear):
    """N035: in bfloat16 it is B*D*K/(B*D + D*K + B*K), a third of the side for cubes, and about B for few rows."""
    found = roofline(linear, "h100")
    assert sympy.cancel(found.total.intensity - B * D * K / (B * D + D * K + B * K)) == 0
    book = ((1024, 1024, "341.333"), (1, 8192, "0.999756"), (240, 8192, "226.716"), (512, 8192, "455.111"))
    for rows, side, expected in book:
        assert found.at(B=rows, D=side, K=side).total.intensity == printed(expected)


def test_intensity_in_the_limits():
    """N036, corrected: with reads and writes D/2 for many rows and B for few; 2043.81 for a million rows of 4096."""
    step = sa.trace(lambda x, w: x @ w, "bf16[B, D]", "bf16[D, D]", train=False)
    intensity = roofline(step, "h100").total.intensity
    assert sympy.limit(intensity, B, sympy.oo) == D / 2
    assert sympy.limit(intensity, D, sympy.oo) == B
    assert roofline(step, "h100").at(B=10**6, D=4096).total.intensity == printed("2043.81")
    read_only = step.total.flops / step.total.bytes_read
    assert float(read_only.subs({B: 10**6, D: 4096})) == printed("4079.29")


@pytest.mark.parametrize(
    ("function", "dtype", "operands", "expected"),
    [
        (torch.relu, "bf16", 1, 0.25), (torch.add, "bf16", 2, 1 / 6), (torch.relu, "f32", 1, 0.125),
        (torch.add, "f32", 2, 1 / 12), (torch.dot, "bf16", 2, 0.5),
    ],
)  # fmt: skip
def test_intensity_of_elementwise_work(function, dtype, operands, expected):
    """N037: FLOP per byte, not per element: 1/4 and 1/6 in bfloat16, half of that in float32; 1/2 for a dot product."""
    step = sa.trace(function, *[f"{dtype}[n]"] * operands, train=False)
    assert float(sympy.limit(sympy.sympify(roofline(step, "h100").total.intensity), n, sympy.oo)) == pytest.approx(
        expected
    )


def test_critical_batch(linear):
    """N038: on TPU v5e a bfloat16 layer of 8192 turns compute-bound at B = 255.213, and at the ridge for large ones."""
    v5e = with_rates("TPU-v5e", 820e9)
    r = sympy.Rational(197000, 820)
    found = compute_bound_when(linear, "B", device=v5e, D=8192, K=8192)
    assert float(found.root) == printed("255.213")
    assert found.root == r * 8192 / (8192 - 2 * r)
    assert found.first == 256
    assert str(found) == "the step on TPU-v5e: compute-bound when B > 255 (exactly 255.213)"
    free = compute_bound_when(linear, "B", device=v5e)
    assert sympy.cancel(free.root - r * D * K / (D * K - r * (D + K))) == 0
    assert sympy.limit(free.root.subs(K, D), D, sympy.oo) == r
    assert "else memory-bound at every size of B" in str(free)


def test_critical_batch_of_int8():
    """N038, N039: half the ridge for weights of one byte: 243.21 in int8, 120.122 by bfloat16 math; 262.7, not 271."""
    int8 = with_rates("TPU-v5e", 810e9, flops_per_s={"int8": 394e12})
    step = product("i8")
    assert float(compute_bound_when(step, "B", device=int8, D=4096, K=16384).root) == printed("262.709")
    free = compute_bound_when(step, "B", device=int8).root
    assert float(sympy.limit(free.subs(K, D), D, sympy.oo)) == printed("243.21")
    packed = sa.trace(torch.ops.aten._weight_int8pack_mm, "bf16[B, D]", "i8[D, D]", "bf16[D]", train=False, check=False)
    bf16 = with_rates("TPU-v5e", 820e9, vector_flops_per_s=None)
    root = compute_bound_when(packed, "B", device=bf16).root
    assert float(sympy.limit(root, D, sympy.oo)) == printed("120.122")


def test_weights_for_each_row():
    """N040: with a matrix for every row the intensity stays below 2 in bytes of one, and no batch is large enough."""
    step = sa.trace(torch.bmm, "bf16[B, 1, D]", "bf16[B, D, K]", train=False)
    found = roofline(step, V5E)
    assert 2 * found.at(B=8, D=1024, K=1024).total.intensity == printed("1.9961")
    never = compute_bound_when(found, "B", D=1024, K=1024)
    assert never.never
    assert str(never) == "the step on TPU-v5e: compute-bound at no size of B"
    with pytest.raises(QuestionError, match="at no size of B"):
        _ = never.root


@pytest.mark.parametrize(
    ("group", "queries", "keys", "expected"),
    [(1, 2048, 2048, "1024.00"), (1, 1, 8192, "0.999878"), (8, 2048, 2048, "1820.44"), (8, 1, 8192, "7.9922")],
)
def test_intensity_of_fused_attention(group, queries, keys, expected):
    """N041: 4*B*H*T*S*hd over the bytes of q, k, v and out; the kernel's logsumexp and seeds are what it adds."""
    step = sa.trace(
        lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        "bf16[B, (H G), T, E]", "bf16[B, H, S, E]", "bf16[B, H, S, E]",
        train=False, device="cuda", check=False,
    )  # fmt: skip
    assert [node.op for node in step.nodes] == ["aten._scaled_dot_product_flash_attention.default"]
    found = roofline(step, "h100").at(B=1, H=2, G=group, T=queries, S=keys, E=128).total
    beside = 4 * 2 * group * queries + 24  # logsumexp in float32; seed and offset of the generator
    assert found.flops / (found.bytes - beside) == printed(expected)


class Checkpointed(nn.Module):
    """Two layers with a sine between; what lies before the second is computed again in the backward pass if wanted."""

    def __init__(self, again):
        super().__init__()
        self.layers, self.again = nn.Sequential(nn.Linear(16, 16), Sine(), nn.Linear(16, 16)), again

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=False) if self.again else self.layers(x)


class Sine(nn.Module):
    """sin(x)."""

    def forward(self, x):
        return x.sin()


class Chain(nn.Module):
    """So many additions to the same tensor."""

    def __init__(self, K):
        super().__init__()
        self.K = K

    def forward(self, x):
        for _ in range(self.K):
            x = x + 1.0
        return x


def test_operations_on_each_element():
    """N043: on an A100 (19.5 TFLOP/s, 1.5 TB/s) a fused float32 chain of over 104 operations is compute-bound."""
    step = sa.trace(sa.build(Chain, depth="K"), "n", train=False)
    a100 = with_rates("A100-SXM4-40GB", 1.5e12, vector_flops_per_s=19.5e12)
    found = compute_bound_when(roofline(step, a100, level="fused"), "K", n=1024)
    assert found.roots == (104,)
    assert found.first == 105
    assert compute_bound_when(roofline(step, a100), "K", n=1024).never


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}])
def test_bytes_of_adamw(how):
    """N104: 28 bytes per float32 parameter: p, g, m, v are read, p, m, v written; 56.3 ms for 7B on an H100."""
    step = sa.trace(
        sa.build(lambda D, K: nn.Linear(D, K, bias=False)), "B D",
        optimizer=lambda p: torch.optim.AdamW(p, **how), check=False,
    )  # fmt: skip
    fused = sympy.Poly(step_bytes(step)["fused"]["optimizer"], D, K)
    assert fused.coeff_monomial(D * K) == 28
    each = float(fused.coeff_monomial(D * K))
    assert 1000 * each * 6738415616 / device("h100").bytes_per_s == printed("56.3211")
    if "fused" in how:
        assert sympy.Poly(step_bytes(step)["eager"]["optimizer"], D, K).coeff_monomial(D * K) == 28


@pytest.mark.parametrize(
    ("name", "count", "wide", "parameters", "milliseconds"),
    [
        ("a100-sxm4-80gb", 1, 4096, 6738415616, "6.60953"), ("h100", 1, 4096, 6738415616, "4.02293"),
        ("h100", 8, 8192, 70553706496, "5.2652"),
    ],
)  # fmt: skip
def test_decoding_reads_every_weight(linear, name, count, wide, parameters, milliseconds):
    """N103: a token of one sequence takes at least its weights' bytes at the bandwidth, here of one large layer."""
    whole = device(name)
    many = replace(whole, bytes_per_s=count * whole.bytes_per_s)
    out, rest = divmod(parameters, wide)
    assert rest == 0
    found = roofline(linear, many, level="minimal").at(B=1, D=wide, K=out).total
    assert found.limit == "memory"
    activations = 2 * (wide + out)
    assert 1000 * (found.seconds - activations / many.bytes_per_s) == printed(milliseconds)


# -- thresholds ------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5000), wide=st.integers(1, 5000), out=st.integers(1, 5000))
def test_a_threshold_is_where_the_limit_changes(square, rows, wide, out):
    """At any sizes the limit is "compute" just where the solved threshold says."""
    found = compute_bound_when(square, "B", device="h100", D=wide, K=out)
    limit = roofline(square.at(B=rows, D=wide, K=out), "h100").total.limit
    above = [region.larger for region in found.regions if region.low < rows <= region.high]
    assert limit == above[0]


def test_parts_have_thresholds_of_their_own(account):
    """A phase, a module or an op turns compute-bound at its own size, and sizes may come from the account."""
    step = account("two_layer")
    found = {
        name: compute_bound_when(step, "B", device="h100", D=4096, K=512, **part).first
        for name, part in {
            "step": {},
            "forward": {"phase": "forward"},
            "1": {"module": "1"},
            "mm": {"op": "aten.mm"},
        }.items()
    }
    for name, size in found.items():
        for rows, limit in ((size, "compute"), (size - 1, "memory")):
            at = roofline(step, "h100").at(B=rows, D=4096, K=512)
            part = {
                "step": at.total, "forward": at.phases["forward"], "1": at.by_module()["1"],
                "mm": at.by_op()["aten.mm.default"],
            }[name]  # fmt: skip
            assert part.limit == limit
    held = compute_bound_when(roofline(step.at(B=1, D=4096, K=512), "h100"), "B")
    assert held.first == found["step"]


def test_answers_that_are_no_size(linear):
    """A part may be compute-bound always or never; a dim or a part that is not there is refused with those that are."""
    fast = with_rates("h100", 1e30)
    assert compute_bound_when(linear, "B", device=fast, D=64, K=64).always
    assert compute_bound_when(linear, "B", device="h100", D=64, K=64).never
    assert compute_bound_when(linear, "D", device="h100", B=1, K=64).never
    with pytest.raises(UnknownDimError, match="there is no dim 'Q'; the account's dims are B, D, K"):
        compute_bound_when(linear, "Q", device="h100")
    with pytest.raises(SpecError, match="there is no 'encoder'; there are"):
        compute_bound_when(linear, "B", device="h100", module="encoder")
    with pytest.raises(SpecError, match="needs a device"):
        compute_bound_when(linear, "B")


# -- utilization ----------------------------------------------------------------------------


def test_measured_products():
    """N022, N023: of 16384 x 32768 x 8192 in 0.16 s 0.82 of H100's float32, 0.806 at 5.4e13; 0.296 in bfloat16."""
    sizes = {"B": 16384, "D": 32768, "K": 8192}
    full, half = product("f32").at(**sizes), product().at(**sizes)
    found = mfu(full, "0.16 s", "h100", convention="torch")
    assert found.flops_per_s == 54975581388800
    assert float(mfu(full, 0.162891, "h100", convention="torch")) == printed("0.80597")
    upstream = with_rates("h100", 3.35e12, flops_per_s={"float32": 67.5e12})
    assert float(mfu(full, 0.162891, upstream, convention="torch")) == pytest.approx(0.8, rel=5e-6)
    assert float(mfu(half, "0.03 s", "h100", convention="torch")) == printed("0.296314")
    assert float(mfu(half, 0.0341901, "h100", convention="torch")) == pytest.approx(0.26, rel=2e-6)


def test_utilization_says_what_it_rests_on(account):
    """N021: MFU is model FLOP over seconds, devices and the dense peak, under a convention that it names."""
    step = account("llama").at(B=2, L=256, G=2, H=4, Dh=64, F=1024, V=4096)
    found = mfu(step, "20 ms", "h100", devices=2)
    assert found.fraction == pytest.approx(float(step.under("palm").total.flops) / (0.02 * 2 * 67e12))
    assert "palm" in found.convention
    for part in ("MFU", "2 H100-SXM5-80GB", "float32, dense", "Chowdhery", "20 ms"):
        assert part in str(found)
    assert hfu(step, "20 ms", "h100").flops == step.total.flops
    with pytest.raises(QuestionError, match="seconds='0 s'"):
        mfu(step, "0 s", "h100")
    with pytest.raises(MissingSizeError, match="give G, H, Dh, F, V, B, L"):
        mfu(step.symbolic, "1 s", "h100")
    with pytest.raises(UnitError, match="seconds: '5 GB' is bytes"):
        mfu(step, "5 GB", "h100")


def test_recompute_is_hardware_and_no_model_flop():
    """What a checkpoint computes again raises HFU and leaves MFU as it is."""
    plain, again = (sa.trace(Checkpointed(again), "B 16", check=False, grad=True).at(B=8) for again in (False, True))
    assert mfu(plain, 1, "h100").flops == mfu(again, 1, "h100").flops
    assert hfu(again, 1, "h100").flops == hfu(plain, 1, "h100").flops + 2 * 8 * 16 * 16


def test_a_device_of_ones_own(linear):
    """A `Device` made inline serves as one of the table."""
    mine = Device("mine", "", 2**30, 1e9, {"bfloat16": 1e10}, "a guess")
    found = roofline(linear, mine).at(B=64, D=64, K=64)
    assert found.ridge == 10
    assert found.total.limit == "compute"
    assert found.notes[-1] == "source of the peaks: a guess"
