"""`symacct explore`: it writes a page, says which file, and answers a wrong command with one line."""

import inspect
import json
import re
import webbrowser

import pytest
from test_cli import FILE, run

import symacct.page
from symacct.cli import exploring
from symacct.page.variants import DEFAULT

NET = (f"{FILE}:Net", "--build", "B D")


def content_of(path):
    """What a page knows, out of its file."""
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', path.read_text(), re.S)
    return json.loads(found[1])


def test_a_page_is_written(tmp_path):
    """One line names the file and its size; the page starts at the sizes, device and dtypes that were asked for."""
    path = tmp_path / "model.html"
    code, out, err = run(
        "explore", *NET, "--optimizer", "AdamW", "--at", "B=8,D=1_024,K=4", "-o", str(path), "--device", "a100",
        "--dtypes", "bf16,autocast  f16",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"{re.escape(str(path))}: [\d.]+ [kM]B, one file that needs no other and no network\n", out)
    made = content_of(path)
    assert dict(made["sizes"]) == {"B": "8", "D": "1024", "K": "4"}
    assert made["device"].startswith("A100")
    assert [each["label"] for each in made["variants"]] == ["f32 (as traced)", "bf16", "autocast f16"]


def test_dtypes(tmp_path):
    """By default those of `to_html`, with "none" no other."""
    assert exploring._labels(inspect.signature(exploring.explore).parameters["dtypes"].default) == list(DEFAULT)
    path = tmp_path / "model.html"
    code, _, _ = run("explore", *NET, "-o", str(path), "--dtypes", "none")
    assert code == 0
    assert [each["label"] for each in content_of(path)["variants"]] == ["f32 (as traced)"]


@pytest.mark.parametrize("opens", [True, False])
def test_it_is_opened(tmp_path, monkeypatch, opens):
    """--open hands the file to the browser as an address, and says so where there is none."""
    asked = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or opens)
    monkeypatch.setattr(symacct.page, "to_html", lambda account, path, **_: "page")
    path = tmp_path / "a page.html"
    code, out, _ = run("explore", *NET, "--no-check", "-o", str(path), "--open")
    assert code == 0
    assert asked == [path.as_uri()]
    assert ("no browser could be opened" in out) != opens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "no/such/model.html"), r"--out: there is no folder no/such to write model\.html to"),
        (("--device", "h1000"), r".*h1000.*"),
        (
            ("--dtypes", "bf17"),
            r"dtypes: 'bf17' is neither a floating dtype \(.*\) nor 'autocast bf16' or 'autocast f16'",
        ),
        (("--at", "B=0"), r".*B.*"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_a_wrong_command(options, message, tmp_path, monkeypatch):
    """One line says what is wrong, nothing is written, and the exit code is 2."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run("explore", *NET, "--no-check", *options)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"symacct: {message}\n", err), err
    assert list(tmp_path.iterdir()) == []
