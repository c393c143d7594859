"""`trace`: from a model, inputs and options to an `Account`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.assumptions import settle
from symacct.building import SHALLOWEST, build_of, names_of
from symacct.capture import Step, run_step
from symacct.check import check as check_account
from symacct.depth.structural import StructuralAccount, of_members, proven
from symacct.dim import Dim, check_size, named_dims, plain, symbol
from symacct.errors import DimError, SpecError, TargetError, TraceError, UnknownOpError
from symacct.lowering import Lowering
from symacct.program import Program
from symacct.progress import say
from symacct.rule import Rules
from symacct.specs import DTYPES, Spec, names_in, read_specs


def trace(
    target: Callable[..., Any],
    /,
    *specs: Any,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Callable[..., Any] | None = None,
    autocast: str | torch.dtype | bool | None = None,
    train: bool = True,
    grad: Any = (),
    accumulate: int = 1,
    clip: float | Callable[[list[torch.Tensor]], Any] | None = None,
    set_to_none: bool = True,
    keep_outputs: bool = False,
    allocator: str = "logical",
    device: str = "cpu",
    attention: str | None = None,
    sizes: Mapping[str, int] | None = None,
    structural: str | Iterable[str] = (),
    strict: bool = False,
    rules: Rules | None = None,
    check: bool = True,
    **kwspecs: Any,
) -> Account:
    """Run one step of ``target`` on tensors without data and account for every ATen call.

    ``target``: a module from `build`, any ``nn.Module`` as it is, or a function of tensors.
    ``specs`` and ``kwspecs``: its inputs ("B L D", "i64[B, L]", "bf16[B, (H Dh)]", a jaxtyping
    annotation, a tensor, a pytree of these; other values are passed on). Without any,
    they are read from jaxtyping annotations of ``forward``.

    ``loss``: a function of the output (default: its ``.loss``, else its sum). ``optimizer``: takes
    parameters, gives a ``torch.optim.Optimizer``. ``autocast``: "bf16", "f16" or a dtype.
    ``train=False``: inference, forward only, eval mode. ``grad``: names or positions of inputs that
    want a gradient themselves, or True for all. ``accumulate``: micro-batches per step. ``clip``: the
    norm to which gradients are clipped, or a function of the parameters that clips. ``set_to_none=False``:
    gradients are zeroed between steps, not freed. ``keep_outputs``: the caller holds the model's
    output until the step ends. ``allocator``: "logical" bytes, or "cuda" for memory in blocks of 512
    bytes (`Account.with_allocator`). ``device``: whose kernels are described, "cpu" or "cuda"; it need not be here
    (`symacct.lowering`, `Account.lowering`). ``attention``: with "cuda" the kernel of
    ``scaled_dot_product_attention``: "flash", "efficient", "cudnn" or "math"; by default what PyTorch takes, before
    cuDNN's, which it prefers on Hopper and Blackwell with a cuDNN above 9.15. ``sizes``: trial sizes of dims.
    ``structural``: dims of the inputs that change the graph, such as the length of a loop that is unrolled ("L"); every
    quantity becomes a polynomial in them, as in the depths of `build`. ``strict``: ops without a rule are an error.
    ``rules``: instead of the default ones. ``check=False``: do not check the formulas at other sizes.

    Raises `SpecError`, `TargetError`, `TraceError` (`DataDependentError`, `UnknownOpError`), `CheckError`
    (`StructuralError`).
    """
    if not callable(target):
        raise TargetError(f"trace(): {type(target).__name__} is neither a module nor a function")
    for name, option in (("loss", loss), ("optimizer", optimizer)):
        if option is not None and not callable(option):
            raise SpecError(f"{name}: expected a function or class, got {type(option).__name__}")
    args, kwargs = _read(target, specs, kwspecs, grad)
    structure = _structure(target, args, kwargs, names_of(structural), dict(sizes or {}))
    wanted = {name: size for name, size in (sizes or {}).items() if name not in structure}
    trial = _trial_dims(target, args, kwargs, wanted, structure)
    if not isinstance(accumulate, int) or accumulate < 1:
        raise SpecError(f"accumulate: expected a whole number >= 1 of micro-batches, got {accumulate!r}")
    if clip is not None and not callable(clip) and (isinstance(clip, bool) or not isinstance(clip, (int, float))):
        raise SpecError(f"clip: expected the norm to clip to, or a function of the parameters, got {clip!r}")
    program = Program(
        target, args, kwargs, loss, optimizer, _dtype(autocast), train, accumulate, clip, set_to_none, keep_outputs,
        Lowering(device, attention), structure,
    )  # fmt: skip
    if rules is None:
        from symacct.rules import default_rules

        rules = default_rules()
    return _traced(program, trial, set(sizes or ()), rules, allocator, check, strict)


def described(account: Account, device: str, attention: str | None = None, check: bool = True) -> Account:
    """An account of the same step by the kernels of another device, or with other attention: a trace anew."""
    program = account.program
    if program is None:
        raise TargetError("the account has no program to trace anew; make it with sa.trace")
    return retraced(account, replace(program, lowering=Lowering(device, attention)), check)


def retraced(account: Account, program: Program, check: bool = True) -> Account:
    """An account like another, at its trial sizes and with its rules, of another program: a trace anew."""
    made = build_of(program.target)
    built: dict[str, Dim] = dict(made.dims) if made else {}
    others = {n: size for n, size in account.trial_sizes.items() if n not in built and n not in program.structure}
    trial = built | named_dims(others, others, built)
    return _traced(program, trial, set(trial), account.rules, account.allocator, check)


def _traced(
    program: Program,
    trial: dict[str, Dim],
    given: set[str],
    rules: Rules,
    allocator: str,
    check: bool,
    strict: bool = False,
) -> Account:
    """The account of a program, with formulas for all sizes of the dims that change its graph."""

    def trace_at(structure: Mapping[str, int]) -> Account:
        return _account(replace(program, structure=structure), trial, given, rules).with_allocator(allocator)

    account = of_members(program.structure, trace_at) if program.structure else trace_at({})
    if strict and account.unknown:
        raise UnknownOpError(
            f"ops without a rule: {'; '.join(map(str, account.unknown))}; add rules for them (rules=), or drop strict"
        )
    if not check:
        return account
    if not isinstance(account, StructuralAccount):
        return _checked(account)

    def run_at(sizes: Mapping[str, int]) -> Account:
        structure = {name: sizes[name] for name in program.structure}
        others = {name: size for name, size in sizes.items() if name not in structure}
        there = replace(program, structure=structure)
        return Account(run_step(there, others, symbolic=False), rules, program=there, allocator=allocator)

    return proven(account, _checked, run_at)


def _account(program: Program, trial: dict[str, Dim], given: set[str], rules: Rules) -> Account:
    say(f"tracing {_title(program.target)}")
    step, trial = _run(program, trial, given)
    made = build_of(program.target)
    say("costing the graph")
    return Account(
        step,
        rules,
        title=_title(program.target),
        inputs=_inputs_text(program.args, program.kwargs),
        assumptions=settle((*(made.scope.assumptions.values() if made else ()), *step.assumptions)),
        trial_sizes={name: plain(size) for name, size in trial.items()},
        program=program,
    )


def _checked(account: Account) -> Account:
    if account.trial_sizes and account.program is not None:
        checked = check_account(account, account.program)
        account.checked, account.assumptions = checked.sizes, checked.assumptions
    return account


def _run(program: Program, trial: dict[str, Dim], given: set[str]) -> tuple[Step, dict[str, Dim]]:
    """Run symbolically. Where an op needs sizes to be equal, an input's dim gets the trial size that it needs."""
    made = build_of(program.target)
    free = [name for name in trial if name not in given and not (made and name in made.dims)]
    while True:
        try:
            return run_step(program, trial, symbolic=True), trial
        except TraceError as error:
            name, size = _wanted_size(error, trial, free)
            if not name:
                raise
            free.remove(name)
            trial |= named_dims([name], {name: size})


