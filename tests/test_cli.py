"""The command line: what it prints, how it fails, and with which exit code."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from symacct.cli import app

FILE = str(Path(__file__).parent / "data" / "cli_models.py")
RUNNER = CliRunner()


def run(*args):
    """Run `symacct ARGS` in this process: exit code, standard output, standard error."""
    result = RUNNER.invoke(app, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_tables_with_formulas():
    """A built model prints totals by phase, by module and by op, with formulas."""
    code, out, err = run("trace", f"{FILE}:Net", "--build", "B D", "--optimizer", "AdamW")
    assert (code, err) == (0, "")
    assert "Net(f32[B, D])" in out
    order = [out.index(title) for title in ("by phase", "\nmemory\n", "by module, to depth 1", "by op")]
    assert order == sorted(order)
    assert re.search(r"forward +flops +8\*B\*D\*K \+ 8\*B\*D\*\*2\n", out)
    assert re.search(r"backward +flops +16\*B\*D\*K \+ 8\*B\*D\*\*2\n", out)
    assert re.search(r" up +flops +16\*B\*D\*\*2\n", out)
    assert "optimizer state" in out
    assert "checked, node by node, at" in out
    assert "2 per multiply-add" in out


def test_numbers_beside_the_formulas():
    """--at adds the values."""
    code, out, _ = run("trace", f"{FILE}:Net", "--build", "B D", "--inference", "--at", "B=8,D=1_024,K=4")
    assert code == 0
    assert "at D=1,024, K=4, B=8" in out
    assert re.search(r"forward +flops +8\*B\*D\*K \+ 8\*B\*D\*\*2 +67.37 MFLOP\n", out)
    assert "backward" not in out


def test_json():
    """--json is one document with formulas and exact values."""
    code, out, _ = run("trace", f"{FILE}:matmul", "B D", "D K", "--json", "--at", "B=2,D=3,K=5")
    document = json.loads(out)
    assert code == 0
    assert document["phases"]["forward"]["flops"] == {"formula": "2*B*D*K", "value": 60}
    assert document["dims"] == ["B", "D", "K"]
    assert document["unknown"] == []
    assert document["ops"]["aten.mm.default"]["bytes_written"] == {"formula": "4*B*K", "value": 40}


def test_targets():
    """An account, a function that makes one, a module, a function that makes one, a name in a package."""
    for args in ((f"{FILE}:account",), (f"{FILE}:net", "B 8"), (f"{FILE}:made", "B 8"), ("torch:relu", "B 8")):
        assert run("trace", *args)[0] == 0
    code, out, _ = run("trace", f"{FILE}:matmul", "x=B D", "w=D K", "--grad", "w", "--loss", f"{FILE}:squares")
    assert code == 0
    assert re.search(r"backward +flops +2\*B\*D\*K\n", out)


def test_unknown_ops_are_listed_and_strict_fails():
    """An op without a rule is in every report; with --strict it is exit code 3; --rules teaches it."""
    code, out, _ = run("trace", f"{FILE}:odd", "B D")
    assert code == 0
    assert "INCOMPLETE, no rule for: symacct_tests.mystery.default x1 in the top level" in out
    assert "forward (incomplete)" in out
    code, out, err = run("trace", f"{FILE}:odd", "B D", "--strict")
    assert code == 3
    assert out == ""
    assert err.startswith("symacct: ops without a rule: symacct_tests.mystery.default x1 in the top level")
    code, out, _ = run("trace", f"{FILE}:odd", "B D", "--strict", "--rules", f"{FILE}:more")
    assert code == 0
    assert re.search(r"forward +pointwise +3\*B\*D\n", out)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ((f"{FILE}:Nt",), 2, "has no 'Nt'; did you mean Net?"),
        (("nothing.py:x",), 2, "there is no file nothing.py"),
        (("nothing.at.all:x",), 2, "there is no module 'nothing.at.all' on the import path"),
        (("nothing",), 2, "'nothing': expected FILE.py:NAME or package.module:NAME, for example model.py:net"),
        ((f"{FILE}:number", "B"), 2, "is a int, neither a module, a function nor an account"),
        ((f"{FILE}:account", "B"), 2, "is an account already; specs ('B') are for modules and functions"),
        ((f"{FILE}:net",), 2, "trace(Net): missing a required argument: 'x'; its parameters are (x)"),
        ((f"{FILE}:net", "B (8"), 2, "spec 'B (8': '(' without ')'"),
        ((f"{FILE}:net", "B 8", "--at", "Q=3"), 2, "at(): there is no dim 'Q'; the account's dims are B"),
        ((f"{FILE}:net", "B 8", "--at", "B=0"), 2, "B=0: the size of a dim is a whole number >= 1"),
        (
            (f"{FILE}:net", "B 8", "--at", "B"),
            2,
            "'B': sizes are written NAME=WHOLE NUMBER, by comma, as in B=8,L=2048",
        ),
        ((f"{FILE}:matmul", "B D", "D K", "--at", "B=1"), 2, "at(): no size for D, K; give one for each of B, D, K"),
        ((f"{FILE}:net", "B 8", "--optimizer", "Adm"), 2, "--optimizer: torch.optim has no 'Adm'; it has ASGD,"),
        ((f"{FILE}:net", "B 8", "--autocast", "int8"), 2, "autocast: 'int8' is not 'bf16', 'f16' or a dtype"),
        ((f"{FILE}:Net", "--build", "B D", "--sizes", "Q=3"), 2, "sizes: Q=3, but the dim 'Q' occurs in no spec"),
        (
            (f"{FILE}:net", "B 9"),
            1,
            "running the model failed in aten.addmm.default on (32), (B, 9), (8, 32) at up (",
        ),
        ((f"{FILE}:pick", "B D"), 1, "the shape of its result depends on data"),
        ((f"{FILE}:loop", "B D"), 1, "The dim to blame is B; likely cause: a Python loop over a dim"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(args, code, message):
    """A user's mistake gives one message on standard error, no traceback, nothing on standard output."""
    got, out, err = run("trace", *args)
    assert (got, out) == (code, "")
    assert err.startswith("symacct: ")
    assert message in err
    assert "Traceback" not in err


