"""The check of every formula at other sizes.

A trace at one trial size can hide a constant: a Python loop over a dim, a size that
went through a float, a branch. So the program runs again with plain numbers for
dims, and every node must be the same op with the costs that its formula gives there.

The same runs test the assumptions. Models compare sizes for many reasons, most of
them without consequence (a warning, a default): a run on the other side of such a
comparison that agrees with the formulas shows that the comparison does not matter,
and the assumption is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.assumptions import Assumption, settle
from symacct.building import build_of
from symacct.capture import Step, run_step
from symacct.cost import COST_FIELDS, Call
from symacct.dim import named_dims, point, symbol
from symacct.errors import CheckError, TraceError
from symacct.printing import text
from symacct.program import Program
from symacct.progress import say
from symacct.record import Node, Record

Sizes = Mapping[str, int]
_TRIES = 40
_DISAGREEING_RUNS = 12  # what is still untested after so many stays an assumption


@dataclass(frozen=True)
class Checked:
    """What a check found: the sizes at which the formulas held, and the assumptions that are left."""

    sizes: tuple[Sizes, ...]
    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True)
class Difference:
    """The first place where a run at other sizes is not what the formulas say."""

    node: Node | None
    other: Node | None
    what: str = ""
    formula: Any = None
    value: Any = None


def check(account: Account, program: Program, sizes: Sizes | None = None) -> Checked:
    """Run the program at other sizes (or at the given ones) and compare each node with its formulas.

    Raises `CheckError` naming the first node whose formula is refuted, the dim that is to blame,
    both values and the likely cause. ``sizes`` is empty when no other sizes satisfy the assumptions.
    """
    if sizes is not None:
        _must_agree(account, program, sizes)
        return Checked((sizes,), account.assumptions)
    agreed, left = _drop_what_does_not_matter(account, program)
    if unvaried(account.trial_sizes, agreed):
        agreed += _at_other_sizes(account, program, left)
    return Checked(tuple(agreed), left)


def unvaried(trial: Sizes, checked: Iterable[Sizes]) -> list[str]:
    """The dims that had their trial size in every run of a check."""
    return [name for name in trial if all(sizes[name] == trial[name] for sizes in checked)]


def _at_other_sizes(account: Account, program: Program, assumptions: tuple[Assumption, ...]) -> list[Sizes]:
    failure: TraceError | None = None
    for candidate in other_sizes(account.trial_sizes, assumptions):
        try:
            _must_agree(account, program, candidate)
        except TraceError as error:
            failure = failure or error
            continue
        return [candidate]
    if failure is not None:
        raise CheckError(
            f"the program runs at its trial sizes but not at others: {failure}; it needs a relation between sizes (a "
            "multiple, an equality) that its code does not state: build the model with it, as in H*Dh, or fix that dim"
        )
    return []


def _drop_what_does_not_matter(account: Account, program: Program) -> tuple[list[Sizes], tuple[Assumption, ...]]:
    """Run on the other side of inequalities; those that a run refutes are gone.

    Many at once first; a group of which a run disagrees is halved until the ones that matter stand alone.
    """
    left = list(account.assumptions)
    made = build_of(program.target)
    asked = _questions((*(made.scope.assumptions.values() if made else ()), *account.step.assumptions))
    agreed: list[Sizes] = []
    groups = [[a for a in left if a.soft]]
    disagreed = 0
    while groups and disagreed < _DISAGREEING_RUNS:
        group = [a for a in groups.pop() if a in left]
        across = _breaking(account.trial_sizes, left, group) if group else None
        if across is None:
            continue
        crossed = [a for a in left if a.holds(point(across)) is False]
        broken = [a for a in crossed if not _on_border(a, across)] or crossed
        if _agrees(account, program, across, asked):
            agreed.append(across)
            left = [a for a in left if a not in broken]
            groups.append([a for a in group if a not in broken])
            continue
        disagreed += 1
        tried = [a for a in group if a in broken]
        groups.append([a for a in group if a not in broken])
        if len(tried) > 1:
            groups += [tried[: len(tried) // 2], tried[len(tried) // 2 :]]
    return agreed, settle(replace(a, doubtful=False) for a in left)


def _questions(assumptions: Iterable[Assumption]) -> set[tuple[str, str]]:
    """What was compared with what; of a size that was taken as a number only which."""
    return {(str(a.left), "" if a.doubtful else str(a.right)) for a in assumptions if a.soft}


def _agrees(account: Account, program: Program, sizes: Sizes, asked: set[tuple[str, str]]) -> bool:
    """Whether a run at these sizes is what the formulas say, and asks nothing on its way that the trace did not ask.

    A question behind a question (``if L > 100 and D > 200``) would be answered for these sizes only.
    """
    try:
        found, step = _compare(account, program, sizes, symbolic=True)
    except TraceError:
        return False
    return found is None and _questions(settle(step.assumptions)) <= asked


# -- other sizes ---------------------------------------------------------------------


def other_sizes(trial: Sizes, assumptions: tuple[Assumption, ...]) -> Iterator[dict[str, int]]:
    """Points that satisfy the assumptions: odd sizes first, then multiples of more and more.

    Where none does, the dims of the equalities that are to blame keep their trial sizes and the others move.
    """
    found = False
    for sizes in _points(trial, assumptions, frozenset()):
        found = True
        yield sizes
    stuck = {s.name for a in assumptions if a.relation == "==" for s in a.symbols}
    if not found and stuck and stuck < set(trial):
        yield from _points(trial, assumptions, frozenset(stuck))


def _points(trial: Sizes, assumptions: tuple[Assumption, ...], kept: frozenset[str]) -> Iterator[dict[str, int]]:
    for step in (1, 2, 8, 64):
        for attempt in range(_TRIES):
            sizes = {
                name: max(1, size // (2 - attempt % 2) + step * (i + 1 + attempt * (i % 3 + 1)) - (step == 1 and i % 2))
                for i, (name, size) in enumerate(trial.items())
            }
            if step > 1:
                sizes = {name: size - size % step or step for name, size in sizes.items()}
            sizes |= {name: trial[name] for name in kept}
            _satisfy(sizes, assumptions)
            if _all_hold(assumptions, sizes) and sizes != dict(trial):
                yield sizes
                break


def _breaking(trial: Sizes, assumptions: list[Assumption], group: list[Assumption]) -> dict[str, int] | None:
    """Sizes that satisfy every equality and break as many of a group of inequalities as go together."""
    hard = tuple(a for a in assumptions if not a.soft)
    base = next(other_sizes(trial, tuple(assumptions)), dict(trial))
    best: dict[str, int] | None = None
    for each in group:
        so_far = best or base
        already = [a for a in group if a.holds(point(so_far)) is False]
        if each in already:
            continue
        for change in sorted(_across(each, so_far), key=lambda change: _on_border(each, {**so_far, **change})):
            sizes = {**so_far, **change}
            _satisfy(sizes, hard)
            at = point(sizes)
            if _all_hold(hard, sizes) and all(a.holds(at) is False for a in (each, *already)):
                best = sizes
                break
    return best


def _on_border(assumption: Assumption, sizes: Sizes) -> bool:
    """Whether sizes break an inequality by being equal only, where what differs beyond is often still the same.

    Where there is nothing beyond (``L > 1`` breaks at 1 alone) that is as broken as it gets.
    """
    if assumption.relation not in ("<", ">") or (assumption.relation == ">" and assumption.right == 1):
        return False
    at = point(sizes)
    return bool(assumption.left.xreplace(at) == assumption.right.xreplace(at))


def _across(assumption: Assumption, sizes: Sizes) -> Iterator[dict[str, int]]:
    """Changes of one dim that may carry a point to the other side of an inequality."""
    names = sorted(s.name for s in assumption.symbols)
    for name in names:
        rest = point({n: s for n, s in sizes.items() if n != name})
        gap = (assumption.left - assumption.right).xreplace(rest)
        try:
            roots = [int(sympy.floor(r)) for r in sympy.real_roots(sympy.Poly(gap, symbol(name)))]
        except (sympy.PolynomialError, NotImplementedError):
            roots = []
        for root in roots:
            for size in (root - root % 8, root + 8 - root % 8, root - 1, root, root + 1, root + 2, root // 2 + 1):
                if size >= 1:
                    yield {name: size}


def _satisfy(sizes: dict[str, int], assumptions: tuple[Assumption, ...]) -> None:
    """Adjust sizes to divisibilities and bounds of one dim, and to equalities that give one dim by others."""
    for assumption in assumptions:
        left, right = assumption.left, assumption.right
        if assumption.relation == "==" and isinstance(left, sympy.Mod):
            dim, divisor = left.args
            if dim.is_Symbol and divisor.is_Integer and dim.name in sizes:
                rest = int(right) if right.is_Integer else 0
                sizes[dim.name] += rest - sizes[dim.name] % int(divisor)
                if sizes[dim.name] < 1:
                    sizes[dim.name] += int(divisor)
        elif assumption.relation == "==":
            for lone, other in ((left, right), (right, left)):
                if lone.is_Symbol and lone.name in sizes and lone not in other.free_symbols:
                    value = other.xreplace(point(sizes))
                    if value.is_Integer and value > 0:
                        sizes[lone.name] = int(value)
                    break
        elif left.is_Symbol and left.name in sizes and right.is_Integer and assumption.relation in ("<", "<="):
            sizes[left.name] = min(sizes[left.name], int(right) - (assumption.relation == "<"))


def _all_hold(assumptions: tuple[Assumption, ...], sizes: Sizes) -> bool:
    at = point(sizes)
    return all(a.holds(at) is not False for a in assumptions)


# -- comparing -----------------------------------------------------------------------


def _must_agree(account: Account, program: Program, sizes: Sizes) -> None:
    found = _difference(account, program, sizes)
    if found is not None:
        raise CheckError(_message(account, program, found, sizes))


class _Stop(BaseException):
    """Ends a run at its first difference."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference


