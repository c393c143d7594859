"""What the hardware counted during a step, where counters exist: floating-point operations, and bytes from memory.

On a CPU by ``perf``, on CUDA by CUPTI through torch's profiler. A counter that does not exist is reported as
absent, with the reason. Nothing here is claimed: counters see instructions, an account sees formulas.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from symacct.account import Account
from symacct.torch_private import profiler_settings
from symacct.verify.findings import ABSENT, INFORMATION, Figure, Part
from symacct.verify.perf import CPUINFO, Counts, count, of_processor

Group = Mapping[str, int]  # events, and what one of each counts for

# FLOP per event. Intel counts an instruction that multiplies and adds twice. Source: Intel's perfmon tables,
# FP_ARITH_INST_RETIRED ("each count represents n computation operations, one for each element").
_INTEL: Group = {
    f"fp_arith_inst_retired.{name}": flop
    for name, flop in (
        ("scalar_single", 1), ("scalar_double", 1), ("128b_packed_single", 4), ("128b_packed_double", 2),
        ("256b_packed_single", 8), ("256b_packed_double", 4), ("512b_packed_single", 16), ("512b_packed_double", 8),
    )
}  # fmt: skip
# AMD counts operations, not instructions. Source: AMD's processor programming reference, PMCx003.
_AMD: Group = {"fp_ret_sse_avx_ops.all": 1}
_FLOP: Mapping[str, Group] = {"GenuineIntel": _INTEL, "AuthenticAMD": _AMD}
# Lines of 64 bytes that came from memory: AMD from Zen 4 on, from Zen 3 on, Zen 2, and what perf maps to by itself.
_LINE = 64
_MISSES: Group = {"LLC-load-misses": _LINE}
_MEMORY: Mapping[str, tuple[Group, ...]] = {
    "GenuineIntel": (_MISSES,),
    "AuthenticAMD": (
        {f"ls_any_fills_from_sys.dram_io_{place}": _LINE for place in ("near", "far")},
        {f"ls_any_fills_from_sys.mem_io_{place}": _LINE for place in ("local", "remote")},
        {f"ls_refills_from_sys.ls_mabresp_{place}_dram": _LINE for place in ("lcl", "rmt")},
        _MISSES,
    ),
}


def counters_part(device: str, step: Callable[[], Any], steps: int, account: Account) -> Part:
    """The account's FLOPs and bytes of a step beside the hardware's, averaged over ``steps`` of them.

    ``step`` runs a few times more than that. Never raises because of counters: what is missing is a figure too.
    """
    figures, notes = _on_cuda(step, account) if device == "cuda" else _on_cpu(step, steps, account)
    return Part("hardware counters", "", figures, (), notes, claims=False)


# -- the CPU ---------------------------------------------------------------------------


def _on_cpu(step: Callable[[], Any], steps: int, account: Account) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    vendor = _vendor()
    flop, memory = _FLOP.get(vendor, {}), _MEMORY.get(vendor, ())
    if not flop:
        reason = f"no events are known here for processors of {vendor or 'an unknown vendor'}"
        return _absent_on_cpu(account, reason, reason), ()

    def run() -> None:
        for _ in range(steps):
            step()

    step()  # so that its threads are there
    counted = count(flop, run)
    moved, lines = Counts(), next(iter(memory))
    for lines in memory:
        moved = count(lines, run)
        if moved.values:
            break
    return (
        _figure("FLOP", _arithmetic(account), flop, counted, steps, "FLOP", _arithmetic_note(account)),
        _figure(
            "bytes from memory, estimated", int(account.total.bytes), lines, moved, steps, "B",
            f"lines of {_LINE} bytes that came from memory; what is written back is not counted; the account counts "
            "every operand and result, wherever it lies",
        ),
    ), ()  # fmt: skip


def _absent_on_cpu(account: Account, arithmetic: str, memory: str) -> tuple[Figure, ...]:
    return (
        Figure("FLOP", _arithmetic(account), None, "FLOP", ABSENT, arithmetic),
        Figure("bytes from memory, estimated", int(account.total.bytes), None, "B", ABSENT, memory),
    )


def _figure(name: str, predicted: int, group: Group, counts: Counts, steps: int, unit: str, note: str) -> Figure:
    """A sum of weighted counts for one step, or why there is none."""
    if not counts.values:
        reasons = dict.fromkeys(f"{event}: {reason}" for event, reason in counts.absent.items())
        return Figure(name, predicted, None, unit, ABSENT, _in_short(reasons, counts))
    total = sum(group[event] * value for event, value in counts.values.items())
    lacking = [event for event in counts.absent if event in group]
    said = [
        note,
        f"without {', '.join(lacking)}" if lacking else "",
        f"counters took turns and ran {counts.running:.0f}% of the time" if counts.running < 99.5 else "",
    ]
    return Figure(name, predicted, round(total / steps), unit, INFORMATION, "; ".join(s for s in said if s))


def _in_short(reasons: Iterable[str], counts: Counts) -> str:
    """One reason where all events share it, else each event's."""
    shared = set(counts.absent.values())
    return next(iter(shared)) if len(shared) == 1 else "; ".join(reasons)


