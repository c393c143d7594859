"""The check of every formula at other sizes.

A trace at one trial size can hide a constant: a Python loop over a dim, a size that
went through a float, a branch. So the program runs once more, with plain numbers
for dims, and every node must be the same op with the same costs as its formula gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy

from symacct.account import Account, evaluate
from symacct.capture import Program, Step
from symacct.cost import COST_FIELDS, Call
from symacct.dim import Assumption, symbol
from symacct.errors import CheckError, TraceError
from symacct.recorder import Node

_TRIES = 200


def check(account: Account, program: Program, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """Run the program at other sizes and compare each node; returns the sizes that were used.

    Raises `CheckError` naming the first node whose formula is refuted, the dim that is to blame,
    both values and the likely cause. Returns an empty dict when no other sizes satisfy the assumptions.
    """
    failure: TraceError | None = None
    candidates = [dict(sizes)] if sizes else other_sizes(account.trial_sizes, account.assumptions)
    for candidate in candidates:
        try:
            step = program.run(candidate, symbolic=False)
        except TraceError as error:
            failure = failure or error
            continue
        _compare(account, step, candidate, program)
        return candidate
    if failure is not None:
        raise CheckError(
            f"the program runs at its trial sizes but not at others: {failure}; a size that it needs "
            "(a multiple, an equality) is not visible in its code; make it one, as in H*Dh, or fix that dim with a number"
        )
    return {}


def other_sizes(trial: Mapping[str, int], assumptions: tuple[Assumption, ...]) -> Iterator[dict[str, int]]:
    """A few other points that satisfy the assumptions: odd ones first, then multiples of what the trial sizes share."""
    for step, base in ((1, 13), (2, 2), (8, 8), (64, 64)):
        found = _solve(trial, assumptions, step, base)
        if found is not None:
            yield found


def _solve(
    trial: Mapping[str, int], assumptions: tuple[Assumption, ...], step: int, base: int
) -> dict[str, int] | None:
    names = list(trial)
    for attempt in range(_TRIES):
        sizes = {}
        for i, name in enumerate(names):
            size = trial[name] + step * (3 * i + 1 + attempt * (i % 3 + 1) - (attempt // 3) * (i % 2))
            if step > 1:
                size = trial[name] + step * (i + 1 + attempt * (i % 3))
            sizes[name] = max(size, 1)
        _satisfy(sizes, assumptions)
        point = {symbol(n): sympy.Integer(s) for n, s in sizes.items()}
        if all(a.holds(point) is not False for a in assumptions) and sizes != dict(trial):
            return sizes
    return None


def _satisfy(sizes: dict[str, int], assumptions: tuple[Assumption, ...]) -> None:
    """Adjust sizes in place to equalities that give one dim by the others, and to divisibilities and bounds of one dim."""
    for assumption in assumptions:
        left, right = assumption.left, assumption.right
        if assumption.relation == "==" and isinstance(left, sympy.Mod):
            dividend, divisor = left.args
            if dividend.is_Symbol and divisor.is_Integer and dividend.name in sizes:
                sizes[dividend.name] -= sizes[dividend.name] % int(divisor)
                sizes[dividend.name] = sizes[dividend.name] or int(divisor)
        elif assumption.relation == "==":
            for lone, other in ((left, right), (right, left)):
                if lone.is_Symbol and lone.name in sizes and lone not in other.free_symbols:
                    value = other.xreplace({s: sympy.Integer(sizes[s.name]) for s in other.free_symbols if s.name in sizes})
                    if value.is_Integer and value > 0:
                        sizes[lone.name] = int(value)
                    break
        elif left.is_Symbol and left.name in sizes and right.is_Integer:
            bound = int(right)
            if assumption.relation in ("<", "<="):
                sizes[left.name] = min(sizes[left.name], bound - (assumption.relation == "<"))


def _compare(account: Account, step: Step, sizes: Mapping[str, int], program: Program) -> None:
    ours, theirs = account.step.record, step.record
    costs = [account.rules.cost(call) for call in theirs.calls]
    for node, other in zip(ours.nodes, theirs.nodes, strict=False):
        if node.func is not other.func:
            raise CheckError(_graph_message(account, node, other, sizes, program))
        cost, measured = account._costs[node.call], costs[other.call]
        if cost is None or measured is None:
            wrong = _shapes_differ(ours.calls[node.call], theirs.calls[other.call], sizes)
            pairs: list[tuple[str, Any, Any]] = [wrong] if wrong else []
        else:
            pairs = [
                (f, getattr(cost, f), int(getattr(measured, f)))
                for f in COST_FIELDS
                if evaluate(getattr(cost, f), sizes) != getattr(measured, f)
            ]
        if pairs:
            what, formula, value = pairs[0]
            raise CheckError(_node_message(account, node, what, formula, value, sizes, program))
    if len(ours.nodes) != len(theirs.nodes):
        longer = ours.nodes if len(ours.nodes) > len(theirs.nodes) else theirs.nodes
        extra = longer[min(len(ours.nodes), len(theirs.nodes))]
        raise CheckError(_graph_message(account, extra, None, sizes, program))
    for held, again in zip(account.step.parameters, step.parameters, strict=True):
        shape = tuple(evaluate(n, sizes) for n in held.meta.shape)
        if shape != again.meta.shape:
            raise CheckError(
                f"parameter {held.name}: its shape {held.meta.shape} gives {shape} at {_sizes_text(sizes)}, built there it "
                f"is {again.meta.shape}; likely a size computed through a float or int(...): use // instead"
            )


def _shapes_differ(call: Call, other: Call, sizes: Mapping[str, int]) -> tuple[str, Any, Any] | None:
    for a, b in zip((*call.inputs, *call.outputs), (*other.inputs, *other.outputs), strict=False):
        shape = tuple(evaluate(n, sizes) for n in a.shape)
        if shape != b.shape:
            return "shape", a.shape, b.shape
    return None


def _place(node: Node) -> str:
    where = node.path or "the top level"
    return f"{node.op} in {where} ({node.phase}{', ' + node.source if node.source else ''})"


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n}={s}" for n, s in sizes.items())


def _node_message(
    account: Account, node: Node, what: str, formula: Any, value: Any, sizes: Mapping[str, int], program: Program
) -> str:
    from symacct.printing import text

    if what == "shape":
        shown, predicted = str(formula), str(tuple(evaluate(n, sizes) for n in formula))
    else:
        shown, predicted = text(formula), str(evaluate(formula, sizes))
    blame = _blame(account, sizes, program)
    return (
        f"{_place(node)}: its {what} {shown} gives {predicted} at {_sizes_text(sizes)}, a run there gives {value}. "
        f"{blame}likely cause: a size computed through a float or int(...) (use // instead), or a branch on a size"
    )


def _graph_message(
    account: Account, node: Node, other: Node | None, sizes: Mapping[str, int], program: Program
) -> str:
    instead = f"a run there does {_place(other)} instead" if other else "one of the runs ends before it"
    blame = _blame(account, sizes, program)
    return (
        f"the graph itself changes with the sizes: at {_place(node)}, with {_sizes_text(sizes)} {instead}. {blame}"
        "likely cause: a Python loop over a dim, or a branch on a size; give that dim as a number"
    )


def _blame(account: Account, sizes: Mapping[str, int], program: Program) -> str:
    """Which single dim is enough to make a difference: change one at a time."""
    guilty = []
    for name in sizes:
        one = {n: sizes[n] if n == name else int(s) for n, s in account.trial_sizes.items()}
        point = {symbol(n): sympy.Integer(s) for n, s in one.items()}
        if any(a.holds(point) is False for a in account.assumptions):
            continue
        try:
            step = program.run(one, symbolic=False)
        except TraceError:
            continue
        if _first_difference(account, step, one):
            guilty.append(name)
    if not guilty:
        return ""
    return f"The dim to blame is {' and '.join(guilty)}; "


def _first_difference(account: Account, step: Step, sizes: Mapping[str, int]) -> bool:
    ours, theirs = account.step.record, step.record
    if len(ours.nodes) != len(theirs.nodes):
        return True
    costs = [account.rules.cost(call) for call in theirs.calls]
    for node, other in zip(ours.nodes, theirs.nodes, strict=True):
        if node.func is not other.func:
            return True
        cost, measured = account._costs[node.call], costs[other.call]
        if cost is not None and measured is not None:
            if any(evaluate(getattr(cost, f), sizes) != getattr(measured, f) for f in COST_FIELDS):
                return True
    return False