def _difference(account: Account, program: Program, sizes: Sizes) -> Difference | None:
    """Run at these sizes; the first node that is another op or costs something else than its formulas say."""
    return _compare(account, program, sizes, symbolic=False)[0]


def _compare(account: Account, program: Program, sizes: Sizes, symbolic: bool) -> tuple[Difference | None, Step]:
    ours = account.step.record
    agreed: set[tuple[int, int]] = set()

    def compare(other: Node, call: Call) -> None:
        if other.index >= len(ours.nodes):
            raise _Stop(Difference(None, other))
        node = ours.nodes[other.index]
        if node.func is not other.func:
            raise _Stop(Difference(node, other))
        pair = (node.call, other.call)
        if pair not in agreed:
            cost = account._costs[node.call]
            found = _unequal(cost, account.rules.cost(call), sizes) or _other_shape(ours.calls[node.call], call, sizes)
            if found:
                raise _Stop(Difference(node, other, *found))
            agreed.add(pair)

    say("checking at " + ", ".join(f"{n}={s}" for n, s in sizes.items()))
    try:
        step = run_step(program, named_dims(sizes, sizes) if symbolic else sizes, symbolic, watch=compare)
    except _Stop as stop:
        return stop.difference, Step(Record())
    if len(step.record.nodes) < len(ours.nodes):
        return Difference(ours.nodes[len(step.record.nodes)], None), step
    for held, again in zip(account.step.parameters, step.parameters, strict=True):
        if _shape_at(held.meta.shape, sizes) != _shape_at(again.meta.shape, sizes):
            return Difference(None, None, f"parameter {held.name}", held.meta.shape, again.meta.shape), step
    return _other_lifetimes(account, step.record, sizes), step


