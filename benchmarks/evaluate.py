"""Size combinations per second: all figures of an account at a million of them, in one compiled function.

    PYTHONPATH=tests/support python benchmarks/evaluate.py [--count 1000000] [--layers 2] [--json FILE]

The figures are FLOPs, pointwise work, bytes read, written and both of every phase and of all together, parameters,
the bytes of all that stays, activations and the peak, of a training step of a GPT-2 and of a Llama with
AdamW. "at" and "evaluate" are the same figures through ``account.at(...)``, and through
`symacct.algebra.evaluate` of the formulas, one combination after another; both are measured on a few and compared per
combination. (SymPy's own ``.subs`` compares
a Max's arguments anew after each symbol, and takes minutes for a peak.) Depth changes the numbers in the
formulas, not how many terms they have. "peak MB" is that of the child process in which one model is traced,
compiled and evaluated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

# Least and largest size of each dim; Dh is made even, as rotary embeddings want it.
RANGES = {
    "gpt2": {"B": (1, 64), "L": (2, 4096), "H": (1, 64), "Dh": (8, 128), "V": (1000, 100_000), "P": (4096, 8192)},
    "llama": {
        "B": (1, 64), "L": (2, 4096), "H": (2, 8), "G": (1, 16), "Dh": (8, 128),
        "F": (64, 30_000), "V": (1000, 200_000),
    },
}  # fmt: skip
ONE_BY_ONE = {"at": 3, "evaluate": 3}  # how many combinations are measured


def account_of(name: str, layers: int) -> Any:
    """A training step with AdamW of a small number of blocks."""
    import models
    import torch

    import symacct as sa

    if name == "gpt2":
        model = sa.build(lambda H, Dh, V, P: models._gpt2(H, Dh, V, P, layers))
    else:
        model = sa.build(lambda H, G, Dh, F, V: models._llama(H, G, Dh, F, V, layers))
    return sa.trace(model, optimizer=torch.optim.AdamW, check=False, **models.TOKENS)


def measured(name: str, layers: int, count: int) -> dict[str, Any]:
    """Seconds of each way for one model, and that they agree."""
    import numpy as np

    from symacct.algebra import evaluate
    from symacct.formulas.grid import compile_account, figures, grid

    account = account_of(name, layers)
    rng = np.random.default_rng(0)
    sizes = {dim: rng.integers(low, high + 1, count) for dim, (low, high) in RANGES[name].items()}
    sizes["Dh"] -= sizes["Dh"] % 2
    formulas = figures(account)
    start = time.perf_counter()
    compiled = compile_account(account)
    compile_s = time.perf_counter() - start
    start = time.perf_counter()
    found = grid(account, compiled, **sizes)
    grid_s = time.perf_counter() - start

    def at(point: dict[str, int]) -> list[Any]:
        one = account.at(**point)
        phases = {**one.phases, "total": one.total}
        return [getattr(phases[f.split(".")[0]], f.split(".")[1]) if "." in f else getattr(one, f) for f in formulas]

    def put_in(point: dict[str, int]) -> list[Any]:
        return [evaluate(expr, point) for expr in formulas.values()]

    seconds = {}
    for way, run in (("at", at), ("evaluate", put_in)):
        start = time.perf_counter()
        points = [{dim: int(values[i]) for dim, values in sizes.items()} for i in range(ONE_BY_ONE[way])]
        for i, point in enumerate(points):
            for figure, value in zip(formulas, run(point), strict=True):
                assert found.values[figure][i] == value, (figure, point)
        seconds[way] = (time.perf_counter() - start) / len(points)
    return {
        "model": f"{name}, {layers} layers",
        "figures": len(formulas),
        "moments": len(account.memory.candidates),
        "count": count,
        "compile_s": compile_s,
        "seconds": grid_s,
        "per_s": count / grid_s,
        "exact": len(found.values.exact),
        "at_ratio": seconds["at"] * count / grid_s,
        "evaluate_ratio": seconds["evaluate"] * count / grid_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure each model in a process of its own and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--model", choices=RANGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        print(json.dumps(measured(args.model, args.layers, args.count)))
        return
    rows = []
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name in RANGES:
        command = [sys.executable, __file__, "--model", name, "--layers", str(args.layers), "--count", str(args.count)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(run.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"{row['model']}: {row['count']:,} combinations of sizes, {row['figures']} figures each "
            f"(a peak of {row['moments']} moments), in {row['seconds']:.2f} s: {row['per_s']:,.0f} per second; "
            f"compiled in {row['compile_s']:.2f} s; {row['exact']} figures exact; one by one account.at takes "
            f"{row['at_ratio']:,.0f} times as long, evaluate {row['evaluate_ratio']:,.0f} times; "
            f"peak {row['peak_mb']:.0f} MB"
        )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
