"""The command that writes a page in which the sizes of a model can be moved."""

# Annotations are values in this file, not text: typer reads them.
from typing import TYPE_CHECKING, Annotated

import typer

from symacct.cli.app import app
from symacct.cli.console import errors, hardware, progress, writable
from symacct.cli.step import of_a_step_on

if TYPE_CHECKING:
    from symacct.account import Account


def _labels(text: str) -> list[str]:
    """The labels of "bf16, autocast bf16"; none of "none"."""
    if text.strip() == "none":
        return []
    return [label for label in (" ".join(part.split()) for part in text.split(",")) if label]


def _readable(dtypes: str) -> str:
    """Refuse a dtype that there is not before anything takes time."""
    from symacct.page.variants import dtype_of

    with errors():
        for label in _labels(dtypes):
            _ = dtype_of(label)
    return dtypes


@app.command(no_args_is_help=True)
@of_a_step_on
def explore(
    account: "Account",
    out: Annotated[
        str, typer.Option("--out", "-o", help="The file to write", metavar="FILE.html", callback=writable)
    ] = "model.html",
    device: Annotated[
        str, typer.Option(help="Times at first: a device ('h100'), or FILE.toml:NAME", callback=hardware)
    ] = "h100",
    dtypes: Annotated[
        str, typer.Option(help="Others that one can choose, or 'none'", callback=_readable)
    ] = "autocast bf16, bf16",
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one HTML file in which sizes, device and dtype can be moved: totals, memory, modules, graph, roofline.

    TARGET and the options up to --check are those of `symacct trace`, but for --device. The page starts at the sizes
    of --at. It needs no other file and no network.

    **Examples**

    `symacct explore examples/two_layer.py:account -o model.html`

    `symacct explore examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024 --open`

    `symacct explore model.py:Net --build "B D" --optimizer AdamW --device a100 --dtypes "bf16, autocast f16"`

    **Exit codes**: 0 done; 1 the model cannot be traced; 2 the command is wrong.
    """
    from symacct.page import to_html
    from symacct.units import show as quantity

    with progress():
        text = to_html(account, out, device=device, dtypes=_labels(dtypes))
    print(f"{out}: {quantity(len(text.encode()), 'B')}, one file that needs no other and no network")
    if show:
        _open(out)


# -- helpers -----------------------------------------------------------------------------


def _open(path: str) -> None:
    """Hand the file to whatever shows HTML here; where nothing does, its name was printed."""
    import webbrowser
    from pathlib import Path

    if not webbrowser.open(Path(path).resolve().as_uri()):
        print("no browser could be opened")