def test_a_file_that_fails_says_where(tmp_path):
    """An error while importing the user's file names its line."""
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ny = x / 0\n")
    code, _, err = run("trace", f"{broken}:x")
    assert code == 2
    assert f"importing {broken} failed at {broken}:2: ZeroDivisionError: division by zero" in err


def test_wrong_options_and_help():
    """Unknown options are exit code 2; help teaches by example and lists the exit codes."""
    assert run("trace", f"{FILE}:net", "--nope")[0] == 2
    code, out, _ = run("trace", "--help")
    assert code == 0
    assert "symacct trace examples/two_layer.py:account" in out
    assert "Exit codes" in out
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("symacct 0.")


def in_terminal(*args):
    """Run `symacct ARGS` with standard error and output on a pseudo terminal of 100 columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "symacct", *args], stdout=follower, stderr=follower, stdin=follower, env=environment
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    process.wait()
    return process.returncode, seen.decode()


def test_progress_shows_on_a_terminal_and_not_in_a_pipe():
    """A terminal sees what is going on; a pipe gets the tables alone."""
    code, seen = in_terminal("trace", f"{FILE}:net", "B 8")
    assert code == 0
    assert "tracing Net" in seen
    assert "checking at" in seen
    piped = subprocess.run(
        [sys.executable, "-m", "symacct", "trace", f"{FILE}:net", "B 8"], capture_output=True, text=True, check=True
    )
    assert piped.stderr == ""
    assert "tracing" not in piped.stdout
    assert "\x1b" not in piped.stdout


def test_width():
    """In a pipe no line is longer than 100 characters."""
    _, out, _ = run("trace", f"{FILE}:Net", "--build", "B D", "--optimizer", "AdamW", "--at", "B=8,D=64,K=10")
    assert max(map(len, out.splitlines())) <= 100


# -- memory ------------------------------------------------------------------------------

TWO_LAYER = str(Path(__file__).parent.parent / "examples" / "two_layer.py") + ":account"
NET = (f"{FILE}:Net", "--build", "B D", "--optimizer", "AdamW")


def test_memory_of_an_example():
    """An account in a file has closed forms, moments and bytes per parameter, also without an optimizer."""
    code, out, err = run("memory", TWO_LAYER)
    assert (code, err) == (0, "")
    assert re.search(r"\n gradients +4\*D\*K \+ 4\*D\*\*2\n", out)
    assert "8 bytes per parameter: 4 parameters + 4 gradients" in out
    assert "Max of 3 moments" in out
    assert "optimizer state" not in out
    code, out, _ = run("memory", TWO_LAYER, "--at", "B=16,D=32,K=8")
    assert code == 0
    assert re.search(r"\n at rest +8\*D\*K \+ 8\*D\*\*2 +10.24 kB\n", out)
    assert "alive at the peak, by kind" in out


def test_memory_options():
    """How deep modules are shown, how many lines, and which sizes are known to be large."""
    code, out, _ = run("memory", *NET, "--at", "B=32,D=64,K=10", "--depth", "3", "--top", "2", "--least", "B=32")
    assert code == 0
    assert "by module to depth 3" in out
    assert "moments where B >= 32" in out
    assert "The 2 largest are shown" in out
    assert max(map(len, out.splitlines())) <= 100


def test_how_the_step_is_run_reaches_the_account():
    """Micro-batches, clipping, gradients that are kept and outputs that are held are options of every command."""
    options = ("--accumulate", "3", "--clip", "0.5", "--no-set-to-none", "--keep-outputs", "--allocator", "cuda")
    code, out, _ = run("memory", *NET, *options)
    assert code == 0
    assert (
        "training step with AdamW, 3 micro-batches, gradients clipped to 0.5, gradients zeroed between steps,\noutput"
    ) in out
    assert "memory, in blocks of 512 bytes" in out
    code, out, _ = run("memory", *NET, "--clip", "torch.nn.utils:get_total_norm", "--no-check")
    assert "gradients clipped by _get_total_norm" in out
    once, thrice = (run("trace", *NET, "--accumulate", n, "--json", "--at", "B=2,D=3,K=4")[1] for n in "13")
    forward = [json.loads(out)["phases"]["forward"]["flops"]["value"] for out in (once, thrice)]
    assert forward[1] == 3 * forward[0] > 0
    assert json.loads(run("trace", *NET, "--allocator", "cuda", "--json")[1])["memory"]["allocator"] == "cuda"
    assert json.loads(run("memory", f"{FILE}:account", "--allocator", "cuda", "--json")[1])["allocator"] == "cuda"


def test_memory_in_json():
    """--json is one document; without sizes its values are null."""
    code, out, _ = run("memory", *NET, "--json", "--least", "B=2")
    document = json.loads(out)
    assert code == 0
    assert document["peak"]["least"] == {"B": 2}
    assert document["bytes"]["parameters"] == {"formula": "16*D*K + 16*D**2 + 16*D + 4*K", "value": None}
    code, out, _ = run("memory", *NET, "--json", "--at", "B=2,D=3,K=5")
    assert json.loads(out)["bytes"]["parameters"]["value"] == 4 * (4 * 3 * 3 + 4 * 3 + 5 * 4 * 3 + 5)


def test_memory_is_drawn(tmp_path):
    """--plot writes a picture beside the report."""
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        path = tmp_path / f"memory.{kind}"
        code, out, err = run("memory", TWO_LAYER, "--at", "B=16,D=32,K=8", "--plot", str(path))
        assert (code, err) == (0, "")
        assert "alive at the peak" in out
        assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--at", "B=1,D=1,K=1", "--plot", "memory.pdf"), "plot: memory.pdf ends in neither .png nor .svg"),
        (("--at", "B=1,D=1,K=1", "--plot", "no/where/m.png"), "plot: there is no folder no/where to write m.png to"),
        (("--plot", "memory.png"), "plot: a picture needs sizes: account.at(D=...,K=...,B=...), or --at D=...,K=..."),
        (("--least", "Q=3"), "there is no dim 'Q'; they are D, K, B"),
        (("--least", "B"), "'B': sizes are written NAME=WHOLE NUMBER, by comma, as in B=8,L=2048"),
        (("--least", "B=9", "--at", "B=8,D=1,K=1"), "least B=9, but the account is at B=8"),
        (("--allocator", "own"), "allocator: 'own' is none of logical, cuda"),
        (("--clip", "hard"), "is an account already; --clip is for modules and functions"),
        (("--optimizer", "SGD", "--inference"), "--optimizer, --inference are for modules and functions"),
    ],
)
def test_a_mistake_about_memory_is_one_line(args, message, tmp_path, monkeypatch):
    """Exit code 2, one sentence on standard error, nothing on standard output and no file."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run("memory", TWO_LAYER, *args)
    assert (code, out) == (2, "")
    assert err.startswith("symacct: ")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_drawn_is_refused_before_tracing(monkeypatch):
    """A wrong suffix or a missing library is told at once, also where the target would not load."""
    code, _, err = run("memory", "nothing.py:x", "--plot", "memory.gif")
    assert code == 2
    assert "memory.gif ends in neither" in err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run("memory", "nothing.py:x", "--plot", "memory.png")
    assert (code, out) == (2, "")
    assert "plot: pictures need matplotlib, which is not there: pip install 'symacct[plot]'" in err


