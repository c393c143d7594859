"""What devices can do, by their data sheets: dense peak rates, memory and its bandwidth.

The table is ``hardware.csv`` beside this file: peaks in TFLOP/s without sparsity, bandwidth in
GB/s (1e9 bytes), memory in GB as it is sold, and where each row comes from. Rates here are FLOP/s
and bytes per second. ``vector`` is the float32 rate beside the matrix units, where the maker says it.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from symacct.errors import DeviceError
from symacct.shown import Shown

# Columns of the table, and the torch dtypes that each is the rate of; TF32 is a way to multiply float32.
_DTYPES = {
    "fp64": ("float64",), "fp32": ("float32",), "tf32": ("tf32",), "bf16": ("bfloat16",), "fp16": ("float16",),
    "fp8": ("float8_e4m3fn", "float8_e5m2"), "int8": ("int8",), "fp4": ("float4_e2m1fn_x2",),
}  # fmt: skip
PEAKED = tuple(_DTYPES)  # the short names of all dtypes that have peaks
_SHORT = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "i8": "int8"}  # as torch.fx prints them
# Memory that is sold as 80 GB is 80 * 2**30 bytes of chips, of which drivers keep some: an A10G shows 22.5 of its 24.
_GB = 2**30
_KEPT = 0.1


@dataclass(frozen=True)
class Device(Shown):
    """A device by its data sheet, or as it was measured.

    ``flops_per_s``: dense peaks of matrix products by dtype name ("float32", "tf32", "bfloat16", ...).
    ``vector_flops_per_s``: of all other arithmetic, in float32. ``interconnect_bytes_per_s``: to other devices, both
    directions together, as makers print it. None: not known.
    """

    name: str
    vendor: str
    memory_bytes: int
    bytes_per_s: float
    flops_per_s: Mapping[str, float] = field(hash=False)
    source: str
    vector_flops_per_s: float | None = None
    interconnect_bytes_per_s: float | None = None

    def peak(self, dtype: str, tf32: bool = False) -> float:
        """The dense peak, in FLOP/s, of matrix products in a dtype; ``tf32``: float32 products may use TF32.

        ``dtype``: torch's, by its name or a short one ("bf16"). Raises `DeviceError` when the data sheet gives none.
        """
        dtype, *_ = dtypes_of(str(dtype)) or (str(dtype),)
        if tf32 and dtype == "float32" and "tf32" in self.flops_per_s:
            return self.flops_per_s["tf32"]
        if dtype not in self.flops_per_s:
            known = ", ".join(self.flops_per_s) or "none"
            raise DeviceError(f"{self.name} has no peak rate for {dtype}; it has {known}")
        return self.flops_per_s[dtype]


def dtypes_of(name: str) -> tuple[str, ...]:
    """The dtypes, by torch's names, that a name stands for: one, or both of "fp8"; none where it is no such dtype."""
    name = _SHORT.get(name.removeprefix("torch."), name.removeprefix("torch."))
    return _DTYPES.get(name, (name,) if name in {dtype for each in _DTYPES.values() for dtype in each} else ())


@cache
def devices() -> Mapping[str, Device]:
    """All devices of the table, by name, in its order."""
    text = files("symacct").joinpath("hardware.csv").read_text(encoding="utf-8")
    return MappingProxyType({row["name"]: _device(row) for row in csv.DictReader(text.splitlines())})


def device(name: str | Device) -> Device:
    """The device of that name, upper and lower case being the same; a `Device` is given back.

    A part of a name will do where it says which model it is: "h100" is the first of its boards in the table,
    "h100 pcie" another. Raises `DeviceError` for an unknown one, with close matches and all known names, and for a
    part that several models have.
    """
    if isinstance(name, Device):
        return name
    by_lower = {known.lower(): found for known, found in devices().items()}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    meant = _meant(name)
    models = [_read(each.name)[0] for each in meant]
    least = min(models, key=len, default=frozenset())
    if meant and all(least <= model for model in models):  # "m1" is Apple-M1 rather than Apple-M1-Max
        return meant[models.index(least)]
    if meant:
        raise DeviceError(f"{name!r} could be any of {', '.join(each.name for each in meant)}; say which")
    close = [by_lower[match].name for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise DeviceError(f"there is no device {name!r} in the table; {hint}known are {', '.join(devices())}")


def find(marketing_name: str, memory_bytes: int) -> Device | None:
    """The device that calls itself so ("NVIDIA H100 80GB HBM3"), with so much memory; None unless it is certain which.

    Every word of the name has to be accounted for, since "Ti", "Laptop" or a partition of a device is another
    device. Memory tells variants of the same name apart.
    """
    words, form = _read(marketing_name)
    found = []
    for each in devices().values():
        its_words, its_form = _read(each.name)
        fits = (1 - _KEPT) * each.memory_bytes <= memory_bytes <= each.memory_bytes
        if fits and words == its_words and form in (None, its_form):
            found.append(each)
    return found[0] if len(found) == 1 else None


# -- helpers -----------------------------------------------------------------------


def _device(row: Mapping[str, str]) -> Device:
    peaks = {dtype: 1e12 * float(row[c]) for c, dtypes in _DTYPES.items() if row[c] for dtype in dtypes}
    return Device(
        row["name"],
        row["vendor"],
        round(float(row["memory_gb"]) * _GB),
        1e9 * float(row["mem_bw_gbps"]),
        MappingProxyType(peaks),
        row["source"],
        1e12 * float(row["vector"]) if row["vector"] else None,
        1e9 * float(row["interconnect_gbps"]) if row["interconnect_gbps"] else None,
    )


def _meant(name: str) -> list[Device]:
    """The devices whose names have every word of a part; makers' names say nothing, and "sxm" is any of its forms."""
    wanted = set(_words(name)) - _MAKERS
    found = []
    for each in devices().values():
        its = set(_words(each.name))
        its |= {form[1] for word in its if (form := _FORM.fullmatch(word))} | {"".join(_words(each.name)[:2])}
        if wanted and wanted <= its:
            found.append(each)
    return found


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


_MAKERS = {"nvidia", "amd", "tesla", "geforce", "instinct", "per", "gpu"}
_MEMORY = re.compile(r"\d+gb|hbm\d\w?")
_FORM = re.compile(r"(sxm|pcie|nvl)\d?")


def _read(name: str) -> tuple[frozenset[str], str | None]:
    """The words of a name that say which model it is, and the form of its board if it says so."""
    words = _words(name)
    forms = [match[1] for word in words if (match := _FORM.fullmatch(word))]
    if not forms and "h100" in words and "hbm3" in words:
        forms = ["sxm"]  # H100 boards of that form are named by their memory; the PCIe ones have HBM2e
    kept = {w for w in words if w not in _MAKERS and not _MEMORY.fullmatch(w) and not _FORM.fullmatch(w)}
    return frozenset(kept), forms[0] if forms else None
