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

SIZES = {
    "two_layer": {"B": 16384, "D": 32768, "K": 8192},
    "cruncher": {"B": 1024, "D": 4096},
    "gpt2": {"B": 8, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024},
    "llama": {"B": 1, "L": 8192, "G": 8, "H": 4, "Dh": 128, "F": 14336, "V": 128256},
    "resnet50": {"B": 256},
}
VIEWS = {"two_layer": "totals", "cruncher": "memory", "gpt2": "graph", "llama": "totals", "resnet50": "modules"}
DARK = {"cruncher", "resnet50"}


def main() -> None:
    """Make the pages and their pictures."""
    from browser import opened
    from conftest import _account

    DOCS.mkdir(exist_ok=True)
    for name, sizes in SIZES.items():
        account = _account(name).at(**sizes)
        scheme = "dark" if name in DARK else "light"
        with (
            tempfile.TemporaryDirectory() as folder,
            opened(viewport={"width": 1280, "height": 860}, color_scheme=scheme, reduced_motion="reduce") as page,
        ):
            path = Path(folder) / "page.html"
            account.to_html(path)
            page.go(path, f"view={VIEWS[name]}")
            if VIEWS[name] == "graph":
                page.tab.evaluate("() => Symacct.layout")
            page.tab.wait_for_timeout(500)
            picture = DOCS / f"{name}.png"
            page.tab.screenshot(path=str(picture))
            Image.open(picture).convert("RGB").quantize(64).save(picture, optimize=True)  # small, and as sharp
            print(f"{picture}: {picture.stat().st_size:,} bytes of a page of {path.stat().st_size:,}")


if __name__ == "__main__":
    main()
