"""The operators that really ran beside the recorded graph: which, in which order, on which shapes and dtypes.

Compared is every operator that makes or writes data. Views and `detach` are not: they start no kernel, and
autograd's own differ between plain tensors and those that a recorder looks at. What they lead to is compared,
since the operands of the next kernel have their shapes and strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from symacct.algebra import evaluate
from symacct.calls import bind_arguments
from symacct.record import Node, Record, Value
from symacct.torch_private import makes_a_view, makes_new_tensors, operator_named, tensor_arguments
from symacct.verify.findings import DIFFERENT, EQUAL, Figure, Part, Residual, residual_at
from symacct.verify.profiled import Called, Operand, Point, Seen

_NOT_COUNTED = (
    "views and detach are not compared one by one: they start no kernel, and the operands of kernels have their strides"
)


@dataclass
class Alignment:
    """The calls of a run and the nodes of a graph, laid side by side."""

    matched: dict[int, Node] = field(default_factory=dict)  # by the index of the call
    missing: list[Node] = field(default_factory=list)  # recorded, and not run
    extra: list[tuple[Called, Node | None]] = field(default_factory=list)  # run, and not recorded; after which node
    compared: int = 0


def steps_of(seen: Seen) -> list[list[Called]]:
    """The calls of each step: what lies between the points "step 1", "step 2" and so on, without what follows "end"."""
    steps: list[list[Called]] = []
    inside = False
    for event in seen.events:
        if isinstance(event, Point):
            if event.name.startswith("step"):
                steps.append([])
                inside = True
            inside = inside and event.name != "end"
        elif isinstance(event, Called) and inside:
            steps[-1].append(event)
    return steps


def nodes_of(record: Record) -> list[list[Node]]:
    """The recorded nodes of the first and of a later step; of one step where the program has no other."""
    at = {mark.name: mark for mark in record.marks}
    if "update" in at:
        return [[*record.nodes[: at["update"].nodes], *record.aside], record.nodes]
    return [record.aside, record.nodes] if "later" in at else [record.nodes]


def align(calls: Sequence[Called], nodes: Sequence[Node]) -> Alignment:
    """Match calls and nodes by operator, in order."""
    ran, recorded = list(_kernels(calls)), [n for n in nodes if not _is_look(n.op)]
    found = Alignment(compared=len(recorded))
    last: Node | None = None
    for kind, i0, i1, j0, j1 in opcodes([_one_name(c.op) for c in ran], [_one_name(n.op) for n in recorded]):
        if kind == "equal":
            found.matched.update((c.index, n) for c, n in zip(ran[i0:i1], recorded[j0:j1], strict=True))
        else:
            found.missing += recorded[j0:j1]
            found.extra += [(c, last) for c in ran[i0:i1]]
        last = recorded[j1 - 1] if j1 else last
    return found


def opcodes(a: list[str], b: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """How to turn one list into the other, as difflib has it; it is spared what both begin and end with."""
    if a == b:
        yield "equal", 0, len(a), 0, len(b)
        return
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    yield "equal", 0, head, 0, head
    middle = SequenceMatcher(None, a[head : len(a) - tail], b[head : len(b) - tail], autojunk=False)
    for kind, i0, i1, j0, j1 in middle.get_opcodes():
        yield kind, i0 + head, i1 + head, j0 + head, j1 + head
    yield "equal", len(a) - tail, len(a), len(b) - tail, len(b)


# ATen's backward formulas for sorts and picks make zeros beside the gradient, or like it where a recorder looks on.
_ZEROS = ("aten.zeros.default", "aten.new_zeros.default")


def _one_name(op: str) -> str:
    return _ZEROS[0] if op in _ZEROS else op


def _kernels(calls: Iterable[Called]) -> Iterator[Called]:
    """The calls that do something. ``torch.tensor(...)`` allocates, then lifts: one operator to a recorder."""
    for call, following in pairwise([*calls, None]):
        assert call is not None
        lifts = following is not None and following.op.startswith("aten.lift_fresh.")
        if not (_is_look(call.op) or (lifts and call.op.startswith("aten.empty.")) or _was_left(call)):
            yield call


def _was_left(call: Called) -> bool:
    """Whether a call ended before its kernel ran: what it was to make it did not allocate.

    A checkpoint that recomputes stops so, by an exception, as soon as the last tensor that it kept back is there.
    """
    if call.allocates or not call.operands or any(0 in o.shape for o in call.operands):
        return False
    return makes_new_tensors(operator_named(call.op))


# Not told by their schemas: a view of what nothing else holds, and reading a number out of a tensor.
_ALSO_LOOKS = ("aten._unsafe_view.default", "aten._local_scalar_dense.default")


@cache
def _is_look(op: str) -> bool:
    return op in _ALSO_LOOKS or makes_a_view(operator_named(op))


# -- operands --------------------------------------------------------------------------


class Expected:
    """The recorded graph at given sizes: what each node's operands look like there."""

    def __init__(self, record: Record, sizes: Mapping[str, int]) -> None:
        self.record = record
        self.sizes = sizes
        self._layouts: dict[int, Operand] = {}

    def operands(self, node: Node) -> list[Operand]:
        """The tensors among a node's arguments, in the order of the operator's schema, those in lists too.

        A number where the operator has a tensor is one: torch makes a tensor without axes of it.
        """
        return [self.operand(each) for _, each in self.named(node)]

    @staticmethod
    def named(node: Node) -> list[tuple[str, Value | Operand]]:
        """The same with the argument that they are given for, and as values of the graph.

        Without lists in which tensors may be missing (the indices of ``x[i, :, j]``): profilers do not see those.
        """
        found: list[tuple[str, Value | Operand]] = []
        types = tensor_arguments(node.func)
        for name, value in bind_arguments(node.func, node.args, node.kwargs).items():
            if types.get(name) == "List[Optional[Tensor]]":
                continue
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, Value):
                    found.append((name, each))
                elif types.get(name) == "Tensor" and isinstance(each, (int, float, complex)):
                    found.append((name, _number(each)))
        return found

    def operand(self, value: Value | Operand) -> Operand:
        """What a value of the graph looks like; what is given as an operand already is that."""
        if isinstance(value, Operand):
            return value
        found = self._layouts.get(value.layout)
        if found is None:
            shape, stride, _, dtype, _ = self.record.layouts[value.layout]
            found = self._layouts[value.layout] = Operand(self._at(shape), self._at(stride), dtype)
        return found

    def storage_bytes(self, value: Value) -> int:
        """Bytes of the storage that a value of the graph lies on."""
        return int(evaluate(self.record.storages[value.storage].nbytes, self.sizes))

    def _at(self, values: Iterable[Any]) -> tuple[int, ...]:
        return tuple(evaluate(v, self.sizes) for v in values)


