"""The time of a step: how it is measured, the least that it can be, and what is said of both."""

import gc
import itertools
import math
import time
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.hardware import device
from symacct.verify import ceilings as ceilings_module
from symacct.verify import timing
from symacct.verify.ceilings import Ceilings, _caches, _reach, _with_data_sheet, measure
from symacct.verify.findings import BOUND, DIFFERENT, INFORMATION
from symacct.verify.timing import Times, bound, contraction_dtypes, duration, time_part, timed, timed_with_ceilings

# Ceilings of a device that does everything at a round rate.
ROUND = Ceilings({"float32": 1e12}, bytes_per_s=1e9, cache_bytes_per_s=1e11, cache_bytes=math.inf, source="a test")


@pytest.fixture(scope="module")
def layers():
    """Two layers without bias, B=64, D=32, K=16: three products forward and backward are of known sizes."""
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    return sa.trace(model, "B D", optimizer=torch.optim.SGD).at(B=64, D=32, K=16)


def by_op(account, ceilings):
    """The nodes of a bound by op, each with its seconds and what limits it."""
    found = {}
    for least in bound(account, ceilings).nodes:
        found.setdefault(least.node.op, []).append((least.seconds, least.limit))
    return found


def named(part):
    """The figures of a part by name."""
    return {figure.name: figure for figure in part.figures}


# -- measuring -------------------------------------------------------------------------


def test_times():
    """The fastest, the median and the quartiles of the measured steps; times of several rounds add up."""
    times = Times((5.0, 1.0, 3.0)) + Times((2.0, 4.0))
    assert times.seconds == (5.0, 1.0, 3.0, 2.0, 4.0)
    assert (times.fastest, times.median, times.quartiles) == (1.0, 3.0, (2.0, 4.0))
    assert Times((7.0,)).quartiles == (7.0, 7.0)


def test_timed():
    """Warm-up runs are not among the times, a step is not timed shorter than it was, and no garbage is collected."""
    calls = []

    def step():
        calls.append(gc.isenabled())
        time.sleep(0.004)

    times = timed(step, "cpu", steps=3, warmup=2)
    assert calls == [False] * 5
    assert gc.isenabled()
    assert len(times.seconds) == 3
    assert times.fastest >= 0.004


