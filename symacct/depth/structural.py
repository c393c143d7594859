"""Dims that change the graph: depth, or the length of a loop that is unrolled.

Such a dim is a plain number while the program runs. The program is traced at a few of its sizes (the members),
every figure becomes a polynomial in it, exactly, and is proven: at one point more than the polynomial needs, and
by a run that is deeper and of other sizes in all dims. Where no polynomial fits, there is an error and no account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import sympy

from symacct.account import FIGURES, Account
from symacct.algebra import evaluate
from symacct.assumptions import Assumption, settle
from symacct.check import other_sizes
from symacct.cost import COST_FIELDS, Cost, Size
from symacct.depth.fitting import Lattice, Offset
from symacct.depth.memory import DeepMemory
from symacct.depth.templates import Templates
from symacct.dim import symbol
from symacct.errors import CheckError, StructuralError
from symacct.memory import Memory
from symacct.parts import Group, NodeCost
from symacct.printing import text
from symacct.progress import say
from symacct.record import Node

if TYPE_CHECKING:
    import torch.fx

    from symacct.conventions import Explanation
    from symacct.conventions.presets import Convention
    from symacct.verify import Verification

# (first size beyond the least, order of the lattice), tried in turn: linear first, and later where layers are alike.
_LATTICES = ((0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (2, 3))
Key = tuple[str, str, str]  # phase, module path, operator


@dataclass
class StructuralAccount(Account):
    """An account whose formulas also hold for any size of the dims that change the graph.

    ``members`` are the accounts that it was made from, each at fixed sizes of these dims. Nodes, the graph and what
    a run is verified against exist at a fixed depth only: `unrolled` gives that account.
    """

    members: Mapping[Offset, Account] = field(default_factory=dict, repr=False)
    lattice: Lattice = field(default_factory=lambda: Lattice({}, 0), repr=False)
    groups: tuple[Group, ...] = field(default=(), repr=False)
    templates: Templates = field(default_factory=lambda: Templates([[]]), repr=False)
    trace_at: Callable[[Mapping[str, int]], Account] | None = field(default=None, repr=False)
    immaterial: frozenset[str] = field(default=frozenset(), repr=False)  # assumptions that the check found to be none

    # -- what the account is made of -------------------------------------------------------

    def _uses(self) -> Iterator[tuple[Node | Group, Any]]:
        return ((group, group.times) for group in self.groups)

    def _figure(self, name: str) -> Size:
        return self._value(self._fitted[name])

    @cached_property
    def _fitted(self) -> dict[str, Size]:
        return {name: self.fit(name, partial(_figure_of, name)) for name in FIGURES}

    def fit(self, what: str, figure: Callable[[Account], Size]) -> Size:
        """What a function of a plain account is at any depth. Raises `StructuralError` where it is no polynomial."""
        values = {offset: figure(member) for offset, member in self.members.items()}
        found = self.lattice.polynomial(values)
        if found is None:
            raise StructuralError(_refusal(self.lattice, what, values))
        return found

    @cached_property
    def memory(self) -> Any:
        """Memory in closed form; timelines exist at a fixed depth only, in ``unrolled(...).memory``."""
        return DeepMemory(
            {offset: member.memory for offset, member in self.members.items()},
            self.lattice, self._figure, self.sizes, self._least, self._memory_at,
        )  # fmt: skip

    def _memory_at(self) -> Memory:
        return self.laid_out.memory

    def with_allocator(self, allocator: str) -> Account:
        """As `Account.with_allocator`."""
        members = {offset: member.with_allocator(allocator) for offset, member in self.members.items()}
        return replace(self, allocator=allocator, members=members)

    # -- conventions -----------------------------------------------------------------------

    def under(self, convention: str | Convention) -> Account:
        """As `Account.under`, at any size of the dims that change the graph."""
        members = {offset: member.under(convention) for offset, member in self.members.items()}

        def trace_at(sizes: Mapping[str, int]) -> Account:
            return self.unrolled(**sizes).under(convention)

        try:
            found = _of_lattice(self.lattice, members, trace_at)
        except StructuralError:  # what is counted may be of a higher degree than what runs
            found = of_members(self.lattice.sizes(self.lattice.offsets[0]), trace_at)
        return replace(
            found, sizes=self.sizes, checked=self.checked, assumptions=self.assumptions, trial_sizes=self.trial_sizes,
            allocator=self.allocator, immaterial=self.immaterial,
        )  # fmt: skip

    def explain(self, first: str | Convention, second: str | Convention) -> Explanation:
        """As `Account.explain`, at any size of the dims that change the graph."""
        from symacct.conventions import differences, explained

        each = {id(member): differences(member, first, second) for member in self.members.values()}
        keys = dict.fromkeys(key for found in each.values() for key in found)
        rows = {key: self.fit(" ".join(key), partial(_of, each, key)) for key in keys}
        return explained((first, second), self.under(first), self.under(second), rows)

    @property
    def convention(self) -> str:
        """What is counted, and for which kernels."""
        return next(iter(self.members.values())).convention

    # -- dims ------------------------------------------------------------------------------

    @cached_property
    def structural(self) -> tuple[str, ...]:
        """The dims that change the graph."""
        return tuple(symbol.name for symbol in self.lattice.base)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims in the account, in the order in which they were given."""
        known = {*self.structural, *(name for member in self.members.values() for name in member.dims)}
        return tuple(name for name in self.trial_sizes if name in known)

    def at(self, **sizes: int) -> Account:
        """As `Account.at`. Below the least depth of the formulas, the program is traced at that depth instead."""
        given = [sizes.get(name) for name in self.structural]
        if all(isinstance(size, int) and size >= 1 for size in given) and any(
            size < least for size, least in zip(given, self.lattice.base.values(), strict=True)
        ):
            structure, rest = self._parted(sizes)
            return self.unrolled(**structure).at(**rest)
        return super().at(**sizes)

    def unrolled(self, **structure: int) -> Account:
        """The account at fixed sizes of the dims that change the graph, with nodes, graph and timelines."""
        at, _ = self._parted(structure)
        found = next((member for offset, member in self.members.items() if self.lattice.sizes(offset) == at), None)
        if found is None:
            if self.trace_at is None:
                raise StructuralError("unrolled(): the account has no program to trace; make it with sa.trace")
            found = self.trace_at(at).with_allocator(self.allocator)
        left = tuple(a for a in found.assumptions if str(a) not in self.immaterial)
        return found if len(left) == len(found.assumptions) else replace(found, assumptions=left)

    def _parted(self, sizes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        """The sizes of the dims that change the graph (the least where none are given), and those of the others."""
        structure = {name: sizes.get(name, self.trial_sizes[name]) for name in self.structural}
        return structure, {name: size for name, size in sizes.items() if name not in structure}

    @cached_property
    def laid_out(self) -> Account:
        """The account at its sizes of the dims that change the graph, with nodes, graph and timelines."""
        if self.sizes is None:
            least = {name: self.trial_sizes[name] for name in self.structural}
            raise StructuralError(
                f"nodes, graph and timelines change with {' and '.join(least)}: look at "
                f"account.unrolled({_at(least)}), or give all sizes with account.at"
            )
        structure, rest = self._parted(self.sizes)
        return self.unrolled(**structure).at(**rest)

    @cached_property
    def nodes(self) -> list[NodeCost]:
        """The nodes at the account's sizes; without sizes they are in ``unrolled(...).nodes``."""
        return self.laid_out.nodes

    @cached_property
    def graph(self) -> torch.fx.Graph:
        """The graph at the account's sizes; without sizes it is in ``unrolled(...).graph``."""
        return self.laid_out.graph

    # -- evidence --------------------------------------------------------------------------

    def check(self, **sizes: int) -> tuple[Mapping[str, int], ...]:
        """Run the program at the given sizes and compare every figure with its formula. Raises `CheckError`."""
        if not sizes:
            return self.checked
        structure, rest = self._parted(sizes)
        member = self.unrolled(**structure)
        _prove(self, member.at(**rest), {**rest, **structure})
        return member.check(**rest)

    def verify(
        self, device: str = "cpu", at: Mapping[str, int] | None = None, *, steps: int = 20, seed: int = 0
    ) -> Verification:
        """As `Account.verify`, at a fixed depth."""
        structure, rest = self._parted(at or self.sizes or self.trial_sizes)
        return self.unrolled(**structure).verify(device, rest, steps=steps, seed=seed)

    @property
    def evidence(self) -> list[str]:
        """How the formulas were proven, in words."""
        traced = "; ".join(_at(self.lattice.sizes(offset)) for offset in self.lattice.offsets)
        found = [f"polynomials in {', '.join(self.structural)}, from traces at {traced}"]
        if self.checked:
            *nodes, figures = self.checked
            found += [f"checked, node by node, at {'; '.join(map(_at, nodes))}"] if nodes else []
            found += [f"proven, figure by figure, by a run at {_at(figures)}"]
        return found


# -- making one ----------------------------------------------------------------------------


def of_members(base: Mapping[str, int], trace_at: Callable[[Mapping[str, int]], Account]) -> StructuralAccount:
    """The account for all sizes of the dims of ``base``, from accounts at a few, the first of which is ``base``.

    Where it fails, the dims that fail by themselves begin at a larger size in the lattices to come (all, where none
    does). What was traced in vain is kept for `StructuralAccount.unrolled`.

    Raises `StructuralError` where some figure is no polynomial: what, in which module, with which values.
    """
    known: dict[tuple[int, ...], Account] = {}

    def member(sizes: Mapping[str, int]) -> Account:
        key = tuple(sizes.values())
        if key not in known:
            say("tracing at " + _at(sizes))
            known[key] = trace_at(sizes)
        return known[key]

    def again(sizes: Mapping[str, int]) -> Account:
        return known.get(tuple(sizes.values())) or trace_at(sizes)

    late: set[str] = set()
    failures: list[tuple[int, StructuralError]] = []
    without_peak: StructuralAccount | None = None
    for shift, order in _LATTICES:
        lattice = Lattice({symbol(name): size + shift * (name in late) for name, size in base.items()}, order)
        members = {offset: member(lattice.sizes(offset)) for offset in lattice.offsets}
        try:
            account = _of_lattice(lattice, members, again)
        except StructuralError as error:
            failures.append((order, error))
        else:
            if not account.memory.refusal:
                return account
            without_peak = without_peak or account
        late |= _failing_alone(lattice, members) or set(base)
    if without_peak is None:
        raise max(failures, key=lambda failure: failure[0])[1]
    return without_peak


def _failing_alone(lattice: Lattice, members: Mapping[Offset, Account]) -> set[str]:
    """Of several dims those that already fail while the others have their least sizes."""
    failing: set[str] = set()
    for axis, (dim, size) in enumerate(lattice.base.items() if len(lattice.base) > 1 else ()):
        alone = {offset[axis : axis + 1]: member for offset, member in members.items() if sum(offset) == offset[axis]}
        try:
            refused = bool(_of_lattice(Lattice({dim: size}, lattice.order), alone, None).memory.refusal)
        except StructuralError:
            refused = True
        if refused:
            failing.add(dim.name)
    return failing


def _of_lattice(
    lattice: Lattice, members: Mapping[Offset, Account], trace_at: Callable[[Mapping[str, int]], Account] | None
) -> StructuralAccount:
    first = members[lattice.offsets[0]]
    templates = Templates([{node.path for node in member.step.record.nodes} for member in members.values()])
    groups, costs = _groups(lattice, members, templates)
    smallest = lattice.sizes(lattice.offsets[0])
    least = tuple(Assumption(">=", s, sympy.Integer(n)) for s, n in lattice.base.items())
    account = StructuralAccount(
        first.step,
        first.rules,
        first.title,
        first.inputs,
        settle((*(a for member in members.values() for a in member.assumptions), *least)),
        {**first.trial_sizes, **smallest},
        (),
        None,
        first.program,
        first.allocator,
        costs,
        members,
        lattice,
        tuple(groups),
        templates,
        trace_at,
    )
    _ = account._fitted  # or there is no account
    return account


def _groups(
    lattice: Lattice, members: Mapping[Offset, Account], templates: Templates
) -> tuple[list[Group], list[Cost | None]]:
    """The nodes of any depth: of each phase, path and operator the costs that occur, with polynomials for how often."""
    tables = {offset: _table(member, templates) for offset, member in members.items()}
    keys = dict.fromkeys(key for table in reversed(tables.values()) for key in table)  # the deepest has them all
    groups: list[Group] = []
    costs: list[Cost | None] = []
    places: dict[Cost | None, int] = {}

    def add(key: Key, cost: Cost | None, times: Size) -> None:
        if cost not in places:
            places[cost] = len(costs)
            costs.append(cost)
        groups.append(Group(*key, places[cost], times))

    for key in keys:
        counts = {offset: table.get(key, Counter()) for offset, table in tables.items()}
        for cost in dict.fromkeys(cost for counter in reversed(counts.values()) for cost in counter):
            times = lattice.polynomial({offset: counter[cost] for offset, counter in counts.items()})
            if times is None:
                break
            add(key, cost, times)
        else:
            continue
        # Operands that grow with the depth: each cost occurs at one depth alone, and their sum is the polynomial.
        while groups and (groups[-1].phase, groups[-1].path, groups[-1].op) == key:
            groups.pop()
        for cost, times in _summed(lattice, key, counts):
            add(key, cost, times)
    return groups, costs


def _table(member: Account, templates: Templates) -> dict[Key, Counter[Cost | None]]:
    table: dict[Key, Counter[Cost | None]] = {}
    for node in member.step.record.nodes:
        key = (node.phase, templates.of(node.path), node.op)
        table.setdefault(key, Counter())[member._costs[node.call]] += 1
    return table


def _summed(
    lattice: Lattice, key: Key, counts: Mapping[Offset, Counter[Cost | None]]
) -> Iterator[tuple[Cost | None, Size]]:
    """A cost that is the sum of a group at any depth, once, and nodes without cost, so that their number is right."""
    number = {offset: counter.total() for offset, counter in counts.items()}
    times = lattice.polynomial(number)
    if times is None:
        raise StructuralError(_refusal(lattice, f"the number of {_place(key)}", number))
    if any(None in counter for counter in counts.values()):
        yield None, times
        return
    sums: dict[str, Any] = {}
    for name in COST_FIELDS:
        values = {
            offset: sympy.Add(*(getattr(cost, name) * n for cost, n in counter.items()))
            for offset, counter in counts.items()
        }
        sums[name] = lattice.polynomial(values)
        if sums[name] is None:
            raise StructuralError(_refusal(lattice, f"{name} of {_place(key)}", values))
    yield Cost(**sums), sympy.Integer(1)
    yield Cost(), times - 1


# -- proofs --------------------------------------------------------------------------------


def proven(
    account: StructuralAccount,
    checked: Callable[[Account], Account],
    run_at: Callable[[Mapping[str, int]], Account],
) -> StructuralAccount:
    """The account after its least member was checked at other sizes, and all of it by a deeper run at these.

    ``checked`` checks a plain account node by node, ``run_at`` makes one of a run at given sizes, without symbols.
    """
    first = account.members[account.lattice.offsets[0]]
    before = {str(assumption) for assumption in first.assumptions}
    first = checked(first)
    least = account.lattice.sizes(account.lattice.offsets[0])
    # At a size of 1 eager PyTorch leaves copies out, so a formula of memory may be too high there.
    usual = [each for each in first.checked if 1 not in each.values()]
    sizes = dict(usual[-1] if usual else next(other_sizes(first.trial_sizes, first.assumptions), first.trial_sizes))
    sizes |= {name: size + account.lattice.order + 4 + i for i, (name, size) in enumerate(least.items())}
    say("proving at " + _at(sizes))
    _prove(account, run_at(sizes), sizes)
    dropped = before - {str(assumption) for assumption in first.assumptions}
    left = settle(replace(a, doubtful=False) for a in account.assumptions if str(a) not in dropped)
    dropped |= account.immaterial
    checked_at = [{**least, **each} for each in first.checked]
    return replace(account, checked=(*checked_at, sizes), assumptions=left, immaterial=frozenset(dropped))


def _prove(account: StructuralAccount, run: Account, sizes: Mapping[str, int]) -> None:
    """Compare every figure of a run with its formula."""
    found = _table(run, account.templates)
    expected: dict[Key, list[Group]] = {}
    for group in account.groups:
        expected.setdefault((group.phase, group.path, group.op), []).append(group)
    for key in dict.fromkeys((*expected, *found)):
        counts = found.get(key, Counter())
        for name in ("nodes", *COST_FIELDS):
            formula = sum(
                group.times * (1 if name == "nodes" else getattr(account._costs[group.call] or Cost(), name))
                for group in expected.get(key, [])
            )
            value = sum(n * (1 if name == "nodes" else getattr(c or Cost(), name)) for c, n in counts.items())
            _must_equal(f"{name} of {_place(key)}", formula, value, sizes)
    for name, formula in account._fitted.items():
        _must_equal(name, formula, FIGURES[name](run), sizes)
    if not account.memory.refusal:
        _must_equal("peak_bytes", account.symbolic.peak_bytes, run.peak_bytes, sizes)


def _must_equal(what: str, formula: Any, value: Any, sizes: Mapping[str, int]) -> None:
    gives = evaluate(sympy.sympify(formula), sizes)
    value = evaluate(value, sizes)
    if gives != value:
        raise CheckError(
            f"{what}: {text(formula)} gives {gives} at {_at(sizes)}, a run there gives {value}; the graph changes "
            "otherwise than from one depth to the next (a branch on the depth, layers that are not alike)"
        )


# -- words ---------------------------------------------------------------------------------


def _at(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _figure_of(name: str, member: Account) -> Size:
    return member._figure(name)


def _of(each: Mapping[int, Mapping[Any, Size]], key: Any, member: Account) -> Size:
    return each[id(member)].get(key, 0)


def _place(key: Key) -> str:
    phase, path, op = key
    return f"{op} in {path or 'the top level'} ({phase})"


def _refusal(lattice: Lattice, what: str, values: Mapping[Offset, Any]) -> str:
    shown = "; ".join(f"{text(values[o])} at {_at(lattice.sizes(o))}" for o in lattice.offsets)
    names = " and ".join(symbol.name for symbol in lattice.base)
    return (
        f"{what} is no polynomial in {names} of a degree below {lattice.order}: {shown}. Layers may differ in a "
        "pattern (let the dim count whole patterns in the builder), or a size may be rounded (give the dim as a number)"
    )
