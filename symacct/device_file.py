"""Devices of one's own, in TOML: amounts with their units, and where they come from.

[my-accelerator]
memory = "80 GB"
bandwidth = "3.35 TB/s"
peak = { bf16 = "989 TFLOP/s", fp32 = "67 TFLOP/s" }  # dense; torch's names ("bfloat16") do as well
vector = "67 TFLOP/s"  # optional, and so are interconnect, vendor and source
interconnect = "900 GB/s"
source = "data sheet, page 3"
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symacct.errors import DeviceError, UnitError
from symacct.files import must_be_writable, replacing
from symacct.hardware import PEAKED, Device, device, dtypes_of
from symacct.units import read

_KEYS = ("memory", "bandwidth", "peak", "vector", "interconnect", "vendor", "source")
_FILE = re.compile(r"(?P<path>.*\.toml)(?::(?P<name>.*))?", re.DOTALL)


def device_or_file(name: str | Device) -> Device:
    """A device of the table by its name, or the one of a TOML file: "mine.toml", or "mine.toml:NAME" of several."""
    if isinstance(name, Device):
        return name
    match = _FILE.fullmatch(name)
    if match is None:
        return device(name)
    path, wanted = match["path"], match["name"]
    found = read_devices(path)
    if not wanted and len(found) == 1:
        return next(iter(found.values()))
    if wanted in found:
        return found[wanted]
    problem = (
        f"there is no device {wanted!r} in it" if wanted else f"say which device, as in {path}:{next(iter(found))}"
    )
    raise DeviceError(f"{path}: {problem}; it has {', '.join(found)}")


def read_devices(path: str | Path) -> dict[str, Device]:
    """The devices of a TOML file by name.

    Raises `DeviceError` for a file that cannot be read and for keys that are missing or unknown, and `UnitError` for
    amounts of something else.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DeviceError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"{path} is not TOML: {error}") from None
    if not tables:
        raise DeviceError(f"{path} has no device in it")
    return {name: _device(f"{path}: {name}", name, table) for name, table in tables.items()}


def write_device(device: Device, path: str | Path) -> None:
    """Write a device as such a file."""
    must_be_writable(path, "device")
    with replacing(path, "device") as file:
        file.write(to_toml(device).encode())


def to_toml(device: Device) -> str:
    """A device as such a table, which reads as the same device."""
    peaks = ", ".join(f'{dtype} = "{_rate(rate, "FLOP/s")}"' for dtype, rate in device.flops_per_s.items())
    gib, rest = divmod(device.memory_bytes, 2**30)
    lines = [
        f"[{json.dumps(device.name, ensure_ascii=False)}]",
        f"vendor = {json.dumps(device.vendor, ensure_ascii=False)}",
        f'memory = "{device.memory_bytes if rest else gib} {"B" if rest else "GiB"}"',
        f'bandwidth = "{_rate(device.bytes_per_s, "B/s")}"',
        f"peak = {{ {peaks} }}",
    ]
    if device.vector_flops_per_s:
        lines.append(f'vector = "{_rate(device.vector_flops_per_s, "FLOP/s")}"')
    if device.interconnect_bytes_per_s:
        lines.append(f'interconnect = "{_rate(device.interconnect_bytes_per_s, "B/s")}"')
    return "\n".join([*lines, f"source = {json.dumps(device.source, ensure_ascii=False)}", ""])


# -- helpers ---------------------------------------------------------------------------


def _device(where: str, name: str, table: Any) -> Device:
    if not isinstance(table, Mapping):
        raise DeviceError(f"{where} stands outside of a device; begin one with its name, [my-device], and put it below")
    unknown = [key for key in table if key not in _KEYS]
    missing = [key for key in _KEYS[:3] if key not in table]
    if unknown or missing:
        problem = f"there is no key {unknown[0]!r}" if unknown else f"the key {missing[0]!r} is missing"
        raise DeviceError(f"{where}: {problem}; a device has {', '.join(_KEYS)}")
    if not isinstance(table["peak"], Mapping):
        raise DeviceError(f'{where}: peak is a table of rates by dtype, such as {{ bfloat16 = "989 TFLOP/s" }}')

    def amount(key: str, unit: str) -> Any:
        return _amount(table[key], unit, f"{where}, {key}")

    def rate(key: str, unit: str) -> float | None:
        return float(amount(key, unit)) if key in table else None

    made = Device(
        name,
        str(table.get("vendor", "")),
        int(amount("memory", "byte")),
        float(amount("bandwidth", "byte/second")),
        _peaks(table["peak"], where),
        str(table.get("source", where)),
        rate("vector", "FLOP/second"),
        rate("interconnect", "byte/second"),
    )
    rates = (made.bytes_per_s, *made.flops_per_s.values(), made.vector_flops_per_s, made.interconnect_bytes_per_s)
    if min(made.memory_bytes, *(known for known in rates if known is not None)) <= 0:
        raise DeviceError(f"{where}: all amounts are above 0")
    return made


def _peaks(table: Mapping[str, Any], where: str) -> dict[str, float]:
    """Rates by torch's names of dtypes. A name that is nobody's dtype would be a peak that no one asks for."""
    peaks: dict[str, float] = {}
    for name, rate in table.items():
        dtypes = dtypes_of(name)
        if not dtypes:
            raise DeviceError(f"{where}, peak: {name!r} is no dtype with peaks; they are {', '.join(PEAKED)}")
        peaks |= dict.fromkeys(dtypes, float(_amount(rate, "FLOP/second", f"{where}, peak of {name}")))
    return peaks


def _amount(value: Any, unit: str, where: str) -> Any:
    """An amount, with its unit: 80 alone may be anything."""
    if not isinstance(value, str) or not value.strip()[-1:].isalpha():
        raise UnitError(f'{where}: {value!r} has no unit; write it as text with one, such as "80 GB" or "3.35 TB/s"')
    return read(value, unit, where)


def _rate(rate: float, unit: str) -> str:
    """A rate in the largest unit that it reaches, or as it is where that would not read as the same number."""
    base = {"FLOP/s": "FLOP/second", "B/s": "byte/second"}[unit]
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        text = f"{rate / size:.12g} {prefix}{unit}"
        if rate >= size and read(text, base) == rate:
            return text
    return f"{rate!r} {unit}"