def _other_lifetimes(account: Account, other: Record, sizes: Sizes) -> Difference | None:
    """The first storage that is born or dies elsewhere than in the trace, or has another size than its formula says."""
    ours = account.step.record
    at = next((i for i, (a, b) in enumerate(zip(ours.events, other.events, strict=False)) if a != b), None)
    if at is None and len(ours.events) != len(other.events):
        at = min(len(ours.events), len(other.events))
    if at is not None:
        node = next((n for n in (*ours.aside, *ours.nodes) if n.clock > at), None)
        return Difference(node, node, "lifetimes")
    agreed: set[tuple[Any, Any]] = set()
    for storage, again in zip(ours.storages, other.storages, strict=True):
        pair = (storage.nbytes, again.nbytes)
        if pair not in agreed:
            if evaluate(account._exact(storage.nbytes), sizes) != evaluate(again.nbytes, sizes):
                return Difference(storage.node, again.node, "storage", *pair)
            agreed.add(pair)
    return None


def _unequal(cost: Any, measured: Any, sizes: Sizes) -> tuple[str, Any, Any] | None:
    if cost is None or measured is None:
        return None
    for name in COST_FIELDS:
        formula, value = getattr(cost, name), getattr(measured, name)
        if evaluate(formula, sizes) != evaluate(value, sizes):
            return name, formula, value
    return None


