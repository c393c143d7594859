"""What a figure is made of: modules of FLOPs and bytes, kinds of tensors of the peak, terms of everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.errors import StructuralError
from symacct.formulas.dominance import MEASURES
from symacct.formulas.expressions import Opened, expanded
from symacct.parts import Phase
from symacct.printing import formula, term_key, text
from symacct.record import Node
from symacct.reports.dimensions import Unit, unit_of
from symacct.reports.figures import Figure, Leaf, Told
from symacct.units import show

_MOST = 0.6  # a module that has more of a figure than this says little about where it comes from
_ENOUGH = 3  # modules say enough, where one of them has most of a figure at any depth
_LITTLE = 1e-4


class Part(Told):
    """A part of a figure: its name, its formula, its value and its share where sizes are known."""

    def __init__(self, name: str, expr: Any, unit: Unit | None, value: Any = None, share: float | None = None) -> None:
        super().__init__(name, expr, unit, value)
        self.share = share

    def __str__(self) -> str:
        if self.share is None:
            return self.name if self.name == text(self._formula) else f"{self.name} = {formula(self._formula)}"
        return f"{self.name} {percent(self.share)}"


def percent(share: float, digits: int = 3) -> str:
    """A share in percent, one that is next to nothing as such."""
    return "<0.01%" if 0 < share < _LITTLE else show(share, "%", digits)


@dataclass(frozen=True)
class Provenance:
    """The parts of a figure, the largest first where sizes are known; ``by`` says what they are."""

    by: str
    parts: tuple[Part, ...]
    note: str = ""

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __str__(self) -> str:
        line = f"{self.by}: {', '.join(map(str, self.parts))}" if self.parts else ""
        return f"{line} ({self.note})" if line and self.note else line or self.note


def provenance(figure: Figure, depth: int | None = None, top: int = 6) -> Provenance:
    """What a figure is made of.

    FLOPs and bytes of an account or a part of one: its modules, to a ``depth`` (where none is given, the first at
    which no module has most of it), or the ops of a single module. The peak: the kinds of tensors that are alive then.
    Other figures: the terms of their formulas. At most ``top`` parts, the others together.
    """
    if isinstance(figure, Leaf):
        measure = figure.name.rpartition(".")[2]
        if measure in MEASURES and figure.part is not None:
            return _shared(figure, *_modules(figure, measure, depth), top)
        if measure == "peak_bytes":
            return _peak(figure, top)
    return _shared(figure, "terms", _terms(figure.formula), top)


def _shared(figure: Figure, by: str, parts: dict[str, Any], top: int) -> Provenance:
    """Parts in formulas, with their values and shares where the figure has a value."""
    parts = {name: part for name, part in parts.items() if part != 0}
    unit = figure.unit
    if not figure.known:
        found = tuple(Part(name, part, unit) for name, part in parts.items())
        return Provenance(by, found[:top], f"and {len(found) - top} more" if len(found) > top else "")
    sizes = _sizes(figure)
    values = {name: evaluate(sympy.sympify(part), sizes) for name, part in parts.items()}
    total = sum(values.values())
    names = sorted(values, key=lambda name: (-abs(values[name]), name))
    rows = [
        Part(name, parts[name], unit, values[name], float(values[name] / total) if total else None)
        for name in names[:top]
    ]
    if others := names[top:]:
        rest = sum(values[name] for name in others)
        rows.append(
            Part(f"{len(others)} others", sympy.Add(*(parts[name] for name in others)), unit, rest, float(rest / total))
        )
    return Provenance(by, tuple(rows))


def _sizes(figure: Figure) -> dict[str, int]:
    if isinstance(figure, Leaf):
        return dict(figure.account.sizes or figure.given)
    found = dict(getattr(figure, "sizes", {}))
    for side in ("left", "right"):
        part = getattr(figure, side, None)
        found |= _sizes(part) if isinstance(part, Figure) else {}
    return found


# -- modules ---------------------------------------------------------------------------


def _modules(figure: Leaf, measure: str, depth: int | None) -> tuple[str, dict[str, Any]]:
    """The part's modules with their formulas, or its ops where it has no modules of its own."""
    account = figure.account.symbolic
    picked = _picked(account, figure.part._picks)
    base = [len(key.split(".")) for method, _, _, key in figure.part._picks if method == "by_module" and key]
    deepest = max((len(node.path.split(".")) for node, _ in picked), default=1)
    sizes = _sizes(figure) or account.trial_sizes
    first = max(base, default=0) + 1
    found: dict[str, Any] = {}
    enough: dict[str, Any] = {}
    for cut in (depth,) if depth is not None else range(first, max(deepest, first) + 1):
        found = _grouped(account, picked, measure, partial(_cut, cut))
        values = [evaluate(sympy.sympify(each), sizes) for each in found.values() if each != 0]
        if values and max(values) <= _MOST * sum(values):
            break
        if len(values) >= _ENOUGH and not enough:
            enough = found
    else:
        found = enough or found
    if depth is None and len([each for each in found.values() if each != 0]) < 2:
        return "ops", _grouped(account, picked, measure, lambda node: node.op)
    return "modules", {name or "(top level)": each for name, each in found.items()}


