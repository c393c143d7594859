"""Published formulas beside traces: writes docs/published.md.

python tests/sweep_published.py                   # prints the page; slow sections as they stand in it
python tests/sweep_published.py --slow            # traces the slow ones too
python tests/sweep_published.py --slow --write    # and writes it
"""

import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent


def made(slow):
    """The page; what slow entries give is taken from the page that is there unless they are to run."""
    from published.entries import ENTRIES
    from published.page import page, recorded, section

    sections = []
    for entry in ENTRIES:
        begin = time.perf_counter()
        old = None if slow or not entry.slow else recorded(entry)
        sections.append(section(entry) if old is None else old)
        print(f"{entry.ids}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return page(sections)


def main(options):
    """Print or write."""
    from published.page import PAGE

    text = made("--slow" in options)
    if "--write" in options:
        PAGE.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]
    import sitecustomize  # noqa: F401  # lets transformers find a torchvision that it can import

    main(sys.argv[1:])
