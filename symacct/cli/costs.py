"""Commands about one step: what it costs, what it holds in memory, and whether a real run agrees."""

# Annotations are values in this file, not text: typer reads them.
from typing import TYPE_CHECKING, Annotated

import typer

from symacct.cli.app import app
from symacct.cli.console import drawable, progress, show, writable
from symacct.cli.step import of_a_step, pairs

if TYPE_CHECKING:
    from symacct.account import Account


@app.command(no_args_is_help=True)
@of_a_step
def trace(
    account: "Account",
    depth: Annotated[int, typer.Option(min=1, help="How deep module paths are shown.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Trace one training step of a model and print what it costs.

    TARGET names a module, a function of tensors, a function without arguments that returns an
    account or a module, or with --build a function whose parameters are dims.

    **Examples**

    `symacct trace examples/two_layer.py:account`

    `symacct trace examples/two_layer.py:account --at B=16384,D=32768,K=8192`

    `symacct trace model.py:Net --build "i64[B, L]" --optimizer AdamW --depth 2`

    `symacct trace torchvision.models:resnet50 "B 3 224 224" --inference --json`

    `symacct trace --hf config.json --at B=8,L=2048`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong;
    3 ops without a rule under --strict.
    """
    from symacct.report import renderables, to_json

    if json:
        print(to_json(account))
    else:
        show(lambda width: renderables(account, depth, width))


@app.command(no_args_is_help=True)
@of_a_step
def memory(
    account: "Account",
    depth: Annotated[int, typer.Option(min=1, help="How deep module paths are shown.")] = 1,
    top: Annotated[int, typer.Option(min=1, help="How many moments, modules and tensors are shown.")] = 10,
    least: Annotated[str, typer.Option(help="Least sizes, so that fewer moments can be the peak: L=128,D=64")] = "",
    plot: Annotated[
        str, typer.Option(help="Draw the timeline at the sizes of --at", metavar="FILE.png|svg", callback=drawable)
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Trace one training step of a model and print what it holds in memory: closed forms, the peak, what is alive then.

    TARGET and the options up to --check are those of `symacct trace`.

    **Examples**

    `symacct memory examples/two_layer.py:account`

    `symacct memory examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024 --depth 3`

    `symacct memory model.py:Net --build "B D" --optimizer AdamW --at B=32,D=1024 --plot memory.png`

    `symacct memory model.py:Net --build "B D" --optimizer AdamW --accumulate 4 --clip 1.0 --no-set-to-none`

    `symacct memory model.py:Net --build "B D" --least B=32,D=512 --allocator cuda --json`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong;
    3 ops without a rule under --strict.
    """
    from symacct.memory_report import renderables, to_json

    floor = pairs(least)
    document = to_json(account, floor) if json else None
    if plot:
        from symacct.plot import plot_memory

        plot_memory(account, plot)
    if document is not None:
        print(document)
    else:
        show(lambda width: renderables(account, depth, top, floor, width))


@app.command(no_args_is_help=True)
@of_a_step
def verify(
    account: "Account",
    steps: Annotated[int, typer.Option(min=0, help="How many steps are timed; 0 for none.")] = 20,
    seed: Annotated[int, typer.Option(help="Of parameters, inputs and dropout.")] = 0,
    record: Annotated[
        str, typer.Option(help="Also keep the record as JSON", metavar="FILE.json", callback=writable)
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Run the real model on --device and lay the account beside what is seen: operators, FLOPs, memory, time.

    TARGET and the options up to --check are those of `symacct trace`. Without --at the sizes of the trace are run.

    **Examples**

    `symacct verify examples/two_layer.py:account`

    `symacct verify examples/gpt2.py:account --at B=2,L=64,H=4,Dh=16,V=500,P=64`

    `symacct verify model.py:Net --build "B D" --optimizer AdamW --device cuda --at B=8,D=1024 --record run.json`

    **Exit codes**: 0 all that is claimed holds; 1 something does not, or the model cannot be traced or run;
    2 the command is wrong; 3 ops without a rule under --strict.
    """
    from symacct.files import replacing

    described = account.program.lowering.device if account.program is not None else "cpu"
    with progress():
        found = account.verify(described, steps=steps, seed=seed)
    if record:
        with replacing(record, "--record") as file:
            file.write(f"{found.to_json()}\n".encode())
    if json:
        print(found.to_json())
    else:
        show(found.renderables)
    if not found.holds:
        raise typer.Exit(1)
