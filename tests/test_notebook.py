"""What notebooks show: well-formed pages that say what the reports say, in light and dark; the example runs."""

import json
import re
from html.parser import HTMLParser

import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from notebooks import NOTEBOOKS, executed, plain, texts, written
from torch import nn

import symacct as sa
from symacct import report
from symacct.dataflow import critical_path, crossing
from symacct.notebook import mimebundle, to_html, to_latex
from symacct.shown import Shown

SIZES = {"B": 1024, "D": 64, "K": 96}


@pytest.fixture(scope="module")
def step():
    """The account of two layers."""
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    return sa.trace(model, "B D", loss=lambda y: (y**2).mean(), optimizer=torch.optim.AdamW)


@pytest.fixture(scope="module")
def there(step):
    """The same at sizes."""
    return step.at(**SIZES)


@pytest.fixture(scope="module")
def deep():
    """An account with a symbolic depth."""
    return sa.trace(sa.build(lambda D, N: nn.Sequential(*(nn.Linear(D, D) for _ in range(N))), depth="N"), "B D")


SHOWN = {
    "account": lambda step, there, deep: step,
    "account at sizes": lambda step, there, deep: there,
    "account of any depth": lambda step, there, deep: deep,
    "account under a convention": lambda step, there, deep: step.under("palm"),
    "phase": lambda step, there, deep: step.forward,
    "phase at sizes": lambda step, there, deep: there.total,
    "module": lambda step, there, deep: step.by_module()["0"],
    "roofline": lambda step, there, deep: there.roofline("h100"),
    "roofline in formulas": lambda step, there, deep: step.roofline("h100"),
    "roofline of the least": lambda step, there, deep: there.roofline("h100", level="minimal"),
    "bound": lambda step, there, deep: there.roofline("h100").total,
    "bound in formulas": lambda step, there, deep: step.roofline("h100").total,
    "threshold": lambda step, there, deep: sa.roofline.compute_bound_when(step.roofline("h100"), "B", D=64, K=96),
    "utilization": lambda step, there, deep: there.mfu("1 ms", "h100"),
    "shares of terms": lambda step, there, deep: step.shares(**SIZES),
    "shares of modules": lambda step, there, deep: step.shares(by="module", **SIZES),
    "elasticities": lambda step, there, deep: step.elasticities(**SIZES),
    "crossover": lambda step, there, deep: sa.crossover(step.forward.flops, step.backward.flops, "K", B=1, D=3),
    "memory": lambda step, there, deep: step.memory,
    "memory at sizes": lambda step, there, deep: there.memory,
    "memory of any depth": lambda step, there, deep: deep.memory,
    "memory of a depth": lambda step, there, deep: deep.at(B=4, D=8, N=5).memory,
    "moment": lambda step, there, deep: there.memory.peak,
    "moment in formulas": lambda step, there, deep: step.memory.candidates[0],
    "moment of any depth": lambda step, there, deep: deep.memory.candidates[0],
    "timeline": lambda step, there, deep: there.memory.later,
    "timeline in formulas": lambda step, there, deep: step.memory.first,
    "in other names": lambda step, there, deep: step.express(P="params"),
    "a phase in other names": lambda step, there, deep: step.express(P="params").forward,
    "answer": lambda step, there, deep: step.solve("B", peak_bytes="80 GB", D=4096, K=96),
    "training": lambda step, there, deep: there.training(
        tokens="3B tokens", tokens_per_step=1024, device="h100", mfu=0.4
    ),
    "states": lambda step, there, deep: sa.napkin.states(7e9),
    "explanation": lambda step, there, deep: step.explain("torch", "palm"),
    "device": lambda step, there, deep: sa.device("h100"),
    "critical path": lambda step, there, deep: critical_path(there, "h100"),
    "crossing": lambda step, there, deep: crossing(step, "forward"),
}


@pytest.fixture(params=SHOWN)
def shown(request, step, there, deep):
    """An object of each kind."""
    return SHOWN[request.param](step, there, deep)


