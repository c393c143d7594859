"""The application that commands are added to."""

# Annotations are values in this file, not text: typer reads them.
from typing import Annotated

import typer

app = typer.Typer(
    name="symacct",
    help="What a PyTorch model costs, in closed form: FLOPs, bytes and memory over named dims.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        import symacct

        print(f"symacct {symacct.__version__}")
        raise typer.Exit
