"""The least time of each node on a device."""

from __future__ import annotations

from symacct.account import Account
from symacct.cost import Size
from symacct.device_file import device_or_file
from symacct.hardware import Device
from symacct.roofline.bounds import Ceilings
from symacct.roofline.kernels import Use, as_traced, of_call


def node_seconds(account: Account, device: str | Device) -> list[Size]:
    """The least seconds of each node in graph order, as ``account.roofline(device)`` has them at the level "eager".

    They add up to the total of that roofline. Numbers where the account has sizes, else formulas. What a convention
    counts and no node did takes no time. Raises `DeviceError` as `Account.roofline` does.
    """
    traced = as_traced(account)
    ceilings = Ceilings(device_or_file(device), tf32=False, sizes=traced.sizes)
    known: dict[int, Size] = {}
    found: list[Size] = []
    for node in traced.step.record.nodes:
        if node.call not in known:
            one = of_call(traced, node.call)
            uses = [Use(node.phase, node.path, node.op, one)] if one is not None else []
            known[node.call] = ceilings.bound(node.op, uses).seconds
        found.append(known[node.call])
    return found + [0] * (len(account.step.record.nodes) - len(found))
