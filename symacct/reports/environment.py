"""The Jinja environment of a report: where templates are found, how each form escapes, what an absent name says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator

from symacct.errors import ReportError
from symacct.reports.faults import Absent
from symacct.reports.filters import filters, joined
from symacct.reports.forms import Form

_FOLDER = Path(__file__).parent / "templates"


def environment(form: Form, loader: Loader, names: Iterable[str]) -> jinja2.Environment:
    """The environment for a form; ``names`` are those that templates find."""
    # Markdown has no escaping that suits all places; a name goes there in backticks, by | code.
    made = jinja2.Environment(
        loader=loader, autoescape=form.name != "markdown", trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, extensions=["jinja2.ext.do"], finalize=lambda value: _final(form, value),
        undefined=type("Absent", (Absent,), {"__slots__": (), "names": tuple(sorted(names))}),
    )  # fmt: skip
    made.filters |= filters(form)
    made.code_generator_class = _Generator
    made.joined = lambda parts: joined(form, parts)  # type: ignore[attr-defined]
    return made


class Loader(jinja2.BaseLoader):
    """Templates: the report's own, those beside it, those of symacct. ``files``: the names under which it read them."""

    def __init__(self, main: Path | None) -> None:
        self.main = main
        self.files: set[str] = set()

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """The text of a template, its name for messages, and whether it is still the same."""
        beside = [] if self.main is None else [self.main.parent / template]
        if self.main is not None and template == str(self.main):
            beside = [self.main]
        for path in (*beside, _FOLDER / f"{template}.j2", _FOLDER / template):
            if path.is_file():
                shown = str(path) if path.parent != _FOLDER else f"symacct's own {path.name}"
                self.files.add(shown)
                return _source(path), shown, lambda: True
        raise jinja2.TemplateNotFound(template)


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


class _Generator(CodeGenerator):
    """Jinja's, but for what it would escape for HTML by itself: constants, and what ``~`` joins."""

    def _output_child_to_const(self, node: Any, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Concat(self, node: Any, frame: Any) -> None:  # noqa: N802 (Jinja's name)
        """As Jinja's, with the form's own way to escape."""
        self.write("environment.joined((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")


def _final(form: Form, value: Any) -> Any:
    """What is printed for the value of ``{{ }}``."""
    if value is None:
        return "-"
    return value if form.name != "latex" or hasattr(value, "__html__") else form.text(value)
