"""An account as text, Markdown or JSON: totals by phase, by module, by op, and what is not counted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from symacct.account import Account
from symacct.parts import Phase
from symacct.printing import formula, multiple, quantity, text

if TYPE_CHECKING:
    from rich.console import RenderableType

MEASURES = (("flops", "FLOP"), ("pointwise", "FLOP"), ("bytes", "B"))


@dataclass(frozen=True)
class Column:
    """A column of a table. ``look`` is "name", "word", "text", "value", or "formula", which takes what is left."""

    title: str
    look: str


@dataclass(frozen=True)
class Section:
    """A table with a heading. In text its columns are headed too where ``titled``; ``notes`` are lines below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    titled: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the account's tables: what, which measure, its formula, its value where sizes are given."""

    name: str
    measure: str
    formula: str
    value: str = ""


_COLUMNS = (Column("", "name"), Column("measure", "word"), Column("formula", "formula"), Column("value", "value"))
WIDTH = 100  # characters of a line, where no terminal says otherwise
_SHOWN = 4  # a peak that has more moments to choose from is a page of its own


def sections(account: Account, depth: int = 1) -> Iterator[Section]:
    """The tables of a report, in order. Parts that cost nothing are left out."""
    phases = [p for p in account.phases.values() if p.count] + [account.total]
    yield _section(account, "by phase", _rows(account, phases))
    held = [row for row in _memory_rows(account) if row.formula != "0"]
    if held:
        yield _section(account, "memory", held)
    modules = account.by_module(depth, repeats=True)
    if len(modules) > 1 or "" not in modules:
        yield _section(account, f"by module, to depth {depth}", _rows(account, modules.values(), top="(top level)"))
    yield _section(account, "by op", _rows(account, account.by_op().values()))


def _section(account: Account, title: str, rows: Iterable[Row]) -> Section:
    width = 4 if account.sizes is not None else 3
    cells = ((row.name, row.measure, row.formula, row.value)[:width] for row in rows)
    return Section(title, _COLUMNS[:width], tuple(cells))


def _memory_rows(account: Account) -> Iterator[Row]:
    """The tensors that stay, and what the step needs beside them."""
    symbolic = account.symbolic
    yield _row(account, symbolic, "parameters", "count", "", lambda a: a.params)
    parts: tuple[tuple[str, Any], ...] = (
        ("parameters", lambda a: a.param_bytes),
        ("gradients", lambda a: a.grad_bytes),
        ("optimizer state", lambda a: a.optimizer_bytes),
        ("buffers", lambda a: a.buffer_bytes),
        ("inputs", lambda a: a.input_bytes),
        ("activations", lambda a: a.activation_bytes),
        ("at rest", lambda a: a.memory.rest_bytes),
        ("checkpoint", lambda a: a.checkpoint_bytes),
    )
    for name, get in parts:
        yield _row(account, symbolic, name, "bytes", "B", get)
    if symbolic.memory.refusal:
        value = quantity(account.peak_bytes, "B") if account.sizes is not None else ""
        yield Row("peak", "bytes", f"no closed form: {symbolic.memory.refusal}", value)
        return
    peak = _row(account, symbolic, "peak", "bytes", "B", lambda a: a.peak_bytes)
    moments = len(symbolic.memory.candidates)
    yield peak if moments <= _SHOWN else replace(peak, formula=f"the largest of {moments} moments: see memory_report()")


def _rows(account: Account, parts: Iterable[Phase], top: str = "") -> Iterator[Row]:
    symbolic = account.symbolic
    for part in parts:
        lines = [
            _row(
                account,
                symbolic,
                "",
                measure,
                unit,
                lambda a, m=measure, part=part: getattr(_in(a, part), m),
                part.times,
            )
            for measure, unit in MEASURES
        ]
        name = (part.name or top) + (" (incomplete)" if part.unknown else "")
        shown = [line for line in lines if line.formula != "0"]
        if part.unknown and not shown:
            shown = [Row("", "", "unknown: no rule")]
        for i, line in enumerate(shown):
            yield Row(name if i == 0 else "", line.measure, line.formula, line.value)


def _in(account: Account, part: Phase) -> Phase:
    return Phase(account, part.name, part.calls)


def _row(account: Account, symbolic: Account, name: str, measure: str, unit: str, get: Any, times: int = 1) -> Row:
    """A line of a table; the formula of several equal modules is that of one, times their number."""
    value = quantity(get(account), unit) if account.sizes is not None else ""
    return Row(name, measure, formula(get(symbolic)) if times == 1 else multiple(times, get(symbolic)), value)


def header(account: Account) -> list[str]:
    """What was traced: title, inputs, sizes."""
    lines = [f"{account.title}({account.inputs})"]
    if account.sizes is not None and account.sizes:
        lines.append("at " + ", ".join(f"{n}={account.sizes[n]:,}" for n in account.dims if n in account.sizes))
    return lines


def footer(account: Account) -> list[str]:
    """What the numbers rest on: unknown ops, assumptions, the check, the convention."""
    lines = []
    if account.unknown:
        lines.append("INCOMPLETE, no rule for: " + "; ".join(map(str, account.unknown)))
    lines += grounds(account)
    if account.sizes is not None and 1 in account.sizes.values():
        lines.append(
            "at a size of 1 eager PyTorch may skip copies and broadcasts that other sizes need: bytes and pointwise "
            "may be a little too high (trace with that axis given as 1 for the exact figure)"
        )
    lines.append(account.convention)
    return lines


def grounds(account: Account) -> list[str]:
    """What holds where the formulas hold, and at which other sizes they were checked."""
    lines = []
    if account.assumptions:
        lines.append("holds when: " + "; ".join(map(str, account.assumptions)))
    lines += account.evidence
    if account.unchecked:
        lines.append(f"NOT checked at other sizes of {', '.join(account.unchecked)}")
    return lines


