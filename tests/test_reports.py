"""Figures, filters and forms of reports, and what a template of one's own gives in each form."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.dim import symbol
from symacct.errors import SpecError
from symacct.reports import ReportError, render, write
from symacct.reports.command import beside, report
from symacct.reports.dimensions import unit_of, unit_text
from symacct.reports.mathematics import html_formula, latex_formula, latex_text
from symacct.reports.provenance import provenance
from symacct.reports.views import Memo, View

ROOT = Path(__file__).parent.parent
SIZES = {"B": 32, "D": 1024, "K": 10}
B, D, K, Dh = (symbol(name) for name in ("B", "D", "K", "Dh"))


@pytest.fixture(scope="module")
def mlp():
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K)))
    return sa.trace(model, "B D", optimizer=torch.optim.AdamW)


@pytest.fixture
def filled(tmp_path, mlp):
    """What a template's text gives, without its foot."""

    def fill(text, form="md", account=mlp, **options):
        path = tmp_path / f"mine.{form}.j2"
        path.write_text(text)
        out = render(path, account, **options)
        end = {"md": "\n\n---\n", "html": "\n\n<footer>", "tex": "\n\n\\bigskip\\hrule"}[form]
        assert end in out, "no foot"
        return out.partition(end)[0]

    return fill


# -- values ----------------------------------------------------------------------------

VALUES = {
    "{{ acct.forward.flops | flops }}": "271 MFLOP",
    "{{ acct.forward.flops | flops(5) }}": "271.06 MFLOP",
    "{{ acct.forward | flops }}": "271 MFLOP",
    "{{ acct.param_bytes | bytes }}": "17.0 MB",
    "{{ acct.param_bytes | binary }}": "16.2 MiB",
    "{{ acct.param_bytes | bytes(4, binary=true) }}": "16.17 MiB",
    "{{ acct.params | number }}": "4,239,370",
    "{{ acct.params | value }}": "4,239,370",
    "{{ acct.params | si }}": "4.24M",
    "{{ acct.total.flops | si('FLOP', 4) }}": "544.7 MFLOP",
    "{{ acct.total.flops | value }}": "545 MFLOP",
    "{{ acct.total.flops }}": "545 MFLOP",
    "{{ acct.total.intensity }}": "1.60 FLOP/B",
    "{{ (acct.forward.flops / acct.total.flops) | percent }}": "49.8%",
    "{{ (acct.total.flops / device.peak('bf16')) | seconds }}": "551 ns",
    "{{ device.peak('bf16') | rate }}": "990 TFLOP/s",
    "{{ device.memory_bytes | binary }}": "80 GiB",
    "{{ (2 * device.bytes_per_s) | rate }}": "6.70 TB/s",
    "{{ 1e12 | rate('B/s') }} {{ 5e12 | tokens }}": "1 TB/s 5T tokens",
    "{{ 12.5 | money }} {{ 90 | seconds }}": "$12.50 1.50 min",
    "{{ acct.params | int + 1 }} {{ '7' | int }} {{ 3 | float }}": "4239371 7 3.0",
    "{{ device.unheard_of | default('-') }} {{ none }}": "- -",
    "{{ acct.sizes.B }} {{ sizes.B }} {{ numbers }}": "32 32 True",
    "{{ (acct | at(B=64)).forward.flops | flops }}": "542 MFLOP",
    "{{ (acct.forward | at(B=64)).flops | flops }}": "542 MFLOP",
    "{{ acct.by_module(1)['0'].flops | flops }}": "537 MFLOP",
    "{{ (acct.by_module(1)['0'].flops | at(B=64)) | flops }}": "1.07 GFLOP",
    "{{ [acct.params, 5] | sum | number }}": "4,239,375",
    "{{ (acct.total.flops - acct.forward.flops == acct.backward.flops) }}": "True",
    "{{ acct.params > 10 }} {{ acct.recompute.flops | int }}": "True 0",
    "{{ 'yes' if acct.recompute.flops else 'no' }}": "no",
    "{{ accounts.Sequential.figure('forward') | flops }}": "271 MFLOP",
    "{{ (acct.under('fvcore').forward.flops | value) }}": "136 MFLOP",
}


@pytest.mark.parametrize("template", VALUES)
def test_values(template, filled):
    """A filter shows the account's number with its unit and three digits, or as many as are asked for."""
    assert filled(template, sizes=SIZES, device="h100") == VALUES[template]


