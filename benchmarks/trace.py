"""symacct's tracing time over FlopCounterMode's, for full training steps, in one run.

    python benchmarks/trace.py [--repeat 3] [--json FILE]

FlopCounterMode counts one step (forward, backward, AdamW) of the same model under a concrete
``FakeTensorMode``, full depth, at one set of sizes. symacct traces it with symbolic sizes, sums the
closed forms, and, in the second figure, also checks every node at other sizes, as `sa.trace` does by
default. Building the model is in neither, but for the cases of "any depth": there symacct's time has it, and the
traces at a few depths, the fit and the proof; torch counts GPT-2 with 12 layers and Llama 3.1 405B with its 126.
"memory" is the time of the timelines and of the search for the moments that can be the peak, over that of the
trace, and "moments" how many were found. "peak
MB" is that of a child process that imports everything, builds the model, and traces it once.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    gc.collect()
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def count_with_torch(case: Any) -> Callable[[], int]:
    """One training step under FakeTensorMode and FlopCounterMode; the model is built beforehand."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model = case.plain()

    def step() -> int:
        with mode:
            inputs = case.inputs()
            optimizer = torch.optim.AdamW(model.parameters())
            with FlopCounterMode(display=False) as counter:
                output = model(**inputs)
                loss = getattr(output, "loss", None)
                (output.sum() if loss is None else loss).backward()
                optimizer.step()
            optimizer.zero_grad()
        return counter.get_total_flops()

    return step


def count_with_symacct(case: Any, check: bool) -> Callable[[], Any]:
    """One symbolic trace with all its sums; the model is built beforehand."""
    import torch

    import symacct as sa

    built = None if case.deep else case.build()

    def step() -> Any:
        model = case.build() if built is None else built
        account = sa.trace(model, optimizer=torch.optim.AdamW, check=check, **case.specs)
        assert all(phase.cost for phase in account.phases.values())
        return account

    return step


def compare(case: Any, repeat: int) -> dict[str, Any]:
    """Median seconds of each way, alternating, after one warm-up."""
    runs = {
        "torch": count_with_torch(case),
        "symacct": count_with_symacct(case, check=False),
        "symacct checked": count_with_symacct(case, check=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*runs, "memory")}
    nodes = candidates = 0
    for turn in range(repeat + 1):
        for name, run in runs.items():
            taken, result = timed(run)
            if turn:
                seconds[name].append(taken)
            if name == "symacct":
                nodes = 0 if case.deep else result.total.count
                taken, moments = timed(lambda account=result: account.memory.candidates)
                candidates = len(moments)
                if turn:
                    seconds["memory"].append(taken)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "model": case.name,
        "nodes": nodes,
        "torch_s": median["torch"],
        "symacct_s": median["symacct"],
        "ratio": median["symacct"] / median["torch"],
        "checked_s": median["symacct checked"],
        "checked_ratio": median["symacct checked"] / median["torch"],
        "memory_ratio": median["memory"] / median["symacct"],
        "candidates": candidates,
        "nodes_per_s": nodes / median["symacct"],
    }


def import_ratio(repeat: int = 5) -> float:
    """Time of `import symacct` over that of `import torch`, each in fresh interpreters, medians."""
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds: dict[str, list[float]] = {"torch": [], "torch, symacct": []}
    for _ in range(repeat):
        for modules, values in seconds.items():
            out = subprocess.run(
                [sys.executable, "-c", code.format(modules)], capture_output=True, text=True, check=True
            )
            values.append(float(out.stdout))
    return statistics.median(seconds["torch, symacct"]) / statistics.median(seconds["torch"])


def peak_memory(index: int) -> int:
    """MB of the largest resident set of a child process that imports, builds, and traces once."""
    out = subprocess.run(
        [sys.executable, __file__, "--memory-of", str(index)], capture_output=True, text=True, check=True
    )
    return int(out.stdout.splitlines()[-1])


def _memory_of(index: int) -> None:
    from models import cases

    step = count_with_symacct(cases()[index], check=True)
    step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", help="also write the record to this file")
    parser.add_argument("--only", help="part of a model's name")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of is not None:
        _memory_of(options.memory_of)
        return
    import torch
    from models import cases

    record: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "import_ratio": import_ratio(),
        "traces": [],
    }
    print(f"torch {record['torch']}, Python {record['python']}, {record['machine']}")
    print(f"import symacct over import torch: {record['import_ratio']:.2f}")
    titles = (
        "model",
        "nodes",
        "torch s",
        "symacct s",
        "ratio",
        "+check s",
        "ratio",
        "memory",
        "moments",
        "nodes/s",
        "peak MB",
    )
    print("{:18} {:>6} {:>8} {:>9} {:>6} {:>9} {:>6} {:>7} {:>7} {:>8} {:>8}".format(*titles))
    for index, case in enumerate(cases()):
        if options.only and options.only not in case.name:
            continue
        row = compare(case, options.repeat) | {"peak_mb": peak_memory(index)}
        record["traces"].append(row)
        print(
            f"{row['model']:18} {row['nodes']:6} {row['torch_s']:8.2f} {row['symacct_s']:9.2f} {row['ratio']:6.2f} "
            f"{row['checked_s']:9.2f} {row['checked_ratio']:6.2f} "
            f"{row['memory_ratio']:7.2f} {row['candidates']:7} {row['nodes_per_s']:8.0f} {row['peak_mb']:8}"
        )
    if options.json:
        temporary = options.json + ".part"
        with open(temporary, "w") as file:
            json.dump(record, file, indent=1)
        os.replace(temporary, options.json)


if __name__ == "__main__":
    main()
