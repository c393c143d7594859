"""The pictures of docs/page.md: the live page of each example in headless Chromium.

python tests/screenshots.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "page"
sys.path[:0] = [str(HERE)]

VIEWS = {"two_layer": "totals", "cruncher": "memory", "gpt2": "graph", "llama": "totals", "resnet50": "modules"}
DARK = {"cruncher", "resnet50"}


def main() -> None:
    """Make the pages and their pictures."""
    from browser import opened
    from conftest import _account
    from test_drawing import SIZES

    DOCS.mkdir(exist_ok=True)
    for name, view in VIEWS.items():
        account = _account(name).at(**SIZES[name])
        scheme = "dark" if name in DARK else "light"
        with (
            tempfile.TemporaryDirectory() as folder,
            opened(viewport={"width": 1280, "height": 860}, color_scheme=scheme, reduced_motion="reduce") as page,
        ):
            path = Path(folder) / "page.html"
            account.to_html(path)
            page.go(path, f"view={view}")
            if view == "graph":
                page.tab.evaluate("() => Symacct.layout")
            page.tab.wait_for_timeout(500)
            picture = DOCS / f"{name}.png"
            page.tab.screenshot(path=str(picture))
            Image.open(picture).convert("RGB").quantize(64).save(picture, optimize=True)  # small, and as sharp
            print(f"{picture}: {picture.stat().st_size:,} bytes of a page of {path.stat().st_size:,}")


if __name__ == "__main__":
    main()
