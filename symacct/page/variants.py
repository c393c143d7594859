"""The same step in other dtypes, each a trace of its own: what a page lets one choose."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from symacct.account import Account
from symacct.assumptions import settle
from symacct.building import build, build_of, held
from symacct.depth.structural import StructuralAccount
from symacct.errors import SpecError, SymacctError
from symacct.program import Program
from symacct.specs import DTYPES, SHORT, Spec
from symacct.tracing import retraced

AS_TRACED = "as traced"
DEFAULT = ("autocast bf16", "bf16")


@dataclass(frozen=True)
class Variant:
    """An account of a step, and what it is called; ``account`` is None where it cannot be, and ``refusal`` says why."""

    label: str
    account: Account | None
    refusal: str = ""


def variants(account: Account, dtypes: Iterable[str]) -> list[Variant]:
    """The account as it was traced, and the same step traced anew in each of ``dtypes``.

    "bf16" (or another floating dtype of specs): parameters, buffers and inputs that were floating are of that dtype.
    "autocast bf16" or "autocast f16": all stays, and the forward pass runs under autocast. A trace is checked at the
    other sizes at which the account was. What the model refuses, such as a dtype that an op does not have, is a
    variant without an account. Raises `SpecError` for a dtype that is none.
    """
    wanted = list(dict.fromkeys(dtypes))
    for label in wanted:
        _ = dtype_of(label)
    own = _own(account)
    found = [Variant(f"{own} ({AS_TRACED})" if own else AS_TRACED, account)]
    if account.program is None:
        return found
    return found + [_variant(account, label) for label in wanted if label != own]


def dtype_of(label: str) -> torch.dtype:
    """The dtype that "bf16" or "autocast bf16" names."""
    dtype = DTYPES.get(label.removeprefix("autocast "))
    if dtype is None or not dtype.is_floating_point:
        known = ", ".join(short for short, each in DTYPES.items() if each.is_floating_point)
        raise SpecError(
            f"dtypes: {label!r} is neither a floating dtype ({known}) nor 'autocast bf16' or 'autocast f16'"
        )
    return dtype


def _own(account: Account) -> str:
    """What the account's own dtypes are called; "" where they are mixed."""
    dtypes = {h.meta.dtype for h in account.step.parameters if h.meta.dtype.startswith(("float", "bfloat"))}
    if len(dtypes) != 1:
        return ""
    (dtype,) = dtypes
    short = SHORT.get(dtype, "")
    autocast = account.program.autocast if account.program is not None else None
    if autocast is None:
        return short
    return "autocast " + SHORT[str(autocast).removeprefix("torch.")] if short == "f32" else ""


def _variant(account: Account, label: str) -> Variant:
    assert account.program is not None
    dtype = dtype_of(label)
    try:
        if label.startswith("autocast "):
            program = replace(account.program, autocast=dtype)
        else:
            program = in_dtype(replace(account.program, autocast=None), dtype)
        return Variant(label, _traced(account, program))
    except SymacctError as error:
        return Variant(label, None, str(error))


def _traced(account: Account, program: Program) -> Account:
    """A trace of a program that differs in dtypes only, checked if the account was.

    Which comparisons of sizes do not matter was found out for the account: the check is at the same sizes, on the same
    sides of them. Where formulas do not hold there, all is found out anew.
    """
    if not account.checked or isinstance(account, StructuralAccount):
        return retraced(account, program, bool(account.checked))
    found = retraced(account, program, check=False)
    try:
        for sizes in account.checked:
            found.check(**sizes)
    except SymacctError:
        return retraced(account, program)
    made = build_of(account.program.target) if account.program is not None else None
    asked = settle((*(made.scope.assumptions.values() if made else ()), *account.step.assumptions))
    left = {str(each) for each in account.assumptions}
    immaterial = {str(each) for each in asked} - left
    kept = (replace(a, doubtful=False) for a in found.assumptions if str(a) not in immaterial)
    return replace(found, checked=account.checked, assumptions=settle(kept))


def in_dtype(program: Program, dtype: torch.dtype) -> Program:
    """A program whose parameters, buffers and inputs are of a dtype where they were floating."""
    target = program.target
    if isinstance(target, nn.Module):
        target = _converted(target, dtype)
    args = tuple(_in_dtype(arg, dtype) for arg in program.args)
    return replace(
        program, target=target, args=args, kwargs={n: _in_dtype(v, dtype) for n, v in program.kwargs.items()}
    )


def _converted(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    made = build_of(model)
    if made is None:  # a copy without data
        memo: dict[int, Any] = {id(tensor): _empty(tensor) for _, _, tensor in held(model)}
        return copy.deepcopy(model, memo).to(dtype)

    @functools.wraps(made.builder)
    def builder(*args: Any, **sizes: Any) -> nn.Module:
        built: nn.Module = made.builder(*args, **sizes).to(dtype)
        return built

    sizes = {name: int(size) for name, size in (*made.dims.items(), *made.structure.items())}
    return build(builder, depth=tuple(made.structure), **sizes)


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the meta device in place of another, a parameter in place of a parameter."""
    moved = tensor.detach().to("meta")
    return nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else moved


def _in_dtype(tree: Any, dtype: torch.dtype) -> Any:
    if isinstance(tree, Spec) and tree.dtype.is_floating_point:
        return replace(tree, dtype=dtype)
    if isinstance(tree, torch.Tensor) and tree.is_floating_point():
        return tree.detach().to(dtype).requires_grad_(tree.requires_grad)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_in_dtype(each, dtype) for each in tree)
    if isinstance(tree, dict):
        return {name: _in_dtype(each, dtype) for name, each in tree.items()}
    return tree
