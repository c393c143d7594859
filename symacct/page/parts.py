"""The parts of a step for a page: kernels by phase, module and op, and how often each runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sympy

from symacct.account import Account
from symacct.cost import Size
from symacct.depth.structural import StructuralAccount
from symacct.page.javascript import Formulas
from symacct.parts import Phase
from symacct.printing import formula, multiple
from symacct.record import PHASES
from symacct.report import MEASURES
from symacct.reports.mathematics import html_of
from symacct.roofline.kernels import Kernel
from symacct.roofline.lifting import uses_of

WHOLE = "step"  # all phases together
Json = dict[str, Any]


@dataclass
class Kernels:
    """The distinct kernels of a page: FLOP by dtype, pointwise arithmetic and bytes, each the place of a formula."""

    formulas: Formulas
    rows: list[Json] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def number(self, flops: Mapping[str, Size], pointwise: Size, nbytes: Size) -> int:
        """The number of a kernel; equal ones have one."""
        place = self.formulas.place
        key = (tuple((dtype, place(n)) for dtype, n in flops.items() if n != 0), place(pointwise), place(nbytes))
        if key not in self._known:
            self._known[key] = len(self.rows)
            self.rows.append({"flops": dict(key[0]), "pointwise": key[1], "bytes": key[2]})
        return self._known[key]

    def of(self, kernel: Kernel) -> int:
        """The number of a kernel of the roofline."""
        flops: dict[str, Size] = {}
        for (dtype, expr), n in sorted(kernel.flops, key=str):
            flops[dtype] = flops.get(dtype, 0) + expr * n
        return self.number(flops, _sum(kernel.pointwise), _sum(kernel.bytes))

    def parts(self, counts: Mapping[int, Size]) -> list[list[int]]:
        """Kernels with how often they run: [number, times], or [number, -1, place] where that is a formula."""
        return [
            [number, int(times)] if is_whole(times) else [number, -1, self.formulas.place(times)]
            for number, times in counts.items()
        ]


def is_whole(number: Size) -> bool:
    """Whether a size is a plain number."""
    return isinstance(number, int) or bool(number.is_Integer)


def _sum(terms: Iterable[tuple[Any, Any]]) -> Any:
    return sympy.Add(*(expr * n for expr, n in terms))


def groups(account: Account, kernels: Kernels) -> Json:
    """Totals by phase, the tree of modules, and the ops: for each the kernels that run, by phase, and its formulas."""
    counted = _Counted(account, kernels)
    phases, ops = counted.by(lambda phase, path, op: phase), counted.by(lambda phase, path, op: op)
    return {
        "phases": [_row(account, name, phases, name) for name in PHASES],
        "modules": list(_modules(account, counted)),
        "ops": [_row(account, op, ops, op.removesuffix(".default")) for op in account.by_op()],
        "total": _settings(account, counted.calls_of(lambda *_: True)),
    }


class _Counted:
    """What runs, by phase, module path (equal modules in a row as one) and op: its calls, and its kernels."""

    def __init__(self, account: Account, kernels: Kernels) -> None:
        self.kernels = kernels
        shown = account._repeats.of
        self.calls: dict[tuple[str, str, str], Counter[int]] = {}
        for node, times in account._uses():
            key = (node.phase, shown(node.path)[0], node.op)
            self.calls.setdefault(key, Counter())[node.call] += times
        self.runs: dict[tuple[str, str, str], Counter[int]] = {}
        for use in uses_of(account, "eager")[0]:
            key = (use.phase, shown(use.path)[0], use.op)
            self.runs.setdefault(key, Counter())[kernels.of(use.kernel)] += use.times
        self.times = {name: number for node, _ in account._uses() for name, number in _prefixes(shown, node.path)}

    def by(self, key: Any) -> dict[str, tuple[Json, dict[str, Counter[int]]]]:
        """By what ``key`` says of phase, path and op: kernels by phase, and calls by phase."""
        made: dict[str, tuple[dict[str, Counter[int]], dict[str, Counter[int]]]] = {}
        for which, source in enumerate((self.runs, self.calls)):
            for (phase, path, op), counts in source.items():
                group = made.setdefault(key(phase, path, op), ({}, {}))[which].setdefault(phase, Counter())
                for number, times in counts.items():
                    group[number] += times
        return {
            name: ({phase: self.kernels.parts(counts) for phase, counts in runs.items()}, calls)
            for name, (runs, calls) in made.items()
        }

    def calls_of(self, wanted: Any) -> dict[str, Counter[int]]:
        """The calls by phase of all places that are wanted."""
        found: dict[str, Counter[int]] = {}
        for place, counts in self.calls.items():
            if wanted(*place):
                for call, times in counts.items():
                    found.setdefault(place[0], Counter())[call] += times
        return found


def _prefixes(shown: Any, path: str) -> Iterator[tuple[str, int]]:
    parts = path.split(".")
    return (shown(".".join(parts[: i + 1])) for i in range(len(parts)))


def _row(account: Account, name: str, by: Mapping[str, Any], label: str) -> Json:
    runs, calls = by.get(name, ({}, {}))
    return {"name": name, "label": label, "runs": runs, "formulas": _settings(account, calls)}


def _modules(account: Account, counted: _Counted) -> Iterator[Json]:
    """The tree of modules, a parent before its children. Its own kernels are those that run in no child."""
    own = counted.by(lambda phase, path, op: path)
    kept = kept_by_module(account)
    paths = dict.fromkeys(".".join(path.split(".")[: i + 1]) for path in own for i in range(path.count(".") + 1))
    for path in paths:
        inside = counted.calls_of(lambda phase, other, op, path=path: (other + ".").startswith(path + "."))
        if path == "":  # the top level is no parent of all others: what stands beside them
            inside = own[""][1]
        yield {
            "name": path,
            "label": path.rpartition(".")[2] or "(top level)",
            "depth": path.count("."),
            "times": counted.times.get(path, 1),
            "runs": own.get(path, ({}, {}))[0],
            "kept": counted.kernels.formulas.place(kept.get(path, 0)),
            "formulas": _settings(account, inside, counted.times.get(path, 1)),
        }


def _settings(account: Account, calls: Mapping[str, Counter[int]], times: int = 1) -> Json:
    """The formulas of a part as HTML, by phase ("step" for all) and measure; those that are 0 are left out."""
    whole: Counter[int] = Counter()
    for counts in calls.values():
        for call, n in counts.items():
            whole[call] += n
    found: Json = {}
    for name, counts in ((WHOLE, whole), *calls.items()):
        part = Phase(account, name, counts)
        shown = {measure: setting(getattr(part, measure), times) for measure, _ in MEASURES}
        shown = {measure: text for measure, text in shown.items() if text != "0"}
        if part.unknown:
            shown["incomplete"] = "no rule"
        if shown and not (len(calls) == 1 and name != WHOLE):  # of one phase alone the whole says all
            found[name] = shown
    return found


@cache
def setting(expr: Any, times: int = 1) -> str:
    """A formula as HTML: one of several equal parts times their number."""
    return html_of(formula(expr) if times == 1 or expr == 0 else multiple(times, expr))


def kept_by_module(account: Account) -> dict[str, Size]:
    """The activation bytes that were made in each module (equal ones in a row as one); they add up to all of them."""

    def shown(path: str) -> str:
        return account._repeats.of(path)[0]

    if not isinstance(account, StructuralAccount):
        return _gathered(shown, _kept(account))
    members = {id(member): _gathered(account.templates.of, _kept(member)) for member in account.members.values()}
    paths = dict.fromkeys(path for each in members.values() for path in each)
    fitted = {
        path: account.fit(f"activations of {path}", lambda member, path=path: members[id(member)].get(path, 0))  # type: ignore[misc]
        for path in paths
    }
    return _gathered(shown, fitted)


def _kept(account: Account) -> dict[str, Size]:
    """The activation bytes by full module path."""
    memory = account.memory
    places: dict[str, list[int]] = {}
    for storage in memory.kept:
        places.setdefault(memory.later.place(storage), []).append(storage)
    return {path: memory.later.bytes_of(storages) for path, storages in places.items()}


def _gathered(named: Callable[[str], str], values: Mapping[str, Size]) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for path, value in values.items():
        name = named(path)
        found[name] = found.get(name, 0) + value
    return found
