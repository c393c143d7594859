"""The table of devices, and finding a device by what it calls itself."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

import symacct
from symacct.errors import DeviceError, SymacctError
from symacct.hardware import device, devices, find

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
    assert str(error.value) == (
        "V100-SXM2-32GB has no peak rate for bfloat16 in the table; it has float64, float32, float16"
    )
    with pytest.raises(DeviceError, match="Apple-M4 has no peak rate for float32 in the table; it has none"):
        device("Apple-M4").peak("float32")


def test_an_unknown_device_is_an_error():
    """An unknown name is refused with close matches and all known names; case does not matter."""
    assert device("h200-sxm-141gb") is device("H200-SXM-141GB")
    with pytest.raises(DeviceError) as error:
        device("H100-SXM-80GB")
    assert isinstance(error.value, SymacctError)
    message = str(error.value)
    assert message.startswith("there is no device 'H100-SXM-80GB' in the table; did you mean H100-SXM5-80GB or ")
    assert message.endswith(f"known are {', '.join(devices())}")
    with pytest.raises(DeviceError, match="there is no device 'abacus' in the table; known are V100"):
        device("abacus")


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