def _cut(depth: int | None, node: Any) -> str:
    return ".".join(node.path.split(".")[:depth])


def _picked(account: Account, picks: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """The nodes of a part of an account, and how often each runs."""
    tests: list[Callable[[Any], bool]] = [_test(account, *pick) for pick in picks]
    return [(node, times) for node, times in account._uses() if all(test(node) for test in tests)]


def _test(account: Account, method: str, args: tuple[Any, ...], options: dict[str, Any], key: str) -> Any:
    if method == "phase":
        return lambda node: node.phase == key
    if method == "by_op":
        return lambda node: node.op == key
    depth, phase, repeats = (
        args[i] if len(args) > i else options.get(name, default)
        for i, (name, default) in enumerate((("depth", 1), ("phase", None), ("repeats", False)))
    )

    def inside(node: Node) -> bool:
        cut = _cut(depth, node)
        return phase in (None, node.phase) and (account._repeats.of(cut)[0] if repeats else cut) == key

    return inside


def _grouped(account: Account, nodes: Any, measure: str, key: Callable[[Any], str]) -> dict[str, Any]:
    groups: dict[str, Counter[Any]] = {}
    for node, times in nodes:
        groups.setdefault(key(node), Counter())[node.call] += times
    return {name: getattr(Phase(account, name, calls), measure) for name, calls in groups.items()}


# -- the peak, and terms ---------------------------------------------------------------


def _peak(figure: Leaf, top: int) -> Provenance:
    """What is alive at the peak, by kind; without sizes the moments that can be it."""
    account = figure.account
    try:
        moments = account.symbolic.memory.candidates
    except StructuralError:
        if account.sizes is None:
            return Provenance("kinds", (), figure.refusal)
        return _shared(figure, "kinds", account.laid_out.memory.peak.by_kind(), top)
    if not figure.known:
        found = tuple(Part(_moment(moment), moment.nbytes, unit_of("B")) for moment in moments)
        return Provenance("moments", found[:top], f"the largest of {len(found)} moments" if len(found) > 1 else "")
    sizes = _sizes(figure)
    winner = max(moments, key=lambda moment: evaluate(sympy.sympify(moment.nbytes), sizes))
    return Provenance("kinds", _shared(figure, "kinds", winner.by_kind(), top).parts, f"alive {_moment(winner)}")


def _moment(moment: Any) -> str:
    if not moment.op:
        return "at the start"
    return f"after {moment.op} in {moment.path or 'the top level'}, {moment.phase}"


def _terms(expr: Any) -> dict[str, Any]:
    """The terms of a formula, a Max whole, in the order in which they are printed."""
    opened = Opened(expanded)
    terms = opened.terms(sympy.sympify(expr))
    alone = sorted((opened.closed({m: c}) for m, c in terms.items()), key=term_key)
    return {text(term): term for term in alone}


def terms(figure: Figure) -> list[Part]:
    """The terms of a figure's formula, the largest first where sizes are known."""
    return list(_shared(figure, "terms", _terms(figure.formula), 10**6).parts)
