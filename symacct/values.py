"""The tensors of a step, numbered: what they look like, where they are stored, since when and how long."""

from __future__ import annotations

import torch

from symacct.calls import size_of
from symacct.cost import Size
from symacct.lifetimes import Lifetimes
from symacct.record import Record, Value


class Values:
    """Knows tensors by an attribute that they carry, so that it keeps none alive."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.lifetimes = Lifetimes(record)
        self._layouts: dict[tuple[object, ...], int] = {}
        self._token = object()

    def of(self, tensor: torch.Tensor, origin: str = "", name: str = "") -> Value:
        """The graph's value for a tensor; tensors are known by an attribute that they carry."""
        known = tensor.__dict__.get("_symacct")
        if known is not None and known[0] is self._token:
            value: Value = known[1]
            if origin:
                value.origin, value.name = origin, name
                self.record.storages[value.storage].outside = True
            return value
        return self.new(tensor, self.layout(tensor), origin or "constant", name)

    def new(
        self, tensor: torch.Tensor, layout: int, origin: str = "", name: str = "", nbytes: Size | None = None
    ) -> Value:
        """A value for a tensor that has none; ``nbytes`` is its storage's size, where that is known."""
        number, born = len(self.record.values), len(self.record.storages)
        value = Value(number, layout, self.lifetimes.number(tensor, number, nbytes), origin, name)
        self.record.values.append(value)
        for storage in self.record.storages[born:]:
            storage.outside = bool(origin)
        tensor.__dict__["_symacct"] = (self._token, value)
        return value

    def layout(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's (shape, stride, offset, dtype, device)."""
        layout = (
            tuple(size_of(n) for n in tensor.size()),
            tuple(size_of(n) for n in tensor.stride()),
            size_of(tensor.storage_offset()),
            tensor.dtype,
            tensor.device,
        )
        found = self._layouts.get(layout)
        if found is None:
            found = self._layouts[layout] = len(self.record.layouts)
            self.record.layouts.append(layout)
        return found

    def moved(self, tensor: torch.Tensor) -> None:
        """After an op that gave a tensor another shape, or its storage another size: it is a new value."""
        self.lifetimes.resized(tensor)
        tensor.__dict__.pop("_symacct", None)
