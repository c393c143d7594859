"""Cuts: the tensors that go from one part of a step to the rest of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from symacct.account import Account
from symacct.algebra import total_of
from symacct.cost import Size, TensorMeta
from symacct.dataflow.flows import Flow, flows
from symacct.dataflow.networks import laid_out, meta_of, shape_text
from symacct.errors import SpecError
from symacct.parts import NodeCost
from symacct.printing import formula, quantity, text
from symacct.record import PHASES, Record
from symacct.repeats import Repeats
from symacct.report import WIDTH, Column, Section, as_renderables, as_text, header
from symacct.shown import Shown

_TOP = 20  # tensors that a page shows
_READERS = 2  # places of readers that a row shows


@dataclass(frozen=True)
class CrossingTensor:
    """A tensor that goes over a cut: who made it (or wrote it last), and who reads it on the other side.

    ``nbytes``: of its storage, also where only a part of it is read. A number in an account at sizes, of which
    ``formula`` is the formula.
    """

    maker: NodeCost
    readers: tuple[NodeCost, ...]
    meta: TensorMeta = field(repr=False)
    nbytes: Size
    formula: Size = field(repr=False)
    storage: int = field(repr=False)

    @property
    def name(self) -> str:
        """Where it was made, and by which operator."""
        return f"{self.maker.path or '(top level)'}: {self.maker.op.removesuffix('.default').removeprefix('aten.')}"

    @property
    def shape(self) -> str:
        """Dtype and shape: "f32[B, L, D]"."""
        return shape_text(self.meta)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.shape}, {formula(self.nbytes)} bytes>"


@dataclass(frozen=True)
class Crossing(Shown):
    """The tensors that go over a cut, largest first. ``nbytes`` is that of their distinct storages, ``formula`` its
    formula.

    ``str()`` is a table; iterating gives each `CrossingTensor`.
    """

    account: Account = field(repr=False)
    first: str
    tensors: tuple[CrossingTensor, ...]
    nbytes: Size
    formula: Size = field(repr=False)

    def __iter__(self) -> Iterator[CrossingTensor]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def heading(self) -> list[str]:
        """Which cut it is, and how much goes over it."""
        first, *rest = header(self.account)
        amount = f"{formula(self.formula)} bytes"
        if self.account.sizes is not None:
            amount += f" = {quantity(self.nbytes, 'B')}"
        count = f"{len(self)} tensor{'' if len(self) == 1 else 's'}"
        return [f"{first}: from {self.first} to the rest", *rest, f"{count}, {amount}"]

    def sections(self, top: int = _TOP) -> Iterator[Section]:
        """The largest tensors, with who reads them. Those that equal modules in a row make are one row."""
        columns = [Column("made in", "name"), Column("phase", "word"), Column("tensor", "text")]
        columns += [Column("bytes", "formula"), Column("read in", "text")]
        numbers = self.account.sizes is not None
        if numbers:
            columns.insert(4, Column("value", "value"))
        rows = []
        groups = sorted(self._alike(), key=lambda group: -len(group[1]) * self._rank(group[1][0]))
        for name, (first, *others), readers in groups[:top]:
            times = 1 + len(others)
            value = (quantity(times * first.nbytes, "B"),) if numbers else ()
            shape = f"{times} x {first.shape}" if others else first.shape
            rows.append((name, first.maker.phase, shape, formula(times * first.formula), *value, readers))
        rest = sum(len(tensors) for _, tensors, _ in groups[top:])
        yield Section(
            "largest first", tuple(columns), tuple(rows), titled=True, notes=(f"and {rest} more",) * (rest > 0)
        )

    def _rank(self, tensor: CrossingTensor) -> int:
        number: int = self.account.laid_out.memory.storages.trial_numbers[tensor.storage]
        return number

    def _alike(self) -> Iterator[tuple[str, list[CrossingTensor], str]]:
        """Tensors that differ in nothing but which of equal modules in a row made them: name, tensors, readers."""
        repeats = self.account.laid_out.symbolic._repeats
        groups: dict[tuple[str, ...], list[CrossingTensor]] = {}
        for each in self.tensors:
            key = (_made(each, repeats), each.maker.phase, each.shape, text(each.formula), _places(each, repeats))
            groups.setdefault(key, []).append(each)
        for (name, _, _, _, readers), tensors in groups.items():
            times = repeats.of(tensors[0].maker.path)[1]
            if times > 1 and len(tensors) % times == 0:
                yield name, tensors, readers
            else:
                yield from ((each.name, [each], _places(each)) for each in tensors)

    def notes(self) -> list[str]:
        """What is counted."""
        return [
            "a tensor counts with its whole storage, once, and views of it are that tensor; parameters, inputs and "
            "state cross nothing, unless they are written before"
        ]

    def report(self, top: int = _TOP, width: int = WIDTH) -> str:
        """The table as plain text."""
        return as_text(as_renderables(self.heading(), self.sections(top), self.notes(), width), width)

    def __str__(self) -> str:
        return self.report()


def _made(tensor: CrossingTensor, repeats: Repeats) -> str:
    """The name of a tensor with equal modules in a row as one: "h.0-11.mlp: gelu"."""
    return f"{repeats.of(tensor.maker.path)[0]}{tensor.name.removeprefix(tensor.maker.path)}"


def _places(tensor: CrossingTensor, repeats: Repeats | None = None) -> str:
    """Where a tensor is read: "(optimizer)", "h.1.ln_1 (forward)"."""
    places: dict[str, None] = {}
    for node in tensor.readers:
        path = (repeats.of(node.path)[0] if repeats is not None else node.path) or "(top level)"
        places[path if path == f"({node.phase})" else f"{path} ({node.phase})"] = None
    more = [f"{len(places) - _READERS} more"] if len(places) > _READERS else []
    return ", ".join([*places][:_READERS] + more)


def crossing(account: Account, first: str | Callable[[NodeCost], bool]) -> Crossing:
    """The tensors that nodes in ``first`` make and others read.

    ``first``: a phase ("forward": what the other phases read of the forward pass), a module path with all that is
    in it ("transformer.h.3": what leaves a block, forward and backward), or a function that says of a `NodeCost`
    whether it is in. A view is the tensor that it shows: who made that counts, and who reads it through the view.
    Formulas, or numbers where the account has sizes; the order is that of the trial sizes where it has none.

    Raises `SpecError` where ``first`` names nothing, and `StructuralError` as `Account.nodes` does.
    """
    plain = laid_out(account)
    inside, words = _chosen(plain, first)
    found: dict[tuple[int, int], list[int]] = {}
    for maker, flow in _seen_through(plain.step.record):
        if maker >= 0 and inside[maker] and not inside[flow.reader]:
            found.setdefault((maker, flow.value.storage), []).append(flow.reader)
    storages = plain.memory.storages
    ranked = sorted(found, key=lambda key: (-storages.trial_numbers[key[1]], key))
    tensors = []
    for maker, storage in ranked:
        value = plain.step.record.values[plain.step.record.storages[storage].value]
        readers = tuple(plain.nodes[i] for i in dict.fromkeys(found[maker, storage]))
        meta, size = meta_of(plain, value), storages.sum([storage])
        tensors.append(CrossingTensor(plain.nodes[maker], readers, meta, size, storages.formulas[storage], storage))
    distinct = sorted({storage for _, storage in ranked})
    total = total_of(Counter(storages.formulas[storage] for storage in distinct))
    return Crossing(account, words, tuple(tensors), storages.sum(distinct), total)


def _chosen(account: Account, first: str | Callable[[NodeCost], bool]) -> tuple[list[bool], str]:
    """Of each node whether it is in the first part, and the part in words."""
    nodes = account.nodes
    if callable(first):
        return [bool(first(node)) for node in nodes], "the chosen nodes"
    if first in PHASES:
        return [node.phase == first for node in nodes], first
    inside = [node.path == first or node.path.startswith(f"{first}.") for node in nodes]
    if not first or not any(inside):
        tops = ", ".join(path for path in account.by_module(1) if path)
        raise SpecError(
            f"crossing(): {first!r} is no phase ({', '.join(PHASES)}) and nothing runs in a module of that path; "
            f"modules at the top: {tops or 'none'}"
        )
    return inside, first


def _seen_through(record: Record) -> Iterator[tuple[int, Flow]]:
    """What each node but views reads, with the node that made it, also where it is read through views."""
    shown: dict[int, int] = {}  # the maker of what a view shows, by view
    for flow in flows(record):
        maker = shown.get(flow.maker, flow.maker)
        if record.calls[record.nodes[flow.reader].call].is_view:
            shown[flow.reader] = max(maker, shown.get(flow.reader, -1))
        else:
            yield maker, flow
