"""The other way round: what some time, or some money, on some devices is enough for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symacct.account import Account
from symacct.device_file import device_or_file
from symacct.errors import SpecError
from symacct.hardware import Device
from symacct.napkin.amounts import count, over, shown, table, times
from symacct.napkin.tokens import tokens_of
from symacct.napkin.training import HOUR
from symacct.shown import Shown
from symacct.units import read


@dataclass(frozen=True)
class Budget(Shown):
    """What devices can do in some time: ``flops``, and what that is enough for."""

    flops: Any
    device_hours: Any
    cost: Any
    notes: tuple[str, ...]

    def tokens(self, what: Account | Any = None, *, flops_per_token: Any = None, tokens_per_step: Any = None) -> Any:
        """Tokens that it trains: of an account, or of so many parameters at 6*N FLOP each."""
        if isinstance(what, Account):
            step = what.forward.flops + what.backward.flops
            flops_per_token = over(step, tokens_of(what, tokens_per_step))
        elif flops_per_token is None:
            flops_per_token = times(6, count(what, "params"))
        return over(self.flops, flops_per_token)

    def params(self, tokens: Any) -> Any:
        """Parameters that it trains on so many tokens, at 6 FLOP each."""
        return over(self.flops, times(6, count(tokens, "tokens", "tokens")))

    def __str__(self) -> str:
        rows = [("work", shown(self.flops, "FLOP")), ("device-hours", f"{float(self.device_hours):,.0f}")]
        rows += [] if self.cost is None else [("cost", shown(self.cost, "USD"))]
        return table("budget", rows, self.notes)


def budget(
    device: str | Device,
    *,
    devices: Any = 1,
    time: Any = None,
    device_hours: Any = None,
    cost: Any = None,
    price: Any = None,
    mfu: Any = 1,
    dtype: str = "bfloat16",
    tf32: bool = False,
) -> Budget:
    """What a time on some devices, so many device-hours, or money at a ``price`` per device-hour is enough for.

    ``mfu``: the share of the dense peak that is reached, 1 by default: nothing real does. Raises `SpecError` where not
    just one of time, device_hours and cost is given.
    """
    given = [
        name for name, value in (("time", time), ("device_hours", device_hours), ("cost", cost)) if value is not None
    ]
    if len(given) != 1:
        raise SpecError(
            f"budget(): give one of time, device_hours and cost, not {' and '.join(given) or 'none of them'}"
        )
    per_hour = None if price is None else read(price, "USD/hour", "price")
    if cost is not None and per_hour is None:
        raise SpecError("budget(): a sum of money wants a price per device-hour")
    if time is not None:
        hours = over(times(read(time, "second", "time"), devices), HOUR)
    elif device_hours is not None:
        hours = over(read(device_hours, "second", ""), HOUR) if isinstance(device_hours, str) else device_hours
    else:
        hours = over(read(cost, "USD", "cost"), per_hour)
    found = device_or_file(device)
    peak = found.peak(dtype, tf32)
    notes = [f"{found.name}: {shown(mfu, '%')} of its dense peak of {shown(peak, 'FLOP/second')} in {dtype}"]
    money = None if per_hour is None else times(hours, per_hour)
    return Budget(times(hours, HOUR, peak, mfu), hours, money, tuple(notes))
