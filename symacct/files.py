"""Files that are whole or not there: written under another name, then moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from symacct.errors import SpecError


def must_be_writable(path: str | Path, what: str) -> None:
    """Raise `SpecError`, which opens with ``what``, where no file can be written to ``path``."""
    path = Path(path)
    if not os.path.isdir(path.parent):  # unlike Path.is_dir it does not raise where a name is too long
        raise SpecError(f"{what}: there is no folder {path.parent} to write {path.name} to")
    if os.path.isdir(path):
        raise SpecError(f"{what}: {path} is a folder")
    if not os.access(path.parent, os.W_OK):
        raise SpecError(f"{what}: nothing may be written to the folder {path.parent}")


@contextmanager
def replacing(path: str | Path, what: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when all is written.

    Raises `SpecError`, which opens with ``what``, where it cannot be written.
    """
    path = Path(path)
    part = path.with_name(f".symacct.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise SpecError(f"{what}: {path} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
