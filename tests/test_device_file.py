"""Devices of one's own: what a TOML file says, what is wrong with it, and that what is written reads the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symacct import device_file
from symacct.device_file import device_or_file, read_devices, to_toml, write_device
from symacct.errors import DeviceError, UnitError
from symacct.hardware import Device, device, devices

GOOD = {
    "memory": '"80 GB"',
    "bandwidth": '"3.35 TB/s"',
    "peak": '{ bf16 = "989 TFLOP/s", fp8 = "1979 TFLOP/s" }',
}


@pytest.fixture
def write(tmp_path):
    """Write a device of such keys, changed or (None) left out, and give the path."""

    def written(name="mine", **changed):
        lines = [f"{key} = {value}" for key, value in (GOOD | changed).items() if value is not None]
        path = tmp_path / "devices.toml"
        path.write_text("\n".join([f"[{name}]", *lines, ""]), encoding="utf-8")
        return str(path)

    return written


def test_a_device(write):
    """Amounts are bytes and rates per second, dtypes have torch's names, and what is not said is not known."""
    found = device_or_file(write())
    assert found.name == "mine"
    assert (found.memory_bytes, found.bytes_per_s) == (80 * 10**9, 3.35e12)
    assert found.flops_per_s == {"bfloat16": 989e12, "float8_e4m3fn": 1979e12, "float8_e5m2": 1979e12}
    assert (found.peak("bf16"), found.peak("fp8")) == (989e12, 1979e12)
    assert found.vector_flops_per_s is None
    assert found.interconnect_bytes_per_s is None
    assert found.source.endswith("devices.toml: mine")
    assert found.vendor == ""


def test_all_keys(write):
    """The optional keys are read too."""
    path = write(vector='"67 TFLOP/s"', interconnect='"900 GB/s"', vendor='"Us"', source='"our sheet"')
    found = device_or_file(path)
    assert (found.vector_flops_per_s, found.interconnect_bytes_per_s) == (67e12, 900e9)
    assert (found.vendor, found.source) == ("Us", "our sheet")


def test_the_example_of_the_docstring(tmp_path):
    """The file that the module shows is one."""
    path = tmp_path / "shown.toml"
    path.write_text(device_file.__doc__.partition("\n\n")[2], encoding="utf-8")
    (found,) = read_devices(path).values()
    assert (found.peak("bfloat16"), found.interconnect_bytes_per_s) == (989e12, 900e9)


def test_the_example_of_the_page(tmp_path):
    """So is the one in docs/devices.md."""
    page = (Path(__file__).parent.parent / "docs" / "devices.md").read_text(encoding="utf-8")
    path = tmp_path / "shown.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    assert device_or_file(str(path)).peak("bf16") == 989e12


def test_several_devices(tmp_path):
    """Of several devices one is said by its name; those of the table need no file."""
    path = tmp_path / "two.toml"
    path.write_text(to_toml(device("h100")) + to_toml(device("a100")), encoding="utf-8")
    assert device_or_file(f"{path}:A100-SXM4-40GB") == device("a100")
    assert list(read_devices(path)) == ["H100-SXM5-80GB", "A100-SXM4-40GB"]
    assert device_or_file("h200") is device("h200")
    assert device_or_file(device("h200")) is device("h200")
    with pytest.raises(DeviceError) as error:
        device_or_file(str(path))
    names = "it has H100-SXM5-80GB, A100-SXM4-40GB"
    assert str(error.value) == f"{path}: say which device, as in {path}:H100-SXM5-80GB; {names}"
    with pytest.raises(DeviceError) as error:
        device_or_file(f"{path}:h100")
    assert str(error.value) == f"{path}: there is no device 'h100' in it; {names}"


def test_a_name_that_is_no_file():
    """A name with ".toml" in its middle is a name."""
    with pytest.raises(DeviceError, match=r"there is no device 'my\.tomlx' in the table"):
        device_or_file("my.tomlx")


