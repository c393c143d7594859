"""The options that describe a step to trace, and the account that they make."""

# Annotations are values in this file, not text: typer reads them, and `of_a_step` joins those of two functions.
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symacct.cli.console import errors, progress
from symacct.errors import DimError, SpecError, TargetError, UnknownOpError

if TYPE_CHECKING:
    from symacct.account import Account


def _step(
    target: Annotated[str, typer.Argument(help="FILE.py:NAME or package.module:NAME", metavar="TARGET")],
    specs: Annotated[list[str] | None, typer.Argument(help="The inputs: 'B D', 'i64[B, L]', name='B D'")] = None,
    at: Annotated[str, typer.Option(help="Sizes for numbers beside the formulas: B=8,L=2048")] = "",
    build: Annotated[bool, typer.Option("--build", help="NAME is a builder: its parameters are dims.")] = False,
    hf: Annotated[bool, typer.Option("--hf", help="TARGET is a Hugging Face config.json or its folder.")] = False,
    sizes: Annotated[str, typer.Option(help="Trial sizes, where the defaults do not suit: Dh=64")] = "",
    structural: Annotated[str, typer.Option(help="Dims that change the graph, such as a number of layers: N")] = "",
    optimizer: Annotated[str, typer.Option(help="A class of torch.optim, such as AdamW, or FILE.py:NAME")] = "",
    loss: Annotated[str, typer.Option(help="FILE.py:NAME of a function of the output")] = "",
    autocast: Annotated[str, typer.Option(help="bf16 or f16")] = "",
    grad: Annotated[str, typer.Option(help="Inputs that want a gradient: names, by comma, or 'all'")] = "",
    inference: Annotated[bool, typer.Option("--inference", help="Forward only, in eval mode.")] = False,
    accumulate: Annotated[int, typer.Option(min=1, help="Micro-batches per step, each of the given inputs.")] = 1,
    clip: Annotated[str, typer.Option(help="The norm to clip gradients to, or FILE.py:NAME of what clips")] = "",
    set_to_none: Annotated[bool, typer.Option(help="Free gradients between steps, or zero them.")] = True,
    keep_outputs: Annotated[bool, typer.Option("--keep-outputs", help="Hold the output until the step ends.")] = False,
    allocator: Annotated[str, typer.Option(help="Memory in 'logical' bytes, or as 'cuda' gives it, in blocks")] = "",
    device: Annotated[str, typer.Option(help="The device that is described: cpu or cuda")] = "",
    attention: Annotated[str, typer.Option(help="Its attention kernel: flash, efficient, cudnn or math")] = "",
    rules: Annotated[list[str] | None, typer.Option(help="FILE.py:NAME of more rules; may be repeated")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when an op has no rule.")] = False,
    check: Annotated[bool, typer.Option(help="Check every formula at other sizes.")] = True,
) -> "Account":
    """The account of the step that the command line describes. Typer reads the options here for every command."""
    from symacct.account import Account

    if hf:
        if build or structural:
            raise SpecError(
                "--hf: the config says what is built and which dims are depths; drop --build and --structural"
            )
        found, trial, deep = _of_config(target, pairs(sizes))
    else:
        found, trial, deep = _found(target, build, pairs(sizes), structural.replace(",", " ").split())
    if isinstance(found, Account):
        given = {
            f"specs ({specs[0]!r})" if specs else "": specs, "--loss": loss, "--optimizer": optimizer,
            "--autocast": autocast, "--grad": grad, "--inference": inference, "--accumulate": accumulate > 1,
            "--clip": clip, "--no-set-to-none": not set_to_none, "--keep-outputs": keep_outputs, "--rules": rules,
            "--sizes": sizes, "--structural": structural,
        }  # fmt: skip
        if useless := [name for name, value in given.items() if value]:
            verb = "is" if len(useless) == 1 and not specs else "are"
            raise SpecError(f"{target} is an account already; {', '.join(useless)} {verb} for modules and functions")
        if strict and found.unknown:
            raise UnknownOpError("ops without a rule: " + "; ".join(map(str, found.unknown)))
        account = _described(found, device, attention, check)
    else:
        account = _traced(
            found, specs or [], rules or [], loss=_loaded(loss), optimizer=_optimizer(optimizer),
            autocast=autocast or None, grad=grad == "all" or [name for name in grad.split(",") if name],
            train=not inference, accumulate=accumulate, clip=_clip(clip), set_to_none=set_to_none,
            keep_outputs=keep_outputs, device=device or "cpu", attention=attention or None, sizes=trial,
            structural=deep, strict=strict, check=check,
        )  # fmt: skip
    if allocator:
        account = account.with_allocator(allocator)
    own = found.sizes if hf else {}  # --at needs only what the config does not say
    return account.at(**{**own, **pairs(at)}) if at else account


def of_a_step(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose ``account`` is what `_step` makes; it takes the options of `_step`, then its own."""
    return _with_options_of_a_step(function, {})


def of_a_step_on(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command with times: its ``--device`` is what they are of, ``--kernels`` whose kernels run."""
    kernels = typer.Option("--kernels", help="Whose kernels run: cpu or cuda (default: those of what is traced)")
    return _with_options_of_a_step(function, {"device": Annotated[str, kernels]})


def of_a_model_on(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command whose own argument comes first: the model is ``--model``."""
    kernels = typer.Option("--kernels", help="Whose kernels run: cpu or cuda (default: those of what is traced)")
    model = typer.Option("--model", help="FILE.py:NAME or package.module:NAME", metavar="TARGET")
    return _with_options_of_a_step(function, {"target": Annotated[str, model], "device": Annotated[str, kernels]})


def _with_options_of_a_step(function: Callable[..., None], other: dict[str, Any]) -> Callable[..., None]:
    """``other``: annotations that take the place of `_step`'s own, by parameter; its device is called kernels then.

    Of an option that both have, ``at`` of a command that takes sizes itself, `_step` knows nothing.
    """
    shared = dict(inspect.signature(_step).parameters)
    own = {n: p for n, p in inspect.signature(function).parameters.items() if n != "account"}
    for name, annotation in other.items():
        shared[name] = shared[name].replace(annotation=annotation)
    for name in own.keys() & shared.keys() - other.keys():
        del shared[name]
    if "device" in other:
        shared["kernels"] = shared.pop("device").replace(name="kernels")

    def command(**given: Any) -> None:
        with errors():
            options = {name: given.pop(name) for name in shared}
            if "kernels" in options:
                options["device"] = options.pop("kernels")
            with progress():
                account = _step(**options)
            function(account, **given)

    front = {n: p for n, p in own.items() if "target" in other and p.default is p.empty}
    parameters = {**front, **shared, **{n: p for n, p in own.items() if n not in front}}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    ordered = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters.values()]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    return command


def account_of(target: str) -> "Account":
    """The account that a name stands for, or that a function without arguments gives."""
    from symacct.account import Account

    found = _found(target, False, {}, [])[0]
    if not isinstance(found, Account):
        raise TargetError(f"{target} is a {type(found).__name__}, no account and no function that returns one")
    return found


def pairs(text: str) -> dict[str, int]:
    """``"B=8,L=2048"`` as a dict."""
    pairs = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (p.strip() for p in part.partition("="))
        try:
            pairs[name] = int(size.replace("_", ""))
        except ValueError:
            raise DimError(f"{part!r}: sizes are written NAME=WHOLE NUMBER, by comma, as in B=8,L=2048") from None
    return pairs


# -- helpers -----------------------------------------------------------------------------


def _found(target: str, build: bool, sizes: dict[str, int], deep: list[str]) -> tuple[Any, dict[str, int], list[str]]:
    """What TARGET names, built or called where it is to be; trial sizes and structural dims left for the inputs."""
    import torch

    from symacct.account import Account
    from symacct.building import build as build_model
    from symacct.targets import load

    found = load(target)
    if build:
        own = _all_parameters(found)
        found = build_model(found, [n for n in deep if n in own], **{n: s for n, s in sizes.items() if n in own})
        sizes = {n: s for n, s in sizes.items() if n not in own}
        deep = [n for n in deep if n not in own]
    elif callable(found) and not isinstance(found, torch.nn.Module) and _parameters(found) == []:
        found = found()
    if not callable(found) and not isinstance(found, Account):
        raise TargetError(f"{target} is a {type(found).__name__}, neither a module, a function nor an account")
    return found, sizes, deep


def _of_config(path: str, sizes: dict[str, int]) -> tuple[Any, dict[str, int], list[str]]:
    """As `_found`, the model of a config; its legend goes where it is not in the way of --json."""
    from symacct.hf import FromConfig, from_config

    with progress():
        found: FromConfig = from_config(path, depth="N", task=None, **sizes)
    print(found, file=sys.stderr)
    return found, {}, []


def _traced(found: Any, specs: list[str], rules: list[str], **options: Any) -> "Account":
    from symacct.rules import default_rules
    from symacct.tracing import trace as trace_program

    more = default_rules()
    for each in rules:
        more = more + _loaded(each)
    args = [s for s in specs if "=" not in s]
    kwargs: dict[str, Any] = dict(s.split("=", 1) for s in specs if "=" in s)
    if hasattr(found, "specs"):  # a model from a config, which knows its inputs
        account: Account = found.trace(rules=more, **options, **kwargs)
        return account
    return trace_program(found, *args, rules=more, **options, **kwargs)


def _described(account: "Account", device: str, attention: str, check: bool) -> "Account":
    """An account that is there already, traced anew where another device's kernels are asked for."""
    if not device and not attention:
        return account
    from symacct.tracing import described

    own = account.program.lowering.device if account.program is not None else ""
    return described(account, device or own, attention or None, check)


def _loaded(where: str) -> Any:
    from symacct.targets import load

    return load(where) if where else None


def _clip(text: str) -> Any:
    if not text or ":" in text:
        return _loaded(text)
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"--clip: {text!r} is neither a number nor FILE.py:NAME") from None


def _optimizer(name: str) -> Any:
    import torch

    if not name or ":" in name:
        return _loaded(name)
    found = getattr(torch.optim, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        known = sorted(n for n, c in vars(torch.optim).items() if isinstance(c, type) and n != "Optimizer")
        raise TargetError(f"--optimizer: torch.optim has no {name!r}; it has {', '.join(known)}")
    return found


def _parameters(function: Any) -> list[str] | None:
    """The parameters that must be given; None for builtins, which do not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


def _all_parameters(function: Any) -> list[str]:
    """The names of a builder's parameters; none where it does not tell."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
