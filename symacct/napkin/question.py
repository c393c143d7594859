"""A question as it is asked: conditions, sizes and rules, told apart by name and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import sympy

from symacct.account import Account
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.expressions import read as read_expression
from symacct.hardware import Device
from symacct.napkin.amounts import count, shown
from symacct.napkin.figures import NAMES, unit_of
from symacct.units import read


@dataclass(frozen=True)
class Condition:
    """A figure and its amount: at most ("<=") or at least (">=") so much, in base units."""

    name: str
    relation: str
    amount: Any
    note: str = ""

    def holds(self, value: Any) -> bool:
        """Whether a value of the figure satisfies it."""
        return bool(value <= self.amount if self.relation == "<=" else value >= self.amount)

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {shown(self.amount, unit_of(self.name))}"


def read_question(
    account: Account, name: str, given: Mapping[str, Any]
) -> tuple[list[Condition], dict[str, Any], dict[str, Any]]:
    """Conditions, sizes and ties, told apart by name and kind."""
    conditions: list[Condition] = []
    sizes: dict[str, Any] = {n: s for n, s in (account.sizes or {}).items() if n != name}
    ties: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for key, value in given.items():
        if key == name:
            raise SpecError(f"solve(): {key} is the unknown, and {key}={value!r} gives it a size")
        if key in NAMES and key not in account.trial_sizes:
            conditions.append(_condition(key, value))
        elif isinstance(value, str) or callable(value) or (isinstance(value, sympy.Basic) and value.free_symbols):
            sizes.pop(key, None)
            ties[key] = value
        else:
            (sizes if key in account.trial_sizes else more)[key] = value
    used = {s.name for tie in ties.values() if not callable(tie) for s in read_expression(tie).free_symbols}
    used |= {n for tie in ties.values() if callable(tie) for n in _parameters(tie)}
    for key in (name, *ties, *more):
        if key not in account.trial_sizes and key not in used:
            raise UnknownDimError(
                f"solve(): there is no dim and no figure {key!r}; the account's dims are "
                f"{', '.join(account.trial_sizes) or 'none'}, and figures are {', '.join(NAMES[:10])}, flops, "
                "forward_flops, ..."
            )
    if not conditions:
        raise SpecError('solve(): say what has to fit, such as peak_bytes="80 GB" or params=">= 7e9"')
    return conditions, sizes | more, ties


def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(signature(function).parameters)


def _condition(name: str, value: Any) -> Condition:
    relation, note = "<=", ""
    if isinstance(value, Device):
        note = f"{name}: the memory of {value.name} as it is sold; what its driver and libraries keep is not taken off"
        value = value.memory_bytes
    if isinstance(value, str):
        text = value.strip()
        if text[:2] in ("<=", ">="):
            relation, text = text[:2], text[2:].strip()
        value = text
    unit = unit_of(name)
    amount = read(value, unit, name) if unit else count(value, name)
    if isinstance(amount, sympy.Basic):
        raise SpecError(f"solve(): {name}={value!r}: an amount is a number, with its unit where it is a text")
    return Condition(name, relation, amount, note)


def at_depth(
    account: Account, name: str, sizes: dict[str, Any], ties: Mapping[str, Any]
) -> tuple[Account, dict[str, Any]]:
    """The account at its depth, where that is given and below the least of the formulas, or the peak has none."""
    structural: tuple[str, ...] = getattr(account, "structural", ())
    if not structural or any(dim not in sizes for dim in structural):
        return account, sizes
    least = account.lattice.base  # type: ignore[attr-defined]
    below = any(sizes[s.name] < size for s, size in least.items())
    if not below and not account.memory.refusal:
        return account, sizes
    unrolled = account.unrolled(**{dim: sizes[dim] for dim in structural})  # type: ignore[attr-defined]
    return unrolled, {n: s for n, s in sizes.items() if n not in structural}
