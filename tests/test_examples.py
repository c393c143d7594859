"""Each example prints what tests/expected holds, byte for byte."""

import subprocess
import sys

import pytest
from conftest import EXAMPLES, TESTS

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_example_prints_what_is_expected(name, python_env):
    """An example run as a script prints exactly the expected text."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], env=python_env, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == (TESTS / "expected" / f"{name}.txt").read_text()


def test_every_expected_text_has_an_example():
    """No expected text is left behind by an example that is gone."""
    assert sorted(path.stem for path in (TESTS / "expected").glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_account_of_an_example_is_complete(name, account):
    """The account that the command line finds in an example has no unknown op, and was checked at other sizes."""
    step = account(name)
    assert step.unknown == []
    assert step.checked
    assert step.forward.flops != 0
    assert step.backward.flops != 0 or not step.step.trained
