"""The built-in reports in Markdown, HTML and LaTeX: for an MLP, for GPT-2 of any depth, in formulas and at sizes."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import symacct as sa
from symacct.inference import inference
from symacct.reports import render
from symacct.roofline import roofline

MLP_SIZES = {"B": 32, "D": 1024, "K": 10}
GPT2_SIZES = {"B": 8, "L": 1024, "H": 12, "Dh": 64, "V": 50000, "P": 1024, "N": 12}
FORMS = ("markdown", "html", "latex")
VOID = {"meta", "wbr"}


class Odd(nn.Module):
    """A layer in a container whose name no notation takes as it is."""

    def __init__(self, D):
        super().__init__()
        self.parts = nn.ModuleDict({"0_x%&|<a>": nn.Linear(D, D), "b": nn.Linear(D, D)})

    def forward(self, x):
        return self.parts["b"](self.parts["0_x%&|<a>"](x))


def gpt2(H, Dh, V, P, N):
    return GPT2LMHeadModel(GPT2Config(n_head=H, n_embd=H * Dh, vocab_size=V, n_positions=P, n_layer=N))


@pytest.fixture(scope="module")
def mlp():
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K)))
    return sa.trace(model, "B D", optimizer=torch.optim.AdamW)


@pytest.fixture(scope="module")
def deep():
    model = sa.build(gpt2, depth="N")
    return sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW, check=False)


@pytest.fixture(scope="module")
def served():
    return inference(sa.build(gpt2, depth="N"), check=False)


class Tags(HTMLParser):
    """Whether every tag is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def sound(text, form):
    """Whether a report is well formed: tables of equal rows, closed tags, matching braces and environments."""
    if form == "markdown":
        lines = [re.sub(r"\\\|", "", line) for line in text.splitlines()]
        tables = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
        counts = [{line.count("|") for line in table.strip().splitlines()} for table in tables if table.strip()]
        assert counts
        assert all(len(count) == 1 for count in counts)
        assert not re.search(r"\n{3,}", text)
    elif form == "html":
        tags = Tags(text)
        assert (tags.open, tags.wrong) == ([], [])
        assert not re.search(r"(src|href)=|url\(|@import", text), "another file is needed"
    else:
        plain = re.sub(r"\\[\\{}]", "", text)
        assert plain.count("{") == plain.count("}")
        begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
        assert sorted(begun) == sorted(ended)
        assert plain.count("$") % 2 == 0
    assert "None" not in text
    assert "Figure" not in text


def table(text, heading):
    """The rows of a Markdown table below a heading."""
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


# -- every report in every form ------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["summary", "training", "comparison"])
def test_reports_of_accounts(name, form, mlp, deep):
    """Each report is sound for an MLP and a GPT-2 of any depth, in formulas and at sizes, with a device and without."""
    for account, sizes in ((mlp, MLP_SIZES), (deep, GPT2_SIZES)):
        for at in (None, sizes):
            options = {"sizes": at, "form": form, "device": "h100" if at else None}
            given = [account]
            if name == "comparison" and at:
                options["sizes"] = [at, {**at, "B": 2 * at["B"]}]
            elif name == "comparison":
                given, options["accounts"] = [], {"first": mlp, "second": deep}
            text = render(name, *given, **options)
            sound(text, form)
            assert "contractions only (matrix products" in text
            assert "not counted: " in text
            assert ("dense peaks of matrix products" in text) is bool(at)


@pytest.mark.parametrize("form", FORMS)
def test_reports_of_inference(form, served):
    """The report of a prefill and a decode step is sound in formulas and at sizes."""
    sizes = {name: size for name, size in GPT2_SIZES.items() if name != "L"} | {served.past: 512}
    sound(render("inference", served, form=form), form)
    text = render("inference", served, device="h100", sizes=sizes, form=form)
    sound(text, form)
    assert "lower bounds: weights and cache are read once" in text


@pytest.mark.parametrize("form", FORMS)
def test_names_that_no_notation_takes(form):
    """Names with signs that mean something in HTML, LaTeX or a table come out as they are."""
    step = sa.trace(sa.build(Odd), "B D", optimizer=torch.optim.SGD, check=False)
    text = render("summary", step, form=form, sizes={"B": 2, "D": 3})
    sound(text, form)
    shown = {
        "markdown": r"`parts.0_x%&\|<a>`",
        "html": "<code>parts.<wbr>0_x%&amp;|&lt;a&gt;</code>",
        "latex": r"parts.\allowbreak{}0\_\allowbreak{}x\%\&\textbar{}\textless{}a\textgreater{}",
    }
    assert shown[form] in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX here")
def test_latex_compiles(tmp_path, mlp, deep):
    """pdflatex takes the reports, and nothing is wider than the page by more than it is thick."""
    texts = [
        render("training", mlp, form="latex", device="h100", sizes=MLP_SIZES),
        render("summary", deep, form="latex"),
    ]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.tex").write_text(text)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{number}.tex"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace")
        assert run.returncode == 0, run.stdout[-2000:]
        wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", run.stdout)]
        assert max(wide, default=0) < 10


# -- what they say -------------------------------------------------------------------------


def test_summary_of_a_layer():
    """A small golden: the summary of one linear layer without a device, whole but for the foot."""
    step = sa.trace(sa.build(lambda D, K: nn.Linear(D, K, bias=False)), "B D")
    text = render("summary", step, sizes={"B": 64, "D": 1000, "K": 500})
    assert text.partition("\n---")[0] == LAYER


