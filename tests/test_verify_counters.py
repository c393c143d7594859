"""Hardware counters of a step: by perf on a CPU, by torch's profiler on CUDA, and what is said where there are none."""

import mmap
import os
import shutil
import stat
import sys
from functools import partial

import pytest
import torch
from torch import nn

import symacct as sa
from symacct.verify import counters, perf
from symacct.verify.counters import counters_part, cuda_figures, totals
from symacct.verify.findings import ABSENT, INFORMATION
from symacct.verify.perf import count, parse

# What perf 6.1 prints with `-x ;`, its lines being value, unit, event, ns, percent, metric, unit of the metric.
INTEL = """\
Events disabled
Events enabled
Events disabled
1000;;fp_arith_inst_retired.scalar_single:u;812345;50.10;;
20;;fp_arith_inst_retired.scalar_double:u;812345;50.10;;
300;;fp_arith_inst_retired.128b_packed_single:u;812345;49.90;;
4;;fp_arith_inst_retired.128b_packed_double:u;812345;49.90;;
50000;;fp_arith_inst_retired.256b_packed_single:u;812345;49.90;;
60;;fp_arith_inst_retired.256b_packed_double:u;812345;50.10;;
<not supported>;;fp_arith_inst_retired.512b_packed_single:u;0;100.00;;
<not counted>;;fp_arith_inst_retired.512b_packed_double:u;0;0.00;;
700;;LLC-load-misses:u;1624690;100.00;0.23;of all LL-cache accesses
"""
INTEL_FLOP = 1000 * 1 + 20 * 1 + 300 * 4 + 4 * 2 + 50000 * 8 + 60 * 4
HYBRID = """\
1000;;cpu_core/fp_arith_inst_retired.scalar_single/u;812345;100.00;;
<not counted>;;cpu_atom/fp_arith_inst_retired.scalar_single/u;0;0.00;;
70;;cpu_atom/LLC-load-misses/;812345;70.00;;
30;;cpu_core/LLC-load-misses/;812345;90.00;;
"""
AMD = """\
123456;;fp_ret_sse_avx_ops.all:u;9998877;100.00;;
40;;ls_any_fills_from_sys.mem_io_local:u;9998877;100.00;;
2;;ls_any_fills_from_sys.mem_io_remote:u;9998877;100.00;;
"""
AMD_EVENTS = ("fp_ret_sse_avx_ops.all", "ls_any_fills_from_sys.mem_io_local", "ls_any_fills_from_sys.mem_io_remote")

