"""A page as HTML for the output of a notebook's cell.

The style comes with each output and applies within it. Its colours are those of the text around it, so that it suits
light and dark notebooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from markupsafe import Markup

from symacct.notebook.pages import page_of
from symacct.report import Section
from symacct.reports.forms import Html
from symacct.reports.mathematics import html_of

STYLE = """.symacct { color: inherit; line-height: 1.45; max-width: 72rem; }
.symacct p { margin: .15rem 0; overflow-wrap: anywhere; }
.symacct p.part { font-weight: 600; margin: .9rem 0 .2rem; }
.symacct .table { overflow-x: auto; }
.symacct table { border-collapse: collapse; border: 0; margin: 0; font-size: inherit; color: inherit;
  font-variant-numeric: tabular-nums; }
.symacct table tr:nth-child(n), .symacct table tr:nth-child(n):hover { background: none; color: inherit; }
.symacct table th, .symacct table td { text-align: left; vertical-align: top; padding: .25rem 1.1rem .25rem 0;
  border: 0; border-bottom: 1px solid rgba(128, 128, 128, .3); background: none; color: inherit; white-space: normal;
  max-width: none; }
.symacct table th { font-weight: 600; opacity: .7; }
.symacct table .number { text-align: right; white-space: nowrap; }
.symacct code, .symacct pre { background: none; color: inherit; padding: 0;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .92em; }
.symacct pre { white-space: pre-wrap; }
.symacct thead:not(:has(th:not(:empty))) { display: none; }
.symacct .math { font-family: Cambria, "STIX Two Text", "Latin Modern Math", "Times New Roman", "DejaVu Serif", serif;
  font-size: 1.06em; overflow-wrap: anywhere; }
.symacct .math sup { line-height: 0; }
.symacct .math .word { font-style: normal; }
.symacct .share { display: inline-block; min-width: 5rem; padding: 0 .3rem; border-radius: .2rem;
  background: linear-gradient(to left, rgba(70, 130, 200, .35) var(--part), transparent var(--part)); }
.symacct .warning { font-weight: 600; }
.symacct details { margin-top: .6rem; opacity: .8; font-size: .9em; }
.symacct ul { margin: .2rem 0; padding-left: 1.2rem; }
"""
_FORM = Html()
# A cell that is no formula: two words side by side, a number with its unit, a sign that no formula has.
_PROSE = re.compile(r"\w\s+[^\W\d]|[:;'\"`$]|[^\W\d]\.|->|^-?$|\w\s+%$")


def to_html(what: Any) -> str:
    """An object as HTML: a ``div`` with its own style, which needs no other file."""
    page = page_of(what)
    first, *rest = page.heading
    lines = ['<div class="symacct">', f"<style>\n{STYLE}</style>", f"<p><b>{_FORM.text(first)}</b></p>"]
    lines += [f"<p>{_FORM.text(line)}</p>" for line in rest]
    if page.plain:
        lines.append(f"<pre>{_FORM.text(page.plain)}</pre>")
    for section in page.sections:
        lines += _table(section)
    lines += _notes(page.notes)
    return "\n".join([*lines, "</div>"])


def _table(section: Section) -> Iterator[str]:
    if not section.rows:
        return
    yield f'<p class="part">{_FORM.text(section.title)}</p>' if section.title else ""
    titles = [(">" if column.look == "value" else "") + column.title for column in section.columns]
    rows = [
        [_cell(column.look, cell) for column, cell in zip(section.columns, row, strict=True)] for row in section.rows
    ]
    yield str(_FORM.table(titles, rows))
    yield from (f"<p>{_FORM.text(note)}</p>" for note in section.notes)


def _cell(look: str, cell: str) -> Markup:
    if isinstance(cell, Markup):
        return cell
    if look == "name":
        return _FORM.code(cell)
    if (look == "formula" and not _PROSE.search(cell)) or (look == "value" and "*" in cell):
        return Markup(f'<span class="math">{html_of(cell)}</span>')
    return _FORM.text(cell)


def _notes(notes: Iterable[str]) -> Iterator[str]:
    """Warnings are seen at once, all else on a click."""
    calm = []
    for note in notes:
        if note.startswith(("INCOMPLETE", "NOT")):
            yield f'<p class="warning">{_FORM.text(note)}</p>'
        else:
            calm.append(note)
    if calm:
        items = "".join(f"<li>{_FORM.text(note)}</li>" for note in calm)
        yield f"<details><summary>what this rests on</summary><ul>{items}</ul></details>"
