"""`Account.verify` of the examples and of six models in eight settings; fills docs/verification.md.

    python tests/sweep_verification.py            # prints the tables
    python tests/sweep_verification.py --write    # and puts them into docs/verification.md

Sizes of the examples are those of tests/test_verify.py, of the others those of tests/test_memory_measured.py.
"""

import json
import sys
from pathlib import Path

from sweep_memory import line, write

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "verification.md"
RUNS = TESTS.parent / "docs" / "runs"
HEAD = (
    "program", "sizes", "operators", "FLOPs", "of them by a second opinion", "bytes read", "peak memory", "step",
    "of the bound", "all holds",
)  # fmt: skip


def programs():
    """(name, account, list of sizes) of all that is verified."""
    import torch
    from conftest import _account
    from test_memory_measured import GRID, MODELS, OPTIMIZERS, label, sizes_of
    from test_verify import RANGES, random_sizes

    import symacct as sa

    for name in RANGES:
        yield f"examples/{name}.py", _account(name), [random_sizes(name, seed) for seed in (1, 2, 3)]
    for config in GRID:
        name, optimizer, checkpointing, autocast = config
        model = MODELS[name]
        account = sa.trace(
            sa.build(model.maker(checkpointing)),
            check=False,
            **model.inputs,
            loss=model.loss,
            optimizer=OPTIMIZERS[optimizer],
            autocast=torch.bfloat16 if autocast else None,
        )
        yield label(config), account, sizes_of(*config)[:1]


def row(name, sizes, found):
    """A line of the table: figures are measured and predicted alike where all holds."""
    from symacct.verify.verification import shown

    memory = [f for f in found.part("memory").figures if f.name.startswith("peak")]
    flops = found.part("FLOPs").figures
    calls = sum(f.measured for f in found.part("operators").figures)
    median, bound = found.figure("median step").measured, found.figure("fastest step").predicted
    return (
        name,
        ", ".join(f"{n}={s}" for n, s in sizes.items()),
        f"{calls:,}",
        f"{sum(f.measured or 0 for f in flops):,}",
        f"{sum(f.measured for f in flops if f.verdict == 'known gap'):,}",
        f"{found.figure('read, each operand once').measured:,}",
        f"{max(f.measured for f in memory):,}",
        shown(median, "s"),
        shown(bound / median, "1"),
        "yes" if found.holds else "NO: " + "; ".join(map(str, found.residuals[:3])),
    )


def grid():
    """The table, how many runs there were, and of how many all holds."""
    lines, runs, good = [line(HEAD), "|---" * 2 + "|--:" * 7 + "|---|"], 0, 0
    for name, account, sizes in programs():
        for each in sizes:
            found = account.verify(at=each, steps=5)
            runs, good = runs + 1, good + found.holds
            lines.append(line(row(name, each, found)))
            print(lines[-1], flush=True)
    return lines, runs, good


def gaps():
    """The table of FlopCounterMode's gaps."""
    from symacct.verify.flops import GAPS

    lines = [line(("operators", "what is wrong", "what stands for it")), "|---|---|---|"]
    for gap in GAPS:
        instead = " ".join((gap.instead.__doc__ or "torch's formula for the same operator of CUDA").split())
        lines.append(line((", ".join(f"`{op}`" for op in gap.ops), gap.name, instead.rstrip("."))))
    return lines


def runs():
    """A table for each record in docs/runs."""
    lines = []
    for path in sorted(RUNS.glob("*.json")):
        document = json.loads(path.read_text())
        done = [case for case in document["cases"] if "machine" in case]
        machine = done[0]["machine"]
        where = f"{machine['device']}, torch {machine['torch']}, {machine['date']}"
        if machine["kind"] == "cuda":
            where += f", CUDA {machine['cuda']}, driver {machine['driver']}"
        lines += [f"`{path.name}`: {where}", ""]
        lines += [line(("case", "sizes", "holds", "step", "of the bound", "MFU")), "|---|---|---|--:|--:|--:|"]
        lines += [_of_case(case) for case in document["cases"]]
        lines.append("")
    return lines[:-1] or ["None yet."]


def _of_case(case):
    from symacct.verify.verification import shown

    if "machine" not in case:
        return line((case["case"], "", case["error"], "", "", ""))
    figures = {f["name"]: f for part in case["parts"] for f in part["figures"]}
    median, bound = figures["median step"]["measured"], figures["fastest step"]["predicted"]
    wrong = [part["name"] for part in case["parts"] if not part["holds"]]
    sizes = ", ".join(f"{n}={s}" for n, s in case["sizes"].items())
    cells = (shown(median, "s"), shown(bound / median, "1"), shown(figures["MFU"]["measured"], "1"))
    return line((case["case"], sizes, "no: " + ", ".join(wrong) if wrong else "yes", *cells))


def main(writing):
    import torch

    lines, count, good = grid()
    summary = f"{good} of {count} runs hold in all that is claimed, with torch {torch.__version__}."
    print(summary)
    if writing:
        write("grid", [summary, "", *lines], PAGE)
        write("gaps", gaps(), PAGE)
        write("runs", runs(), PAGE)
    return 0 if good == count else 1


if __name__ == "__main__":
    import conftest  # noqa: F401 - makes torchvision, which transformers looks for, importable

    raise SystemExit(main("--write" in sys.argv))