def _number(value: complex) -> Operand:
    """The tensor that torch makes of a number."""
    dtypes = ((bool, torch.bool), (int, torch.int64), (float, torch.float64), (complex, torch.complex128))
    return Operand((), (), next(dtype for kind, dtype in dtypes if isinstance(value, kind)))


def same_layout(a: Operand, b: Operand) -> bool:
    """Whether two operands look alike; a stride along an axis of one element, or of none, says nothing."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if 0 in a.shape:
        return True
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride, b.stride, strict=True))


def unlike(call: Called, node: Node, expected: Expected) -> tuple[str, Value | None] | None:
    """How a call's operands are not those of its node, in words, and the value that it shows in; None if they are."""
    if node.op in _ZEROS:  # what they are made like is not read
        return None
    values = [value for _, value in expected.named(node)]
    if len(values) != len(call.operands):
        return f"really on {_list(call.operands)}, predicted {_list(map(expected.operand, values))}", None
    for number, (real, value) in enumerate(zip(call.operands, values, strict=True)):
        predicted = expected.operand(value)
        if not same_layout(real, predicted):
            alike = str(real) == str(predicted)
            strides = [f" with strides {list(o.stride)}" if alike else "" for o in (real, predicted)]
            text = f"operand {number} is really {real}{strides[0]}, predicted {predicted}{strides[1]}"
            return text, value if isinstance(value, Value) else None
    return None


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(str, operands)) or "no tensors"


# -- the comparison --------------------------------------------------------------------


def operators_part(expected: Expected, seen: Seen) -> tuple[Part, dict[int, Node]]:
    """Compare the calls of each step with the nodes of the graph; also which call is which node."""
    figures: list[Figure] = []
    residuals: list[Residual] = []
    matched: dict[int, Node] = {}
    graphs = nodes_of(expected.record)
    names = ("operators, first step", "operators, later step") if len(graphs) > 1 else ("operators",)
    for name, calls, nodes in zip(names, steps_of(seen), graphs, strict=False):
        found = align(calls, nodes)
        matched |= found.matched
        unequal = [*_in_one_only(found), *_unlike(found, calls, nodes, expected)]
        ran = len(found.matched) + len(found.extra)
        figures.append(Figure(name, found.compared, ran, "calls", DIFFERENT if unequal else EQUAL))
        residuals += [r for r in unequal if r not in residuals]  # most are the same in both steps
    return Part("operators", "calls", tuple(figures), tuple(residuals), (_NOT_COUNTED,)), matched


def _in_one_only(found: Alignment) -> Iterator[Residual]:
    for node in found.missing:
        yield residual_at(node, "recorded, and not really run here", 1)
    for call, after in found.extra:
        where = f"after {after.op} in {after.path or 'the top level'}" if after is not None else "at the start"
        text = f"really run on {_list(call.operands)}, and not recorded ({where})"
        phase = after.phase if after is not None else "forward"
        yield Residual(text, 1, after.index if after is not None else None, call.op, call.path, phase)


def _unlike(found: Alignment, calls: Sequence[Called], nodes: Sequence[Node], expected: Expected) -> Iterator[Residual]:
    """Calls on other operands; of a value that several calls read only the first, at the node that made the value."""
    makers = {value.id: node for node in nodes for value in node.outputs if value is not None}
    told: set[int] = set()
    for call in calls:
        node = found.matched.get(call.index)
        difference = unlike(call, node, expected) if node is not None else None
        if node is None or difference is None:
            continue
        text, value = difference
        if value is None or value.id not in makers:
            yield residual_at(node, text, 1)
        elif value.id not in told:
            reader = f"to {node.op} in {node.path or 'the top level'}"
            yield residual_at(makers[value.id], f"what it makes is another tensor {reader}: {text}", 1)
        told |= {value.id} if value is not None else set()