# A perf that knows the events of its recorded output, and keeps to the protocol of `--control`.
STUB = """#!{python}
import os, signal, sys
arguments = sys.argv[1:]
def after(option):
    return arguments[arguments.index(option) + 1]
events = [event.removesuffix(":u") for event in after("-e").split(",")]
lines = {recorded!r}.splitlines()
known = {{line.split(";")[2].removesuffix(":u"): line for line in lines if ";" in line}}
assert after("-x") == ";"
if {refusal!r}:
    sys.exit({refusal!r})
for event in events:
    if event not in known:
        sys.stderr.write("event syntax error: '" + event + "'\\n  \\\\___ parser error\\nRun 'perf list'\\n")
        sys.exit(129)
done = []
signal.signal(signal.SIGINT, lambda *_: done.append(True))
if "--control" in arguments:
    assert int(after("-p")) == os.getppid() and after("--delay") == "-1"
    listen, answer = map(int, after("--control").removeprefix("fd:").split(","))
    told = b""
    for word in {words!r}:
        while not told.endswith(word):
            told += os.read(listen, 1)
        os.write(answer, b"ack\\n\\0")
    with open({log!r}, "ab") as log:
        log.write(told)
    while not done:
        signal.pause()
print("\\n".join(known[event] for event in events), file=sys.stderr)
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Put a perf on the PATH that prints what was recorded; returns the file in which it notes what it was told."""

    def make(recorded, refusal="", words=(b"enable\n", b"disable\n")):
        program, log = tmp_path / "perf", tmp_path / "told"
        program.write_text(
            STUB.format(python=sys.executable, recorded=recorded, refusal=refusal, words=words, log=str(log))
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return log

    return make


@pytest.fixture(scope="module")
def small():
    """Two linear layers at sizes, and a step that stands for the real one."""
    model = sa.build(lambda D: nn.Sequential(nn.Linear(D, D, bias=False), nn.GELU()))
    return sa.trace(model, "B D").at(B=3, D=4)


def figures(part):
    """The figures of a part by name; a part of counters claims nothing."""
    assert not part.claims
    assert part.holds
    return {figure.name: figure for figure in part.figures}


# -- perf ------------------------------------------------------------------------------


def test_parse():
    """Counts come by event; what perf has not is named; the least share of the time is that of the counted ones."""
    values, missing, running = parse(INTEL)
    assert values["fp_arith_inst_retired.256b_packed_single"] == 50000
    assert values["LLC-load-misses"] == 700
    assert missing == {
        "fp_arith_inst_retired.512b_packed_single": "perf says not supported",
        "fp_arith_inst_retired.512b_packed_double": "perf says not counted",
    }
    assert running == 49.90
    assert parse("Events disabled\n\n;;;;\n;;;;0;x\n") == ({}, {}, 100.0)


def test_parse_two_kinds_of_cores():
    """Where each kind of core counts for itself, the counts are added."""
    values, missing, running = parse(HYBRID)
    assert values == {"fp_arith_inst_retired.scalar_single": 1000, "LLC-load-misses": 100}
    assert missing == {"fp_arith_inst_retired.scalar_single": "perf says not counted"}
    assert running == 70


def test_no_perf(monkeypatch, tmp_path):
    """Without the program every event is absent, and nothing is run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    counted = count(["cycles", "LLC-load-misses"], partial(pytest.fail, "it ran"))
    assert counted.values == {}
    assert counted.absent == dict.fromkeys(["cycles", "LLC-load-misses"], "there is no perf program on the PATH")


def test_count_runs_between_enable_and_disable(stub):
    """Counters are switched on before the call, and off after it; unknown events are left out with a reason."""
    log = stub(AMD)
    ran = []
    counted = count([*AMD_EVENTS, "cycles"], lambda: ran.append(log.exists()))
    assert ran == [False]
    assert log.read_bytes() == b"enable\ndisable\n"
    assert counted.values == dict(zip(AMD_EVENTS, (123456, 40, 2), strict=True))
    assert counted.absent == {"cycles": "perf knows no such event on this processor"}


def test_events_that_are_there_but_not_counted(stub):
    """An event that perf could not put on a counter is absent with what perf says of it."""
    stub(INTEL)
    absent = "fp_arith_inst_retired.512b_packed_double"
    counted = count(["fp_arith_inst_retired.scalar_single", absent], lambda: None)
    assert counted.values == {"fp_arith_inst_retired.scalar_single": 1000}
    assert counted.absent == {absent: "perf says not counted"}


def test_no_permission(stub):
    """A refusal is told by its first line."""
    stub(AMD, refusal="Access to performance monitoring and observability operations is limited.\nMore.")
    counted = count(AMD_EVENTS[:1], partial(pytest.fail, "it ran"))
    assert counted.absent == {
        AMD_EVENTS[0]: "perf says: Access to performance monitoring and observability operations is limited."
    }


def test_perf_that_does_not_answer(stub, monkeypatch):
    """A perf that never says that it began is given up, and the call does not run."""
    stub(AMD, words=(b"never\n",))
    monkeypatch.setattr(perf, "_PATIENCE", 0.5)
    counted = count(AMD_EVENTS[:1], partial(pytest.fail, "it ran"))
    assert counted.values == {}
    assert list(counted.absent) == list(AMD_EVENTS[:1])
    assert counted.absent[AMD_EVENTS[0]].startswith("perf does not ")


def test_an_error_of_the_call_is_its_own(stub):
    """What the counted call raises reaches the caller, and perf is not left running."""
    stub(AMD)
    with pytest.raises(ZeroDivisionError):
        count(AMD_EVENTS[:1], lambda: 1 / 0)


@pytest.mark.skipif(shutil.which("perf") is None, reason="wants the perf program of Linux")
def test_the_real_perf():
    """The real perf counts what the kernel itself can: page faults of new pages that are touched in the call alone."""
    before = count(["page-faults", "no-such-event"], lambda: None)
    with mmap.mmap(-1, 64 * 2**20) as pages:  # malloc might hand out pages that were touched before
        touched = count(["page-faults"], lambda: pages.write(b"\x01" * len(pages)))
    assert "no-such-event" in before.absent
    if "page-faults" in before.values:  # where users may look at their own processes
        assert before.absent == {"no-such-event": "perf knows no such event on this processor"}
        assert touched.values["page-faults"] - before.values["page-faults"] > 16


def test_no_counters(monkeypatch, stub, tmp_path):
    """On a machine that shows no processor's counters, that is the reason, and not each event's name."""
    stub(AMD)
    monkeypatch.setattr(perf, "_UNITS", tmp_path / "devices")
    absent = count(["cycles", "instructions"], partial(pytest.fail, "it ran")).absent
    assert set(absent.values()) == {"the machine shows no counters of its processor, as many virtual ones do"}
    (tmp_path / "devices" / "cpu").mkdir(parents=True)
    absent = count(["cycles", "instructions"], partial(pytest.fail, "it ran")).absent
    assert set(absent.values()) == {"perf knows no such event on this processor"}


# -- on a CPU --------------------------------------------------------------------------


def test_intel(stub, monkeypatch, small):
    """FLOP are instructions times their lanes, by step, with what is lacking and how long counters ran."""
    stub(INTEL)
    monkeypatch.setattr(counters, "_vendor", lambda: "GenuineIntel")
    ran = []
    part = figures(counters_part("cpu", lambda: ran.append(1), 4, small))
    assert len(ran) == 1 + 4 + 4
    flop = part["FLOP"]
    assert (flop.measured, flop.unit, flop.verdict) == (round(INTEL_FLOP / 4), "FLOP", INFORMATION)
    assert flop.predicted == small.total.flops + small.total.pointwise
    assert flop.note.endswith(
        "; without fp_arith_inst_retired.512b_packed_single, fp_arith_inst_retired.512b_packed_double; "
        "counters took turns and ran 50% of the time"
    )
    memory = part["bytes from memory, estimated"]
    assert (memory.measured, memory.predicted) == (700 * 64 // 4, small.total.bytes)


def test_amd(stub, monkeypatch, small):
    """AMD's counter is FLOP itself; fills from memory are tried by the names of each generation."""
    stub(AMD)
    monkeypatch.setattr(counters, "_vendor", lambda: "AuthenticAMD")
    part = figures(counters_part("cpu", lambda: None, 1, small))
    assert part["FLOP"].measured == 123456
    assert part["bytes from memory, estimated"].measured == 42 * 64
    assert "without" not in part["FLOP"].note + part["bytes from memory, estimated"].note


def test_another_vendor(monkeypatch, small):
    """For a processor whose events are not known here, both figures are absent."""
    monkeypatch.setattr(counters, "_vendor", lambda: "")
    part = figures(counters_part("cpu", partial(pytest.fail, "it ran"), 1, small))
    assert {f.verdict for f in part.values()} == {ABSENT}
    assert part["FLOP"].note == "no events are known here for processors of an unknown vendor"


def test_vendor(tmp_path):
    """The vendor is read as Linux names it, and empty where there is no such file."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: x\n")
    assert counters._vendor(path) == "GenuineIntel"
    assert counters._vendor(tmp_path / "none") == ""


def test_this_machine(small):
    """Whatever this machine can count, each figure is a number or absent with a reason on one line."""
    x = torch.ones(64, 64)
    part = figures(counters_part("cpu", lambda: x @ x, 2, small))
    assert set(part) == {"FLOP", "bytes from memory, estimated"}
    for figure in part.values():
        assert figure.note
        assert "\n" not in figure.note
        assert (figure.measured is None) == (figure.verdict == ABSENT)
    if part["FLOP"].measured is not None:
        assert part["FLOP"].measured >= 2 * 64**3


# -- on CUDA ---------------------------------------------------------------------------

# Events as kineto writes them into a trace: ranges have the metrics among their arguments.
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
HMUL = "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum"
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {"External id": 1, FFMA: 9999.0}},
    {"ph": "X", "cat": "cuda_profiler_range", "name": "sgemm", "pid": 0, "args": {FFMA: 1000.0, FADD: 10.0, "x": "y"}},
    {
        "ph": "X",
        "cat": "cuda_profiler_range",
        "name": "elementwise",
        "args": {
            FFMA: 1.0,
            HMUL: 5.0,
            "sm__inst_executed_pipe_tensor.sum": 7.0,
            "dram__bytes_read.sum": 4096.0,
            "dram__bytes_write.sum": 512.0,
        },
    },
    {"ph": "M", "name": "process_name"},
    {"ph": "X", "cat": "cuda_profiler_range", "name": "empty"},
]


def test_totals():
    """Metrics are added up over ranges alone, whatever else a trace holds."""
    assert totals(EVENTS) == {
        FFMA: 1001,
        FADD: 10,
        HMUL: 5,
        "sm__inst_executed_pipe_tensor.sum": 7,
        "dram__bytes_read.sum": 4096,
        "dram__bytes_write.sum": 512,
    }
    assert totals([]) == {}


def test_cuda_figures(small):
    """An instruction that multiplies and adds is two FLOP; each figure stands beside the account's."""
    found = {f.name: f for f in cuda_figures(small, totals(EVENTS), "")}
    assert {name: f.measured for name, f in found.items()} == {
        "FLOP outside tensor cores": 2 * 1001 + 10 + 5,
        "tensor core instructions": 7,
        "bytes read from memory": 4096,
        "bytes written to memory": 512,
    }
    assert found["FLOP outside tensor cores"].predicted == small.total.flops + small.total.pointwise
    assert found["bytes read from memory"].predicted == small.total.bytes_read
    assert found["bytes written to memory"].predicted == small.total.bytes_written
    assert {f.verdict for f in found.values()} == {INFORMATION}


def test_cuda_metrics_that_are_missing(small):
    """A metric that the profiler does not have is absent, while the others stand."""
    found = {f.name: f for f in cuda_figures(small, {"dram__bytes_read.sum": 1.0}, "")}
    assert found["bytes read from memory"].verdict == INFORMATION
    assert found["FLOP outside tensor cores"].verdict == ABSENT
    assert found["FLOP outside tensor cores"].note == "the profiler did not count it"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a CUDA device")
def test_no_cuda_device(small):
    """Without a device all four figures are absent, and say so."""
    part = figures(counters_part("cuda", partial(pytest.fail, "it ran"), 1, small))
    assert len(part) == 4
    assert {f.verdict for f in part.values()} == {ABSENT}
    assert {f.note for f in part.values()} == {"RuntimeError: there is no CUDA device"}


def test_a_trace_without_ranges(small, monkeypatch, tmp_path):
    """A profiler without counters gives absent figures, and the command for Nsight Compute where that is installed."""
    monkeypatch.setattr(counters, "_trace", lambda step: [{"ph": "X", "cat": "kernel", "name": "sgemm"}])
    monkeypatch.setenv("PATH", str(tmp_path))
    part = counters_part("cuda", lambda: None, 1, small)
    reason = "torch's profiler gave no counters; it has none where it was built for a CUDA after 12.6"
    assert {f.note for f in figures(part).values()} == {reason}
    assert part.notes == ()
    ncu = tmp_path / "ncu"
    ncu.write_text("")
    ncu.chmod(0o755)
    monkeypatch.setattr(sys, "orig_argv", ["symacct", "verify", "a b.py:model"])
    (note,) = counters_part("cuda", lambda: None, 1, small).notes
    assert note.startswith("Nsight Compute is installed and can count them: ncu --metrics smsp__sass_thread_inst_")
    assert note.endswith("--csv --page raw --target-processes all symacct verify 'a b.py:model'")


@pytest.mark.gpu
def test_cuda_counters_on_a_device(small):
    """On a real device each figure is a number, or absent with a reason."""
    x = torch.ones(64, 64, device="cuda")
    for figure in figures(counters_part("cuda", lambda: x @ x, 1, small)).values():
        assert (figure.measured is None) == (figure.verdict == ABSENT)
        assert figure.note
