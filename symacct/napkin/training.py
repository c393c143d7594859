"""Training: how much work, how long, on how many devices, at what cost, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sympy

from symacct.account import Account
from symacct.conventions.presets import Convention
from symacct.device_file import device_or_file
from symacct.errors import SpecError
from symacct.hardware import Device
from symacct.napkin.amounts import count, over, shown, table, times
from symacct.napkin.tokens import tokens_of
from symacct.shown import Shown
from symacct.units import read

HOUR, DAY, YEAR = 3600, 86400, 31557600  # seconds; a year of 365.25 days

# Work of trainings that people compare with, in FLOP.
MARKERS: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "GPT-3": (3.14e23, "Brown et al. 2020, Table D.1"),
        "EU AI Act, systemic risk": (1e25, "Regulation (EU) 2024/1689, article 51"),
        "GPT-4": (2e25, "an estimate by others; nothing was published"),
        "US executive order 14110": (1e26, "section 4.2(b), revoked in January 2025"),
    }
)


@dataclass(frozen=True)
class Training(Shown):
    """A training: its work, and how long it takes. Numbers in base units, or expressions; None where nothing tells.

    ``flops``: model FLOP. ``rate``: model FLOP per second of one device. ``mfu``: that rate over the device's dense
    peak, ``hfu`` the same with what is recomputed. ``device_seconds``: of all devices together.
    """

    flops: Any
    tokens: Any
    devices: Any
    device: str
    device_seconds: Any
    rate: Any
    mfu: Any
    hfu: Any
    cost: Any
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Any:
        """How long it takes."""
        return over(self.device_seconds, self.devices)

    @property
    def days(self) -> Any:
        """The same in days."""
        return over(self.seconds, DAY)

    @property
    def years(self) -> Any:
        """The same in years of 365.25 days."""
        return over(self.seconds, YEAR)

    @property
    def device_hours(self) -> Any:
        """Hours of all devices together."""
        return over(self.device_seconds, HOUR)

    @property
    def tokens_per_s(self) -> Any:
        """Tokens per second of all devices together; None where there are no tokens."""
        return None if self.tokens is None else over(self.tokens, self.seconds)

    @property
    def pf_days(self) -> Any:
        """The work in days of 1e15 FLOP/s."""
        return over(self.flops, 10**15 * DAY)

    def compared(self) -> dict[str, float]:
        """The work over that of `MARKERS`."""
        return {name: float(self.flops) / flops for name, (flops, _) in MARKERS.items()}

    def __str__(self) -> str:
        parts = (
            ("work", self.flops, "FLOP"), ("tokens", self.tokens, "token"), ("time", self.seconds, "second"),
            ("a device's rate", self.rate, "FLOP/second"), ("MFU", self.mfu, "%"), ("HFU", self.hfu, "%"),
            ("tokens in a second", self.tokens_per_s, "token/second"), ("cost", self.cost, "USD"),
        )  # fmt: skip
        rows = [(name, shown(value, unit)) for name, value, unit in parts if value is not None]
        hours = self.device_hours
        rows.append(("device-hours", shown(hours) if isinstance(hours, sympy.Basic) else f"{float(hours):,.0f}"))
        on = f" on {shown(self.devices)} {self.device or 'devices'}"
        return table(f"training{on}", rows, self.notes)


def training(
    what: Account | Any = None,
    /,
    *,
    tokens: Any = None,
    steps: Any = None,
    flops: Any = None,
    flops_per_token: Any = None,
    tokens_per_step: Any = None,
    convention: str | Convention | None = None,
    device: str | Device | None = None,
    devices: Any = 1,
    dtype: str = "bfloat16",
    tf32: bool = False,
    mfu: Any = None,
    hfu: Any = None,
    rate: Any = None,
    tokens_per_s: Any = None,
    time: Any = None,
    device_hours: Any = None,
    price: Any = None,
) -> Training:
    """How long a training takes and what it costs; or, from how long it took, how well it used its devices.

    The work: ``flops`` ("3.14e23 FLOP"); or ``tokens`` ("15T tokens") times ``flops_per_token``, which is 6*N for a
    number of parameters (``what``, "70B"), and for an account the work of its step over ``tokens_per_step`` ("B*L"; by
    default what the trace tells). ``steps`` may stand for tokens; an account with neither is one step. The work of a
    step is forward and backward, without what is recomputed and without the optimizer; or what a ``convention`` counts.

    The speed, by one of these: ``mfu`` or ``hfu`` of the dense peak of ``device`` in ``dtype`` (HFU counts what is
    recomputed too), the ``rate`` ("400 TFLOP/s") or ``tokens_per_s`` of one device, the ``time`` of the whole, or all
    ``device_hours``. With a device the others are told. ``price``: of a device-hour ("$2/h").

    Raises `SpecError` where there is too little or too much to tell, `UnitError`, `DeviceError`.
    """
    notes: list[str] = []
    work, done, again = _work(what, tokens, steps, flops, flops_per_token, tokens_per_step, convention, notes)
    speeds = {
        "mfu": mfu, "hfu": hfu, "rate": rate, "tokens_per_s": tokens_per_s, "time": time, "device_hours": device_hours
    }  # fmt: skip
    given = [name for name, value in speeds.items() if value is not None]
    if len(given) != 1:
        raise SpecError(
            f"training(): say how fast it is by one of {', '.join(speeds)}"
            + (f", not by {', '.join(given)}" if given else "")
        )
    peak, name = None, ""
    if device is not None:
        found = device_or_file(device)
        peak, name = found.peak(dtype, tf32), found.name
        notes.append(f"{name}: dense peak of {shown(peak, 'FLOP/second')} in {'tf32' if tf32 else dtype}")
    if given[0] in ("mfu", "hfu") and peak is None:
        raise SpecError(f"training(): {given[0]} is a share of a device's peak; give device=")
    if tokens_per_s is not None and done is None:
        raise SpecError("training(): tokens_per_s wants tokens")
    device_seconds = _device_seconds(given[0], speeds[given[0]], work, again, done, peak, devices)
    speed = over(work, device_seconds)
    notes += ["MFU counts model FLOP: nothing that is recomputed"] if peak is not None else []
    cost = None
    if price is not None:
        cost = times(over(device_seconds, HOUR), read(price, "USD/hour", "price"))
    return Training(
        work, done, devices, name, device_seconds, speed, None if peak is None else over(speed, peak),
        None if peak is None or again == 0 else over(times(speed, over(work + again, work)), peak), cost, tuple(notes),
    )  # fmt: skip


def _device_seconds(given: str, value: Any, work: Any, again: Any, tokens: Any, peak: Any, devices: Any) -> Any:
    """Seconds of all devices together, from what is known of the speed."""
    if given == "mfu":
        return over(work, times(value, peak))
    if given == "hfu":
        return over(work + again, times(value, peak))
    if given == "rate":
        return over(work, read(value, "FLOP/second", "rate"))
    if given == "tokens_per_s":
        return over(tokens, read(value, "token/second", "tokens_per_s"))
    if given == "time":
        return times(read(value, "second", "time"), devices)
    if isinstance(value, str):
        return read(value, "second", "device_hours")
    return times(value, HOUR)


def _work(
    what: Any,
    tokens: Any,
    steps: Any,
    flops: Any,
    flops_per_token: Any,
    tokens_per_step: Any,
    convention: str | Convention | None,
    notes: list[str],
) -> tuple[Any, Any, Any]:
    """Model FLOP, tokens (None: not known), and FLOP that are recomputed beside them."""
    total = count(tokens, "tokens", "tokens")
    if isinstance(what, Account):
        if flops is not None or flops_per_token is not None:
            raise SpecError("training(): the work is that of the account; leave flops and flops_per_token out")
        return _traced(what, total, steps, tokens_per_step, convention, notes)
    if convention is not None:
        raise SpecError("training(): a convention counts an account, and there is none")
    if total is None and steps is not None and tokens_per_step is not None:
        total = times(count(tokens_per_step, "tokens_per_step", "tokens"), steps)
    if flops is not None:
        if what is not None or flops_per_token is not None:
            raise SpecError("training(): flops is the work already; leave parameters and flops_per_token out")
        return read(flops, "FLOP", "flops"), total, 0
    if total is None:
        raise SpecError('training(): say how many tokens, such as tokens="15T"')
    if flops_per_token is not None:
        notes.append("the work is what was given per token")
        return times(flops_per_token, total), total, 0
    if what is None:
        raise SpecError("training(): say what is trained: an account, how many parameters, or flops")
    notes.append(
        "the work is 6*N*D: 2 FLOP per parameter and token forward, 4 backward; attention's products are not in it"
    )
    return times(6, count(what, "params"), total), total, 0


def _traced(
    account: Account,
    tokens: Any,
    steps: Any,
    tokens_per_step: Any,
    convention: str | Convention | None,
    notes: list[str],
) -> tuple[Any, Any, Any]:
    if tokens is not None and steps is not None:
        raise SpecError("training(): give tokens or steps, not both")
    if convention is None:
        work, again = account.forward.flops + account.backward.flops, account.recompute.flops
        notes.append("the work is forward and backward as traced: products, 2 FLOP per multiply-add; no optimizer")
    else:
        counted = account.under(convention)
        work, again = counted.total.flops, 0
        notes.append(counted.convention)
    each = tokens_of(account, tokens_per_step, needed=tokens is not None)
    if tokens is not None:
        number = over(tokens, each)
    else:
        number = 1 if steps is None else steps
        tokens = None if each is None else times(each, number)
    notes.append(f"{shown(each, 'token')} in a step" if each is not None else "a step's tokens are not known")
    return times(work, number), tokens, times(again, number)