def _wanted_size(error: TraceError, trial: Mapping[str, int], free: list[str]) -> tuple[str, int]:
    sizes = {name: plain(size) for name, size in trial.items()}
    for pair in error.unequal:
        for lone, other in (pair, pair[::-1]):
            if lone.is_Symbol and lone.name in free and lone not in other.free_symbols and other != 1:
                size = evaluate(other, sizes)
                if isinstance(size, int) and size > 0:
                    return lone.name, size
    return "", 0


def _title(target: Any) -> str:
    return type(target).__name__ if isinstance(target, nn.Module) else getattr(target, "__name__", "function")


def _read(target: Any, specs: tuple[Any, ...], kwspecs: dict[str, Any], grad: Any) -> tuple[Any, dict[str, Any]]:
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        signature: inspect.Signature | None = inspect.signature(function)
    except (TypeError, ValueError):
        signature = None
    if not specs and not kwspecs and signature is not None:
        kwspecs = {n: p.annotation for n, p in signature.parameters.items() if hasattr(p.annotation, "dim_str")}
    if signature is not None:
        try:
            bound = signature.bind(*specs, **kwspecs)
        except TypeError as error:
            wanted = ", ".join(signature.parameters)
            raise SpecError(f"trace({_title(target)}): {error}; its parameters are ({wanted})") from None
        names = list(bound.arguments)
    else:
        names = []
    args = tuple(read_specs(s) for s in specs)
    kwargs = {n: read_specs(s) for n, s in kwspecs.items()}
    wanted_grad = _wanted(grad, names, len(specs), kwargs)
    args = tuple(_with_grad(a) if i in wanted_grad else a for i, a in enumerate(args))
    kwargs = {n: _with_grad(a) if n in wanted_grad else a for n, a in kwargs.items()}
    return args, kwargs


