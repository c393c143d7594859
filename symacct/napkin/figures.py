"""The figures of an account that a question can be about: names, units, formulas, and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.errors import QuestionError
from symacct.formulas.dominance import MEASURES
from symacct.formulas.grid import HELD
from symacct.record import PHASES

_HELD = (*HELD, "rest_bytes")
# "params", "peak_bytes", "forward_flops", ..., and "flops", "bytes", ... of all phases together. "optimizer_bytes" is
# the optimizer's state, as it is of an account, not what its phase reads and writes.
NAMES = tuple(
    dict.fromkeys((*_HELD, *MEASURES, *(f"{phase}_{measure}" for phase in (*PHASES, "total") for measure in MEASURES)))
)


def unit_of(name: str) -> str:
    """The base unit of a figure: "byte", "FLOP", or "" for a number of parameters."""
    if name == "params":
        return ""
    return "FLOP" if name.endswith(("flops", "pointwise")) else "byte"


def formula_of(account: Account, name: str) -> Any:
    """A figure as an expression. Raises `QuestionError` where the peak has no closed form."""
    account = account.symbolic
    if name == "rest_bytes":
        return account.memory.rest_bytes
    if name == "peak_bytes" and account.memory.refusal:
        raise QuestionError(
            f"peak_bytes has no closed form to search in: {account.memory.refusal}; give the dims that change the "
            "graph as numbers, and another one as the unknown"
        )
    if name in _HELD:
        return getattr(account, name)
    phase, measure = _phase(name)
    return getattr(account.total if phase == "total" else account.phases[phase], measure)


def _phase(name: str) -> tuple[str, str]:
    """The phase and the measure of a figure's name."""
    for phase in (*PHASES, "total"):
        if name.startswith(phase + "_"):
            return phase, name.removeprefix(phase + "_")
    return "total", name


def parts_of(account: Account, name: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What a figure is made of at sizes, by kind of tensor or by module; {} where nothing tells."""
    account = account.symbolic
    found: Mapping[str, Any] = {}
    if name == "peak_bytes":
        moment = max(account.memory.candidates, key=lambda m: evaluate(sympy.sympify(m.nbytes), sizes))
        found = moment.by_kind()
    elif name in ("rest_bytes", "checkpoint_bytes"):
        found = {
            "parameters": account.param_bytes,
            "gradients": account.grad_bytes if name == "rest_bytes" else 0,
            "optimizer state": account.optimizer_bytes,
            "buffers": account.buffer_bytes,
        }
    elif name not in _HELD:
        phase, measure = _phase(name)
        modules = account.by_module(1, phase=None if phase == "total" else phase)
        found = {module or "the top level": getattr(part, measure) for module, part in modules.items()}
    values = {part: evaluate(sympy.sympify(expr), sizes) for part, expr in found.items()}
    return {part: value for part, value in values.items() if value}