def _shape_at(shape: Any, sizes: Sizes) -> tuple[int, ...]:
    return tuple(evaluate(n, sizes) for n in shape)


def _other_shape(call: Call, other: Call, sizes: Sizes) -> tuple[str, Any, Any] | None:
    for a, b in zip((*call.inputs, *call.outputs), (*other.inputs, *other.outputs), strict=False):
        if _shape_at(a.shape, sizes) != _shape_at(b.shape, sizes):
            return "shape", a.shape, b.shape
    return None


# -- messages ------------------------------------------------------------------------


def _message(account: Account, program: Program, found: Difference, sizes: Sizes) -> str:
    at = ", ".join(f"{n}={s}" for n, s in sizes.items())
    if _differs_already(account, program):
        return (
            "a run at the trial sizes themselves is not what was traced: the module was changed after symacct.build "
            f"made it (change it in the builder), or the program is not deterministic; first difference {_where(found)}"
        )
    guilty = _guilty(account, program, sizes)
    blame = f"The dim to blame is {' and '.join(guilty)}; " if guilty else ""
    if found.what.startswith("parameter"):
        return (
            f"{found.what}: its shape {_shape(found.formula)} gives {_at(found.formula, sizes)} at {at}, built there "
            f"it is {_shape(found.value)}. {blame}"
            "likely cause: a size computed through a float or int(...): use // instead "
            "(0.5*dim loses its dim, dim*0.5 does not)"
        )
    if not found.what:
        ours = f"at {_place(found.node)}" if found.node else "after the last node"
        theirs = f"does {_place(found.other)} instead" if found.other else "has ended"
        return (
            f"the graph itself changes with the sizes: {ours}, a run with {at} {theirs}. {blame}"
            "likely cause: a Python loop over a dim, or a branch on a size; give that dim as a number, or declare that "
            f"it changes the graph: {_declared(program, guilty)}"
        )
    if found.what == "lifetimes":
        where = f"around {_place(found.node)}" if found.node else "at the end"
        return (
            f"when tensors are freed changes with the sizes: {where}, a run with {at} keeps other tensors alive. "
            f"{blame}likely cause: a copy or a view that depends on a size; give that dim as a number"
        )
    shown = _shape(found.formula) if found.what == "shape" else text(found.formula)
    value = _shape(found.value) if found.what == "shape" else found.value
    place = _place(found.node) if found.node else "a tensor from outside"
    return (
        f"{place}: its {found.what} {shown} gives {_at(found.formula, sizes)} at {at}, a run there gives "
        f"{value}. {blame}likely cause: a size computed through a float or int(...) "
        "(use // instead; 0.5*dim loses its dim, dim*0.5 does not), or a branch on a size"
    )


def _declared(program: Program, names: list[str]) -> str:
    """What to write so that dims may change the graph."""
    made = build_of(program.target)
    built = [name for name in names if made is not None and name in made.dims]
    others = [name for name in names if name not in built]
    found = [f"sa.build(..., depth={' '.join(built)!r})"] if built else []
    found += [f"sa.trace(..., structural={' '.join(others) or '...'!r})"] if others or not built else []
    return " and ".join(found)


def _place(node: Node) -> str:
    return f"{node.op} in {node.path or 'the top level'} ({node.phase}{', ' + node.source if node.source else ''})"


def _shape(shape: Any) -> str:
    return f"({', '.join(text(n) for n in shape)})"


def _at(formula: Any, sizes: Sizes) -> str:
    return _shape(_shape_at(formula, sizes)) if isinstance(formula, tuple) else str(evaluate(formula, sizes))


def _where(found: Difference) -> str:
    node = found.node or found.other
    return f"at {_place(node)}" if node else f"in {found.what}"


def _differs_already(account: Account, program: Program) -> bool:
    try:
        return _difference(account, program, account.trial_sizes) is not None
    except TraceError:
        return True


def _guilty(account: Account, program: Program, sizes: Sizes) -> list[str]:
    """The dims that are enough to make a difference when they alone leave their trial size."""
    guilty = []
    for name in sizes:
        one = {**account.trial_sizes, name: sizes[name]}
        if _all_hold(account.assumptions, one):
            try:
                if _difference(account, program, one) is not None:
                    guilty.append(name)
            except TraceError:
                pass
    return guilty
