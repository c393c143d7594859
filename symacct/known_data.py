"""The data of small tensors that come from plain numbers: step counters, schedules, masks."""

from __future__ import annotations

from typing import Any

import torch

from symacct.memo import Use
from symacct.record import Value
from symacct.torch_private import FakeTensor, is_symbolic
from symacct.trees import flatten
from symacct.values import Values

SMALL = 4096  # elements up to which a tensor made of plain numbers also keeps its data


class KnownData:
    """Keeps small data beside tensors that have none, as long as nobody writes to their storage unseen."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._writes: dict[int, int] = {}  # how often a storage was written with data that we do not know

    def of(self, tensor: Any, value: Value) -> Any:
        """The data of a small tensor, if it is known and nobody wrote to its storage since."""
        found = tensor.__dict__.get("_symacct_data")
        return found[0] if found is not None and found[1] == self._writes.get(value.storage, 0) else None

    def keep(self, tensor: Any, data: torch.Tensor) -> None:
        """Note a tensor's data."""
        value = self.values.of(tensor)
        tensor.__dict__["_symacct_data"] = (data, self._writes.get(value.storage, 0))

    def carry(self, use: Use, data: list[Any], result: Any) -> None:
        """Carry the data of small tensors that come from plain numbers: step counters, schedules, masks."""
        mutated = use.operator.mutated
        if None in data and not mutated:
            return
        written = use.written() if mutated else []
        if None not in data and use.operator.is_determined and _is_plain(flatten(result)[0] or written):
            real = use.with_data(data)
            for t, r in zip(flatten(result)[0], flatten(real)[0], strict=True):
                if isinstance(r, torch.Tensor):
                    self.keep(t, r)
        else:
            for t in written:
                storage = self.values.of(t).storage
                self._writes[storage] = self._writes.get(storage, 0) + 1


# -- helpers ---------------------------------------------------------------------------


def _is_plain(flat: list[Any]) -> bool:
    """Whether results are small, of known size, and on the CPU."""
    return bool(flat) and all(
        isinstance(t, FakeTensor) and t.fake_device.type == "cpu" and not is_symbolic(t) and t.numel() <= SMALL
        for t in flat
    )
