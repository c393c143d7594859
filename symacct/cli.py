"""The command line: parse, call, print. No logic of its own.

Exit codes: 0 done; 1 the model cannot be traced, or a check failed; 2 the command is wrong
(an argument, a file, a name, a size); 3 ops without a rule under --strict.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symacct.errors import DimError, SpecError, SymacctError, TargetError, UnknownOpError

if TYPE_CHECKING:
    from symacct.account import Account

PIPE_WIDTH = 100

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


@app.command(no_args_is_help=True)
def trace(
    target: Annotated[str, typer.Argument(help="FILE.py:NAME or package.module:NAME", metavar="TARGET")],
    specs: Annotated[list[str] | None, typer.Argument(help="The inputs: 'B D', 'i64[B, L]', name='B D'")] = None,
    at: Annotated[str, typer.Option(help="Sizes for numbers beside the formulas: B=8,L=2048")] = "",
    build: Annotated[bool, typer.Option("--build", help="NAME is a builder: its parameters are dims.")] = False,
    sizes: Annotated[str, typer.Option(help="Trial sizes, where the defaults do not suit: Dh=64")] = "",
    optimizer: Annotated[str, typer.Option(help="A class of torch.optim, such as AdamW, or FILE.py:NAME")] = "",
    loss: Annotated[str, typer.Option(help="FILE.py:NAME of a function of the output")] = "",
    autocast: Annotated[str, typer.Option(help="bf16 or f16")] = "",
    grad: Annotated[str, typer.Option(help="Inputs that want a gradient: names, by comma, or 'all'")] = "",
    inference: Annotated[bool, typer.Option("--inference", help="Forward only, in eval mode.")] = False,
    depth: Annotated[int, typer.Option(min=1, help="How deep module paths are shown.")] = 1,
    rules: Annotated[list[str] | None, typer.Option(help="FILE.py:NAME of more rules; may be repeated")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when an op has no rule.")] = False,
    check: Annotated[bool, typer.Option(help="Check every formula at other sizes.")] = True,
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

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong;
    3 ops without a rule under --strict.
    """
    with _errors(), _progress():
        account = _account(
            target, specs or [], build, _pairs(sizes), strict, rules or [],
            loss=loss, optimizer=optimizer, autocast=autocast, grad=grad, train=not inference, check=check,
        )  # fmt: skip
        if at:
            account = account.at(**_pairs(at))
    if json:
        print(account.to_json())
    else:
        _print(account, depth)


def _account(
    target: str, specs: list[str], build: bool, sizes: dict[str, int], strict: bool, rules: list[str], **options: Any
) -> Account:
    import torch

    from symacct.account import Account
    from symacct.building import build as build_model
    from symacct.building import build_of
    from symacct.rules import default_rules
    from symacct.targets import load
    from symacct.tracing import trace as trace_program

    found = load(target)
    if build:
        found = build_model(found, **{n: s for n, s in sizes.items() if n in (_parameters(found) or ())})
        sizes = {n: s for n, s in sizes.items() if n not in build_of(found).dims}  # type: ignore[union-attr]
    elif callable(found) and not isinstance(found, torch.nn.Module) and _parameters(found) == []:
        found = found()
    if isinstance(found, Account):
        if specs:
            raise SpecError(f"{target} is an account already; specs ({specs[0]!r}) are for modules and functions")
        if strict and found.unknown:
            raise UnknownOpError("ops without a rule: " + "; ".join(map(str, found.unknown)))
        return found
    if not callable(found):
        raise TargetError(f"{target} is a {type(found).__name__}, neither a module, a function nor an account")
    more = default_rules()
    for each in rules:
        more = more + load(each)
    args = [s for s in specs if "=" not in s]
    kwargs = dict(s.split("=", 1) for s in specs if "=" in s)
    wanted: Any = options["grad"] == "all" or [name for name in options["grad"].split(",") if name]
    return trace_program(
        found,
        *args,
        loss=load(options["loss"]) if options["loss"] else None,
        optimizer=_optimizer(options["optimizer"]),
        autocast=options["autocast"] or None,
        grad=wanted,
        train=options["train"],
        check=options["check"],
        sizes=sizes,
        strict=strict,
        rules=more,
        **kwargs,
    )


def _optimizer(name: str) -> Any:
    import torch

    from symacct.targets import load

    if not name:
        return None
    if ":" in name:
        return load(name)
    found = getattr(torch.optim, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        known = sorted(n for n, c in vars(torch.optim).items() if isinstance(c, type) and n != "Optimizer")
        raise TargetError(f"--optimizer: torch.optim has no {name!r}; it has {', '.join(known)}")
    return found


def _parameters(function: Any) -> list[str] | None:
    """The parameters that must be given; None for builtins, which do not tell."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


def _pairs(text: str) -> dict[str, int]:
    """``"B=8,L=2048"`` as a dict."""
    pairs = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (p.strip() for p in part.partition("="))
        try:
            pairs[name] = int(size.replace("_", ""))
        except ValueError:
            raise DimError(f"{part!r}: sizes are written NAME=WHOLE NUMBER, by comma, as in B=8,L=2048") from None
    return pairs


def _print(account: Account, depth: int) -> None:
    from rich.console import Console

    from symacct.report import renderables, to_text

    if not sys.stdout.isatty():
        print(to_text(account, depth, PIPE_WIDTH))
        return
    console = Console(highlight=False)
    for part in renderables(account, depth):
        console.print(part)


@contextmanager
def _progress() -> Iterator[None]:
    """A line on the terminal that says what is going on; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from symacct.progress import listening

    with Console(stderr=True).status("starting") as status, listening(status.update):
        yield


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except SymacctError as error:
        print(f"symacct: {error}", file=sys.stderr)
        raise typer.Exit(_code(error)) from None


def _code(error: SymacctError) -> int:
    if isinstance(error, UnknownOpError):
        return 3
    return 2 if isinstance(error, (TargetError, SpecError, DimError)) else 1


def main() -> None:
    """The entry point of the ``symacct`` command."""
    # torch says so on import where NumPy is absent, which symacct does not need.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    app()
