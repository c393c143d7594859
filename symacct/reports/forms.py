"""The forms of a report: how Markdown, HTML and LaTeX write a heading, a table, a name, a formula."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup, escape

from symacct.printing import formula
from symacct.reports.figures import Figure
from symacct.reports.mathematics import html_formula, latex_formula, latex_text

Column = str  # a heading; ">FLOP" is set to the right


class Form:
    """What every form has. Cells are plain text, which is escaped, or what another method of the form made."""

    name = ""
    suffix = ""

    def text(self, plain: Any) -> Markup:
        """Plain text, escaped."""
        return Markup(str(plain))

    def _cell(self, cell: Any) -> Markup:
        return cell if isinstance(cell, Markup) else self.text("" if cell is None else cell)

    def code(self, plain: Any) -> Markup:
        """A name as it stands in a program."""
        raise NotImplementedError

    def math(self, expr: Any) -> Markup:
        """A formula within a line."""
        raise NotImplementedError

    def share(self, fraction: float, words: str) -> Markup:
        """A share of a whole, in percent, and to be seen at a glance where the form can show it."""
        return self.text(words)

    def title(self, words: Any) -> Markup:
        """The heading of the report."""
        raise NotImplementedError

    def section(self, words: Any) -> Markup:
        """The heading of a part of it."""
        raise NotImplementedError

    def paragraph(self, words: Any) -> Markup:
        """A paragraph."""
        raise NotImplementedError

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Markup:
        """A table with headings; nothing where there are no rows."""
        raise NotImplementedError

    def notes(self, lines: Iterable[Any]) -> Markup:
        """Remarks below everything."""
        raise NotImplementedError


def _body(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(row) for row in rows]


class Markdown(Form):
    """Markdown as GitHub reads it; tables are in line in the source too, as far as their cells are short."""

    name, suffix = "markdown", ".md"
    _widest = 44  # characters to which cells are filled up

    def code(self, plain: Any) -> Markup:
        """In backticks."""
        words = str(plain)
        longest = max((len(run) for run in re.findall("`+", words)), default=0)
        ticks, gap = "`" * (longest + 1), " " if longest else ""
        return Markup(f"{ticks}{gap}{words}{gap}{ticks}") if words else Markup("")

    def math(self, expr: Any) -> Markup:
        """In backticks, as text."""
        return self.code(formula(expr))

    def title(self, words: Any) -> Markup:
        """A first heading."""
        return Markup(f"# {words}")

    def section(self, words: Any) -> Markup:
        """A second heading."""
        return Markup(f"\n## {words}\n")

    def paragraph(self, words: Any) -> Markup:
        """A paragraph."""
        return Markup(f"{words}\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Markup:
        """A table with pipes."""
        body = [[str(self._cell(cell)).replace("|", r"\|").replace("\n", " ") for cell in row] for row in _body(rows)]
        if not body:
            return Markup("")
        heads = [column.removeprefix(">") for column in columns]
        lines = [heads, *body]
        widths = [min(max(3, *(len(line[i]) for line in lines)), self._widest) for i in range(len(columns))]

        def filled(line: Sequence[str]) -> str:
            cells = (
                cell.rjust(width) if column.startswith(">") else cell.ljust(width)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            return f"| {' | '.join(cells)} |"

        rule = ["-" * (w - 1) + ":" if c.startswith(">") else "-" * w for w, c in zip(widths, columns, strict=True)]
        return Markup("\n".join([filled(heads), f"| {' | '.join(rule)} |", *map(filled, body), ""]))

    def notes(self, lines: Iterable[Any]) -> Markup:
        """A list."""
        return Markup("\n".join(["---", "", *(f"- {line}" for line in lines), ""]))


class Html(Form):
    """HTML that needs no other file."""

    name, suffix = "html", ".html"

    def text(self, plain: Any) -> Markup:
        """Escaped."""
        return escape(str(plain))

    def code(self, plain: Any) -> Markup:
        """A name, which may be broken behind its dots."""
        return Markup(f"<code>{str(escape(str(plain))).replace('.', '.<wbr>')}</code>") if str(plain) else Markup("")

    def math(self, expr: Any) -> Markup:
        """Marked up."""
        return Markup(f'<span class="math">{html_formula(expr)}</span>')

    def share(self, fraction: float, words: str) -> Markup:
        """A bar behind the number."""
        width = min(max(100 * fraction, 0), 100)
        return Markup(f'<span class="share" style="--part:{width:.1f}%">{escape(words)}</span>')

    def title(self, words: Any) -> Markup:
        """A first heading."""
        return Markup(f"<h1>{self._cell(words)}</h1>")

    def section(self, words: Any) -> Markup:
        """A second heading."""
        return Markup(f"<h2>{self._cell(words)}</h2>")

    def paragraph(self, words: Any) -> Markup:
        """A paragraph."""
        return Markup(f"<p>{self._cell(words)}</p>")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Markup:
        """A table that scrolls by itself where a page is too narrow for it."""
        body = _body(rows)
        if not body:
            return Markup("")
        sides = [' class="number"' if column.startswith(">") else "" for column in columns]

        def line(cells: Iterable[Any], tag: str) -> str:
            inner = "".join(f"<{tag}{side}>{self._cell(cell)}</{tag}>" for cell, side in zip(cells, sides, strict=True))
            return f"<tr>{inner}</tr>"

        head = line((column.removeprefix(">") for column in columns), "th")
        out = ['<div class="table"><table>', f"<thead>{head}</thead>", "<tbody>"]
        return Markup("\n".join([*out, *(line(row, "td") for row in body), "</tbody>", "</table></div>"]))

    def notes(self, lines: Iterable[Any]) -> Markup:
        """A list in a footer."""
        items = [f"<li>{self._cell(line)}</li>" for line in lines]
        return Markup("\n".join(["<footer><ul>", *items, "</ul></footer>"]))


class Latex(Form):
    """LaTeX for the article class, with longtable and array."""

    name, suffix = "latex", ".tex"

    def text(self, plain: Any) -> Markup:
        """Escaped."""
        return Markup(latex_text(str(plain)))

    def code(self, plain: Any) -> Markup:
        """A name, which may be broken behind dots and underscores."""
        words = re.sub(r"(\.|\\_)", r"\1\\allowbreak{}", latex_text(str(plain)))
        return Markup(rf"\texttt{{{words}}}") if words else Markup("")

    def math(self, expr: Any) -> Markup:
        """Between dollars."""
        return Markup(f"${latex_formula(expr)}$")

    def title(self, words: Any) -> Markup:
        """Set by hand: a title page would need an author and a date, which differ between runs."""
        return Markup(rf"{{\Large\bfseries {self._cell(words)}\par}}")

    def section(self, words: Any) -> Markup:
        """A section without a number."""
        return Markup(f"\n\\section*{{{self._cell(words)}}}\n")

    def paragraph(self, words: Any) -> Markup:
        """A paragraph."""
        return Markup(f"{self._cell(words)}\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> Markup:
        """A table that may go over pages; columns to the left share what numbers leave, the formulas most of it."""
        body = _body(rows)
        if not body:
            return Markup("")
        shape = "".join(self._columns(columns))
        lines = [[self._cell(column.removeprefix(">")) for column in columns], *body]
        cells = [" & ".join(self._cell(cell) for cell in line) + r" \\" for line in lines]
        head = [rf"\begin{{longtable}}{{@{{}}{shape}@{{}}}}", r"\hline", cells[0], r"\hline", r"\endhead"]
        return Markup("\n".join([*head, *cells[1:], r"\hline", r"\end{longtable}", ""]))

    @staticmethod
    def _columns(columns: Sequence[Column]) -> list[str]:
        wide = [1.6 if "formula" in column else 1.0 for column in columns if not column.startswith(">")]
        left = 0.92 - 0.13 * (len(columns) - len(wide))
        widths = iter(left * width / sum(wide) for width in wide)
        return [
            "r" if column.startswith(">") else rf">{{\raggedright\arraybackslash}}p{{{next(widths):.2f}\linewidth}}"
            for column in columns
        ]

    def notes(self, lines: Iterable[Any]) -> Markup:
        """A small list below a rule."""
        items = [rf"\item {self._cell(line)}" for line in lines]
        return Markup("\n".join([r"\bigskip\hrule", r"\begin{itemize}\small", *items, r"\end{itemize}", ""]))


FORMS: dict[str, Form] = {form.name: form for form in (Markdown(), Html(), Latex())}
SUFFIXES: dict[str, str] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".tex": "latex",
}


def shown_value(cell: Figure, digits: int = 3, binary: bool = False) -> str:
    """A figure's value for a cell; nothing where it has none."""
    return cell.shown(digits, binary) if cell.known else ""
