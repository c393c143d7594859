"""MFU and HFU: the share of a device's peak that a measured step reached, by a named convention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symacct.account import Account
from symacct.conventions.presets import Convention
from symacct.conventions.recounting import Recounted
from symacct.cost import Size
from symacct.device_file import device_or_file
from symacct.errors import MissingSizeError, QuestionError
from symacct.hardware import Device
from symacct.roofline.rooflines import roofline
from symacct.shown import Shown
from symacct.units import read, show


@dataclass(frozen=True)
class Utilization(Shown):
    """The FLOP of a step by a convention, over what so many devices could do in the measured time.

    ``float()`` is the fraction. ``peak``: FLOP/s of one device, dense, for ``dtype``.
    """

    name: str
    fraction: float
    flops: Size
    seconds: float
    device: Device
    devices: int
    dtype: str
    peak: float
    convention: str
    notes: tuple[str, ...] = ()

    @property
    def flops_per_s(self) -> float:
        """FLOP per second of all devices together."""
        return float(self.flops) / self.seconds

    def __float__(self) -> float:
        return self.fraction

    def __str__(self) -> str:
        of = f"{self.devices} {self.device.name}" if self.devices > 1 else self.device.name
        reached, peak = show(self.flops_per_s, "FLOP/s"), show(self.peak * self.devices, "FLOP/s")
        lines = [
            f"{self.name} {show(self.fraction, '%')} on {of}: {show(self.flops, 'FLOP')} in {show(self.seconds, 's')} "
            f"is {reached} of {peak} ({self.dtype}, dense)",
            f"convention: {self.convention}",
        ]
        return "\n".join([*lines, *self.notes])


def mfu(
    account: Account,
    seconds: float | str,
    device: str | Device,
    devices: int = 1,
    convention: str | Convention = "palm",
    *,
    dtype: str | None = None,
    tf32: bool = False,
    **sizes: int,
) -> Utilization:
    """Model FLOP utilization: FLOP of a step by a convention / (measured seconds * devices * dense matrix peak).

    ``seconds``: of one step ("0.16 s", "20 ms" or a number), on so many devices together. ``dtype``: whose peak;
    by default the one that most of the step's FLOP are in. ``sizes``: where the account has none. The
    convention "torch" takes a plain product as it is; see ``symacct conventions`` for the others.

    Raises `MissingSizeError` without sizes, `QuestionError` for a time or a number of devices that is not above 0 and
    where nothing is multiplied, `DeviceError` for a device or a dtype that the table does not have.
    """
    return _utilization("MFU", account, seconds, device, devices, convention, dtype, tf32, sizes)


def hfu(
    account: Account,
    seconds: float | str,
    device: str | Device,
    devices: int = 1,
    convention: str | Convention = "torch",
    *,
    dtype: str | None = None,
    tf32: bool = False,
    **sizes: int,
) -> Utilization:
    """Hardware FLOP utilization: as `mfu`, by a convention that counts what checkpoints computed again.

    The default counts every contraction that ran.
    """
    return _utilization("HFU", account, seconds, device, devices, convention, dtype, tf32, sizes)


def _utilization(
    name: str, account: Account, seconds: Any, device: Any, devices: int, convention: Any, dtype: Any, tf32: bool,
    sizes: dict[str, int],
) -> Utilization:  # fmt: skip
    elapsed = float(read(seconds, "second", "seconds"))
    if elapsed <= 0 or devices < 1:
        what = f"seconds={seconds!r}" if elapsed <= 0 else f"devices={devices!r}"
        raise QuestionError(f"{name}: {what} leaves nothing to divide by; both are above 0")
    account = account.at(**sizes) if sizes else account
    if account.sizes is None and account.dims:
        raise MissingSizeError(f"{name}: a measured time is of one size; give {', '.join(account.dims)}")
    account = account if account.sizes is not None else account.at()
    used = device_or_file(device)
    ran = roofline(account, used, tf32).total.flops_by_dtype if dtype is None else {dtype: 1}
    if not ran:
        raise QuestionError(f"{name}: nothing is multiplied, so that there is no peak to compare with")
    main = max(ran, key=lambda each: ran[each])
    peak = used.peak(main, tf32)
    counted = account.under(convention)
    flops = counted.total.flops
    notes = [f"of the step's FLOP {show(ran[main] / sum(ran.values()), '%')} are in {main}"] if len(ran) > 1 else []
    if tf32 and main == "float32":
        notes.append("float32 products at the peak of TF32")
    said = str(counted.counted) if isinstance(counted, Recounted) else counted.convention
    notes.append(f"source of the peak: {used.source}")
    fraction = float(flops) / (elapsed * devices * peak)
    return Utilization(name, fraction, flops, elapsed, used, devices, main, peak, said, tuple(notes))
