"""The command that fills in a report."""

# Annotations are values in this file, not text: typer reads them.
from typing import TYPE_CHECKING, Annotated

import typer

from symacct.cli.app import app
from symacct.cli.console import hardware, writable
from symacct.cli.step import account_of, of_a_model_on, pairs

if TYPE_CHECKING:
    from symacct.account import Account


@app.command(no_args_is_help=True)
@of_a_model_on
def report(
    account: "Account",
    template: Annotated[str, typer.Argument(help="summary, training or comparison, or a file: mine.md.j2")],
    device: Annotated[
        str, typer.Option(help="For times: a device of the table ('h100'), or FILE.toml:NAME", callback=hardware)
    ] = "",
    out: Annotated[
        str, typer.Option("--out", "-o", help="Write to this file", metavar="FILE.md|html|tex", callback=writable)
    ] = "",
    form: Annotated[str, typer.Option(help="markdown, html or latex, where no name says it")] = "",
    against: Annotated[str, typer.Option(help="A second account, for comparison", metavar="TARGET")] = "",
    against_at: Annotated[str, typer.Option(help="The second setting, for comparison: B=16,L=2048")] = "",
    given: Annotated[list[str] | None, typer.Option("--set", help="A name for the template: mfu=0.4")] = None,
) -> None:
    """Fill in a report: Markdown, HTML or LaTeX with an account's figures in it.

    TEMPLATE is built in (summary, training, comparison) or a Jinja2 file whose name says its form:
    mine.md.j2, mine.html.j2, mine.tex.j2. The options up to --check are those of `symacct trace`, but for --device.

    **Examples**

    `symacct report summary --model examples/two_layer.py:account`

    `symacct report mine.md.j2 --model model.py:Net --build "B D" --at B=8,D=128 --device h100 -o out.md`

    `symacct report training --model examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024
    --device h100 --set tokens=3e11 --set mfu=0.4 -o step.html`

    `symacct report comparison --model examples/two_layer.py:account --at B=8,D=128,K=64 --against-at B=16`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong, or the
    template; 3 ops without a rule under --strict.
    """
    from symacct.reports.command import report as made

    other = account_of(against) if against else None
    text = made(
        template, account, against=other, against_at=pairs(against_at), device=device, out=out, form=form,
        names=given or (),
    )  # fmt: skip
    if text:
        print(text, end="" if text.endswith("\n") else "\n")
