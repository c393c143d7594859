"""What commands print, where to, and how they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from symacct.errors import (
    DeviceError,
    DimError,
    ReportError,
    SpecError,
    SymacctError,
    TargetError,
    UnitError,
    UnknownOpError,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(parts: Callable[[int], Iterable[RenderableType]]) -> None:
    """Print a report, made for the width of what it goes to."""
    from rich.console import Console

    from symacct.report import WIDTH, as_text

    if not sys.stdout.isatty():
        print(as_text(parts(WIDTH), WIDTH))
        return
    console = Console(highlight=False)
    for part in parts(console.width):
        console.print(part)


@contextmanager
def progress() -> Iterator[None]:
    """A line on the terminal that says what is going on; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from symacct.progress import listening

    with Console(stderr=True).status("starting") as status, listening(status.update):
        yield


@contextmanager
def errors() -> Iterator[None]:
    """Turn errors that are meant for people into a line and an exit code."""
    try:
        yield
    except SymacctError as error:
        print(f"symacct: {error}", file=sys.stderr)
        raise typer.Exit(_code(error)) from None


def writable(option: typer.CallbackParam, path: str) -> str:
    """Refuse a file that cannot be written before anything takes time."""
    if path:
        from symacct.files import must_be_writable

        with errors():
            must_be_writable(path, option.opts[0])
    return path


def drawable(path: str) -> str:
    """Refuse a file that cannot be drawn to before anything takes time."""
    if path:
        from symacct.plot import ready

        with errors():
            ready(path)
    return path


def hardware(name: str) -> str:
    """Refuse a device that there is not before anything takes time."""
    if name:
        from symacct.device_file import device_or_file

        with errors():
            device_or_file(name)
    return name


def _code(error: SymacctError) -> int:
    if isinstance(error, UnknownOpError):
        return 3
    return 2 if isinstance(error, (TargetError, SpecError, DimError, DeviceError, UnitError, ReportError)) else 1
