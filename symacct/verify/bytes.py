"""Bytes read and written, kernel by kernel, beside the operands that kernels really had and the results they made.

What moves between memory and caches only hardware counters see. What is compared here is the convention: a kernel
reads each distinct operand once and writes its results once. Where a rule of its own says otherwise (an embedding
reads the rows that are chosen, some of them twice) operands and results together are the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symacct.account import Account
from symacct.calls import bind_arguments, operator_of
from symacct.record import Node, Value
from symacct.rule import Rules
from symacct.verify.allocations import courses
from symacct.verify.findings import BOUND, DIFFERENT, EQUAL, Figure, Part, residual_at
from symacct.verify.operators import Expected, steps_of
from symacct.verify.profiled import Called, Seen

_CONVENTION = (
    "bytes are those of the convention, by the operands and results of the run: what moves between memory and caches "
    "only hardware counters see"
)


@dataclass
class _Sums:
    """Bytes by the account and by the run, of some kernels."""

    ours: int = 0
    real: int = 0
    wrong: bool = False


def bytes_part(
    account: Account, expected: Expected, matched: Mapping[int, Node], seen: Seen, device: str = "cpu"
) -> Part:
    """Compare the bytes of each node of a later step; ``account`` is one at sizes, ``matched`` nodes by call."""
    uses = courses(seen, matched, 0, device)[-1].uses
    sums = {name: _Sums() for name in _NAMES}
    residuals = []
    for call in steps_of(seen)[-1]:
        node = matched.get(call.index)
        if node is None:
            continue
        cost = account.nodes[node.index]
        operands, in_place = _of_operands(call, node, expected)
        can_write = in_place + (uses[call.index].results if call.index in uses else 0)
        own = _has_own_rule(account.rules, node.op)
        for name, ours, real, most in (
            (_NAMES[own], int(cost.bytes_read), operands, operands + can_write * own),
            (_NAMES[2 + own], int(cost.bytes_written), can_write, can_write + operands * own),
        ):
            total = sums[name]
            total.ours, total.real = total.ours + ours, total.real + real
            exact = not own and not (ours < real and _has_room(node, expected))
            if ours > most or (exact and ours != real):
                total.wrong = True
                residuals.append(
                    residual_at(node, f"{name}: {ours:,} B by our rule, {real:,} B really", abs(ours - real))
                )
    return Part("bytes", "B", tuple(_figures(sums)), tuple(residuals), (_CONVENTION,))


_NAMES = (
    "read, each operand once", "read, by a rule of its own",
    "written, each result once", "written, by a rule of its own",
)  # fmt: skip


def _figures(sums: Mapping[str, _Sums]) -> Iterator[Figure]:
    for name, total in sums.items():
        held = EQUAL if total.ours == total.real else BOUND
        yield Figure(name, total.ours, total.real, "B", DIFFERENT if total.wrong else held)


def _has_room(node: Node, expected: Expected) -> bool:
    """Whether a result's storage is larger than the result, as that of a loss that was summed in place."""
    results = [value for value in node.outputs if isinstance(value, Value)]
    return any(expected.storage_bytes(v) > expected.operand(v).nbytes for v in results)


def _has_own_rule(rules: Rules, op: str) -> bool:
    """Whether a rule says what an operator reads and writes; one over lists is as each of its parts is."""
    space, _, name = op.partition(".")
    found = rules.find(op) or rules.find(f"{space}.{name.removeprefix('_foreach_')}") or {}
    return "bytes" in found or name.startswith("_foreach_")


def _of_operands(call: Called, node: Node, expected: Expected) -> tuple[int, int]:
    """Bytes of a call's distinct operands, and of those that it writes in place."""
    regions: dict[object, int] = {}
    in_place: dict[object, int] = {}
    mutated = operator_of(node.func).mutated
    for (name, value), operand in zip(expected.named(node), call.operands, strict=False):
        if isinstance(value, Value):  # a number is passed along with the call
            region = (value.layout, value.storage)
            regions[region] = operand.nbytes
            if name in mutated:
                in_place[region] = operand.nbytes
    for indices in (v for v in bind_arguments(node.func, node.args, node.kwargs).values() if isinstance(v, tuple)):
        unseen = (v for v in indices if isinstance(v, Value))  # by the profiler, so as the graph has them
        regions |= {
            (v.layout, v.storage): expected.operand(v).nbytes for v in unseen if (v.layout, v.storage) not in regions
        }
    return sum(regions.values()), sum(in_place.values())