def _wanted(grad: Any, names: list[str], positional: int, kwargs: Mapping[str, Any]) -> set[Any]:
    if grad is True:
        return {*range(positional), *kwargs}
    wanted: set[Any] = set()
    for each in (grad,) if isinstance(grad, (str, int)) else grad:
        if each in kwargs or (isinstance(each, int) and 0 <= each < positional):
            wanted.add(each)
        elif each in names[:positional]:
            wanted.add(names.index(each))
        else:
            raise SpecError(f"grad: there is no input {each!r}; the inputs are {', '.join(names) or positional}")
    return wanted


def _with_grad(tree: Any) -> Any:
    if isinstance(tree, Spec):
        return Spec(tree.axes, tree.dtype, tree.dtype.is_floating_point)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_with_grad(t) for t in tree)
    if isinstance(tree, dict):
        return {k: _with_grad(v) for k, v in tree.items()}
    if isinstance(tree, torch.Tensor) and tree.is_floating_point():
        return tree.detach().requires_grad_()
    return tree


def _dims_among(args: Any, kwargs: Any) -> dict[str, Dim]:
    """The dims that stand among the inputs themselves, by the names in them."""
    leaves = pytree.tree_leaves((args, kwargs))
    return {s.name: leaf for leaf in leaves if isinstance(leaf, Dim) for s in leaf.expr.free_symbols}


def _structure(target: Any, args: Any, kwargs: Any, names: tuple[str, ...], sizes: Mapping[str, int]) -> dict[str, int]:
    """The dims that change the graph, those of the build and those of the inputs, with the least size to trace at."""
    made = build_of(target)
    structure = dict(made.structure) if made else {}
    for name in names:
        if made and name in made.dims:
            raise SpecError(f"structural: {name!r} is a dim of the model: say so when it is built, with depth={name!r}")
        if name not in names_in((args, kwargs)):
            raise SpecError(f"structural: {name!r} occurs in no spec")
        structure[name] = check_size(name, sizes.get(name, SHALLOWEST))
    own = _dims_among(args, kwargs)
    for name in structure:
        if name in own:
            raise SpecError(
                f"{name!r} changes the graph, so it is a number while the model runs; no dim can stand for it"
            )
    return structure


def _trial_dims(
    target: Any, args: Any, kwargs: Any, sizes: Mapping[str, int], structure: Mapping[str, int]
) -> dict[str, Dim]:
    made = build_of(target)
    trial: dict[str, Dim] = dict(made.dims) if made else {}
    own = _dims_among(args, kwargs)
    lone = {name: dim for name, dim in own.items() if dim.expr == symbol(name)}
    names = [n for n in (*names_in((args, kwargs)), *own) if n not in trial and n not in structure]
    for name, size in sizes.items():
        if name not in names:
            where = "was fixed when the module was built" if name in trial else "occurs in no spec"
            raise DimError(f"sizes: {name}={size}, but the dim {name!r} {where}")
    trial |= named_dims(dict.fromkeys(names), {**{n: plain(d) for n, d in lone.items() if n in names}, **sizes}, trial)
    return trial


def _dtype(autocast: Any) -> torch.dtype | None:
    if autocast is None or autocast is False:
        return None
    if autocast is True:
        return torch.bfloat16
    if isinstance(autocast, torch.dtype):
        return autocast
    if autocast not in ("bf16", "f16"):
        raise SpecError(f"autocast: {autocast!r} is not 'bf16', 'f16' or a dtype")
    return DTYPES[autocast]


def _inputs_text(args: Any, kwargs: Mapping[str, Any]) -> str:
    return ", ".join([_value_text(a) for a in args] + [f"{n}={_value_text(a)}" for n, a in kwargs.items()])


def _value_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        short = next((k for k, v in DTYPES.items() if v is value.dtype), str(value.dtype))
        return f"{short}{list(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_value_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return str(value) if isinstance(value, Spec) else repr(value)
