"""What each kernel reads and writes, operand by operand, so that sums over many kernels can count a tensor once.

The bytes of a node are those of its cost. Here they are split over the regions of memory that it touches. Where no
split gives just the bytes of the cost, that side of the node stays a sum of its own, and nothing is saved on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import sympy

from symacct.account import Account
from symacct.algebra import always
from symacct.calls import bind_arguments
from symacct.cost import Call, Cost, Size, TensorMeta, tensors
from symacct.record import Node, values_in

Places = tuple[int, ...]  # of tensors among a call's inputs, or among its results


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a storage, as large as a kernel reads or writes of it. ``layout``: which part; -1 where data choose."""

    storage: int
    layout: int
    nbytes: Size


@dataclass(frozen=True, slots=True)
class Access:
    """What one node reads and writes. ``rest`` is bytes of its cost that belong to no region.

    ``touched`` are all storages of its operands and results, ``changed`` those that it writes. ``split``: whether the
    regions make up all of the cost.
    """

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    rest: tuple[Size, ...]
    touched: frozenset[int]
    changed: frozenset[int]
    split: bool


@dataclass(frozen=True, slots=True)
class _Split:
    """How the bytes of a distinct call split over its inputs and results."""

    read: Places
    chosen: tuple[int, Size] | None  # an operand of which data choose what is read, and how many bytes
    written: tuple[tuple[bool, int], ...]  # (whether it is an input, its place)
    rest: tuple[Size, ...]
    whole: bool
    sizes: tuple[tuple[Size, ...], tuple[Size, ...]]  # bytes of the inputs and of the results


class Operands:
    """The accesses of an account's nodes; equal calls are split once."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._record = account.step.record
        self._splits: dict[int, _Split] = {}

    def of(self, node: Node) -> Access:
        """What a node reads and writes."""
        call = self._record.calls[node.call]
        split = self._splits.get(node.call)
        if split is None:
            split = self._splits[node.call] = _split(call, self._account._costs[node.call], self._account._exact)
        inputs = [v for v in bind_arguments(node.func, node.args, node.kwargs).values() for v in values_in(v)]
        outputs = list(values_in(node.outputs))
        in_place = not outputs
        if len(inputs) != len(call.inputs) or (outputs and len(outputs) != len(call.outputs)):
            cost = self._account._costs[node.call] or Cost()
            storages = frozenset(v.storage for v in (*inputs, *outputs))
            return Access((), (), (cost.bytes_read, cost.bytes_written), storages, storages, False)

        def region(is_input: bool, i: int) -> Region:
            value = (inputs if is_input else outputs)[i]
            return Region(value.storage, value.layout, split.sizes[not is_input][i])

        reads = [region(True, i) for i in split.read]
        if split.chosen is not None:
            reads.append(Region(inputs[split.chosen[0]].storage, -1, split.chosen[1]))
        writes = [region(is_input, i) for is_input, i in split.written]
        changed = {v.storage for v, name in zip(inputs, _names(call), strict=True) if name in call.mutated}
        if not in_place and not call.is_view:
            changed |= {v.storage for v in outputs}
        touched = frozenset(v.storage for v in (*inputs, *outputs))
        return Access(tuple(reads), tuple(writes), split.rest, touched, frozenset(changed), split.whole)


# -- splitting -------------------------------------------------------------------------


def _split(call: Call, cost: Cost | None, exact: Callable[[Size], Size]) -> _Split:
    sizes = tuple(exact(t.nbytes) for t in call.inputs), tuple(exact(t.nbytes) for t in call.outputs)
    if cost is None or (cost.bytes_read == 0 and cost.bytes_written == 0):
        return _Split((), None, (), (), True, sizes)
    rest: list[Size] = []
    chosen = None
    read = next((p for p in _read(call) if _same(_sum(sizes[0][i] for i in p), cost.bytes_read)), None)
    if read is None:
        read, chosen = _by_choice(call.inputs, sizes[0], cost.bytes_read)
        if chosen is None:
            rest.append(cost.bytes_read)
    written = next(
        (w for w in _written(call) if _same(_sum(sizes[not is_input][i] for is_input, i in w), cost.bytes_written)),
        None,
    )
    if written is None:
        rest.append(cost.bytes_written)
    return _Split(read, chosen, written or (), tuple(rest), not rest and chosen is None, sizes)


def _read(call: Call) -> Iterator[Places]:
    """What may be read: every operand, those that are not overwritten, nothing."""
    yield _distinct(call.inputs, range(len(call.inputs)))
    yield _distinct(call.inputs, (i for i, name in enumerate(_names(call)) if name not in call.mutated))
    yield ()


def _written(call: Call) -> Iterator[tuple[tuple[bool, int], ...]]:
    """What may be written: every result, what changes in place, all of that but one argument, nothing."""
    if not call.mutated or any(t not in call.written for t in call.outputs):
        yield tuple((False, i) for i in _distinct(call.outputs, range(len(call.outputs))))
    for left_out in ("", *call.mutated):
        places = (i for i, name in enumerate(_names(call)) if name in call.mutated and name != left_out)
        yield tuple((True, i) for i in _distinct(call.inputs, places))
    yield ()


def _by_choice(
    inputs: tuple[TensorMeta, ...], sizes: tuple[Size, ...], nbytes: Size
) -> tuple[Places, tuple[int, Size] | None]:
    """All operands but one in full, and of that one what is left, as of a table of which data choose the rows."""
    for i, meta in enumerate(inputs):
        others = _distinct(inputs, (k for k, other in enumerate(inputs) if other != meta))
        left = sympy.expand(sympy.sympify(nbytes) - _sum(sizes[k] for k in others))
        if always(">", left, sympy.Integer(0)):
            return others, (i, left)
    return (), None


def _distinct(metas: tuple[TensorMeta, ...], places: Iterable[int]) -> Places:
    """The first place of each of the distinct regions."""
    first: dict[TensorMeta, int] = {}
    for i in places:
        first.setdefault(metas[i], i)
    return tuple(first.values())


def _sum(sizes: Iterable[Size]) -> Size:
    total: Size = 0
    for size in sizes:
        total = total + size
    return total


def _same(a: Size, b: Size) -> bool:
    if a == b:
        return True
    if not isinstance(a, sympy.Basic) and not isinstance(b, sympy.Basic):
        return False
    return bool(sympy.expand(sympy.sympify(a) - b) == 0)


def _names(call: Call) -> list[str]:
    """The argument that each of a call's inputs stands in."""
    return [name for name, value in call.args.items() for _ in tensors(value)]
