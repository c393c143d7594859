"""Errors of templates: the file, the line, what is wrong, what there is instead; never a traceback."""

import pytest
import torch
from torch import nn

import symacct as sa
from symacct.reports import ReportError, render

SIZES = {"B": 32, "D": 1024, "K": 10}
PHASE = "a phase, a module or an op has flops, pointwise, bytes, bytes_read, bytes_written, count, intensity"
ACCOUNT = (
    "an account has forward, backward, recompute, optimizer, total, phases, by_module, by_op, title, sizes, "
    "param_bytes, buffer_bytes, grad_bytes, optimizer_bytes, checkpoint_bytes, activation_bytes, peak_bytes, "
    "input_bytes, params"
)
FILTERS = (
    "bytes, flops, seconds, tokens, percent, at, value, rate, money, si, binary, number, formula, brief, latex, "
    "leading, express, figure, int, float, provenance, terms, join, math, code, share, closed, shown"
)
NAMES = (
    "account, accounts, acct, attempt, device, foot, form, layout, numbers, provenance, "
    "roofline, sizes, solve, training"
)
ERRORS = {
    "{% if x }": "line 1: unexpected '}'",
    "\n{% for x in acct %}": (
        "line 2: unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'. The "
        "innermost block that needs to be closed is 'for'"
    ),
    "{{ acct.params | nmber }}": (
        f"line 1: there is no filter 'nmber' (did you mean 'number'?); those for figures are {FILTERS}"
    ),
    "{{ acct.params | zzz }}": f"line 1: there is no filter 'zzz'; those for figures are {FILTERS}",
    "{{ acct is zzz }}": "line 1: there is no test 'zzz'",
    "\n\n{{ accnt.params }}": f"line 3: there is no 'accnt' (did you mean 'acct'?); the names are {NAMES}",
    "{{ acct.forwrd }}": f"line 1: there is no 'forwrd' (did you mean 'forward'?); {ACCOUNT}",
    "{{ acct.forward.flop }}": f"line 1: there is no 'flop' (did you mean 'flops'?); {PHASE}",
    "{{ acct.forward.zzz | flops }}": f"line 1: there is no 'zzz'; {PHASE}",
    "{{ acct.params.zzz }}": "line 1: there is no 'zzz'; a figure has formula, value, unit and name; filters show it",
    "{{ accounts.zzz }}": "line 1: there is no 'zzz'; there are Sequential",
    "{{ acct.figure('forward.zzz') }}": f"line 1: figure(): there is no 'forward.zzz'; {PHASE}",
    "{{ acct.figure('title') }}": (
        "line 1: figure(): 'title' is no figure, which forward.flops, params and peak_bytes are"
    ),
    "{{ acct.forward.flops | flops }}": (
        "line 1: no size for B, D, K, which forward.flops depends on; put | at(B=..., D=..., K=...) before the filter, "
        "or give the report sizes"
    ),
    "{{ acct.params | int }}": (
        "line 1: no size for D, K, which params depends on; put | at(D=..., K=...) before the filter, "
        "or give the report sizes"
    ),
    "{{ acct.params | at(D=3) }}": (
        "line 1: no size for K, which params depends on; put | at(K=...) before the filter, or give the report sizes"
    ),
    "{{ acct.params | at(Q=3) }}": "line 1: at(): there is no dim 'Q'; the account's dims are D, K, B",
    "{{ acct.params | at(D=0, K=1) }}": "line 1: D=0: the size of a dim is a whole number >= 1",
    "{{ acct | at(D=3) }}": (
        "line 1: at(): no size for K, B; give one for each of D, K, B (or fill in only some of a formula with "
        "sa.express(formula, B=8))"
    ),
    "{{ acct.peak_bytes | flops }}": "line 1: peak_bytes is in bytes, where | flops shows FLOP",
    "{{ acct.params | bytes }}": "line 1: params is a bare number, where | bytes shows bytes",
    "{{ acct.peak_bytes | percent }}": "line 1: peak_bytes is in bytes, where | percent shows bare numbers",
    "{{ acct.total.flops | rate }}": "line 1: | rate shows amounts per second, and total.flops is in FLOP",
    "{{ 12 | rate }}": 'line 1: | rate does not know of what; say it, as in rate("FLOP/s") or rate("B/s")',
    "{{ device.bytes_per_s | rate('FLOP/s') }}": ("line 1: device.bytes_per_s is in B/s, where | rate shows FLOP/s"),
    "{{ acct.peak_bytes + acct.total.flops }}": (
        "line 1: (peak_bytes + total.flops): peak_bytes is in bytes and total.flops in FLOP, which do not add up"
    ),
    "{{ acct.params / acct.recompute.flops }}": "line 1: (params / recompute.flops): recompute.flops is 0",
    "{{ none | bytes }}": "line 1: | bytes shows a figure, an expression or a number, not nothing (None)",
    "{{ acct.title | bytes }}": "line 1: | bytes shows a figure, an expression or a number, not a str",
    "{{ acct.params | leading('Q') }}": "line 1: leading(): there is no dim 'Q' in the expression; its dims are D, K",
    "{{ acct.params | bytes(1, 2, 3) }}": (
        "line 1: TypeError: bytes() takes from 1 to 3 positional arguments but 4 were given"
    ),
    "{{ 1 / 0 }}": "line 1: ZeroDivisionError: division by zero",
    "{{ device.peak('int4') }}": (
        "line 1: H100-SXM5-80GB has no peak rate for int4; it has float64, float32, tf32, bfloat16, float16, "
        "float8_e4m3fn, float8_e5m2, int8"
    ),
    "{% include 'zzz' %}": "line 1: there is no template 'zzz' beside it",
    "x\n{% include 'mine.md.j2' %}": "line 2: RecursionError: the template goes round in circles",
}


