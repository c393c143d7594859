"""The commands about devices, what fits, how long, serving and reports: what they print, and how they fail."""

import re
import tomllib

import pytest
from test_cli import FILE, run

from symacct.device_file import device_or_file

NET = (f"{FILE}:Net", "--build", "B D")
AT = ("--at", "B=8,D=1024,K=4")


def test_devices_are_listed():
    """Every device of the table with its memory, bandwidth and dense peaks."""
    code, out, _ = run("devices")
    assert code == 0
    assert re.search(r"H100-SXM5-80GB +80 GiB +3.35 TB/s +990 TFLOP/s +67 TFLOP/s", out)
    assert "dense" in out


def test_this_machine_is_measured(tmp_path):
    """What is written is a device that --device takes; without a file it is printed."""
    path = tmp_path / "this.toml"
    code, out, err = run("measure", "--seconds", "0.1", "--name", "mine", "-o", str(path))
    assert (code, out, err) == (0, "", "")
    assert device_or_file(str(path)).name == "mine"
    code, out, _ = run("measure", "--seconds", "0.1")
    assert code == 0
    assert len(tomllib.loads(out)) == 1
    code, out, _ = run("roofline", *NET, *AT, "--device", str(path))
    assert code == 0
    assert "on mine" in out


def test_roofline(tmp_path):
    """Times and limits by phase, module and op, from which size on it is compute-bound, MFU and HFU, pictures."""
    roof, bars = tmp_path / "roof.png", tmp_path / "time.svg"
    code, out, _ = run(
        "roofline", *NET, *AT, "--device", "h100", "--when", "B", "--took", "1 ms", "--devices", "2",
        "--plot", str(roof), "--plot-time", str(bars),
    )  # fmt: skip
    assert code == 0
    assert "Net(f32[B, D]) on H100-SXM5-80GB, eager" in out
    assert re.search(r"forward +[\d.]+ µs +[\d.]+% +memory", out)
    assert re.search(r"compute-bound when B > \d+", out)
    assert re.search(r"\nMFU [\d.]+% on 2 x? ?H100-SXM5-80GB", out)
    assert "\nHFU " in out
    assert "compute-bound at no size of B" in run("roofline", *NET, *AT, "--device", "h100", "--tf32", "--when", "B")[1]
    assert "dense" in out
    assert roof.read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in bars.read_bytes()


def test_kernels_are_those_of_whose_device_one_says():
    """--kernels is what --device is for other commands."""
    attention = (f"{FILE}:attend", "B 2 L 8", "--inference", "--at", "B=2,L=16", "--device", "h100")
    assert "_for_cpu" in run("roofline", *attention)[1]
    assert "_for_cpu" not in run("roofline", *attention, "--kernels", "cuda")[1]


def test_the_largest_size_that_fits():
    """The answer, the figure there and at the next size; ties; least sizes."""
    code, out, _ = run("solve", *NET, "--dim", "B", "--within", "peak_bytes=1 GB", "--at", "D=1024,K=4")
    assert code == 0
    assert re.match(r"the largest B is [\d,]+ at D=1,024, K=4\n", out)
    assert "peak_bytes <= 1 GB" in out
    code, out, _ = run("solve", *NET, "--dim", "D", "--within", "params=1000000", "--tie", "K=2*D")
    assert code == 0
    assert out.startswith("the largest D is ")
    code, out, _ = run("solve", *NET, "--dim", "D", "--within", "params=>= 1e6", "--at", "K=8")
    assert code == 0
    assert out.startswith("the least D is ")


def test_training():
    """Days, device-hours and money of a training, with their assumptions."""
    code, out, _ = run(
        "train",
        *NET,
        *AT,
        "--steps",
        "1000000",
        "--device",
        "h100",
        "--devices",
        "8",
        "--mfu",
        "0.4",
        "--price",
        "$2/h",
    )
    assert code == 0
    for line in (r"training on 8 H100-SXM5-80GB", r"MFU +40%", r"cost +\$", r"device-hours", r"dense peak"):
        assert re.search(line, out), out


def test_report(tmp_path):
    """A built-in report and one of one's own, printed and to a file, in the form of its name; two settings."""
    model = ("--model", *NET)
    code, out, _ = run("report", "summary", *model, *AT, "--device", "h100")
    assert code == 0
    assert out.startswith("# Net: what a step costs")
    page = tmp_path / "step.html"
    code, out, _ = run("report", "summary", *model, "-o", str(page))
    assert (code, out) == (0, "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    mine = tmp_path / "mine.md.j2"
    mine.write_text("{{ acct.forward.flops | formula }} is {{ acct.forward.flops | flops }}, {{ word }}\n")
    code, out, _ = run("report", str(mine), *model, *AT, "--set", "word=well")
    assert code == 0
    assert out.startswith("8*B*D*K + 8*B*D**2 is 67.4 MFLOP, well\n")
    code, out, _ = run("report", "comparison", *model, *AT, "--against-at", "B=16")
    assert code == 0
    assert out.startswith("# B=8 and B=16")
    code, out, _ = run("report", "comparison", "--model", f"{FILE}:account", "--against", f"{FILE}:account")
    assert code == 0


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("roofline", *NET, *AT, "--device", "h1000"), 2, "there is no device 'h1000'"),
        (("roofline", *NET, *AT, "--device", "no.toml"), 2, "no.toml cannot be read"),
        (("roofline", *NET, "--autocast", "bf16", *AT, "--device", "v100-sxm2"), 2, "bfloat16"),
        (("roofline", *NET, *AT, "--device", "h100", "--level", "best"), 2, "'best'"),
        (("roofline", *NET, *AT, "--device", "h100", "--took", "3 GB"), 2, "'3 GB' is bytes"),
        (("roofline", *NET, *AT, "--device", "h100", "--plot", "/nowhere/at/all.png"), 2, "there is no folder"),
        (("solve", *NET, "--dim", "B", "--within", "peak_bytes=3 FLOP", "--at", "D=8,K=4"), 2, "is FLOP"),
        (("solve", *NET, "--dim", "B", "--within", "peak_bytes", "--at", "D=8,K=4"), 2, "is not NAME=VALUE"),
        (("solve", *NET, "--dim", "B", "--within", "peak_bytes=1 B", "--at", "D=8,K=4"), 1, "even B=1 does not fit"),
        (("solve", *NET, "--dim", "Q", "--within", "peak_bytes=1 GB", "--at", "D=8,K=4"), 2, "'Q'"),
        (("train", *NET, *AT, "--device", "h100"), 2, "mfu"),
        (("report", "summery", "--model", *NET), 2, "summery"),
        (("report", "comparison", "--model", *NET, "--against-at", "B=16"), 2, "give the first setting with --at"),
        (("report", "summary", "--model", *NET, "--set", "mfu"), 2, "is not NAME=VALUE"),
        (("serve", "no-such-config.json"), 2, "no-such-config.json"),
        (("measure", "--device", "tpu"), 2, "tpu"),
    ],
)
def test_a_mistake_is_one_line(args, code, message):
    """No traceback: one line that says what is wrong, and an exit code."""
    found, out, err = run(*args)
    assert (found, out) == (code, "")
    assert err.startswith("symacct: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["measure", "roofline", "solve", "train", "serve", "report"])
def test_help_teaches_by_example(command):
    """Each command shows examples, and fits a narrow terminal."""
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Examples" in out
    assert f"symacct {command}" in out
