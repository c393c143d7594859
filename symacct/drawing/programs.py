"""Graphviz, from where it is: the program ``dot``, or the libraries that pygraphviz brings."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from symacct.errors import SpecError

MISSING = "render: pictures need Graphviz, which is not there: pip install 'symacct[draw]'"
_PIXELS, _DPI = 4000, 144  # the most a side of a PNG has, and its dots per inch where that leaves room
_PYGRAPHVIZ = """
import sys
import pygraphviz
form, source, target, *options = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    graph = pygraphviz.AGraph(string=file.read())
graph.draw(target, format=form, prog="dot", args=" ".join(options))
"""


class TimeIsUpError(Exception):
    """A layout was not done in time; it is tried again with fewer boxes."""


class GraphvizError(SpecError):
    """Graphviz failed on a graph."""


def must_be_there() -> None:
    """Raise `SpecError`, which says what to install, where there is no Graphviz."""
    _command("svg", Path("x"), Path("y"))


def laid_out(dot: str, form: str, timeout: float) -> bytes:
    """The picture ("svg", "png" or "pdf") of a graph in DOT.

    Raises `TimeIsUpError` when that takes more than so many seconds, `GraphvizError` where Graphviz fails, and
    `SpecError` where there is none.
    """
    with TemporaryDirectory() as folder:
        source, target, words = (Path(folder) / name for name in ("graph.gv", "picture", "errors"))
        source.write_text(dot, encoding="utf-8")
        command = _command(form, source, target)
        try:
            with open(words, "wb") as errors:  # no pipe: one that is stopped may leave a child that holds it open
                run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise TimeIsUpError from None
        except OSError as error:
            raise SpecError(f"render: {command[0]} cannot be run: {error.strerror or error}") from None
        if run.returncode or not target.is_file():
            said = words.read_text(errors="replace").strip().splitlines()
            raise GraphvizError(f"render: Graphviz failed: {said[-1] if said else f'exit code {run.returncode}'}")
        return target.read_bytes()


def _command(form: str, source: Path, target: Path) -> Sequence[str]:
    inches = _PIXELS / _DPI
    options = [f"-Gdpi={_DPI}", f"-Gsize={inches:.4f},{inches:.4f}"] if form == "png" else []
    program = shutil.which("dot")
    if program is not None:
        renderer = {"png": "png:cairo", "pdf": "pdf:cairo"}.get(form, form)
        return [program, f"-T{renderer}", *options, "-o", str(target), str(source)]
    if importlib.util.find_spec("pygraphviz") is None:
        raise SpecError(MISSING)
    return [sys.executable, "-c", _PYGRAPHVIZ, form, str(source), str(target), *options]