LAYER = """\
# Linear: what a step costs

`Linear(f32[B, D])` at B=64, D=1,000, K=500

## In short

|                   | formula                                     |     value |
| ----------------- | ------------------------------------------- | --------: |
| parameters        | `D*K`                                       |   500,000 |
| forward, FLOP     | `2*B*D*K`                                   |  64 MFLOP |
| step, FLOP        | `4*B*D*K`                                   | 128 MFLOP |
| step, bytes moved | `8*B*D + 8*B*K + 8*D*K + 12`                |   4.77 MB |
| activations       | `4`                                         |       4 B |
| peak memory       | `4*B*D + 4*D*K + 4 + Max(4*D*K + 4, 4*B*K)` |   4.26 MB |

## By phase

| phase           | formula                     |    value |
| --------------- | --------------------------- | -------: |
| forward         | `2*B*D*K`                   | 64 MFLOP |
| forward, other  | `B*K`                       | 32 kFLOP |
| forward, bytes  | `4*B*D + 8*B*K + 4*D*K + 4` |  2.51 MB |
| backward        | `2*B*D*K`                   | 64 MFLOP |
| backward, bytes | `4*B*D + 4*D*K + 8`         |  2.26 MB |

## Memory

| kind        | formula                                     |   value |
| ----------- | ------------------------------------------- | ------: |
| parameters  | `4*D*K`                                     |    2 MB |
| gradients   | `4*D*K`                                     |    2 MB |
| inputs      | `4*B*D`                                     |  256 kB |
| activations | `4`                                         |     4 B |
| at rest     | `8*D*K`                                     |    4 MB |
| peak        | `4*B*D + 4*D*K + 4 + Max(4*D*K + 4, 4*B*K)` | 4.26 MB |

## Where the FLOP are

| ops               | formula   |     value | share |
| ----------------- | --------- | --------: | ----: |
| `aten.mm.default` | `4*B*D*K` | 128 MFLOP |  100% |

## Where the bytes move

| modules       | formula                     |   value |  share |
| ------------- | --------------------------- | ------: | -----: |
| `(top level)` | `8*B*D + 4*B*K + 8*D*K + 4` | 4.64 MB |  97.3% |
| `(loss)`      | `4*B*K + 4`                 |  128 kB |  2.68% |
| `(backward)`  | `4`                         |     4 B | <0.01% |
"""


def test_shares_are_those_of_the_account(deep):
    """The modules of the summary have the shares that `Account.shares` gives at the same depth."""
    rows = table(render("summary", deep, sizes=GPT2_SIZES), "Where the FLOP are")
    shares = {row.name: row for row in deep.shares(by="module", depth=4, **GPT2_SIZES)}
    named = {row[0].strip("`"): row for row in rows}
    assert set(named) >= {"lm_head"}
    assert named["lm_head"][3] == f"{float(shares['lm_head'].share):.1%}"
    assert sum(float(row[3].strip("<%")) for row in rows) == pytest.approx(100, abs=0.5)


def test_training_has_the_times_of_the_roofline(deep):
    """Times and limits are those of `roofline`; the whole training is 6*N of them with what was assumed named."""
    text = render("training", deep, device="h100", sizes=GPT2_SIZES, tokens="1B tokens", price="$2/h")
    bound = roofline(deep.at(**GPT2_SIZES), "h100")
    rows = {row[0]: row for row in table(text, "Time of a step, at least")}
    assert float(rows["total"][1].split()[0]) == pytest.approx(1e3 * bound.total.seconds, rel=5e-3)
    assert rows["forward"][3] == bound.phases["forward"].limit
    whole = {row[0]: row[1] for row in table(text, "The whole training")}
    assert whole["tokens"] == "1B tokens"
    assert whole["MFU, assumed"] == "40%"
    assert whole["cost"].startswith("$")
    assert "MFU counts model FLOP" in text


def test_training_says_when_nothing_fits(deep):
    """Where no batch fits, the report says so, and which part is too large."""
    text = render("training", deep, device="h100", sizes={**GPT2_SIZES, "H": 1200, "N": 96})
    assert "so it does not fit." in text
    assert re.search(r"Largest B that fits: .*even B=1 does not", text)


def test_comparison_of_two_settings(mlp):
    """Twice the batch is twice the FLOP and the same parameters."""
    text = render("comparison", mlp, sizes=[MLP_SIZES, {**MLP_SIZES, "B": 64}])
    rows = {row[0]: row[1:] for row in table(text, "Side by side")}
    assert text.startswith("# B=32 and B=64\n")
    assert rows["step, FLOP"] == ["545 MFLOP", "1.09 GFLOP", "2"]
    assert rows["parameters"] == ["4,239,370", "4,239,370", "1"]


def test_the_foot_tells_accounts_apart(mlp, deep):
    """What holds for one of two accounts is said with its name, what holds for both once."""
    text = render("comparison", accounts={"first": mlp, "second": deep})
    foot = text.partition("\n---\n")[2]
    assert "- second: holds when: " in foot
    assert "- first: checked, node by node, at" in foot
    assert foot.count("contractions only") == 1


def test_long_lines_are_formulas(deep):
    """In Markdown nothing but formulas, and what stands beside them in a table or in the foot, is wider than 120."""
    text = render("training", deep, device="h100", sizes=GPT2_SIZES).partition("\n---\n")[0]
    assert [line for line in text.splitlines() if len(line) > 120 and "`" not in line] == []
