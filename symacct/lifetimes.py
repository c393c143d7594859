"""When storages are born and when they die, as a step runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from symacct.calls import size_of
from symacct.cost import Size
from symacct.record import Record, Storage
from symacct.torch_private import storage_key


class Lifetimes:
    """Numbers storages by first appearance and notes their births and deaths in a record.

    Deaths are told by weak references: nothing here keeps a tensor alive, since autograd
    reuses what nobody else holds.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self._numbers: dict[int, int] = {}
        self._watched: dict[int, Any] = {}  # weak references to live storages
        self._replaced: list[int] = []

    def number(self, tensor: torch.Tensor, value: int, nbytes: Size | None = None) -> int:
        """The number of a tensor's storage; a new one has ``value`` for its first tensor."""
        key = storage_key(tensor)
        found = self._numbers.get(key)
        if found is None:
            storage = tensor.untyped_storage()
            if nbytes is None:
                nbytes = size_of(storage.nbytes())
            found = self._born(key, storage, Storage(nbytes, value))
        return found

    def resized(self, tensor: torch.Tensor) -> None:
        """After an op that may have given a tensor's storage another size: that is a new piece of memory."""
        key = storage_key(tensor)
        old = self._numbers.get(key)
        if old is None:
            return
        storage = tensor.untyped_storage()
        nbytes = size_of(storage.nbytes())
        if nbytes == self.record.storages[old].nbytes:
            return
        self._born(key, storage, Storage(nbytes, self.record.storages[old].value))
        self._watched.pop(old, None)
        self._replaced.append(old)

    def free_replaced(self) -> None:
        """After such an op: what was replaced dies. While the op ran both were there."""
        while self._replaced:
            self.record.events.append(~self._replaced.pop())

    def close(self) -> None:
        """Note nothing more, and put deaths at one moment in order: C++ frees some (casts of weights) in any."""
        self._watched.clear()
        events = self.record.events
        moments = {n.clock for n in (*self.record.nodes, *self.record.aside)} | {m.events for m in self.record.marks}
        begin = 0
        for i, event in enumerate([*events, 0]):
            if event >= 0 or i in moments:
                events[begin:i] = sorted(events[begin:i], reverse=True)
                begin = i if event < 0 else i + 1

    def _born(self, key: int, storage: torch.UntypedStorage, made: Storage) -> int:
        number = len(self.record.storages)
        self.record.storages.append(made)
        self.record.events.append(number)
        self._numbers[key] = number
        self._watched[number] = weakref.ref(storage, lambda _: self._died(key, number))
        return number

    def _died(self, key: int, number: int) -> None:
        if self._numbers.get(key) == number:
            del self._numbers[key]
        self._watched.pop(number, None)
        self.record.events.append(~number)