@pytest.fixture(scope="module")
def mlp():
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, K)))
    return sa.trace(model, "B D", optimizer=torch.optim.AdamW, check=False)


@pytest.mark.parametrize("template", ERRORS)
def test_errors_name_the_line(template, tmp_path, mlp):
    """The whole text of each error, which opens with the template's file and line."""
    path = tmp_path / "mine.md.j2"
    path.write_text(template)
    with pytest.raises(ReportError) as error:
        render(path, mlp, device="h100")
    assert str(error.value) == f"{path}, {ERRORS[template]}"


def test_the_line_of_an_included_file(tmp_path, mlp):
    """An error in a file that a template includes or imports is told there."""
    (tmp_path / "part.j2").write_text("{% macro show(x) %}\n\n{{ x | flops }}\n{% endmacro %}")
    path = tmp_path / "mine.md.j2"
    path.write_text("{% from 'part.j2' import show %}\n{{ show(acct.peak_bytes) }}")
    with pytest.raises(ReportError) as error:
        render(path, mlp)
    assert str(error.value) == f"{tmp_path}/part.j2, line 3: peak_bytes is in bytes, where | flops shows FLOP"


def test_a_broken_relation_names_the_line(tmp_path):
    """Sizes that break what the trace relied on are refused, with the line."""
    step = sa.trace(lambda x: x.reshape(x.shape[0] // 2, 2, x.shape[1]).sum(1) * 2, "B D", sizes={"B": 8}, check=False)
    assert [str(a) for a in step.assumptions] == ["B % 2 == 0"]
    path = tmp_path / "mine.md.j2"
    path.write_text("\n{{ acct.total.pointwise | at(B=3, D=2) }}")
    with pytest.raises(ReportError) as error:
        render(path, step)
    assert str(error.value) == (
        f"{path}, line 2: B=3: the traced program relied on B % 2 == 0, so its formulas do not hold at these sizes; "
        "choose sizes that satisfy it, or trace again with trial sizes that do not"
    )


def test_an_unexpected_failure_keeps_its_cause(tmp_path, mlp):
    """What a function of one's own raises is an error of the template, with the failure as its cause."""

    def fails(x):
        raise KeyError("why")

    path = tmp_path / "mine.md.j2"
    path.write_text("{{ f(1) }}")
    with pytest.raises(ReportError, match=r"mine.md.j2, line 1: KeyError: 'why'$") as error:
        render(path, mlp, f=fails)
    assert isinstance(error.value.__cause__, KeyError)


CALLS = [
    (
        ("sumary",), {},
        "there is no template 'sumary' (did you mean 'summary'?); built in are summary, training, "
        "inference, comparison",
    ),
    (("summary", None), {}, "summary: the report needs an account, as sa.trace gives it"),
    (("summary", 3), {}, "account: expected an account, from sa.trace, not int"),
    (
        ("comparison",), {},
        "comparison: there is one account; give accounts={name: account, ...}, or several sizes of one",
    ),
    (
        ("inference",), {},
        "inference: the report needs a model with its cache, from symacct.inference.inference, not an account of one "
        "step",
    ),
    (("summary",), {"form": "pdf"}, "form: 'pdf' is none of markdown, html, latex"),
    (("comparison",), {"accounts": [1]}, "accounts: expected accounts by name, not list"),
    (("comparison",), {"accounts": {"x": 1}}, "accounts['x']: expected an account, from sa.trace, not int"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "options", "message"), CALLS)
def test_what_render_is_given(args, options, message, mlp):
    """Wrong arguments are told in full."""
    with pytest.raises(ReportError) as error:
        render(*args, *([mlp] if len(args) == 1 else []), **options)
    assert str(error.value) == message


def test_several_settings_are_of_one_account(mlp):
    """Settings are of one account; several accounts come with their own."""
    with pytest.raises(ReportError) as error:
        render("comparison", accounts={"a": mlp, "b": mlp}, sizes=[SIZES, SIZES])
    assert str(error.value) == (
        "sizes: several settings are for one account; give accounts that are at their sizes already"
    )


def test_files_that_cannot_be_read(tmp_path, mlp):
    """A name without a form, and what is no text, are refused."""
    nameless, broken = tmp_path / "mine.txt", tmp_path / "mine.md"
    nameless.write_text("x")
    broken.write_bytes(b"\xff")
    with pytest.raises(ReportError) as error:
        render(nameless, mlp)
    assert str(error.value) == (
        f"{nameless}: its name does not say which form it has, as report.md.j2, report.html.j2, report.tex.j2 do; "
        "or give form="
    )
    with pytest.raises(ReportError) as error:
        render(broken, mlp)
    assert str(error.value) == f"{broken} is no text in UTF-8: invalid start byte at byte 0"


def test_a_wrong_name_in_a_built_in_report(mlp):
    """What is given to a built-in report and is of another kind is told with the report's own line."""
    with pytest.raises(ReportError, match=r"^symacct's own training.j2, line \d+: tokens: '3 GB' is bytes"):
        render("training", mlp.at(**SIZES), device="h100", tokens="3 GB")