def test_other_mistakes_in_how_the_step_is_run():
    """A norm that is no number, no micro-batch at all, a model that fails, an op without a rule under --strict."""
    assert run("memory", f"{FILE}:net", "B 8", "--clip", "hard")[0] == 2
    assert (
        "--clip: 'hard' is neither a number nor FILE.py:NAME" in run("trace", f"{FILE}:net", "B 8", "--clip", "hard")[2]
    )
    assert run("memory", f"{FILE}:net", "B 8", "--accumulate", "0")[0] == 2
    assert run("memory", f"{FILE}:net", "B 9")[0] == 1
    assert run("memory", f"{FILE}:odd", "B D", "--strict")[0] == 3
    code, out, _ = run("memory", f"{FILE}:odd", "B D")
    assert code == 0
    assert "INCOMPLETE" not in out  # memory needs no rules


def test_help_of_memory():
    """Its help has the options of `trace` too, and teaches by example."""
    code, out, _ = run("memory", "--help")
    assert code == 0
    assert "symacct memory examples/two_layer.py:account" in out
    for option in ("--optimizer", "--accumulate", "--no-set-to-none", "--least", "--plot", "--top"):
        assert option in out
    code, out, _ = run("trace", "--help")
    assert "--accumulate" in out
    assert "--plot" not in out