FORMULAS = {
    "{{ acct.forward.flops }}": "8*B*D*K + 8*B*D**2",
    "{{ acct.forward.flops | formula }}": "8*B*D*K + 8*B*D**2",
    "{{ acct.forward | formula }}": "8*B*D*K + 8*B*D**2",
    "{{ acct.forward.flops | latex }}": r"8 \, B \, D \, K + 8 \, B \, D^{2}",
    "{{ acct.forward.flops | math }}": "`8*B*D*K + 8*B*D**2`",
    "{{ acct.forward.flops | leading('D') | formula }}": "8*B*D**2",
    "{{ acct.forward.flops | leading(D=1, K=2) | formula }}": "8*B*D*K",
    "{{ acct.forward.flops | express(F='4*D') | formula }}": "2*B*F*K + B*F**2/2",
    "{{ acct.forward.flops | terms }}": "terms: 8*B*D*K, 8*B*D**2",
    "{{ acct.forward.flops | provenance }}": "modules: 0 = 8*B*D**2, 2 = 8*B*D*K",
    "{{ acct.by_op()['aten.addmm.default'].flops | provenance }}": "modules: 0 = 8*B*D**2, 2 = 8*B*D*K",
    "{{ acct.by_module(1, 'backward')['2'].flops | provenance }}": "ops: aten.mm.default = 16*B*D*K",
    "{{ acct.peak_bytes | closed }}": "the largest of 5 moments",
    "{{ acct.params | closed }}": "`4*D*K + 4*D**2 + 4*D + K`",
    "{{ acct.forward.flops | at(B=2, D=3, K=4) | flops }}": "336 FLOP",
    "{{ acct.params | at(D=3, K=4) | number }}": "100",
    "{{ acct.forward.flops | at(B=2, D=3, K=4) | formula }}": "8*B*D*K + 8*B*D**2",
    "{{ acct.forward.flops | shown }}": "`8*B*D*K + 8*B*D**2`; modules: `0` = `8*B*D**2`, `2` = `8*B*D*K`",
    "{{ (acct.forward.flops / 2 + acct.backward.flops) | formula }}": "20*B*D*K + 12*B*D**2",
    "{{ (acct.forward.flops / acct.param_bytes) | formula }}": (
        "2*B*D*K/(4*D*K + 4*D**2 + 4*D + K) + 2*B*D**2/(4*D*K + 4*D**2 + 4*D + K)"
    ),
}


@pytest.mark.parametrize("template", FORMULAS)
def test_formulas(template, filled):
    """Without sizes filters show formulas, which are those of the account."""
    assert filled(template) == FORMULAS[template]


def test_the_peak_is_that_of_the_account(mlp, filled):
    """The peak at sizes is the account's, whichever way the sizes come."""
    other = mlp.at(**{**SIZES, "B": 64}).peak_bytes
    template = "{{ acct.peak_bytes | number }} {{ acct.peak_bytes | at(B=64) | number }}"
    assert filled(template, sizes=SIZES) == f"{mlp.at(**SIZES).peak_bytes:,} {other:,}"


def test_at_takes_plain_expressions(filled):
    """An expression from elsewhere is evaluated at the sizes, and prints as the same figure of an account does."""
    expr = 2 * B * D**2 + 6 * D
    out = filled("{{ e | at(B=2, D=3) | number }} {{ e | formula }} {{ (acct.params + e) | formula }}", e=expr)
    assert out == "54 2*B*D**2 + 6*D 2*B*D**2 + 4*D*K + 4*D**2 + 10*D + K"


def test_the_notes_two_layers(tmp_path):
    """N016: two layers at B=16384, D=32768, K=8192 have 43,980,465,111,040 FLOP forward, by value and by parts."""
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    path = tmp_path / "two.md.j2"
    path.write_text("{{ acct.forward.flops | number }} {{ acct.forward.flops | shown }}")
    text = render(path, sa.trace(model, "B D"), sizes={"B": 16384, "D": 32768, "K": 8192})
    shown = "`2*B*D*K + 2*B*D**2` = 44.0 TFLOP; modules: `0` 80%, `1` 20%"
    assert text.startswith(f"43,980,465,111,040 {shown}\n\n---\n")


def test_provenance_adds_up(mlp, filled):
    """The parts of a figure add up to it: modules, kinds of tensors at the peak, and terms."""
    template = (
        "{% for f in (acct.total.flops, acct.total.bytes, acct.peak_bytes, acct.params) %}"
        "{% set made = f | provenance(top=3) %}{{ made.by }} {{ f | int }} {{ made | sum(attribute='value') | int }};"
        "{% endfor %}"
    )
    rows = [row.split() for row in filled(template, sizes=SIZES).strip(";").split(";")]
    assert [row[0] for row in rows] == ["modules", "modules", "kinds", "terms"]
    assert all(row[1] == row[2] for row in rows)
    assert int(rows[2][1]) == mlp.at(**SIZES).peak_bytes


