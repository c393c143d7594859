"""The prepared script for a machine with a device runs on a CPU too, with nothing but torch and SymPy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "device_check.py"
# As on a machine where nothing was installed for it: neither symacct nor what its command line needs.
BARE = """
import sys
for name in ("rich", "typer", "transformers", "torchvision", "matplotlib"):
    sys.modules[name] = None
sys.argv = {argv!r}
import runpy
runpy.run_path({script!r}, run_name="__main__")
"""


def run(*arguments):
    """The script in an interpreter of its own."""
    code = BARE.format(argv=["device_check.py", *arguments], script=str(SCRIPT))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)


def test_device_check_runs_on_a_cpu_at_small_sizes(tmp_path):
    """Every case holds; the table has a line for each, the record everything."""
    record = tmp_path / "record.json"
    done = run("--device", "cpu", "--record", str(record))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    document = json.loads(record.read_text())
    assert document["holds"] is True
    assert [line.split("  ")[0] for line in lines[1:-1]] == [case["case"] for case in document["cases"]]
    assert len(document["cases"]) == 10
    assert max(map(len, lines)) <= 120
    assert {part["name"] for case in document["cases"] for part in case["parts"]} >= {"operators", "memory", "time"}


def test_device_check_stops_in_time():
    """No case begins after the given seconds, each that does not is named, and then not all holds."""
    done = run("--device", "cpu", "--seconds", "0")
    assert done.returncode == 1
    assert done.stdout.count("not run, the 0 seconds are over") == 10


def test_device_check_refuses_a_record_that_cannot_be_written(tmp_path):
    """Before anything runs."""
    done = run("--device", "cpu", "--record", str(tmp_path / "no" / "record.json"))
    assert done.returncode == 2
    assert "there is no folder" in done.stderr


@pytest.mark.gpu
def test_device_check_holds_on_cuda(tmp_path):
    """What is said of CUDA, at small sizes."""
    done = run("--device", "cuda", "--sizes", "small", "--record", str(tmp_path / "record.json"))
    assert done.returncode == 0, done.stdout
