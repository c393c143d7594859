"""The memory of a step for a page: closed forms, the moments that can be the peak, and timelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from symacct.account import Account
from symacct.cost import Size
from symacct.depth.fitting import Lattice, Offset
from symacct.depth.skeleton import Segment, Skeleton
from symacct.depth.structural import StructuralAccount
from symacct.errors import StructuralError
from symacct.page.javascript import Formulas
from symacct.page.parts import Json, is_whole, setting
from symacct.storages import KINDS
from symacct.timeline import Timeline

_HELD: tuple[tuple[str, str, Callable[[Account], Size]], ...] = (
    ("parameters", "count", lambda a: a.params),
    ("parameters", "bytes", lambda a: a.param_bytes),
    ("gradients", "bytes", lambda a: a.grad_bytes),
    ("optimizer state", "bytes", lambda a: a.optimizer_bytes),
    ("buffers", "bytes", lambda a: a.buffer_bytes),
    ("inputs", "bytes", lambda a: a.input_bytes),
    ("activations", "bytes", lambda a: a.activation_bytes),
    ("at rest", "bytes", lambda a: a.memory.rest_bytes),
    ("checkpoint", "bytes", lambda a: a.checkpoint_bytes),
)


def memory(account: Account, formulas: Formulas) -> Json:
    """What stays, the moments that can be the peak with what is alive then, and timelines of a later and a first step.

    Of an account of any depth there are none where its moments are no polynomials.
    """
    symbolic = account.symbolic
    held = [(name, unit, get(symbolic)) for name, unit, get in _HELD]
    refusal = symbolic.memory.refusal
    return {
        "kinds": list(KINDS),
        "held": [_held(formulas, *each) for each in held if each[2] != 0],
        "refusal": refusal,
        "peak": "" if refusal else setting(symbolic.peak_bytes),
        "moments": [] if refusal else [_moment(formulas, moment) for moment in symbolic.memory.candidates],
        "timelines": _timelines(symbolic, formulas),
    }


def _held(formulas: Formulas, name: str, unit: str, value: Size) -> Json:
    return {"name": name, "unit": unit, "formula": setting(value), "value": formulas.place(value)}


def _moment(formulas: Formulas, moment: Any) -> Json:
    """A moment that can be the peak: where it is, its bytes, and its bytes by kind."""
    return {
        "label": str(moment),
        "phase": moment.phase,
        "path": moment.path,
        "op": moment.op,
        "step": moment.timeline.name,
        "bytes": formulas.place(moment.nbytes),
        "kinds": {kind: formulas.place(value) for kind, value in moment.by_kind().items()},
    }


# -- timelines -----------------------------------------------------------------------------

Change = dict[int, Size]  # by class of storages how many more there are of it
Row = tuple[str, str, str, Change]  # op, module path, phase, and what changes before this moment
Stretch = tuple[list[list[Row]], int]  # moments (of a first, a middle and a last layer), the place of how many; or -1


def _timelines(account: Account, formulas: Formulas) -> list[Json]:
    if not isinstance(account, StructuralAccount):
        both = dict.fromkeys((account.memory.later, account.memory.first))
        return [_fixed(each, formulas) for each in both]
    first = next(iter(account.members.values())).memory
    names = ["later"] if first.first is first.later else ["later", "first"]
    try:
        return [_deep(account, name, formulas) for name in names]
    except StructuralError:
        return []


class _Classes:
    """Storages of one kind and size are one class: [kind, place of the bytes]."""

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas
        self.known: dict[tuple[int, int], int] = {}

    def read(self, timeline: Timeline, named: Callable[[str], str]) -> tuple[Change, list[Row]]:
        """What is there at the start of a timeline by class, and its moments; ``named`` says what a path is called."""
        sizes = timeline.storages.formulas
        numbers: dict[int, int] = {}

        def class_of(storage: int) -> int:
            if storage not in numbers:
                key = (KINDS.index(timeline.kind(storage)), self.formulas.place(sizes[storage]))
                numbers[storage] = self.known.setdefault(key, len(self.known))
            return numbers[storage]

        rows: list[Row] = []
        now: Counter[int] = Counter()
        for moment, event in timeline.changes():
            if event is None:
                change = {number: more for number, more in sorted(now.items()) if more}
                rows.append((moment.op.removesuffix(".default"), named(moment.path), moment.phase, change))
                now = Counter()
            else:
                now[class_of(max(event, ~event))] += 1 if event >= 0 else -1
        return Counter(class_of(storage) for storage in sorted(timeline.start)), rows


def _fixed(timeline: Timeline, formulas: Formulas) -> Json:
    classes = _Classes(formulas)
    start, rows = classes.read(timeline, str)
    return _timeline(timeline.name, classes, start, [([rows], -1)])


def _deep(account: StructuralAccount, name: str, formulas: Formulas) -> Json:
    """The timeline at any depth: stretches of moments that are fixed, and stretches that repeat layer by layer.

    Raises `StructuralError` where layers are not alike in what they leave in memory.
    """
    classes, lattice = _Classes(formulas), account.lattice
    starts: dict[Offset, Change] = {}
    rows: dict[Offset, list[Row]] = {}
    for offset, member in account.members.items():
        starts[offset], rows[offset] = classes.read(getattr(member.memory, name), account.templates.of)
    skeleton = Skeleton.of(lattice, {offset: [_label(row) for row in each] for offset, each in rows.items()})
    lines = {offset: iter(skeleton.lines(offset)) for offset in lattice.offsets}
    segments: list[Stretch] = []
    for segment in skeleton.segments:
        moments = [
            {offset: [rows[offset][i] for i in next(line)] for offset, line in lines.items()}
            for _ in range(segment.grows or len(segment.labels))
        ]
        if not segment.grows:
            segments.append(([[_fitted(lattice, moment) for moment in moments]], -1))
        else:
            layers = [_layers(lattice, moment) for moment in moments]
            segments.append(([list(layer) for layer in zip(*layers, strict=True)], _count(lattice, segment, formulas)))
    return _timeline(name, classes, _polynomials(lattice, starts), [each for each in segments if each[0][0]])


def _label(row: Row) -> tuple[Any, ...]:
    """What is alike at any depth of a moment: which storages come or go, but not how many."""
    op, path, phase, change = row
    return op, path, phase, tuple((number, more > 0) for number, more in change.items())


def _layers(lattice: Lattice, rows: Mapping[Offset, list[Row]]) -> tuple[Row, Row, Row]:
    """The moment of the first layer, of those between, and of the last, each of which is the same at any depth."""
    lines = list(rows.values())
    between = [row for line in lines for row in line[1:-1]]
    found = []
    for each in ([line[0] for line in lines if line], between, [line[-1] for line in lines if line]):
        if not each or any(row != each[0] for row in each):
            raise StructuralError(f"layers are not alike in what they leave in memory, with {lattice.names}")
        found.append(each[0])
    first, middle, last = found
    return first, middle, last


def _fitted(lattice: Lattice, rows: Mapping[Offset, list[Row]]) -> Row:
    """A moment that is there once, with how many storages come or go at any depth."""
    op, path, phase, _ = next(iter(rows.values()))[0]
    return op, path, phase, _polynomials(lattice, {offset: line[0][3] for offset, line in rows.items()})


def _polynomials(lattice: Lattice, counts: Mapping[Offset, Change]) -> Change:
    found: Change = {}
    for number in dict.fromkeys(number for change in counts.values() for number in change):
        found[number] = lattice.polynomial({offset: change.get(number, 0) for offset, change in counts.items()})
        if found[number] is None:
            raise StructuralError(f"how many storages there are is no polynomial in {lattice.names}")
    return found


def _count(lattice: Lattice, segment: Segment, formulas: Formulas) -> int:
    """The place of how many moments a stretch has; -1 for one that is fixed."""
    if not segment.grows:
        return -1
    dim, least = list(lattice.base.items())[segment.axis]
    return formulas.place(segment.length + segment.grows * (dim - least))


def _timeline(step: str, classes: _Classes, start: Change, stretches: list[Stretch]) -> Json:
    """A timeline for a page.

    ``start``: what is there before it. ``segments``: one after the other, each with ``count``, the place of how many
    moments it has (-1: as many as it has rows). A row is a moment: ``changes`` before it, and which of ``texts`` are
    its op, path and phase. A segment with a ``count`` goes through its rows once for each layer; ``first`` and ``last``
    are the changes of the first and the last layer. What is there and what changes are flat lists of a class and how
    many (more) of it, which is 0 and then a place where it is a formula.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def flat(change: Change) -> list[int]:
        return [n for key, more in change.items() for n in (key, *_many(more, classes.formulas))]

    segments: list[Json] = []
    for layers, count in stretches:
        rows = layers[len(layers) // 2]
        ends = {"first": layers[0], "last": layers[-1]} if count >= 0 else {}
        segments.append({
            "count": count,
            "ops": [number(row[0]) for row in rows],
            "paths": [number(row[1]) for row in rows],
            "phases": [number(row[2]) for row in rows],
            "changes": [flat(row[3]) for row in rows],
            **{name: [flat(row[3]) for row in end] for name, end in ends.items()},
        })  # fmt: skip
    known = [list(key) for key in classes.known]
    return {"step": step, "classes": known, "start": flat(start), "segments": segments, "texts": list(texts)}


def _many(more: Size, formulas: Formulas) -> list[int]:
    return [int(more)] if is_whole(more) else [0, formulas.place(more)]