WRONG = [
    ({"memory": '"80 TFLOP/s"'}, UnitError, "mine, memory: '80 TFLOP/s' is a rate in FLOP/s; expected bytes, such as"),
    ({"bandwidth": '"3.35 TB"'}, UnitError, "mine, bandwidth: '3.35 TB' is bytes; expected a rate in bytes/s"),
    ({"peak": '{ bf16 = "989 TFLOP" }'}, UnitError, "mine, peak of bf16: '989 TFLOP' is FLOP; expected a rate in"),
    ({"memory": "80"}, UnitError, 'mine, memory: 80 has no unit; write it as text with one, such as "80 GB"'),
    ({"memory": '"80e9"'}, UnitError, "mine, memory: '80e9' has no unit"),
    ({"memory": None}, DeviceError, "mine: the key 'memory' is missing; a device has memory, bandwidth, peak, vector"),
    ({"color": '"red"'}, DeviceError, "mine: there is no key 'color'; a device has memory, bandwidth, peak, vector,"),
    ({"peak": '"989 TFLOP/s"'}, DeviceError, "mine: peak is a table of rates by dtype, such as { bfloat16 = "),
    ({"peak": '{ bf17 = "1 TFLOP/s" }'}, DeviceError, "mine, peak: 'bf17' is no dtype with peaks; they are fp64, fp32"),
    ({"memory": '"0 B"'}, DeviceError, "mine: all amounts are above 0"),
    ({"vector": '"0 FLOP/s"'}, DeviceError, "mine: all amounts are above 0"),
    ({"memory": '"-80 GB"'}, UnitError, "mine, memory: '-80 GB' is no amount of 0 or more"),
]


@pytest.mark.parametrize(("changed", "kind", "message"), WRONG, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_wrong_files(write, changed, kind, message):
    """What is wrong is said with the file, the device and the key."""
    path = write(**changed)
    with pytest.raises(kind) as error:
        device_or_file(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory = ", "is not TOML: "),
        ("", "has no device in it"),
        ('memory = "80 GB"', ": memory stands outside of a device; begin one with its name, [my-device], and"),
        ("\udcff", "is not TOML: "),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    """A file that is no table of devices is refused by what it is."""
    path = tmp_path / "none.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DeviceError) as error:
        device_or_file(str(path))
    assert str(error.value).removeprefix(str(path)).strip().startswith(message)


def test_a_file_that_is_not_there(tmp_path):
    """A missing file says so."""
    with pytest.raises(DeviceError, match=r"absent\.toml cannot be read: No such file or directory"):
        device_or_file(str(tmp_path / "absent.toml"))


@pytest.mark.parametrize("each", devices().values(), ids=devices())
def test_the_table_survives_a_file(each, tmp_path):
    """Every device of the table, written to a file, reads as the same device."""
    path = tmp_path / "one.toml"
    write_device(each, path)
    assert device_or_file(str(path)) == each


def test_what_is_written():
    """A written device is meant to be read and edited: rates with prefixes, memory in GiB."""
    assert to_toml(device("h100")).splitlines()[:7] == [
        '["H100-SXM5-80GB"]',
        'vendor = "NVIDIA"',
        'memory = "80 GiB"',
        'bandwidth = "3.35 TB/s"',
        'peak = { float64 = "67 TFLOP/s", float32 = "67 TFLOP/s", tf32 = "494.5 TFLOP/s", bfloat16 = "989.5 TFLOP/s", '
        'float16 = "989.5 TFLOP/s", float8_e4m3fn = "1979 TFLOP/s", float8_e5m2 = "1979 TFLOP/s", '
        'int8 = "1979 TFLOP/s" }',
        'vector = "67 TFLOP/s"',
        'interconnect = "900 GB/s"',
    ]


RATES = st.floats(1e-3, 1e20)
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)


@given(TEXT, TEXT, st.integers(1, 2**50), RATES, RATES, RATES, RATES)
def test_any_device_survives_a_file(tmp_path_factory, name, source, memory, rate, peak, vector, link):
    """So does any device at all, to the last bit, whatever it is called."""
    path = tmp_path_factory.mktemp("files") / "any.toml"
    each = Device(name, "Us", memory, rate, {"float32": peak}, source, vector, link)
    write_device(each, path)
    assert read_devices(path) == {name: each}


def test_a_file_that_cannot_be_written(tmp_path):
    """A path that cannot be written is refused."""
    with pytest.raises(Exception, match="nowhere"):
        write_device(device("h100"), tmp_path / "nowhere" / "at" / "all.toml")
