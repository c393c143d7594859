"""Proves that the libraries of the live page are what npm publishes.

    python tests/vendor.py

Fetches the packages with ``npm pack`` into a temporary folder, which needs npm and its registry, and compares their
files with those in symacct/page/vendor byte by byte. Run it by hand after a library was changed.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "symacct" / "page" / "vendor"
# Package and version, and each of its files that is kept here.
PACKAGES = {
    "uplot@1.6.32": {
        "dist/uPlot.iife.min.js": "uPlot.iife.min.js", "dist/uPlot.min.css": "uPlot.min.css",
        "LICENSE": "LICENSES/uPlot.txt",
    },
    "svg-pan-zoom@3.6.2": {
        "dist/svg-pan-zoom.min.js": "svg-pan-zoom.min.js", "LICENSE": "LICENSES/svg-pan-zoom.txt",
    },
    "@viz-js/viz@3.31.0": {"dist/viz-global.js": "viz-global.js"},
}  # fmt: skip


def published(package: str, folder: str) -> dict[str, bytes]:
    """The files of a package as npm publishes it, by their path in it."""
    run = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=True)
    with tarfile.open(Path(folder) / run.stdout.split()[-1]) as archive:
        members = [member for member in archive if member.isfile()]
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in members}


def main() -> None:
    """Compare all files; exit with 1 where one differs, or where one is kept that no package has."""
    wrong = []
    for package, kept in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            files = published(package, folder)
        for theirs, ours in kept.items():
            same = files.get(theirs) == (VENDOR / ours).read_bytes()
            print(f"{ours:28} {'equals' if same else 'DIFFERS FROM'} {theirs} of {package}")
            wrong += [] if same else [ours]
    known = {ours for kept in PACKAGES.values() for ours in kept.values()}
    for path in sorted(VENDOR.glob("*.*s")):
        if path.name not in known:
            print(f"{path.name:28} IS OF NO PACKAGE")
            wrong.append(path.name)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