def to_text(account: Account, depth: int = 1, width: int = WIDTH) -> str:
    """The report as plain text of the given width."""
    return as_text(renderables(account, depth, width), width)


def renderables(account: Account, depth: int = 1, width: int = WIDTH) -> Iterator[RenderableType]:
    """The report for a rich console of the given width: heading, tables, footnotes."""
    return as_renderables(header(account), sections(account, depth), footer(account), width)


def to_markdown(account: Account, depth: int = 1) -> str:
    """The report in Markdown."""
    return as_markdown(header(account), sections(account, depth), footer(account))


# -- forms ---------------------------------------------------------------------------


def as_text(parts: Iterable[RenderableType], width: int) -> str:
    """What a rich console of the given width prints, as plain text."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False, highlight=False
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def as_renderables(
    heading: list[str], tables: Iterable[Section], notes: Iterable[str], width: int
) -> Iterator[RenderableType]:
    """Heading, tables and footnotes for a rich console of the given width."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    looks: dict[str, dict[str, Any]] = {
        "name": {"overflow": "fold", "style": "cyan"},
        "text": {"overflow": "fold"},
        "word": {"no_wrap": True},
        "formula": {"overflow": "fold", "ratio": 1},
        "value": {"no_wrap": True, "justify": "right", "style": "green"},
    }
    first, *rest = heading
    yield Text(first, style="bold")
    for line in rest:
        yield Text(line)
    yield Text()
    for section in tables:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_header=section.titled, header_style="dim", padding=(0, 1)
        )  # fmt: skip
        for i, column in enumerate(section.columns):
            longest = max((len(row[i]) for row in section.rows), default=0)
            # A fixed width, so that where the line is short it is the formula that is wrapped.
            fixed = min(longest, 40 if width >= WIDTH else 31) if column.look == "name" else None
            table.add_column(column.title, width=fixed, **looks[column.look])
        for row in section.rows:
            table.add_row(*map(Text, row))
        yield Text(section.title, style="bold")  # a table's own title is no wider than the table
        yield table
        if section.notes:
            yield Padding(Text("\n".join(section.notes)), (0, 0, 1, 1))
    for line in notes:
        yield Text(line, style="yellow" if line.startswith(("INCOMPLETE", "NOT")) else "dim")


def as_markdown(heading: list[str], tables: Iterable[Section], notes: Iterable[str]) -> str:
    """Heading, tables and footnotes in Markdown."""
    first, *rest = heading
    lines = [f"## `{first}`", "", *rest]
    for section in tables:
        titles = [column.title for column in section.columns]
        lines += ["", f"### {section.title}", "", f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
        for row in section.rows:
            cells = zip(section.columns, row, strict=True)
            lines.append("| " + " | ".join(_cell(column.look, cell) for column, cell in cells) + " |")
        if section.notes:
            lines += ["", *section.notes]
    return "\n".join([*lines, "", *(f"- {line}" for line in notes), ""])


def _cell(look: str, text: str) -> str:
    return f"`{text}`" if text and look in ("name", "formula") else text


def basis(account: Account) -> dict[str, Any]:
    """For machines: dims and sizes, and what the formulas rest on."""
    return {
        "dims": list(account.dims),
        "sizes": dict(account.sizes) if account.sizes is not None else None,
        "trial_sizes": dict(account.trial_sizes),
        "checked": [dict(sizes) for sizes in account.checked],
        "unchecked": list(account.unchecked),
        "evidence": account.evidence,
        "assumptions": [str(a) for a in account.assumptions],
    }


def _count(number: Any) -> Any:
    """A number as it is, or the formula of one that depends on a dim."""
    return number if isinstance(number, int) else text(number)


def to_json(account: Account, depth: int | None = None) -> str:
    """The account for machines. Formulas are strings, values exact numbers (null without sizes)."""
    import torch

    import symacct

    symbolic = account.symbolic

    def entry(get: Any) -> dict[str, Any]:
        return {
            "formula": text(get(symbolic)),
            "value": get(account) if account.sizes is not None else None,
        }

    def costs(part: Phase) -> dict[str, Any]:
        measures = ("flops", "pointwise", "bytes_read", "bytes_written")
        out: dict[str, Any] = {m: entry(lambda a, m=m: getattr(_in(a, part), m)) for m in measures}
        return {"nodes": _count(part.count), "complete": not part.unknown, **out}

    held = ("params", "param_bytes", "grad_bytes", "optimizer_bytes", "buffer_bytes")
    memory = {
        "inputs": entry(lambda a: a.input_bytes),
        "activations": entry(lambda a: a.activation_bytes),
        "at_rest": entry(lambda a: a.memory.rest_bytes),
        "checkpoint": entry(lambda a: a.checkpoint_bytes),
        "peak": entry(lambda a: a.peak_bytes)
        if not symbolic.memory.refusal
        else {"formula": None, "value": account.peak_bytes if account.sizes is not None else None},
    }
    document = {
        "symacct": symacct.__version__,
        "torch": torch.__version__,
        "target": account.title,
        "inputs": account.inputs,
        "convention": account.convention,
        **basis(account),
        "unknown": [{"op": u.op, "count": _count(u.count), "places": list(u.places)} for u in account.unknown],
        "tensors": {name: entry(lambda a, name=name: getattr(a, name)) for name in held},
        "memory": {"allocator": account.allocator, **memory},
        "phases": {name: costs(p) for name, p in account.phases.items()},
        "total": costs(account.total),
        "modules": {name: costs(p) for name, p in account.by_module(depth).items()},
        "ops": {name: costs(p) for name, p in account.by_op().items()},
    }
    return json.dumps(document, indent=1)
