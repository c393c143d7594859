"""The kernels of an account at a level of fusing, also of one whose depth is a dim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from symacct.account import Account
from symacct.algebra import total_of
from symacct.depth.fitting import Lattice, Offset
from symacct.depth.structural import StructuralAccount
from symacct.errors import SpecError, StructuralError
from symacct.printing import text
from symacct.record import PHASES
from symacct.roofline.fusing import fused, fused_groups, minimal
from symacct.roofline.kernels import Kernel, Use, as_traced, eager, kept, merged

LEVELS = ("eager", "fused", "minimal")
TOTAL = "total"  # the phase of what is there once for the whole step

Key = tuple[str, str, str]
Table = Mapping[Key, Counter[Kernel]]


def uses_of(account: Account, level: str) -> tuple[list[Use], bool]:
    """The kernels of an account, each with how often it runs, and whether some stand for a sum of different ones.

    At the level "minimal" each phase is one kernel, and so is the whole step, which is less than its phases.
    Raises `SpecError` for a level that is none of `LEVELS`, and `StructuralError` where kernels are no polynomial in
    a dim that changes the graph.
    """
    if level not in LEVELS:
        raise SpecError(f"level: {level!r} is none of {', '.join(LEVELS)}")
    store = kept(account)
    if level not in store:
        symbolic = account.symbolic
        if isinstance(symbolic, StructuralAccount):
            store[level] = _lifted(symbolic, level)
        else:
            store[level] = _of(symbolic, level), False
    found: tuple[list[Use], bool] = store[level]
    return found


def _of(account: Account, level: str) -> list[Use]:
    account = as_traced(account).symbolic
    if level == "eager":
        return eager(account)
    store = kept(account)
    groups = store["groups"] = store.get("groups") or fused_groups(account)
    if level == "fused":
        return fused(account, groups)
    parts = [(phase, minimal(account, groups, phase)) for phase in PHASES]
    parts.append((TOTAL, minimal(account, groups)))
    return [Use(phase, "", "", each) for phase, each in parts if each.flops or each.pointwise or each.bytes]


# -- any depth ---------------------------------------------------------------------------


def _lifted(account: StructuralAccount, level: str) -> tuple[list[Use], bool]:
    """Each group of kernels at any depth: how often each of them runs, or where they grow, their sum."""
    tables = {offset: _table(account, member, level) for offset, member in account.members.items()}
    keys = dict.fromkeys(key for table in reversed(tables.values()) for key in table)
    uses: list[Use] = []
    summed = False
    for key in keys:
        counts = {offset: table.get(key, Counter()) for offset, table in tables.items()}
        found = _repeated(account.lattice, key, counts)
        if found is None:
            found = [_sum(account.lattice, key, counts)]
            summed = summed or any(counter.total() > 1 for counter in counts.values())
        uses += found
    return uses, summed


def _table(account: StructuralAccount, member: Account, level: str) -> Table:
    table: dict[Key, Counter[Kernel]] = {}
    for use in uses_of(member, level)[0]:
        key = (use.phase, account.templates.of(use.path), use.op)
        table.setdefault(key, Counter())[use.kernel] += use.times
    return table


def _repeated(lattice: Lattice, key: Key, counts: Mapping[Offset, Counter[Kernel]]) -> list[Use] | None:
    """The kernels that occur, with a polynomial for how often each does; None where there is none."""
    uses = []
    for each in dict.fromkeys(k for counter in reversed(list(counts.values())) for k in counter):
        times = lattice.polynomial({offset: counter[each] for offset, counter in counts.items()})
        if times is None:
            return None
        uses.append(Use(*key, each, times))
    return uses


def _sum(lattice: Lattice, key: Key, counts: Mapping[Offset, Counter[Kernel]]) -> Use:
    """All kernels of a group as one, whose parts are polynomials: what grows with the depth, such as lists."""

    def fit(what: str, parts: Mapping[Offset, Any]) -> Counter[Any]:
        found = lattice.polynomial({offset: total_of(counter) for offset, counter in parts.items()})
        if found is None:
            phase, path, op = key
            shown = "; ".join(f"{text(total_of(parts[o]))} at {lattice.sizes(o)}" for o in lattice.offsets)
            raise StructuralError(
                f"{what} of {op or 'all kernels'} in {path or 'the top level'} ({phase}) is no polynomial in "
                f"{lattice.names}: {shown}"
            )
        return Counter({found: 1})

    sums = {offset: merged(counter.items()) for offset, counter in counts.items()}
    dtypes = dict.fromkeys(d for whole in sums.values() for (d, _), _ in sorted(whole.flops, key=str))
    flops = frozenset(
        ((dtype, expr), 1)
        for dtype in dtypes
        for expr in fit("FLOP", {o: Counter({e: n for (d, e), n in k.flops if d == dtype}) for o, k in sums.items()})
        if expr != 0
    )
    pointwise = fit("pointwise", {o: Counter(dict(whole.pointwise)) for o, whole in sums.items()})
    nbytes = fit("bytes", {o: Counter(dict(whole.bytes)) for o, whole in sums.items()})
    return Use(*key, Kernel(flops, frozenset(pointwise.items()), frozenset(nbytes.items())))
