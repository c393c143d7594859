"""The foot of a report: what is counted, where the formulas hold, what was checked, what peaks were used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symacct.account import Account
from symacct.hardware import Device
from symacct.memory_report import CONVENTION as MEMORY
from symacct.report import footer
from symacct.units import show

NOT_COUNTED = (
    "not counted: communication between devices, the host's own work, reading data, and whatever kernels and libraries "
    "do beside the operators that are listed"
)


def foot_lines(
    accounts: Mapping[str, Account], device: Device | None = None, more: Iterable[str] = ()
) -> tuple[str, ...]:
    """The lines of a foot, those that several accounts have in common once, the others with the account's name.

    ``more`` is what answers to questions rest on; what the accounts and the device say already is left out of it.
    """
    by_name = {name: (*footer(account), MEMORY[account.allocator]) for name, account in accounts.items()}
    lines = list(_merged(by_name)) if by_name else []
    if accounts:
        lines.append(NOT_COUNTED)
    if device is not None:
        lines.append(device_line(device))
    said = " ".join(lines)
    told = (*(account.convention for account in accounts.values()), *((device.source,) if device else ()))
    new = (
        line
        for line in more
        if line.removeprefix("holds when: ") not in said and not any(each and each in line for each in told)
    )
    return tuple(dict.fromkeys([*lines, *new]))


def _merged(by_name: Mapping[str, Sequence[str]]) -> Iterable[str]:
    everybody = [line for line in next(iter(by_name.values())) if all(line in lines for lines in by_name.values())]
    for name, lines in by_name.items():
        yield from (f"{name}: {line}" for line in lines if line not in everybody)
    yield from everybody


def device_line(device: Device) -> str:
    """What a device can do, and who says so."""
    peaks = ", ".join(f"{dtype} {show(rate, 'FLOP/s')}" for dtype, rate in device.flops_per_s.items())
    more = [f"{show(device.memory_bytes, 'B', binary=True)} of memory at {show(device.bytes_per_s, 'B/s')}"]
    if device.vector_flops_per_s:
        more.append(f"other arithmetic at {show(device.vector_flops_per_s, 'FLOP/s')}")
    return (
        f"{device.name}: dense peaks of matrix products (never those with sparsity): {peaks}; {'; '.join(more)}; "
        f"source: {device.source}"
    )