def test_memory_on_a_terminal():
    """A terminal sees the tables in its own width, with colour."""
    code, seen = in_terminal("memory", f"{FILE}:net", "B 8", "--at", "B=4")
    assert code == 0
    assert "alive at the peak, by kind" in seen
    assert "\x1b[1m" in seen


def test_depth_on_the_command_line(tmp_path):
    """--structural names the builder's and the inputs' dims that change the graph."""
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "def net(D, N):\n"
        "    return nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(N)))\n"
    )
    code, out, _ = run("trace", f"{file}:net", "--build", "B D", "--structural", "N", "--at", "B=8,D=64,N=100")
    assert code == 0
    assert "2*B*D**2*N" in out
    assert "polynomials in N" in out
    code, _, err = run("trace", f"{file}:net", "--build", "B D", "--structural", "M")
    assert code == 2
    assert "'M' occurs in no spec" in err


def test_a_config_on_the_command_line(tmp_path):
    """--hf traces the model of a config; --at has only what the config does not say; the legend is no part of JSON."""
    config = str(Path(__file__).parent / "data" / "configs" / "gpt2.json")
    code, out, err = run("trace", "--hf", config, "--at", "B=1,L=1024", "--json", "--no-check")
    assert code == 0
    document = json.loads(out)
    assert document["tensors"]["params"]["value"] == 124439808
    assert document["phases"]["forward"]["flops"]["value"] == 291648307200
    assert "n_layer" in err
    code, _, err = run("trace", "--hf", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json" in err
    code, _, err = run("trace", "--hf", config, "--build")
    assert code == 2
    assert "drop --build" in err