def test_timed_on_cuda(monkeypatch):
    """On CUDA a step lasts from one event to the next, in seconds, and the device is waited for around all of them."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")
            self.at = len(log)

        def elapsed_time(self, other):
            assert log[-1] == "synchronize"
            return float(other.at - self.at)  # ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    times = timed(lambda: log.append("step"), "cuda", steps=2, warmup=1)
    assert log == ["step", "synchronize", "event", "step", "event", "step", "event", "synchronize"]
    assert times.seconds == (0.002, 0.002)


def test_ceilings_around_steps(monkeypatch):
    """Ceilings are measured before, between and after the rounds of steps, and the highest of them count."""
    log = []
    rates = iter((1.0, 5.0, 3.0, 2.0))

    def measured(*_):
        log.append("ceilings")
        return Ceilings({"float32": next(rates)}, 1.0, 1.0, 1.0, "a test")

    monkeypatch.setattr(timing, "measure", measured)
    times, found = timed_with_ceilings(lambda: log.append("step"), "cpu", [torch.float32], steps=5, warmup=1)
    assert "".join(word[0] for word in log) == "cssscssscssc"
    assert len(times.seconds) == 5
    assert found.flops_per_s == {"float32": 5.0}


# -- ceilings --------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_a_clock_that_stands_still(monkeypatch, every):
    """A run for which the clock stood says nothing; where it always stands, the clock on the wall has the word."""
    readings = itertools.count()

    def stands():
        return 0.0 if next(readings) // 2 % every == 0 else time.thread_time()

    monkeypatch.setattr(ceilings_module, "_clock_of_a_thread", lambda: stands)
    found = measure("cpu", [torch.float32], 0.05)
    monkeypatch.undo()
    real = measure("cpu", [torch.float32], 0.05)
    assert 0 < found.flops_per_s["float32"] < 20 * real.flops_per_s["float32"]
    assert 0 < found.bytes_per_s < 20 * real.bytes_per_s


def test_measured_ceilings():
    """On a CPU there is a rate for each dtype asked for, memory is not faster than caches, and threads are restored."""
    threads = torch.get_num_threads()
    found = measure("cpu", [torch.float32, torch.bfloat16, torch.int64], seconds=0.2)
    assert list(found.flops_per_s) == ["float32", "bfloat16"]
    assert min(found.flops_per_s.values()) > 0
    assert 0 < found.bytes_per_s <= found.cache_bytes_per_s
    assert found.cache_bytes > 0
    assert found.source.startswith("the fastest seen on this machine with ")
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert measure("cpu", [], seconds=0.05).flops_per_s == {}


def test_raised():
    """Of two measurements the higher of each ceiling counts, also of a dtype that only one of them has."""
    one = Ceilings({"float32": 1.0, "float64": 4.0}, 10.0, 30.0, 100, "here")
    two = Ceilings({"float32": 2.0, "float16": 3.0}, 20.0, 25.0, 90, "there")
    assert one.raised(two) == Ceilings({"float32": 2.0, "float64": 4.0, "float16": 3.0}, 20.0, 30.0, 100, "here")


def test_caches_of_linux(tmp_path, monkeypatch):
    """Data caches are added up, each once, however many processors share it; instruction caches are none."""
    for cpu in range(4):
        for index, (kind, size, shared, level) in enumerate(
            [
                ("Data", "32K", cpu, 1),
                ("Instruction", "64K", cpu, 1),
                ("Unified", "512K", cpu // 2, 2),
                ("Unified", "32M", "0-3", 3),
            ]
        ):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("type", kind), ("size", size), ("shared_cpu_list", shared), ("level", level)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(ceilings_module, "_CACHES", tmp_path)
    assert _caches() == 4 * 32 * 2**10 + 2 * 512 * 2**10 + 32 * 2**20
    monkeypatch.setattr(ceilings_module, "_CACHES", tmp_path / "nothing")
    assert _caches() == 0
    assert measure("cpu", [], seconds=0.05).cache_bytes == math.inf


def test_reach_of_caches():
    """What runs half as fast again as from memory was in a cache."""
    assert _reach({1: 100.0, 2: 90.0, 4: 16.0, 8: 10.0}) == 4
    assert _reach({1: 100.0, 2: 14.0, 8: 10.0}) == 1
    assert _reach({1: 10.0, 8: 10.0}) == 0


def test_ceilings_of_a_data_sheet():
    """Ceilings are not lower than the data sheet's, nor than what was seen; TF32 counts where float32 may use it."""
    seen = Ceilings({"float32": 60e12, "bfloat16": 1000e12, "complex64": 1.0}, 1e12, 9e12, 50e6, "seen", "cuda")
    h100 = device("H100-SXM5-80GB")
    found = _with_data_sheet(seen, h100, tf32=False)
    assert found.flops_per_s["float32"] == 67e12
    assert found.flops_per_s["bfloat16"] == 1000e12
    assert found.flops_per_s["complex64"] == 1.0
    assert (found.bytes_per_s, found.cache_bytes_per_s, found.cache_bytes) == (3350e9, 9e12, 50e6)
    assert found.source == "the data sheet of H100-SXM5-80GB, or seen where that was faster"
    assert (found.peak("bfloat16"), found.peak("float32"), found.peak("complex64")) == (989.5e12, 67e12, 1.0)
    fast = _with_data_sheet(seen, h100, tf32=True)
    assert fast.flops_per_s["float32"] == fast.peak("float32") == 494.5e12


def test_measure_on_cuda(monkeypatch):
    """The CUDA path finds the device by its name, and measures with settings as they are (on stand-ins, run here)."""
    properties = types.SimpleNamespace(name="NVIDIA H200", total_memory=143771 * 2**20, L2_cache_size=2**20)
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(ceilings_module, "_seconds_on_cuda", lambda run: 1.0)
    with torch.device("meta"):
        monkeypatch.setattr(torch, "ones", lambda *shape, dtype=None, device=None: torch.empty(*shape, dtype=dtype))
        found = ceilings_module._on_cuda([], 0.05)
    assert found.device is device("H200-SXM-141GB")
    assert found.kind == "cuda"
    assert found.bytes_per_s == 4800e9


# -- the bound -------------------------------------------------------------------------


def test_bound_by_products(layers):
    """At endless bandwidth the bound is the FLOP of all products over the peak, node by node."""
    fast = Ceilings({"float32": 1e12}, math.inf, math.inf, 0, "a test")
    found = bound(layers, fast)
    assert found.seconds == pytest.approx(layers.total.flops / 1e12)
    assert [least.limit for least in found.nodes if least.node.flops] == ["FLOP"] * 5
    assert {least.limit for least in found.nodes if not least.node.flops} == {""}
    assert found.by_op() == [("aten.mm.default", pytest.approx(found.seconds))]
    assert found.largest("aten.mm.default").flops == 2 * 64 * 32 * 32
    phases = {name: phase.flops / 1e12 for name, phase in layers.phases.items() if phase.flops}
    assert found.ideal_seconds == pytest.approx(phases)


