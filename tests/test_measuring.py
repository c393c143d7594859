"""A machine that is measured: what the device says, that it can be written and read, and what it is called."""

from __future__ import annotations

import math
import time
import types
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import symacct as sa
from symacct import measuring
from symacct.device_file import device_or_file, write_device
from symacct.errors import DeviceError
from symacct.hardware import Device, device
from symacct.measuring import (
    _fastest,
    _kernels,
    _memory,
    _pointwise,
    _slug,
    _up,
    _widened,
    joined,
    measure_device,
)
from symacct.roofline import LEVELS, roofline
from symacct.rules.weights import WEIGHTS
from symacct.verify.bench import Kernel
from symacct.verify.ceilings import Ceilings

DTYPES = ["float64", "float32", "float16", "bfloat16"]


@pytest.fixture(scope="module")
def here():
    """This machine, measured in short."""
    return measure_device("cpu", seconds=0.1)


def test_this_machine(here):
    """Rates of all dtypes, of memory and of other arithmetic are there, with where they come from and no date."""
    assert list(here.flops_per_s) == DTYPES
    assert min(here.flops_per_s.values()) > 0
    assert here.bytes_per_s > 0
    assert here.memory_bytes > 2**28
    assert here.name
    assert here.vendor
    assert here.interconnect_bytes_per_s is None
    threads = torch.get_num_threads()
    seen = f"with {threads} threads, or with one, times {threads}" if threads > 1 else "with one thread"
    assert here.source == f"measured by symacct: the fastest seen on this machine {seen}, torch {torch.__version__}"


def test_a_narrow_dtype_is_not_slower(here):
    """Numbers may be widened, so no dtype is slower than a wider one; other arithmetic not than float32 products."""
    assert here.peak("float32") >= here.peak("float64")
    assert min(here.peak("float16"), here.peak("bfloat16")) >= here.peak("float32")
    assert here.vector_flops_per_s >= here.peak("float32")
    assert _widened({"float64": 5.0, "float32": 3.0, "float16": 1.0, "bfloat16": 9.0}) == {
        "float64": 5.0, "float32": 5.0, "float16": 5.0, "bfloat16": 9.0,
    }  # fmt: skip


def test_joined():
    """Of a device measured twice the higher of each rate counts."""
    a = Device("a", "Us", 10, 5.0, {"float32": 1.0, "float64": 9.0}, "here", 3.0)
    b = Device("b", "Us", 20, 4.0, {"float32": 2.0, "int8": 7.0}, "there", 4.0)
    assert joined(a, b) == Device("a", "Us", 10, 5.0, {"float32": 2.0, "float64": 9.0}, "here", 4.0)
    assert joined(replace(a, vector_flops_per_s=None), replace(b, vector_flops_per_s=None)).vector_flops_per_s is None


def test_a_measured_device_survives_a_file(here, tmp_path):
    """What is written is what was measured."""
    path = tmp_path / "this.toml"
    write_device(here, path)
    assert device_or_file(str(path)) == here


def test_settings_are_restored():
    """Threads and gradients are as they were."""
    threads = torch.get_num_threads()
    _pointwise("cpu", 0.01)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("rate", "up"), [(1.0, 1.0), (123449.0, 123500.0), (9.9991e9, 1e10), (163.4001e9, 163.5e9)])
def test_rates_are_rounded_up(rate, up):
    """Four digits, never lower than what was seen."""
    assert _up(rate) == up


def test_the_fastest_kernel():
    """The rate is that of the fastest kernel by the clock, and each is timed though there is no time."""
    slow, fast = Kernel(10.0, lambda: "slow"), Kernel(10.0, lambda: "fast")
    assert _fastest([slow, fast], lambda run: {"slow": 5.0, "fast": 2.0}[run()], 0.0) == 5.0
    assert slow.times == [5.0] * 5


def test_weights_of_kernels():
    """Kernels count what an account counts for their op; each runs, and leaves the numbers finite."""
    x = torch.ones(64)
    for weight, run in _kernels(x):
        run()
        name = getattr(run, "func", run).__name__.rstrip("_")
        known = {"addcmul": WEIGHTS["mul"] + WEIGHTS["add"]}
        assert weight == (known.get(name) or WEIGHTS[name]), name
    assert torch.isfinite(x).all()


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) CPU @ 2.20GHz