def _arithmetic(account: Account) -> int:
    return int(account.total.flops) + int(account.total.pointwise)


def _arithmetic_note(account: Account) -> str:
    return (
        f"predicted: {int(account.total.flops):,} of contractions, {int(account.total.pointwise):,} pointwise, where "
        "an elementary function is 1 and the hardware needs many"
    )


def _vendor(cpuinfo: Path = CPUINFO) -> str:
    """The processor's vendor as Linux names it; "" elsewhere."""
    return of_processor("vendor_id", cpuinfo)


# -- CUDA ------------------------------------------------------------------------------

# FLOP per thread instruction that ran. Sources: kineto's `kineto__cuda_core_flops` asks for these metrics, Holistic
# Trace Analysis weighs them so.
_THREADS: Group = {
    f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum": flop
    for kind in "fhd"
    for op, flop in (("add", 1), ("mul", 1), ("fma", 2))
}
_TENSOR = "sm__inst_executed_pipe_tensor.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_METRICS = ("kineto__tensor_core_insts", "kineto__cuda_core_flops", _READ, _WRITTEN)
_RANGE = "cuda_profiler_range"  # the category of such events in a trace


def _on_cuda(step: Callable[[], Any], account: Account) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    try:
        sums, reason = totals(_trace(step)), ""
    except Exception as error:  # whatever a profiler that is not there does
        sums, reason = {}, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if not sums and not reason:
        reason = "torch's profiler gave no counters; it has none where it was built for a CUDA after 12.6"
    return cuda_figures(account, sums, reason), () if sums else _by_hand()


def _trace(step: Callable[[], Any]) -> list[dict[str, Any]]:
    """The events of one step's trace, with counters of each kernel. Kernels run several times, one after another."""
    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA device")
    settings = profiler_settings(profiler_metrics=list(_METRICS), profiler_measure_per_kernel=True)
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], experimental_config=settings) as profiler:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def totals(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Each metric added up over the ranges among a trace's events, which have them among their arguments."""
    sums: dict[str, float] = {}
    for event in events:
        if event.get("cat") != _RANGE:
            continue
        for name, value in (event.get("args") or {}).items():
            if "__" in name and isinstance(value, (int, float)):
                sums[name] = sums.get(name, 0.0) + value
    return sums


def cuda_figures(account: Account, sums: Mapping[str, float], reason: str) -> tuple[Figure, ...]:
    """The figures of summed metrics; absent where a metric is, with the reason."""
    threads = [flop * sums[name] for name, flop in _THREADS.items() if name in sums]
    total = account.total
    rows = (
        ("FLOP outside tensor cores", _arithmetic(account), sum(threads) if threads else None, "FLOP",
         _arithmetic_note(account)),
        ("tensor core instructions", None, sums.get(_TENSOR), "instructions",
         "their FLOP depend on the device and the dtype"),
        ("bytes read from memory", int(total.bytes_read), sums.get(_READ), "B", "what was in a cache was not read"),
        ("bytes written to memory", int(total.bytes_written), sums.get(_WRITTEN), "B", "what stays in a cache was not"),
    )  # fmt: skip
    return tuple(
        Figure(name, predicted, None, unit, ABSENT, reason or "the profiler did not count it")
        if measured is None
        else Figure(name, predicted, round(measured), unit, INFORMATION, note)
        for name, predicted, measured, unit, note in rows
    )


def _by_hand() -> tuple[str, ...]:
    """How to go on by hand where Nsight Compute is installed: it runs this same command, and counts each kernel."""
    if shutil.which("ncu") is None:
        return ()
    metrics = ",".join((*_THREADS, _TENSOR, _READ, _WRITTEN))
    command = ["ncu", "--metrics", metrics, "--csv", "--page", "raw", "--target-processes", "all", *sys.orig_argv]
    return (f"Nsight Compute is installed and can count them: {shlex.join(command)}",)
