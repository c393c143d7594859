"""The table of devices, and finding a device by what it calls itself."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import symacct
from symacct.errors import DeviceError, SymacctError
from symacct.hardware import PEAKED, device, devices, dtypes_of, find

MIB, GIB = 2**20, 2**30


def test_every_row_is_a_device():
    """Names are distinct, every figure is positive, and every device says where its figures come from."""
    rows = list(csv.DictReader((Path(symacct.__file__).parent / "hardware.csv").open()))
    assert [row["name"] for row in rows] == list(devices())
    for name, each in devices().items():
        assert each.name == name
        assert each.vendor
        assert each.source
        assert min(each.memory_bytes, each.bytes_per_s, *each.flops_per_s.values()) > 0


def test_units():
    """Peaks are FLOP/s, bandwidth bytes per second; H100 figures are its data sheet's, without sparsity."""
    h100 = device("H100-SXM5-80GB")
    assert h100.peak("bfloat16") == 989.5e12
    assert h100.peak("float32") == 67e12
    assert h100.peak("float32", tf32=True) == 494.5e12
    assert h100.peak("bfloat16", tf32=True) == 989.5e12
    assert h100.peak("float8_e4m3fn") == h100.peak("float8_e5m2") == 1979e12
    assert h100.bytes_per_s == 3350e9
    assert h100.memory_bytes == 80 * GIB


def test_tensor_rates_are_ordered():
    """Halving the width of a number at least keeps the rate: a sparse or mistyped peak would stand out."""
    for each in devices().values():
        order = [each.flops_per_s.get(d) for d in ("tf32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2")]
        known = [rate for rate in order if rate is not None]
        assert known == sorted(known), each.name


def test_tf32_where_there_is_none():
    """A device without TF32 multiplies float32 at its float32 rate."""
    assert device("V100-SXM2-32GB").peak("float32", tf32=True) == 15.7e12


def test_a_missing_dtype_is_an_error():
    """A dtype that the data sheet has no rate for is refused with those that it has."""
    with pytest.raises(DeviceError) as error:
        device("V100-SXM2-32GB").peak("bfloat16")
    assert str(error.value) == ("V100-SXM2-32GB has no peak rate for bfloat16; it has float64, float32, float16")
    with pytest.raises(DeviceError, match="Apple-M4 has no peak rate for float32; it has none"):
        device("Apple-M4").peak("float32")


def test_an_unknown_device_is_an_error():
    """An unknown name is refused with close matches and all known names; case does not matter."""
    assert device("h200-sxm-141gb") is device("H200-SXM-141GB")
    with pytest.raises(DeviceError) as error:
        device("H100-SXM5-81GB")
    assert isinstance(error.value, SymacctError)
    message = str(error.value)
    assert message.startswith("there is no device 'H100-SXM5-81GB' in the table; did you mean H100-SXM5-80GB or ")
    assert message.endswith(f"known are {', '.join(devices())}")
    with pytest.raises(DeviceError, match="there is no device 'abacus' in the table; known are V100"):
        device("abacus")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("h100", "H100-SXM5-80GB"),
        ("H100-SXM", "H100-SXM5-80GB"),
        ("h100 pcie", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("a100", "A100-SXM4-40GB"),
        ("a100-80gb", "A100-SXM4-80GB"),
        ("mi300x", "MI300X-192GB"),
        ("gb200", "GB200-per-GPU-186GB"),
        ("tpuv5p", "TPU-v5p"),
        ("rtx4090", "RTX-4090-24GB"),
        ("m1", "Apple-M1"),
        ("m1 max", "Apple-M1-Max"),
        ("a10", "A10-24GB"),
    ],
)
def test_a_part_of_a_name(part, expected):
    """A part that says which model is meant finds its first board in the table, and never another model."""
    assert device(part).name == expected


