"""Seconds that pages and pictures take, and their ratio to the trace in the same run.

    python benchmarks/pictures.py [--repeat 3] [--only NAME] [--json FILE]

Full training steps with AdamW of the models of benchmarks/models.py whose depth is a number. "trace" is that of the
step with its check. "svg" is the first picture of the step after that, at the depth of modules that is readable.
"page" is the first page, in the step's own dtype alone, "dtypes" the page with the two others, each of which is traced
anew and checked. "open" is the time in headless Chromium from the navigation to the first complete view, "update" that
of the numbers after one size was moved, "layout" that of the graph: medians of ``--repeat`` turns. Beside "open" stands
the time that an empty page takes in the same browser.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

READY = "() => window.Symacct && Symacct.ready === true"
# Milliseconds from the navigation to the end of the scripts, which make the first view.
OPENED = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
MOVED = """(name) => new Promise((done) => {
  const box = document.getElementById(`size-${name}`);
  box.value = String(BigInt(box.value) + 2n);
  box.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => done(Symacct.milliseconds)));
})"""
LAYOUT = """() => { const begin = performance.now(); return Symacct.layout.then(() => performance.now() - begin); }"""


def measure(case: Any, repeat: int, folder: Path) -> dict[str, Any]:
    """All times of a model."""
    import torch

    import symacct as sa
    from symacct.drawing import render
    from symacct.page import to_html

    model = case.build()
    trace, account = timed(lambda: sa.trace(model, optimizer=torch.optim.AdamW, **case.specs))
    page, large = folder / "page.html", folder / "dtypes.html"
    svg, _ = timed(lambda: render(account, folder / "step.svg"))
    return {
        "model": case.name,
        "trace_s": trace,
        "svg_s": svg,
        "page_s": timed(lambda: to_html(account, page, dtypes=()))[0],
        "dtypes_s": timed(lambda: to_html(account, large))[0],
        "page_bytes": page.stat().st_size,
        "dtypes_bytes": large.stat().st_size,
        **in_browser(large, account.dims[-1], repeat),
    }


def in_browser(path: Path, dim: str, repeat: int) -> dict[str, float]:
    """Seconds of opening a page, of an update, and of the layout of its graph; and of opening an empty page."""
    from browser import opened

    found: dict[str, list[float]] = {"open_s": [], "update_s": [], "layout_s": [], "empty_s": []}
    empty = path.with_name("empty.html")
    empty.write_text("<!DOCTYPE html><title>nothing</title>")
    for _ in range(repeat):
        with opened() as page:
            page.tab.goto(empty.as_uri())
            found["empty_s"].append(page.tab.evaluate(OPENED) / 1000)
            page.go(path)
            found["open_s"].append(page.tab.evaluate(OPENED) / 1000)
            found["update_s"] += [page.tab.evaluate(MOVED, dim) / 1000 for _ in range(5)]
            found["layout_s"].append(page.tab.evaluate(LAYOUT) / 1000)
    return {name: statistics.median(values) for name, values in found.items()}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    gc.collect()
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def show(row: dict[str, Any]) -> None:
    """A model's times, those of Python beside the trace."""
    print(f"\n{row['model']}: traced and checked in {row['trace_s']:.2f} s")
    for name, what in (
        ("svg_s", "SVG of the step by modules"),
        ("page_s", f"page, one dtype, {row['page_bytes'] / 1e6:.2f} MB"),
        ("dtypes_s", f"page, three dtypes, {row['dtypes_bytes'] / 1e6:.2f} MB"),
    ):
        print(f"  {what:34} {row[name]:8.2f} s  {row[name] / row['trace_s']:6.2f} of the trace")
    print(f"  {'page opens':34} {row['open_s']:8.2f} s  (an empty one: {row['empty_s']:.2f} s)")
    print(f"  {'a size is moved':34} {row['update_s'] * 1000:8.1f} ms")
    print(f"  {'the graph is laid out':34} {row['layout_s']:8.2f} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", help="also write the record to this file")
    parser.add_argument("--only", default="", help="part of a model's name")
    options = parser.parse_args()
    import torch
    from models import cases

    record: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "pictures": [],
    }
    print(f"torch {record['torch']}, Python {record['python']}, {record['machine']}")
    for case in cases():
        if case.deep or options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(case, options.repeat, Path(folder))
        record["pictures"].append(row)
        show(row)
    if options.json:
        temporary = options.json + ".part"
        with open(temporary, "w") as file:
            json.dump(record, file, indent=1)
        os.replace(temporary, options.json)


if __name__ == "__main__":
    main()
