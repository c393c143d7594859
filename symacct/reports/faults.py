"""Errors of templates, for people: the file, the line, what is wrong, what there is instead."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Collection, Iterable
from typing import Any

import jinja2

from symacct.errors import ReportError, SymacctError
from symacct.reports.views import found_in


class Absent(jinja2.StrictUndefined):
    """A name or an attribute that is not there; any use of it says what is. ``names``: those of the report."""

    __slots__ = ()
    names: tuple[str, ...] = ()

    @property
    def _undefined_message(self) -> str:
        name = self._undefined_name
        if self._undefined_hint:
            return str(self._undefined_hint)
        what = self._undefined_obj
        if what is jinja2.utils.missing:
            return f"there is no {name!r}{close(str(name), self.names)}; the names are {', '.join(self.names)}"
        options = [each for each in dir(what) if not each.startswith("_")]
        if isinstance(what, dict):
            options = [str(key) for key in what]
        return f"there is no {name!r}{close(str(name), options)}; {found_in(what)}"


def close(name: str, known: Iterable[str]) -> str:
    """A hint at names that are like one that is not there."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" (did you mean {found[0]!r}?)" if found else ""


def explained(error: BaseException, files: Collection[str], filters: Collection[str], main: str) -> ReportError:
    """What went wrong while a template was read or filled in, opening with the template's file and line."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        name = error.filename or error.name or main
        return ReportError(f"{name}, line {error.lineno}: {_sentence(error.message or '', filters)}")
    where = _place(error, files, main)
    if isinstance(error, jinja2.TemplateNotFound):
        return ReportError(f"{where}: there is no template {error.name!r} beside it")
    if isinstance(error, (SymacctError, jinja2.UndefinedError)):
        return ReportError(f"{where}: {error}")
    if isinstance(error, jinja2.TemplateError):
        return ReportError(f"{where}: {_sentence(error.message or '', filters)}")
    words = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        words = "the template goes round in circles"
    return ReportError(f"{where}: {type(error).__name__}: {words}" if words else f"{where}: {type(error).__name__}")


def _place(error: BaseException, files: Collection[str], main: str) -> str:
    """The innermost line of a template on the way to an error; Jinja puts its own files into the traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else main


def _sentence(words: str, filters: Collection[str]) -> str:
    """A message of Jinja as part of a sentence; for an unknown filter, those that there are."""
    match = re.match(r"No (filter|test) named '([^']*)'", words)
    if not match:
        return words[:1].lower() + words[1:].rstrip(".")
    if match[1] == "test":
        return f"there is no test {match[2]!r}"
    return f"there is no filter {match[2]!r}{close(match[2], filters)}; those for figures are {', '.join(filters)}"


def argument(value: Any, what: str, expected: str) -> ReportError:
    """An argument of another kind than expected."""
    return ReportError(f"{what}: expected {expected}, not {type(value).__name__}")
