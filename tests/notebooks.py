"""Notebooks of examples/, run afresh.

    python tests/notebooks.py --write

runs them and writes their outputs into them. The kernel is this interpreter, whatever kernels are installed, and what
differs between runs and machines (times, versions, paths) is not kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
TEXTS = ("text/plain", "text/html", "text/latex", "text/markdown")  # what an output may hold: no pictures


class ThisInterpreter(KernelSpecManager):
    """Kernels that are this Python, in place of the installed ones."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The same kernel by any name."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        named = {"IPYKERNEL_CELL_NAME": "<cell>"}  # where code says that it stands; else a file named by the process
        return KernelSpec(argv=argv, env=named, display_name="Python 3", language="python")


def executed(path: Path) -> dict[str, Any]:
    """A notebook with the outputs of a run in the root of the repository. A cell that fails is an error."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:  # sockets in files: nothing listens on a port
        manager = AsyncKernelManager(kernel_spec_manager=ThisInterpreter(), transport="ipc", ip=f"{folder}/kernel")
        where = {"metadata": {"path": str(ROOT)}}
        try:
            NotebookClient(notebook, km=manager, timeout=600, record_timing=False, resources=where).execute()
        finally:  # the client leaves a kernel alone that it did not make itself
            run_sync(manager.shutdown_kernel)(now=True)
    return plain(notebook)


def plain(notebook: Any) -> dict[str, Any]:
    """What is kept of a notebook: cells with names that stay, their texts, and that it is in Python 3."""
    cells = []
    for i, cell in enumerate(notebook["cells"]):
        kept = {"cell_type": cell["cell_type"], "id": f"cell-{i}", "metadata": {}, "source": cell["source"]}
        if cell["cell_type"] == "code":
            kept |= {"execution_count": cell["execution_count"], "outputs": [_output(each) for each in cell["outputs"]]}
        cells.append(kept)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _output(output: Any) -> dict[str, Any]:
    kept = dict(output)
    if "data" in kept:
        kept |= {"data": {kind: kept["data"][kind] for kind in TEXTS if kind in kept["data"]}, "metadata": {}}
    return kept


def written(notebook: dict[str, Any]) -> str:
    """The text of a notebook's file: strings of several lines as lists, as Jupyter writes them."""
    return str(nbformat.writes(nbformat.from_dict(notebook))) + "\n"


def texts(notebook: Any) -> list[tuple[str, list[str]]]:
    """The source of each cell with the texts of its outputs, but for LaTeX, which SymPy writes."""
    found = []
    for cell in notebook["cells"]:
        outputs = [each.get("text") or json.dumps(each.get("data", {})) for each in cell.get("outputs", [])]
        found.append((cell["source"], outputs))
    return found


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        text = written(executed(notebook_path))
        if "--write" in sys.argv[1:]:
            notebook_path.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
