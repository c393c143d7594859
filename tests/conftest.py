"""What the tests share: a torchvision that can be imported, and the examples with their accounts."""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parent / "examples"
SUPPORT = TESTS / "support"


def _load(path, name):
    """Import a file under a name of its own, so that it cannot meet a module that is called the same."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(SUPPORT))
_load(SUPPORT / "sitecustomize.py", "symacct_tests_sitecustomize")


@cache
def _example(name):
    return _load(EXAMPLES / f"{name}.py", f"symacct_example_{name}")


@cache
def _account(name):
    return _example(name).account()


@pytest.fixture(scope="session")
def example_names():
    """The names of all examples."""
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="session")
def example():
    """The module of an example by name, loaded once."""
    return _example


@pytest.fixture(scope="session")
def account():
    """The account of an example by name, traced once."""
    return _account


@pytest.fixture(scope="session")
def python_env():
    """The environment in which a subprocess of a test can import torchvision too."""
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


@pytest.fixture(scope="session")
def outputs_by_seed():
    """The distinct outputs that code prints in processes whose hashes differ."""

    def outputs(code):
        seen = set()
        for seed in ("0", "7"):
            env = {**os.environ, "PYTHONHASHSEED": seed}
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
            seen.add(run.stdout)
        return seen

    return outputs


# Files that take minutes: real runs with their clocks, whole published models, pages in a browser, the prepared script.
LONG = {
    "test_device_check", "test_docs", "test_drawing", "test_drawing_pictures", "test_examples", "test_from_config",
    "test_inference", "test_inference_times", "test_measuring", "test_memory_measured", "test_notebook", "test_page",
    "test_page_content", "test_published", "test_reports_builtin", "test_verify", "test_verify_timing",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before others look at marks
def pytest_collection_modifyitems(items):
    """Mark the tests of long files, run those first, so that no worker ends with one, and skip what needs a GPU."""
    import torch

    items.sort(key=lambda item: item.path.stem not in LONG)
    for item in items:
        if item.path.stem in LONG:
            item.add_marker(pytest.mark.long)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