class Read(HTMLParser):
    """HTML that is read strictly: every tag is closed in order, and its text kept."""

    VOID = ("wbr",)

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.tags, self.rows = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += f"**{data}" if self.open[-1] == "sup" else data


def unset(cell):
    """A cell's text with formulas as they were before they were set."""
    return cell.replace("\N{NARROW NO-BREAK SPACE}", "*").replace("*//*", "//").replace("\N{MINUS SIGN}", "-")


# -- pages -----------------------------------------------------------------------------


def test_pages_are_well_formed(shown):
    """A page is one element, all of whose tags are closed, and which asks for no other file and runs nothing."""
    html = to_html(shown)
    page = Read(html)
    assert html.startswith('<div class="symacct">')
    assert html.endswith("</div>")
    assert {tag for tag, _ in page.tags} <= {
        "div", "style", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "code", "wbr", "span", "var", "sup",
        "details", "summary", "ul", "li", "pre",
    }  # fmt: skip
    assert {name for _, attributes in page.tags for name in attributes} <= {"class", "style"}
    assert "".join(page.text).strip()
    assert " at 0x" not in html


def test_tables_have_rows(shown):
    """What prints as a table is a table there, and no row is empty."""
    rows = Read(to_html(shown)).rows
    if type(shown).__name__ not in ("Utilization", "Threshold", "Crossover"):  # which are sentences
        assert len(rows) > 1
    assert all(any(row) for row in rows if row != [""] * len(row) or len(rows) == 1)


def test_style_applies_within_the_page_only():
    """Every rule of the style is of the page's class, and no colour stands against a theme."""
    html = to_html(sa.device("h100"))
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    selectors = re.findall(r"([^{}]+)\{", style)
    assert all(each.strip().startswith(".symacct") for part in selectors for each in re.split(r",(?![^()]*\))", part))
    assert not re.search(r"#[0-9a-f]{3}|white;|black;|url\(|@import", style)
    assert re.findall(r"[^-]color: (\w+)", style) == ["inherit"] * style.count(" color: inherit")


def test_an_account_says_what_its_report_says(step, there):
    """Every row of the report stands in the page: names, formulas and values."""
    for account in (step, there):
        rows = [[unset(cell) for cell in row] for row in Read(to_html(account)).rows]
        for section in report.sections(account):
            for row in section.rows:
                assert list(row) in rows, row
        text = "".join(Read(to_html(account)).text)
        assert all(line in text for line in [*report.header(account), *report.footer(account)])


def test_formulas_are_set(step):
    """Dims are variables and powers stand above, in formulas of any table, and in values that have none."""
    product = "2\N{NARROW NO-BREAK SPACE}<var>B</var>\N{NARROW NO-BREAK SPACE}<var>D</var><sup>2</sup>"
    assert product in to_html(step.forward)
    assert product in to_html(step)
    assert "<var>P</var>" in to_html(step.express(P="params").forward)
    assert "<var" not in to_html(step.at(**SIZES).roofline("h100"))


@pytest.mark.parametrize(
    "words",
    [
        "the largest of 5 moments: see memory_report()", "unknown: no rule", "no closed form: sizes are rounded",
        "aten.mm.default", "addmm x4, mul.Tensor x6, bmm x2, 10 more", "12.3 MB", "-",
    ],
)  # fmt: skip
def test_prose_is_not_mathematics(words):
    """What stands in a column of formulas and is none is not set as one."""
    from symacct.notebook.html import _cell

    assert _cell("formula", words) == words


@pytest.mark.parametrize("formula", ["2*B*D", "B", "12*(2*B*D**2 + B*D)", "Max(B, 2*D)", "3 - B % 2", "B//2", "1,024"])
def test_formulas_are_mathematics(formula):
    """Products, sums, calls, remainders and numbers are."""
    from symacct.notebook.html import _cell

    assert _cell("formula", formula).startswith('<span class="math">')


