"""What a notebook shows of an object: a heading, tables, notes. One function for each class."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import sympy
from markupsafe import Markup

from symacct import report
from symacct.cost import COST_FIELDS
from symacct.errors import MissingSizeError, StructuralError
from symacct.parts import Phase
from symacct.printing import formula, quantity, text
from symacct.report import Column, Section
from symacct.reports.forms import Html
from symacct.units import show

_FORM = Html()
_NAME, _FORMULA, _VALUE, _SHARE = (
    Column("", "name"), Column("formula", "formula"), Column("value", "value"), Column("share", "value"),
)  # fmt: skip
_UNITS = {"flops": "FLOP", "pointwise": "FLOP", "bytes_read": "B", "bytes_written": "B"}


@dataclass(frozen=True)
class Page:
    """What is shown of an object: a heading of one line or more, tables, and notes that are folded up."""

    heading: Sequence[str]
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    plain: str = ""  # lines that are no table


def page_of(what: Any) -> Page:
    """What is shown of an object: of a class that has a page of its own this, of others their ``str()``."""
    return _PAGES.get(kind_of(what), _printed)(what)


def kind_of(what: Any) -> str:
    """The name of the class, or of the first of its bases, that has a page. By name: most are not imported yet."""
    return next((kind.__name__ for kind in type(what).__mro__ if kind.__name__ in _PAGES), "")


def _account(account: Any) -> Page:
    return Page(report.header(account), tuple(report.sections(account)), report.footer(account))


def _phase(phase: Phase) -> Page:
    symbolic = phase if phase.account.sizes is None else Phase(phase.account.symbolic, phase.name, phase.calls)
    numbers = phase.account.sizes is not None
    rows = []
    for name in COST_FIELDS:
        value = (quantity(getattr(phase, name), _UNITS[name]),) if numbers else ()
        rows.append((name, formula(getattr(symbolic, name)), *value))
    columns = (_NAME, _FORMULA, _VALUE)[: 2 + numbers]
    table = Section("", columns, tuple(row for row in rows if row[1] != "0"))
    missing = ["INCOMPLETE: ops without a rule are among its nodes"] if phase.unknown else []
    return Page([phase.name or "(top level)"], (table,), missing)


def _expressed(expressed: Any) -> Page:
    """In other names there are only formulas: those of the phases, or of the one that it is."""
    phases = getattr(expressed, "phases", None)
    parts = {**phases, "total": expressed.total} if phases is not None else {"": expressed}
    if not all(hasattr(part, name) for part in parts.values() for name in COST_FIELDS):
        return Page([f"{type(expressed._source).__name__} in other names"])
    rows = []
    for name, part in parts.items():
        found = [(field, formula(getattr(part, field))) for field in COST_FIELDS if getattr(part, field) != 0]
        rows += [(name if i == 0 else "", *cells) for i, cells in enumerate(found)]
    columns = (_NAME, Column("measure", "word"), _FORMULA)
    if len(parts) > 1:
        return Page([f"{expressed.title}({expressed.inputs})"], (Section("", columns, tuple(rows)),))
    return Page([str(getattr(expressed, "name", ""))], (Section("", columns[1:], tuple(row[1:] for row in rows)),))


def _roofline(roofline: Any) -> Page:
    first, *rest = report.header(roofline.account)
    heading = [f"{first} on {roofline.device.name}, {roofline.level}", *rest]
    return Page(heading, tuple(roofline.table()), roofline.notes)


def _bound(bound: Any) -> Page:
    units = {"seconds": "s", "flops": "FLOP", "pointwise": "FLOP", "bytes": "B", "intensity": "FLOP/B"}
    rows = []
    for name, unit in units.items():
        value = getattr(bound, name)
        if value is not None:
            rows.append((name, formula(value) if isinstance(value, sympy.Basic) else show(value, unit)))
    symbolic = isinstance(bound.seconds, sympy.Basic)
    if not symbolic and bound.limit:
        rows.append(("limit", bound.limit))
    columns = (_NAME, _FORMULA if symbolic else _VALUE)
    return Page([f"least time of {bound.name or 'the top level'}"], (Section("", columns, tuple(rows)),))


def _shares(shares: Any) -> Page:
    rows = [
        (row.name, quantity(int(row.value) if row.value.denominator == 1 else float(row.value)), _share(row.share))
        for row in shares
    ]
    terms = all(row.name == text(row.formula) for row in shares)
    part = Column("part", "formula" if terms else "name")
    title = f"{shares.of} at {_at(shares.sizes)}: {quantity(float(shares.total))}"
    return Page([title], (Section("", (part, _VALUE, _SHARE), tuple(rows)),), shares.notes)


def _share(share: Any) -> Markup:
    return _FORM.share(float(share), f"{float(share):.2%}")


def _at(sizes: Any) -> str:
    return ", ".join(f"{name}={size:,}" for name, size in sizes.items())


def _elasticities(found: Any) -> Page:
    rows = tuple((name, f"{float(value):.4g}") for name, value in found.values.items())
    title = f"d log {found.of} / d log dim at {_at(found.sizes)}"
    return Page([title], (Section("", (Column("dim", "formula"), _VALUE), rows),), found.notes)


def _moment(moment: Any) -> Page:
    nbytes = moment.nbytes
    groups = [("by kind", moment.by_kind())]
    if hasattr(moment, "by_module"):
        groups.append(("by module, to depth 1", moment.by_module()))
    return Page([str(moment), f"{_bytes(nbytes)} alive"], tuple(_parts(name, parts, nbytes) for name, parts in groups))


def _bytes(nbytes: Any) -> str:
    return f"{formula(nbytes)} bytes" if isinstance(nbytes, sympy.Basic) else quantity(nbytes, "B")


def _parts(title: str, parts: dict[str, Any], whole: Any) -> Section:
    if isinstance(whole, sympy.Basic):
        return Section(title, (_NAME, Column("bytes", "formula")), tuple((n, formula(v)) for n, v in parts.items()))
    rows = tuple((n or "(top level)", quantity(v, "B"), _share(v / whole if whole else 0)) for n, v in parts.items())
    return Section(title, (_NAME, _VALUE, _SHARE), rows)


def _memory(memory: Any) -> Page:
    """The moments that can be the peak; at sizes the one that is."""
    with suppress(MissingSizeError, StructuralError):
        return _moment(memory.peak)
    if memory.refusal:
        return Page(["memory", f"the peak has no closed form: {memory.refusal}"])
    found = memory.candidates
    rows = tuple((str(moment), formula(moment.nbytes)) for moment in found)
    title = "the peak is the largest of these moments" if len(found) > 1 else "the peak, at all sizes"
    return Page(["memory, in bytes"], (Section(title, (Column("moment", "text"), _FORMULA), rows),))


def _timeline(timeline: Any) -> Page:
    """Bytes at its named points."""
    points = [("start", timeline.moments[0].nbytes)]
    points += [(f"after {name}", timeline.after(name)) for name in ("forward", "backward")]
    rows = [(name, _bytes(n).removesuffix(" bytes")) for name, n in points if n is not None]
    with suppress(MissingSizeError):
        rows.append((f"peak: {timeline.peak}", _bytes(timeline.peak.nbytes)))
    return Page(
        [f"memory of the {timeline.name} step"],
        (Section("", (Column("", "text"), Column("bytes", "value")), tuple(rows)),),
    )


def _device(device: Any) -> Page:
    rows = [("memory", quantity(device.memory_bytes, "B")), ("bandwidth", show(device.bytes_per_s, "B/s"))]
    rows += [(dtype, show(rate, "FLOP/s")) for dtype, rate in device.flops_per_s.items()]
    rates = (("vector", device.vector_flops_per_s, "FLOP/s"), ("interconnect", device.interconnect_bytes_per_s, "B/s"))
    rows += [(name, show(rate, unit)) for name, rate, unit in rates if rate is not None]
    return Page([device.name], (Section("", (_NAME, _VALUE), tuple(rows)),), (device.source,))


def _sectioned(what: Any) -> Page:
    """What has heading, sections and notes itself."""
    return Page(what.heading(), tuple(what.sections()), what.notes())


def _verification(found: Any) -> Page:
    return Page(found._heading(), tuple(found._sections()), found._notes())


def _explanation(found: Any) -> Page:
    return Page(found._heading(), (found._section(),), found._notes())


def _printed(what: Any) -> Page:
    """Of text: the first line, rows (lines that are set in, of cells two spaces apart), and notes."""
    first, *lines = str(what).splitlines() or [""]
    inner = list(takewhile(lambda line: line.startswith("  "), lines))
    cells = [re.split(r"\s{2,}", line.strip()) for line in inner]
    widest = max((len(row) for row in cells), default=0)
    if widest < 2 or any(len(row) < 2 for row in cells[1:]):
        return Page([first], plain="\n".join(lines))
    rows = tuple(
        tuple(["", *row] if len(row) < widest and i == 0 else row + [""] * (widest - len(row)))
        for i, row in enumerate(cells)
    )
    notes = re.sub(r"\n(?!- |note: )\s*", " ", "\n".join(lines[len(inner) :])).splitlines()
    columns = (Column("", "text"), *[Column("", "value")] * (widest - 1))
    return Page([first], (Section("", columns, rows),), [note.removeprefix("- ") for note in notes])


_PAGES: dict[str, Callable[[Any], Page]] = {
    "Account": _account, "Bound": _bound, "CriticalPath": _sectioned, "Crossing": _sectioned, "DeepMemory": _memory,
    "DeepMoment": _moment, "Device": _device, "Elasticities": _elasticities, "Explanation": _explanation,
    "Expressed": _expressed, "Memory": _memory, "Moment": _moment, "Phase": _phase, "Roofline": _roofline,
    "Shares": _shares, "Timeline": _timeline, "Verification": _verification,
}  # fmt: skip
