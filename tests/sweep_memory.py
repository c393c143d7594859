"""Predicted and real memory of six models, with two optimizers, with and without checkpoints and autocast.

    python tests/sweep_memory.py            # prints the tables
    python tests/sweep_memory.py --write    # and puts them into docs/memory.md

Models, sizes and the comparison are those of tests/test_memory_measured.py.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "memory.md"
BEGIN, END = "<!-- begin generated {} -->\n", "<!-- end generated {} -->\n"
COLUMNS = ("peak, step 1", "peak, step 2", "end of forward", "at rest", "allocator's own peak", "births and deaths")


def row_of(config, largest):
    """A row of the grid, with figures of the last of its sizes; ``largest`` takes the largest scratch by operator."""
    from allocator import differences
    from test_memory_measured import runs_of

    runs = list(runs_of(*config))
    equal = sum(differences(*run) == [] for _, run in runs)
    for _, (_, run) in runs:
        for use in (use for step in run.steps for use in step.uses.values() if use.scratch):
            if use.packet not in largest or use.scratch > largest[use.packet].scratch:
                largest[use.packet] = use
    sizes, (account, run) = runs[-1]
    first, later = run.steps
    real = (first.peak, later.peak, later.forward, later.rest)
    name, optimizer, checkpointing, autocast = config
    cells = [
        name, optimizer, "yes" if checkpointing else "", "bf16" if autocast else "",
        ", ".join(f"{n}={s}" for n, s in sizes.items()),
        *(f"{n:,}" for n in real),
        f"{max(step.raw_peak for step in run.steps) / account.peak_bytes - 1:+.2%}",
        f"{len(first.sequence)} + {len(later.sequence)}",
        f"{equal} of {len(runs)}",
    ]  # fmt: skip
    return cells, equal == len(runs)


def grid():
    """The table of the grid, what of it is equal, and the largest scratch by operator."""
    from test_memory_measured import GRID

    head = ("model", "optimizer", "checkpoints", "autocast", "sizes", *COLUMNS, "sizes at which all is equal")
    lines, good, largest = [line(head), "|---" * 5 + "|--:" * len(COLUMNS) + "|---|"], 0, {}
    for config in GRID:
        cells, equal = row_of(config, largest)
        good += equal
        lines.append(line(cells))
        print(lines[-1], flush=True)
    return lines, good, largest


def scratch(largest):
    """The table of what operators allocate and free."""
    from symacct.verify.scratch import SCRATCH

    families = {}
    for op, bound in SCRATCH.items():
        families.setdefault(bound, []).append(op)
    lines = [line(("operators", "what they allocate", "largest in the grid", "bound there")), "|---|---|---|--:|"]
    for bound, ops in families.items():
        names = ", ".join(f"`{op.removeprefix('aten.')}`" for op in ops)
        seen = max((largest[op] for op in ops if op in largest), key=lambda use: use.scratch, default=None)
        example = ("none there", "")
        if seen is not None:
            operands = ", ".join(f"{list(o.shape)} {str(o.dtype).removeprefix('torch.')}" for o in seen.operands)
            example = f"{seen.scratch:,} by `{seen.packet.removeprefix('aten.')}` on {operands}", f"{seen.bound():,}"
        lines.append(line((names, " ".join(bound.__doc__.split()), *example)))
    return lines


def line(cells):
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def write(name, lines, page=PAGE):
    """Put lines between the markers of a name on a page."""
    before, _, rest = page.read_text().partition(BEGIN.format(name))
    after = rest.partition(END.format(name))[2]
    page.write_text(before + BEGIN.format(name) + "\n" + "\n".join(lines) + "\n\n" + END.format(name) + after)


def main(writing):
    import torch

    lines, good, largest = grid()
    table = scratch(largest)
    count = len(lines) - 2
    summary = (
        f"{good} of {count} configurations equal at all three sizes, with torch {torch.__version__}, in one thread."
    )
    print("\n".join([*table, summary]))
    if writing:
        write("grid", [summary, "", *lines])
        write("scratch", table)
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS / "support"))
    import sitecustomize  # noqa: F401 - makes torchvision, which transformers looks for, importable

    raise SystemExit(main("--write" in sys.argv))