def test_bound_by_bytes(layers):
    """With products for free, every byte that the account counts takes its time within a cache."""
    slow = Ceilings({"float32": math.inf}, math.inf, 1e9, math.inf, "a test")
    assert bound(layers, slow).seconds == pytest.approx(layers.total.bytes / 1e9)


def test_bound_by_memory():
    """Of what a kernel reads and of what it writes, caches can hold as much as they are large; the rest is moved."""
    account = sa.trace(lambda x, y: x + y, "N", "N", train=False).at(N=1000)
    ceilings = Ceilings({}, 1e9, 1e12, 1000, "a test")
    (found,) = bound(account, ceilings).nodes
    assert (found.seconds, found.limit) == (pytest.approx(((8000 - 1000) + (4000 - 1000)) / 1e9), "memory")
    roomy = Ceilings({}, 1e9, 1e12, 8000, "a test")
    (found,) = bound(account, roomy).nodes
    assert (found.seconds, found.limit) == (pytest.approx(12000 / 1e12), "cache")


def test_each_node_takes_its_own_limit(layers):
    """The bound adds the largest of a node's limits, which is more than the largest of the sums."""
    found = bound(layers, Ceilings({"float32": 1e10}, 1e9, 2e10, math.inf, "a test"))
    by_flops, by_bytes = layers.total.flops / 1e10, layers.total.bytes / 2e10
    assert {least.limit for least in found.nodes} == {"FLOP", "cache", ""}
    assert max(by_flops, by_bytes) < found.seconds < by_flops + by_bytes


def test_views_take_no_time(layers):
    """A node that costs nothing takes no time."""
    free = [least for least in bound(layers, ROUND).nodes if least.node.bytes == 0]
    assert free
    assert {least.seconds for least in free} == {0.0}


def test_what_data_choose_takes_no_time():
    """An embedding may read one row over and over, so nothing is known of its least time."""
    account = sa.trace(lambda i, w: F.embedding(i, w), "i64[N]", "V D", train=False).at(N=50, V=7, D=3)
    assert by_op(account, ROUND)["aten.embedding.default"] == [(0.0, "")]


def test_pointwise_arithmetic_is_left_out():
    """Weights count evaluations, not instructions: with endless bandwidth a softmax takes no time."""
    account = sa.trace(lambda x: x.softmax(-1), "B N", train=False).at(B=5, N=7)
    assert account.total.pointwise > 0
    assert bound(account, Ceilings({"float32": 1.0}, math.inf, math.inf, 0, "a test")).seconds == 0


def test_a_dtype_may_be_widened():
    """Products of 16 bits may run as fast as those of 32 on this device, but not the other way round."""
    account = sa.trace(lambda x, y: x @ y, "bf16[N, N]", "bf16[N, N]", train=False).at(N=100)
    flop = 2 * 100**3
    endless = {"bytes_per_s": math.inf, "cache_bytes_per_s": math.inf, "cache_bytes": 0, "source": "a test"}
    assert bound(account, Ceilings({"bfloat16": 1e6, "float32": 1e9}, **endless)).seconds == pytest.approx(flop / 1e9)
    assert bound(account, Ceilings({"bfloat16": 1e9, "float32": 1e6}, **endless)).seconds == pytest.approx(flop / 1e9)
    wide = sa.trace(lambda x, y: x @ y, "N N", "N N", train=False).at(N=100)
    assert bound(wide, Ceilings({"bfloat16": 1e9, "float32": 1e6}, **endless)).seconds == pytest.approx(flop / 1e6)


def test_a_dtype_without_a_ceiling():
    """Where no peak is known, FLOP take no time, and the account's are named as such."""
    account = sa.trace(lambda x, y: x @ y, "f64[N, N]", "f64[N, N]", train=False).at(N=10)
    found = bound(account, ROUND)
    assert found.unrated == 2 * 10**3
    assert [least.limit for least in found.nodes] == ["cache"]
    part = time_part(account, Times((1.0,)), ROUND)
    assert "2,000 FLOP are of dtypes whose peak is not known, and are in no bound, MFU or HFU" in part.notes


@pytest.mark.parametrize(("s", "t"), [(6, 6), (6, 9), (9, 6)])
def test_causal_attention(s, t):
    """A kernel can skip what a causal mask hides: only the pairs that are left bound its time."""
    account = sa.trace(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "B H S D", "B H T D", "B H T D", train=False, sizes={"S": s, "T": t},
    ).at(B=2, H=3, S=s, T=t, D=4)  # fmt: skip
    node = next(n for n in account.nodes if "attention" in n.op)
    assert node.flops == 2 * (2 * 2 * 3 * s * t * 4)
    seen = torch.ones(s, t).tril().sum().item()
    fast = Ceilings({"float32": 1e12}, math.inf, math.inf, 0, "a test")
    assert by_op(account, fast)[node.op][0][0] == pytest.approx(node.flops / 1e12 * seen / (s * t))


def test_convolutions_on_cuda():
    """On CUDA a convolution may run by fewer multiplications than are counted; torch's own CPU kernels run them all."""
    account = sa.trace(lambda x, w: F.conv2d(x, w), "B 3 H H", "8 3 3 3", train=False).at(B=2, H=9)
    fast = {"bytes_per_s": math.inf, "cache_bytes_per_s": math.inf, "cache_bytes": 0, "source": "a test"}
    cpu = bound(account, Ceilings({"float32": 1e9}, **fast))
    assert cpu.seconds > 0
    assert cpu.seconds == pytest.approx(account.total.flops / 1e9)
    cuda = bound(account, Ceilings({"float32": 1e9}, **fast, kind="cuda"))
    assert cuda.seconds == 0
    assert sum(cuda.ideal_seconds.values()) == pytest.approx(cpu.seconds)


def test_dtypes_of_contractions(layers):
    """Ceilings are wanted for the dtypes of matrix operands, not for those of other tensors."""
    assert contraction_dtypes(layers) == [torch.float32]
    mixed = sa.trace(nn.Linear(4, 4), "B 4", autocast="bf16").at(B=3)
    assert contraction_dtypes(mixed) == [torch.bfloat16]
    assert contraction_dtypes(sa.trace(lambda i: i + 1, "i64[N]", train=False).at(N=3)) == []


# -- the verdict -----------------------------------------------------------------------


def test_a_bound_that_holds(layers):
    """When no step is faster than the bound it holds, and rates are those of the median step."""
    least = bound(layers, ROUND).seconds
    part = time_part(layers, Times((2 * least, 4 * least, 8 * least)), ROUND)
    found = named(part)
    assert part.holds
    assert (found["fastest step"].predicted, found["fastest step"].measured) == (least, 2 * least)
    assert found["fastest step"].verdict == BOUND
    assert found["fastest step"].note == "at least, by a test"
    assert (found["median step"].measured, found["median step"].verdict) == (4 * least, INFORMATION)
    assert found["bound / median step"].measured == pytest.approx(0.25)
    assert found["achieved FLOP/s"].measured == pytest.approx(layers.total.flops / (4 * least))
    assert found["MFU"].measured == pytest.approx(layers.total.flops / 1e12 / (4 * least))
    assert found["HFU"].measured == found["MFU"].measured
    assert part.notes[0].startswith("the bound is made of aten.mm.default ")


def test_a_bound_that_does_not_hold(layers):
    """A single step under the bound refutes it, though the median is above; the op with the largest share is named."""
    least = bound(layers, ROUND).seconds
    part = time_part(layers, Times((least / 2, 2 * least, 3 * least)), ROUND)
    assert not part.holds
    assert named(part)["fastest step"].verdict == DIFFERENT
    (residual,) = part.residuals
    assert residual.op == "aten.mm.default"
    assert layers.nodes[residual.node].op == residual.op
    assert residual.amount == pytest.approx(least / 2)
    assert residual.text.startswith(f"the measured time {duration(least / 2)} is under the bound {duration(least)}: ")
    assert "the account's FLOPs or bytes are too large, or the ceilings too low; the largest share, " in residual.text


def test_ceilings_are_measured_again_before_a_verdict(layers):
    """A bound that seems refuted gets other ceilings; if they are higher, the bound is lower and may hold."""
    least = bound(layers, ROUND).seconds
    times = Times((least / 2,))
    asked = []

    def higher():
        asked.append(True)
        return Ceilings({"float32": 1e13}, 1e10, 1e12, math.inf, "a test")

    part = time_part(layers, times, ROUND, higher)
    assert part.holds
    assert len(asked) == 1
    assert named(part)["fastest step"].predicted == pytest.approx(least / 10)

    def lower():
        asked.append(True)
        return Ceilings({"float32": 1e6}, 1e3, 1e3, 1e3, "a test")

    asked.clear()
    part = time_part(layers, times, ROUND, lower)
    assert not part.holds
    assert named(part)["fastest step"].predicted == least
    assert len(asked) == 3
    asked.clear()
    assert time_part(layers, Times((2 * least,)), ROUND, lower).holds
    assert asked == []


def test_utilization_with_recomputation():
    """HFU has what checkpoints compute again, MFU has not; the achieved FLOP/s have everything."""

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 32, bias=False), nn.Linear(32, 8, bias=False)

        def forward(self, x):
            return checkpoint(lambda x: self.down(self.up(x).relu()), x, use_reentrant=False)

    account = sa.trace(Again(), "B 8").at(B=16)
    assert account.recompute.flops > 0
    found = named(time_part(account, Times((1.0,)), ROUND))
    model = account.forward.flops + account.backward.flops
    assert found["MFU"].measured == pytest.approx(model / 1e12)
    assert found["HFU"].measured == pytest.approx((model + account.recompute.flops) / 1e12)
    assert found["achieved FLOP/s"].measured == account.total.flops == model + account.recompute.flops
    assert found["MFU"].note == "forward and backward, of the fastest products seen, as no data sheet is known"


def test_utilization_by_a_data_sheet(layers):
    """Where the data sheet is known, MFU is judged by it, even where a product was seen to run faster."""
    seen = Ceilings({"float32": 100e12}, 1e12, 9e12, 50e6, "seen", "cuda")
    ceilings = _with_data_sheet(seen, device("H100-SXM5-80GB"), tf32=False)
    found = named(time_part(layers, Times((1.0,)), ceilings))
    assert found["MFU"].measured == pytest.approx(layers.total.flops / 67e12)
    assert found["MFU"].note == "forward and backward, of the dense peak on the data sheet of H100-SXM5-80GB"


def test_mixed_dtypes_are_judged_each_by_its_peak():
    """With products in two dtypes, MFU is the time of each at its own peak over the time measured."""

    def mixed(x, y, a, b):
        return (x @ y).sum() + (a @ b).float().sum()

    account = sa.trace(mixed, "N N", "N N", "bf16[M, M]", "bf16[M, M]", train=False).at(N=10, M=20)
    ceilings = Ceilings({"float32": 1e6, "bfloat16": 4e6}, 1e9, 1e9, math.inf, "a test")
    found = named(time_part(account, Times((1.0,)), ceilings))
    assert found["MFU"].measured == pytest.approx(2 * 10**3 / 1e6 + 2 * 20**3 / 4e6)


def test_duration():
    """Times are written with the prefix that leaves at least one digit before the point."""
    assert [duration(s) for s in (12.0, 0.25, 1.5e-3, 2e-6, 3e-9)] == ["12 s", "250 ms", "1.5 ms", "2 us", "3 ns"]


# -- a real step -----------------------------------------------------------------------


def test_the_bound_of_a_real_step(example):
    """The bound lies under every step of the real model, timed with ceilings of the same minutes."""
    account = example("two_layer").account().at(B=256, D=256, K=64)
    model = nn.Sequential(nn.Linear(256, 256, bias=False), nn.Linear(256, 64, bias=False))
    x = torch.randn(256, 256)

    def step():
        model.zero_grad()
        (model(x) ** 2).mean().backward()

    dtypes = contraction_dtypes(account)
    times, ceilings = timed_with_ceilings(step, "cpu", dtypes, steps=6, warmup=2, rounds=2, seconds=0.1)
    part = time_part(account, times, ceilings, lambda: measure("cpu", dtypes, 0.5))
    assert part.holds, part.residuals
    assert 0 < named(part)["bound / median step"].measured <= 1


@pytest.mark.gpu
def test_the_bound_of_a_real_step_on_cuda(example):
    """The same on a CUDA device, timed by its events."""
    account = example("two_layer").account().at(B=4096, D=4096, K=1024)
    model = nn.Sequential(nn.Linear(4096, 4096, bias=False), nn.Linear(4096, 1024, bias=False)).cuda()
    x = torch.randn(4096, 4096, device="cuda")

    def step():
        model.zero_grad()
        (model(x) ** 2).mean().backward()

    times, ceilings = timed_with_ceilings(step, "cuda", contraction_dtypes(account), steps=20, warmup=3)
    part = time_part(account, times, ceilings)
    assert part.holds, part.residuals