def test_names_are_escaped():
    """What a module is called can be no markup."""

    class Nasty(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.parts = nn.ModuleDict({"<script>alert(1)</script>": nn.Linear(D, D)})

        def forward(self, x):
            return next(iter(self.parts.values()))(x)

    account = sa.trace(sa.build(Nasty), "B D")
    for shown in (
        account.by_module(None)["parts.<script>alert(1)</script>"],
        crossing(account, lambda node: "addmm" in node.op),
    ):
        html = to_html(shown)
        assert "<script" not in html
        assert "&lt;script&gt;alert(1)" in html


def test_what_is_missing_is_seen_at_once():
    """An op without a rule is named in the open, not among the notes that are folded up."""
    account = sa.trace(lambda x, w: x @ w, "B D", "D D", train=False, rules=sa.Rules("none"))
    for shown in (account, account.forward):
        html = to_html(shown)
        assert 'class="warning">INCOMPLETE' in html
        assert html.index("INCOMPLETE") < html.find("<details") or "<details" not in html


def test_pages_are_byte_stable(outputs_by_seed):
    """Processes with other hashes show the same."""
    code = """
import torch, symacct as sa
from torch import nn
from symacct.notebook import to_html, to_latex
step = sa.trace(sa.build(lambda D, K: nn.Linear(D, K)), "B D", optimizer=torch.optim.AdamW, check=False)
there = step.at(B=4, D=8, K=6)
print(to_html(step), to_html(there), to_latex(step), to_html(there.memory), to_html(there.roofline("h100")))
"""
    assert len(outputs_by_seed(code)) == 1


# -- what Jupyter asks for ---------------------------------------------------------------


def test_latex_is_the_flop_formula(step, there):
    """Of a phase and of an account, between dollars; tables have none."""
    assert to_latex(step.forward) == r"$2 \, B \, D \, K + 2 \, B \, D^{2}$"
    assert to_latex(step) == to_latex(step.total) == r"$6 \, B \, D \, K + 4 \, B \, D^{2}$"
    assert to_latex(there.forward) == "$20{,}971{,}520$"
    assert to_latex(step.express(P="params").forward) == r"$2 \, B \, P$"
    assert to_latex(there.roofline("h100")) is None
    assert to_latex(step.express(P="params").memory) is None
    assert "Memory in other names" in to_html(step.express(P="params").memory)


def test_bundles_have_what_is_asked_for(step):
    """A MIME bundle has HTML, LaTeX where there is a formula, plain text where ``repr()`` is none to read."""
    assert list(mimebundle(step.forward)) == ["text/html", "text/latex"]
    roofline = step.roofline("h100")
    assert list(mimebundle(roofline)) == ["text/html", "text/plain"]
    assert mimebundle(roofline)["text/plain"] == str(roofline)
    assert list(mimebundle(step, include={"text/latex"})) == ["text/latex"]
    assert list(mimebundle(step, exclude={"text/html"})) == ["text/latex"]
    assert mimebundle(step.memory)["text/plain"] == "<Memory: memory, in bytes>"


def test_classes_show_themselves(shown):
    """IPython finds HTML by the object's own methods, beside plain text."""
    assert isinstance(shown, Shown)
    data, _ = DisplayFormatter().format(shown)
    assert data["text/html"] == to_html(shown) == shown._repr_html_()
    assert data.get("text/latex") == to_latex(shown) == shown._repr_latex_()
    assert data["text/plain"]
    assert " at 0x" not in data["text/plain"]


# -- the example -----------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path):
    """A notebook of examples/ runs, and shows what the file holds: python tests/notebooks.py --write."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    fresh = json.loads(written(executed(path)))
    assert len(kept["cells"]) > 10
    for (source, expected), (_, found) in zip(texts(kept), texts(fresh), strict=True):
        assert found == expected, source
    assert written(plain(fresh)) == written(fresh)


def test_notebooks_hold_nothing_of_a_machine():
    """No path, no address and no time of a run is kept."""
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/tmp/|/home/|/work/|/root/|site-packages| at 0x[0-9a-f]+|execution.:", text)
