"""An account as text, Markdown or JSON: totals by phase, by module, by op, and what is not counted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symacct.account import CONVENTION, Account, Phase
from symacct.printing import formula, quantity, text

if TYPE_CHECKING:
    from rich.console import RenderableType

MEASURES = (("flops", "FLOP"), ("pointwise", "FLOP"), ("bytes", "B"))


@dataclass(frozen=True)
class Row:
    """One line of a table: what, which measure, its formula, its value where sizes are given."""

    name: str
    measure: str
    formula: str
    value: str = ""


@dataclass(frozen=True)
class Section:
    """A table with a heading."""

    title: str
    rows: tuple[Row, ...]


def sections(account: Account, depth: int = 1) -> Iterator[Section]:
    """The tables of a report, in order. Parts that cost nothing are left out."""
    phases = [p for p in account.phases.values() if p.count] + [account.total]
    yield Section("by phase", tuple(_rows(account, phases)))
    tensors = [
        ("parameters", "count", "params", ""),
        ("parameters", "bytes", "param_bytes", "B"),
        ("gradients", "bytes", "grad_bytes", "B"),
        ("optimizer state", "bytes", "optimizer_bytes", "B"),
        ("buffers", "bytes", "buffer_bytes", "B"),
    ]
    held = [
        _row(account, name, measure, unit, lambda a, attribute=attribute: getattr(a, attribute))
        for name, measure, attribute, unit in tensors
    ]
    if any(row.formula != "0" for row in held):
        yield Section("tensors that stay", tuple(row for row in held if row.formula != "0"))
    modules = account.by_module(depth)
    if len(modules) > 1 or "" not in modules:
        yield Section(f"by module, to depth {depth}", tuple(_rows(account, modules.values(), top="(top level)")))
    yield Section("by op", tuple(_rows(account, account.by_op().values())))


def _rows(account: Account, parts: Iterable[Phase], top: str = "") -> Iterator[Row]:
    for part in parts:
        lines = [
            _row(account, "", measure, unit, lambda a, measure=measure, part=part: getattr(_in(a, part), measure))
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


def _row(account: Account, name: str, measure: str, unit: str, get: Any) -> Row:
    symbolic = account.symbolic
    value = quantity(get(account), unit) if account.sizes is not None else ""
    return Row(name, measure, formula(get(symbolic)), value)


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
    if account.assumptions:
        lines.append("holds when: " + "; ".join(map(str, account.assumptions)))
    if account.checked:
        shown = "; ".join(", ".join(f"{n}={s}" for n, s in sizes.items()) for sizes in account.checked)
        lines.append(f"checked, node by node, at {shown}")
    if account.unchecked:
        lines.append(f"NOT checked at other sizes of {', '.join(account.unchecked)}")
    if account.sizes is not None and 1 in account.sizes.values():
        lines.append(
            "at a size of 1 eager PyTorch may skip copies and broadcasts that other sizes need: bytes and pointwise "
            "may be a little too high (trace with that axis given as 1 for the exact figure)"
        )
    lines.append(CONVENTION)
    return lines


def to_text(account: Account, depth: int = 1, width: int = 100) -> str:
    """The report as plain text of the given width."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, highlight=False)
    for part in renderables(account, depth):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def renderables(account: Account, depth: int = 1) -> Iterator[RenderableType]:
    """The report for a rich console: heading, tables, footnotes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    first, *rest = header(account)
    yield Text(first, style="bold")
    for line in rest:
        yield Text(line)
    for section in sections(account, depth):
        table = Table(
            title=section.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
            show_header=False, padding=(0, 1),
        )  # fmt: skip
        table.add_column("what", overflow="fold", max_width=36, style="cyan")
        table.add_column("measure", no_wrap=True)
        table.add_column("formula", overflow="fold", ratio=1)
        if account.sizes is not None:
            table.add_column("value", no_wrap=True, justify="right", style="green")
        for row in section.rows:
            cells = [row.name, row.measure, row.formula]
            table.add_row(*(Text(c) for c in [*cells, row.value][: len(table.columns)]))
        yield table
    for line in footer(account):
        yield Text(line, style="yellow" if line.startswith(("INCOMPLETE", "NOT")) else "dim")


def to_markdown(account: Account, depth: int = 1) -> str:
    """The report in Markdown."""
    first, *rest = header(account)
    lines = [f"## `{first}`", "", *rest]
    with_values = account.sizes is not None
    for section in sections(account, depth):
        titles = ["", "measure", "formula"] + (["value"] if with_values else [])
        lines += ["", f"### {section.title}", "", f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
        for row in section.rows:
            cells = [f"`{row.name}`" if row.name else "", row.measure, f"`{row.formula}`"]
            lines.append("| " + " | ".join(cells + ([row.value] if with_values else [])) + " |")
    return "\n".join([*lines, "", *(f"- {line}" for line in footer(account)), ""])


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
        return {"nodes": part.count, "complete": not part.unknown, **out}

    held = ("params", "param_bytes", "grad_bytes", "optimizer_bytes", "buffer_bytes")
    document = {
        "symacct": symacct.__version__,
        "torch": torch.__version__,
        "target": account.title,
        "inputs": account.inputs,
        "convention": CONVENTION,
        "dims": list(account.dims),
        "sizes": dict(account.sizes) if account.sizes is not None else None,
        "trial_sizes": dict(account.trial_sizes),
        "checked": [dict(sizes) for sizes in account.checked],
        "unchecked": list(account.unchecked),
        "assumptions": [str(a) for a in account.assumptions],
        "unknown": [{"op": u.op, "count": u.count, "places": list(u.places)} for u in account.unknown],
        "tensors": {name: entry(lambda a, name=name: getattr(a, name)) for name in held},
        "phases": {name: costs(p) for name, p in account.phases.items()},
        "total": costs(account.total),
        "modules": {name: costs(p) for name, p in account.by_module(depth).items()},
        "ops": {name: costs(p) for name, p in account.by_op().items()},
    }
    return json.dumps(document, indent=1)