@pytest.mark.parametrize(
    ("part", "several"),
    [
        ("rtx", "RTX-3090-24GB, RTX-4090-24GB, RTX-5090-32GB"),
        ("80GB", "A100-SXM4-80GB, A100-PCIe-80GB, H100-SXM5-80GB, H100-PCIe-80GB"),
        ("max", "Apple-M1-Max, Apple-M2-Max, Apple-M3-Max, Apple-M4-Max"),
    ],
)
def test_a_part_of_several_models(part, several):
    """A part that several models have is refused with their names: they differ in what they can do."""
    with pytest.raises(DeviceError) as error:
        device(part)
    assert str(error.value) == f"{part!r} could be any of {several}; say which"


@pytest.mark.parametrize("part", ["", "nvidia", "h10", "l40", "x"])
def test_a_part_of_a_word_is_none(part):
    """Words count as wholes: an L40 is no L40S, and a maker's name alone is nothing."""
    with pytest.raises(DeviceError, match="there is no device"):
        device(part)


def test_every_name_finds_itself():
    """Whatever else a name is a part of, the device of that name comes first, and a device is its own name."""
    for name, each in devices().items():
        assert device(name) is device(name.upper()) is device(each) is each


def test_names_of_dtypes():
    """Peaks are asked for by torch's dtypes, by their names and by short ones; fp8 has two forms."""
    h100 = device("h100")
    for name in ("bf16", "bfloat16", "torch.bfloat16"):
        assert h100.peak(name) == 989.5e12
    assert h100.peak("f32", tf32=True) == h100.peak("tf32") == 494.5e12
    assert h100.peak("fp8") == 1979e12
    assert dtypes_of("fp8") == ("float8_e4m3fn", "float8_e5m2")
    assert dtypes_of("complex64") == dtypes_of("") == ()
    assert {dtype for name in PEAKED for dtype in dtypes_of(name)} >= set(h100.flops_per_s)
    with pytest.raises(DeviceError, match="H100-SXM5-80GB has no peak rate for complex64; it has float64, float32"):
        h100.peak("complex64")


def test_vector_rates():
    """Other arithmetic is nowhere faster than products in float32; AMD's matrix units outdo it, TPUs say nothing."""
    for each in devices().values():
        if each.vector_flops_per_s is not None:
            assert 0 < each.vector_flops_per_s <= each.peak("float32"), each.name
    assert device("MI250X-128GB").vector_flops_per_s == 47.9e12
    assert device("h100").vector_flops_per_s == 67e12
    assert device("TPU-v4").vector_flops_per_s is None


def test_interconnects():
    """Links are the total of both directions in bytes per second, and None where the maker gives none."""
    assert device("h100").interconnect_bytes_per_s == 900e9
    assert device("l4").interconnect_bytes_per_s == 64e9
    assert device("Apple-M1").interconnect_bytes_per_s is None


def test_devices_are_values():
    """A device can be a key, and is equal to one of the same figures."""
    assert len({device("h100"), device("H100-SXM5-80GB"), device("h200")}) == 2


# FLOP per byte at which memory and matrix units are equally busy, bfloat16 over bandwidth.
RIDGES = {
    "A100-SXM4-40GB": 200.6, "A100-SXM4-80GB": 153.0, "H100-SXM5-80GB": 295.4, "H100-PCIe-80GB": 378.3,
    "H200-SXM-141GB": 206.1, "B200-SXM-180GB": 292.2, "GB200-per-GPU-186GB": 312.5, "L4-24GB": 403.3,
    "L40S-48GB": 419.0, "A10G-24GB": 116.7, "RTX-3090-24GB": 75.9, "RTX-4090-24GB": 163.9, "RTX-5090-32GB": 116.9,
    "MI250X-128GB": 116.9, "MI300X-192GB": 246.7, "MI325X-256GB": 217.9, "TPU-v4": 229.2, "TPU-v5e": 240.5,
    "TPU-v5p": 166.0, "TPU-v6e": 560.4, "TPU-v7x": 312.6, "Trainium2": 230.0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "ridge"), RIDGES.items())
