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
    order = [out.index(title) for title in ("by phase", "tensors that stay", "by module, to depth 1", "by op")]
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