def test_provenance_goes_as_deep_as_it_says_something():
    """A module with most of a figure is taken apart, one with half of it is not; a depth that is given is kept."""

    def net(D):
        return nn.Sequential(nn.Sequential(nn.Linear(D, D), nn.Linear(D, D)), nn.Linear(D, D))

    def even(D):
        return nn.Sequential(nn.Sequential(nn.Linear(D, D)), nn.Sequential(nn.Linear(D, D)))

    found = []
    for make in (net, even):
        view = View(sa.trace(sa.build(make), "B D", check=False).at(B=2, D=8), Memo())
        found += [[part.name for part in provenance(view.forward.flops, depth)] for depth in (None, 1)]
    assert found == [["0.0", "0.1", "1"], ["0", "1"], ["0", "1"], ["0", "1"]]


def test_a_value_below_the_least_depth_is_that_of_the_account():
    """A figure at sizes is asked of the account, which traces again where its formulas do not reach."""
    deep = sa.build(lambda D, N: nn.Sequential(*(nn.Linear(D, D) for _ in range(N))), depth="N")
    step = sa.trace(deep, "B D", check=False)
    text = render(ROOT / "examples" / "report.md.j2", step, sizes={"B": 4, "D": 8, "N": 1})
    assert "`0`: 100% of the forward FLOP" in text


def test_units():
    """Units are powers of base units: rates divide, ratios have none."""
    assert unit_of("FLOP/s") == (("FLOP", 1), ("s", -1))
    assert [unit_text(unit_of(text)) for text in ("FLOP/s", "B", "")] == ["FLOP/s", "B", ""]


# -- notations ---------------------------------------------------------------------------


def test_latex_formulas():
    """LaTeX has the order and the factors of the text, fractions as such, long names upright, breakable parentheses."""
    assert latex_formula(24 * B * D**2 * K + 4 * B * D * K**2 + 2 * B * D * K * Dh) == (
        r"2 \, B \, D \, K \, (12 \, D + \mathrm{Dh} + 2 \, K)"
    )
    assert latex_formula(symbol("D1") + symbol("n_x")) == r"D_{1} + \mathrm{n\_x}"
    assert latex_formula(B * D / K) == r"\frac{B \, D}{K}"
    assert latex_formula(sympy.Max(2 * B + D, 2 * B + K, evaluate=False)) == r"2 \, B + \max(D, K)"
    assert latex_formula(sympy.floor(B / 2)) == r"\left\lfloor{\frac{B}{2}}\right\rfloor"
    assert latex_formula(1234567) == "1{,}234{,}567"


def test_html_formulas():
    """HTML has the text of the formula, with names and powers marked up."""
    space = "\N{NARROW NO-BREAK SPACE}"
    assert html_formula(2 * B * Dh**2 - 1) == (
        f'2{space}<var>B</var>{space}<var class="word">Dh</var><sup>2</sup> \N{MINUS SIGN} 1'
    )
    assert html_formula(sympy.Max(B, D, evaluate=False)) == "Max(<var>B</var>, <var>D</var>)"


def test_latex_text():
    """Whatever a name has in it, LaTeX prints it."""
    assert latex_text("h.0_x%") == r"h.0\_x\%"
    assert latex_text("a\\b{}$&#^~<>|") == (
        r"a\textbackslash{}b\{\}\$\&\#\textasciicircum{}\textasciitilde{}\textless{}\textgreater{}\textbar{}"
    )


ESCAPED = (
    "{{ x }} {{ 'h.0_x%' }} {{ x | code }} {{ x ~ (acct.recompute.flops | math) }} {{ [x, x | code] | join('&') }}"
)


def test_escaping(filled):
    """HTML and LaTeX escape what filters do not mark up, also in constants, joins and ~; Markdown is left alone."""
    x = "h.0_x%<|`&"
    assert filled(ESCAPED, x=x) == "h.0_x%<|`& h.0_x% `` h.0_x%<|`& `` h.0_x%<|`&`0` h.0_x%<|`&&`` h.0_x%<|`& ``"
    name = "h.0_x%&lt;|`&amp;"
    assert filled(ESCAPED, "html", x=x) == (
        f"{name} h.0_x% <code>h.<wbr>0_x%&lt;|`&amp;</code> {name}"
        '<span class="math">0</span> '
        f"{name}&amp;<code>h.<wbr>0_x%&lt;|`&amp;</code>"
    )
    plain, brk = r"h.0\_x\%\textless{}\textbar{}`\&", r"\allowbreak{}"
    code = rf"\texttt{{h.{brk}0\_{brk}x\%\textless{{}}\textbar{{}}`\&}}"
    assert filled(ESCAPED, "tex", x=x) == rf"{plain} h.0\_x\% {code} {plain}$0$ {plain}\&{code}"