def test_ridge_points(name, ridge):
    """Peaks over bandwidth are the ridge points that the reference prints for each device, to their digit (N034)."""
    each = device(name)
    assert each.peak("bfloat16") / each.bytes_per_s == pytest.approx(ridge, abs=0.05 + 1e-9)


def test_n024_peaks():
    """N024: A100 312 TFLOP/s in 16 bits; H100 half of the 1979 with sparsity, 67 in float32, 3.35 TB/s, not 3."""
    a100, h100 = device("A100-SXM4-80GB"), device("H100-SXM5-80GB")
    assert a100.peak("bfloat16") == a100.peak("float16") == 312e12
    assert h100.peak("bfloat16") == 1979e12 / 2
    assert h100.peak("float32") == 67e12
    assert h100.bytes_per_s == 3.35e12


def test_e24_memory():
    """E24: 80 GB are sold as 80 GiB, 85.9e9 bytes, of which a driver shows 81,559 MiB, 85.5e9; none is 80e9."""
    assert device("h100").memory_bytes == 85_899_345_920
    assert 81_559 * MIB == 85_520_809_984


# Rates that are printed with sparsity in mind, twice what a dense product can reach (X15).
SPARSE = {
    "H100-SXM5-80GB": {"bf16": 1979, "fp8": 3958}, "H200-SXM-141GB": {"bf16": 1979, "fp8": 3958},
    "L4-24GB": {"bf16": 242, "fp8": 485}, "L40S-48GB": {"bf16": 733}, "B200-SXM-180GB": {"bf16": 4500, "fp8": 9000},
    "GB200-per-GPU-186GB": {"bf16": 5000, "fp8": 10000}, "MI300X-192GB": {"bf16": 2615, "fp8": 5230},
    "MI355X-288GB": {"bf16": 5000, "fp8": 10100}, "Trainium2": {"fp8": 2563}, "RTX-3090-24GB": {"bf16": 142},
    "RTX-4090-24GB": {"int8": 1321}, "RTX-5090-32GB": {"fp4": 3352},
}  # fmt: skip


@pytest.mark.parametrize(("name", "printed"), SPARSE.items())
def test_x15_peaks_are_dense(name, printed):
    """X15: no peak is one with 2:4 sparsity; each is about half of what the makers print with it."""
    for dtype, rate in printed.items():
        assert device(name).peak(dtype) <= 0.51 * rate * 1e12


def test_x07_x10_x11_slips_of_tables():
    """Not TPU v3 at 140 (X07), no FP8 on A100 (X10), and A10G is not A10 (X11)."""
    assert device("tpu v3").peak("bf16") == 123e12
    with pytest.raises(DeviceError, match="no peak rate for float8_e4m3fn"):
        device("a100").peak("fp8")
    assert (device("A10-24GB").peak("bf16"), device("A10G-24GB").peak("bf16")) == (125e12, 70e12)


COLUMNS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8_e4m3fn", "int8", "float4_e2m1fn_x2")
HEADINGS = ("device", "memory", "bandwidth", *PEAKED, "vector", "links")