processor\t: 1
vendor_id\t: Other
"""


def test_what_linux_says(tmp_path, monkeypatch):
    """A processor is called by its model and its maker; where Linux says nothing, by its kind."""
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO, encoding="utf-8")
    monkeypatch.setattr(measuring, "_CPUINFO", path)
    assert measuring._cpu()[:2] == ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel")
    monkeypatch.setattr(measuring, "_CPUINFO", tmp_path / "absent")
    name, maker, _ = measuring._cpu()
    assert name
    assert maker


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel-Xeon-2.20GHz"),
        ("AMD EPYC 7B13 64-Core Processor", "AMD-EPYC-7B13"),
        ("Apple M2 Max", "Apple-M2-Max"),
        ("NVIDIA H200", "NVIDIA-H200"),
        ("()", "cpu"),
    ],
)
def test_names(name, slug):
    """Names are one word, without what is no name."""
    assert _slug(name) == slug


def test_memory_of_a_container(tmp_path, monkeypatch):
    """A container's limit counts where it has one that is lower."""
    monkeypatch.setattr(measuring, "_LIMIT", tmp_path / "memory.max")
    whole = _memory()
    assert whole > 0
    for text, expected in (("max\n", whole), ("1048576\n", 2**20), (f"{2 * whole}\n", whole)):
        (tmp_path / "memory.max").write_text(text)
        assert _memory() == expected
    monkeypatch.delattr(measuring.os, "sysconf")
    with pytest.raises(DeviceError, match="the memory of this machine cannot be asked for"):
        _memory()


def test_devices_that_are_not_there(monkeypatch):
    """Only cpu and cuda can be measured, and cuda only where there is one."""
    with pytest.raises(DeviceError, match="'tpu' cannot be measured; cpu and cuda can"):
        measure_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="there is no CUDA device on this machine"):
        measure_device("cuda")


@pytest.mark.parametrize(("name", "link"), [("NVIDIA H200", 900e9), ("NVIDIA Unknown 9", None)])
def test_a_gpu(monkeypatch, name, link):
    """A GPU of the table is not slower than its data sheet, has its link, and is called as it calls itself."""
    seen = dict.fromkeys(DTYPES, 1e12) | {"float8_e4m3fn": 2e12}
    found = types.SimpleNamespace(name=name, total_memory=143771 * 2**20)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    monkeypatch.setattr(measuring, "measure", lambda *_: Ceilings(seen, 4.8e12, 9e12, 5e7, "seen", "cuda"))
    monkeypatch.setattr(measuring, "_pointwise", lambda *_: 3e13)
    measured = measure_device("cuda")
    assert measured.name == name.replace(" ", "-")
    assert measured.vendor == "NVIDIA"
    assert measured.memory_bytes == 143771 * 2**20
    assert measured.interconnect_bytes_per_s == link
    assert measured.vector_flops_per_s == (device("h200").vector_flops_per_s if link else 3e13)


# -- predicted times beside measured ones ----------------------------------------------


def holds(account, run, machine, level):
    """Whether the least time by a roofline is not above the fastest run. Ceilings are measured anew before a no.

    Chance can only make a run longer and a ceiling lower.
    """
    fastest = math.inf
    for _ in range(4):
        for _ in range(3):
            start = time.perf_counter()
            run()
            fastest = min(fastest, time.perf_counter() - start)
        if roofline(account, machine, level=level).total.seconds <= fastest:
            return True
        machine = joined(machine, measure_device("cpu", 0.2))
    return False


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_a_large_product_is_not_faster_than_predicted(here, level):
    """A product of 1024 x 1024 takes its FLOP at the measured peak at least, at any level."""
    account = sa.trace(lambda x, y: x @ y, "N N", "N N", train=False).at(N=1024)
    x, y = torch.randn(2, 1024, 1024)
    assert holds(account, lambda: x @ y, here, level)


@pytest.mark.long
def test_a_copy_is_not_faster_than_predicted(here):
    """A copy of 256 MiB takes the time to read and to write them from memory at least."""
    n = 2**26
    account = sa.trace(lambda x: x.clone(), "N", train=False).at(N=n)
    source, target = torch.ones(n), torch.empty(n)
    assert holds(account, lambda: target.copy_(source), here, "eager")


@pytest.mark.long
def test_a_gpt2_step_is_not_faster_than_predicted(here):
    """A training step of a small GPT-2 with AdamW is not faster than its arithmetic and its least bytes allow."""
    model = GPT2LMHeadModel(GPT2Config(n_embd=128, n_head=4, n_layer=2, vocab_size=500, n_positions=64))
    account = sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW).at(B=4, L=64)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 500, (4, 64))

    def run():
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    assert holds(account, run, here, "minimal")


@pytest.mark.long
def test_a_large_product_is_within_twice_what_is_predicted():
    """On one thread, by the clock that runs only while the thread does, a product takes less than twice its bound."""
    if time.get_clock_info("thread_time").resolution > 1e-6:
        pytest.skip("the clock of a thread is too coarse here")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        machine = measure_device("cpu", 0.3)
        x, y = torch.randn(2, 1024, 1024)
        times = []
        for _ in range(5):
            start = time.thread_time()
            _ = x @ y
            times.append(time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    account = sa.trace(lambda x, y: x @ y, "N N", "N N", train=False).at(N=1024)
    assert min(times) < 2 * roofline(account, machine).total.seconds


@pytest.mark.gpu
def test_a_real_gpu():
    """A CUDA device is measured by its own clock."""
    measured = measure_device("cuda", seconds=0.5)
    assert min(measured.flops_per_s.values()) > 1e11
    assert measured.vector_flops_per_s >= measured.peak("float32")
    assert measured.bytes_per_s > 1e11