SHOWN = "{{ acct.forward.flops | shown }}"


def test_shown_in_each_form(filled):
    """Formula, value and provenance come together, in the notation of the form."""
    assert filled(SHOWN, sizes=SIZES) == "`8*B*D*K + 8*B*D**2` = 271 MFLOP; modules: `0` 99.0%, `2` 0.967%"
    assert filled(SHOWN, "tex", sizes=SIZES) == (
        r"$8 \, B \, D \, K + 8 \, B \, D^{2}$ = 271 MFLOP; modules: \texttt{0} 99.0\%, \texttt{2} 0.967\%"
    )
    html = filled(SHOWN, "html", sizes=SIZES)
    assert html.endswith("</span> = 271 MFLOP; modules: <code>0</code> 99.0%, <code>2</code> 0.967%")


# -- foot, files, command ------------------------------------------------------------------


def test_the_foot(tmp_path, mlp):
    """A foot says convention, assumptions, what was checked, the device's dense peaks; once, where it is put."""
    path = tmp_path / "mine.html.j2"
    path.write_text("<html><body><p>{{ acct.params }}</p></body></html>")
    text = render(path, mlp, device="h100")
    assert text.index("<footer>") < text.index("</body>")
    for line in (
        "checked, node by node, at", "flops: contractions only", "memory: the bytes of the tensors", "not counted: ",
        "H100-SXM5-80GB: dense peaks of matrix products (never those with sparsity): float64 67 TFLOP/s",
    ):  # fmt: skip
        assert text.count(line) == 1, line
    path.write_text("<html><body>{{ foot() }}<p>{{ acct.params }}</p></body></html>")
    assert render(path, mlp).count("<footer>") == 1
    path.write_text("{{ roofline(acct).total.seconds | seconds }}")
    assert "least times on H100-SXM5-80GB: dense peaks float32 67 TFLOP/s" in render(
        path, mlp, device="h100", sizes=SIZES
    )


def test_output_is_the_same_each_time(mlp):
    """The same account gives the same bytes."""
    both = [render("summary", mlp.at(**SIZES), device="h100", form=form) for form in ("html", "html")]
    assert both[0] == both[1]


def test_write_goes_by_the_suffix(tmp_path, mlp):
    """A file's suffix says its form, and a file is whole or not there."""
    for suffix, opening in ((".md", "# Seq"), (".html", "<!DOCTYPE html>"), (".tex", r"\documentclass")):
        write(tmp_path / f"out{suffix}", "summary", mlp, sizes=SIZES)
        assert (tmp_path / f"out{suffix}").read_text().startswith(opening)
    with pytest.raises(ReportError) as error:
        write(tmp_path / "out.pdf", "summary", mlp)
    assert str(error.value) == f"{tmp_path}/out.pdf: name the file with one of .md, .html, .tex, or say which form"
    with pytest.raises(ReportError):
        write(tmp_path / "bad.md", "training", mlp, sizes=SIZES, tokens="3 GB")
    assert not (tmp_path / "bad.md").exists()


def test_command(tmp_path, mlp):
    """The command prints or writes, takes names with values, and lays two settings or two models side by side."""
    at = mlp.at(**SIZES)
    text = report("training", at, device="h100", names=["tokens=1e9", "mfu=0.5", "price=2 USD/h", "devices=2"])
    assert re.search(r"\| MFU, as given +\| +50% \|", text)
    assert report("summary", at, out=str(tmp_path / "a.md")) == ""
    assert (tmp_path / "a.md").read_text() == render("summary", at)
    assert list(beside(at, None, {"B": 64})) == ["B=32", "B=64"]
    assert list(beside(at, mlp, {})) == ["Sequential (1)", "Sequential (2)"]
    assert "# Sequential (1) and Sequential (2)" in report("comparison", at, against=mlp)
    with pytest.raises(SpecError) as error:
        report("summary", at, names=["tokens"])
    assert str(error.value) == "--set: 'tokens' is not NAME=VALUE, as in mfu=0.4 or tokens='15T tokens'"
    with pytest.raises(SpecError) as error:
        report("comparison", mlp, against_at={"B": 64})
    assert str(error.value) == "--against-at: give the first setting with --at"


def test_the_page_runs():
    """Every Python block of docs/reports.md runs, in order, and prints the text block that follows it."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "reports.md").read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    for (language, code), (after, text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
                exec(compile(textwrap.dedent(code), "docs/reports.md", "exec"), names)
            assert after != "text" or out.getvalue().rstrip() == text.rstrip()