def table():
    """The devices as docs/devices.md lists them, in GB, GB/s and TFLOP/s."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"| --- |{' --: |' * (len(HEADINGS) - 1)}"]
    for each in devices().values():
        rates = [each.flops_per_s.get(dtype) for dtype in COLUMNS]
        tera = [f"{rate / 1e12:g}" if rate else "" for rate in (*rates, each.vector_flops_per_s)]
        links = f"{each.interconnect_bytes_per_s / 1e9:g}" if each.interconnect_bytes_per_s else ""
        cells = (each.name, f"{each.memory_bytes // GIB}", f"{each.bytes_per_s / 1e9:g}", *tera, links)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_page_lists_every_device():
    """docs/devices.md has the table as it is."""
    page = (Path(__file__).parent.parent / "docs" / "devices.md").read_text(encoding="utf-8")
    assert page.partition("<!-- table -->\n")[2].partition("\n<!-- end -->")[0] == table()


# Names as torch.cuda.get_device_name() gives them, with memory as the driver shows it.
CALLED = [
    ("NVIDIA H200", 143771 * MIB, "H200-SXM-141GB"),
    ("NVIDIA A100-SXM4-80GB", 81920 * MIB, "A100-SXM4-80GB"),
    ("NVIDIA A100-SXM4-40GB", 40960 * MIB, "A100-SXM4-40GB"),
    ("A100-SXM4-40GB", 40536 * MIB, "A100-SXM4-40GB"),
    ("NVIDIA A100 80GB PCIe", 81920 * MIB, "A100-PCIe-80GB"),
    ("NVIDIA A100-PCIE-40GB", 40960 * MIB, "A100-PCIe-40GB"),
    ("NVIDIA H100 80GB HBM3", 81559 * MIB, "H100-SXM5-80GB"),
    ("NVIDIA H100 PCIe", 81559 * MIB, "H100-PCIe-80GB"),
    ("NVIDIA H100 NVL", 95830 * MIB, "H100-NVL-94GB"),
    ("NVIDIA GH200 480GB", 97871 * MIB, "GH200-96GB"),  # its name counts the memory of its CPU
    ("NVIDIA B200", 183359 * MIB, "B200-SXM-180GB"),
    ("NVIDIA GB200", 189471 * MIB, "GB200-per-GPU-186GB"),
    ("Tesla V100-SXM2-32GB", 32510 * MIB, "V100-SXM2-32GB"),
    ("Tesla V100-PCIE-32GB", 32510 * MIB, "V100-PCIe-32GB"),
    ("Tesla T4", 15109 * MIB, "T4-16GB"),
    ("NVIDIA A10G", 23028 * MIB, "A10G-24GB"),
    ("NVIDIA A10", 23028 * MIB, "A10-24GB"),
    ("NVIDIA L4", 23034 * MIB, "L4-24GB"),
    ("NVIDIA L40S", 46068 * MIB, "L40S-48GB"),
    ("NVIDIA GeForce RTX 3090", 24268 * MIB, "RTX-3090-24GB"),
    ("NVIDIA GeForce RTX 4090", 24217 * MIB, "RTX-4090-24GB"),
    ("NVIDIA GeForce RTX 5090", 32607 * MIB, "RTX-5090-32GB"),
    ("AMD Instinct MI300X", 196592 * MIB, "MI300X-192GB"),
]


@pytest.mark.parametrize(("name", "memory", "expected"), CALLED, ids=lambda v: v if isinstance(v, str) else "")
def test_find_a_device(name, memory, expected):
    """What a device calls itself, with its memory, leads to its row."""
    found = find(name, memory)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA A100", 81920 * MIB),  # SXM4 and PCIe have different memory
        ("Tesla V100-SXM2-16GB", 16160 * MIB),  # not in the table
        ("Tesla V100S-PCIE-32GB", 32510 * MIB),  # another clock
        ("NVIDIA H200 NVL", 143771 * MIB),  # another board
        ("NVIDIA GH200 480GB", 144 * GIB),  # with HBM3e
        ("NVIDIA GeForce RTX 3090 Ti", 24564 * MIB),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376 * MIB),
        ("NVIDIA GeForce RTX 4090 D", 24564 * MIB),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9856 * MIB),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", 81920 * MIB),  # a whole device, but who knows
        ("NVIDIA L40", 46068 * MIB),
        ("AMD Instinct MI250X", 64 * GIB),  # half of the row's device
        ("", 80 * GIB),
    ],
)
def test_find_nothing(name, memory):
    """A name that could be several devices, or none of them, finds none."""
    assert find(name, memory) is None


def test_hardware_needs_no_torch():
    """The table is read without importing torch or SymPy."""
    code = (
        "import sys, json, symacct.hardware as h; h.devices(); "
        "print(json.dumps([m for m in ('torch', 'sympy') if m in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []
