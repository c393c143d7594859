"""The families of docs/configs.md: what each config becomes, and with --formulas what a training step costs.

    python tests/sweep_configs.py                       # prints the legends
    python tests/sweep_configs.py --formulas            # and the formulas, in minutes
    python tests/sweep_configs.py --formulas --write    # puts them into docs/configs.md instead

Configs are those of tests/data/configs.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parent
CONFIGS = sorted((TESTS / "data" / "configs").glob("*.json"))
PAGE = TESTS.parent / "docs" / "configs.md"
BEGIN, END = "<!-- begin generated {} -->\n", "<!-- end generated {} -->\n"


def legends():
    """A section for each config: its legend, and the number of parameters of the model that transformers makes."""
    from symacct.hf import from_config
    from symacct.hf.found import count

    parts = []
    for path in CONFIGS:
        found = from_config(path)
        parts.append(f"### {path.stem}\n\n```text\n{found}\n```\n\nParameters: {count(found.plain()):,}.\n")
    return "\n".join(parts)


def formulas():
    """A table of forward FLOPs and parameters in all dims, depth too, from traces that were checked."""
    import symacct as sa
    from symacct.hf import from_config

    rows = ["| config | forward FLOP of a training step | parameters |", "| --- | --- | --- |"]
    for path in CONFIGS:
        print(path.stem, file=sys.stderr, flush=True)
        step = from_config(path).trace()
        rows.append(f"| {path.stem} | `{step.forward}` | `{sa.formula(step.params)}` |")
    return "\n".join(rows) + "\n"


def part(page, name):
    """What stands between the marks of a generated part."""
    return page.split(BEGIN.format(name))[1].split(END.format(name))[0]


def put(page, name, text):
    """The page with another text between the marks."""
    begin, end = BEGIN.format(name), END.format(name)
    before, rest = page.split(begin)
    return f"{before}{begin}{text}{end}{rest.split(end)[1]}"


def main(options):
    """Print or write."""
    made = {"legends": legends()}
    if "--formulas" in options:
        made["formulas"] = formulas()
    for name, text in made.items():
        if "--write" in options:
            PAGE.write_text(put(PAGE.read_text(), name, text))
        else:
            print(text)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS / "support"))
    import sitecustomize  # noqa: F401  # lets transformers find a torchvision that it can import

    main(sys.argv[1:])
