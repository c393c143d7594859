"""The code in the documents runs and prints what they say."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "CONTRIBUTING.md", "docs/depth.md", "docs/graphs.md", "docs/inference.md", "docs/roofline.md"]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks(page):
    """Every Python block runs, in order, and prints the text block that follows it."""
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert any(language == "python" for language, _ in blocks)
    names = {}
    for (language, code), (after, text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language != "python":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(textwrap.dedent(code), page, "exec"), names)
        if after == "text":
            assert out.getvalue() == text


def test_the_readme_names_files_that_exist():
    """Links to files lead somewhere."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_the_readme_has_two_commands():
    """The set-up is two commands, which the continuous integration runs as they stand."""
    section = (ROOT / "README.md").read_text().split("<!-- commands -->")[1].split("<!-- end -->")[0]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert len(commands) == 2
    assert "symacct trace" in commands[0]
    assert "pytest" in commands[1]
    assert "<!-- commands -->" in (ROOT / ".ci" / "run").read_text()
