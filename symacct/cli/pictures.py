"""Commands that draw: a step as a graph with its costs."""

# Annotations are values in this file, not text: typer reads them.
from typing import TYPE_CHECKING, Annotated

import typer

from symacct.cli.app import app
from symacct.cli.console import errors, hardware, progress
from symacct.cli.step import of_a_step_on
from symacct.errors import SpecError

if TYPE_CHECKING:
    from symacct.account import Account


_GRAPHS = (".graphml", ".json")


def _drawn_to(path: str) -> str:
    """Refuse a file that cannot be drawn to before anything takes time."""
    from symacct.drawing.rendering import ready
    from symacct.files import must_be_writable

    with errors():
        must_be_writable(path, "--out") if path.lower().endswith(_GRAPHS) else ready(path)
    return path


@app.command(no_args_is_help=True)
@of_a_step_on
def render(
    account: "Account",
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="Draw to this file", metavar="FILE.svg|png|pdf|dot|graphml|json", callback=_drawn_to
        ),
    ],
    cost: Annotated[
        str, typer.Option(help="What boxes show: flops, pointwise, bytes, activation_bytes, or seconds with --device")
    ] = "flops",
    phase: Annotated[str, typer.Option(help="forward, backward or optimizer (default: the whole step)")] = "",
    depth: Annotated[str, typer.Option(help="How deep module paths are told apart, or 'ops' for every op")] = "",
    free: Annotated[bool, typer.Option("--free", help="Show views and other nodes that cost nothing too.")] = False,
    device: Annotated[
        str, typer.Option(help="For --cost seconds: a device ('h100'), or FILE.toml:NAME", callback=hardware)
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a layout; then fewer boxes are drawn.")] = 60.0,
) -> None:
    """Draw a step as a graph, with what each module or op costs, or write that graph as GraphML or JSON.

    TARGET and the options up to --check are those of `symacct trace`, but for --device.

    **Examples**

    `symacct render examples/two_layer.py:account -o model.svg`

    `symacct render examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024 -o gpt2.png --depth 4`

    `symacct render examples/resnet50.py:account --at B=256 -o resnet50.svg --cost seconds --device h100`

    `symacct render model.py:Net --build "B D" -o backward.pdf --phase backward --depth ops --cost bytes`

    `symacct render examples/two_layer.py:account --at B=16384,D=32768,K=8192 -o model.graphml --device h100`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong;
    3 ops without a rule under --strict.
    """
    from symacct.drawing import render as draw_to

    if out.lower().endswith(_GRAPHS):
        _write(account, out, device)
        return
    with progress():
        drawing = draw_to(
            account, out, cost=cost, phase=phase or None, depth=_depth(depth), free=free, device=device or None,
            timeout=timeout,
        )  # fmt: skip
    print(f"{out}: {' '.join(drawing.notes)}")


def _write(account: "Account", out: str, device: str) -> None:
    """The whole dataflow graph as data."""
    from symacct.dataflow import write_graph

    with progress():
        write_graph(account, out, device or None)
    print(f"{out}: {account.laid_out.total.count:,} nodes with shapes and costs")


def _depth(text: str) -> int | str | None:
    """A number such as "3" as one; "ops" as it is; "" for none."""
    if not text or text == "ops":
        return text or None
    if not text.isdecimal() or int(text) < 1:
        raise SpecError(f"--depth: {text!r} is neither a whole number >= 1 nor 'ops'")
    return int(text)
