"""The largest size of a dim at which a decode step fits in a device's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import sympy

from symacct.algebra import evaluate
from symacct.assumptions import Assumption
from symacct.cost import Size
from symacct.dim import check_size, point, symbol
from symacct.errors import MissingSizeError, QuestionError, UnknownDimError
from symacct.hardware import Device
from symacct.napkin.search import last_size
from symacct.units import show

if TYPE_CHECKING:
    from symacct.inference.result import Inference


def largest_size(made: Inference, dim: str, device: Device, devices: int, sizes: Mapping[str, int]) -> int:
    """As `Inference.largest`."""
    step = made.decode.symbolic
    for name in (dim, *sizes):
        if name not in step.dims:
            raise UnknownDimError(f"largest(): there is no dim {name!r}; the decode step has {', '.join(step.dims)}")
    given = {**made.known, **(made.sizes or {}), **sizes}
    given = {name: check_size(name, size) for name, size in given.items() if name in step.dims and name != dim}
    if missing := [name for name in step.dims if name not in given and name != dim]:
        raise MissingSizeError(f"largest(): no size for {', '.join(missing)}")
    symbolic = made.symbolic
    memory = sympy.sympify(symbolic.memory_bytes).xreplace(point(given))
    if symbol(dim) not in memory.free_symbols:
        raise QuestionError(f"the memory of a decode step does not depend on {dim}, so no size of it is the largest")
    room = devices * device.memory_bytes
    allowed = _allowed(step.assumptions, given, dim)

    def fits(size: int) -> bool:
        return bool(evaluate(memory, {dim: size}) <= room)

    least = next((size for size in range(1, 4097) if allowed(size)), None)
    if least is None:
        raise QuestionError(f"the trace holds for no {dim} from 1 to 4,096 with {_words(given)}; trace at other sizes")
    if not fits(least):
        raise QuestionError(_too_large(symbolic, {**given, dim: least}, dim, room, device, devices))
    found = _last(fits, least)
    while not allowed(found):  # a multiple is asked for, or the trace ends earlier
        found = found - 1 if found - least < 4096 else _last(allowed, least)
    return found


def _last(holds: Callable[[int], bool], least: int) -> int:
    found = last_size(holds, least)
    if found is None:
        raise QuestionError("every size fits")
    return found


def _allowed(assumptions: tuple[Assumption, ...], given: Mapping[str, int], dim: str) -> Callable[[int], bool]:
    """Whether the trace holds at a size of a dim."""
    own = [a for a in assumptions if symbol(dim) in a.symbols]
    return lambda size: all(a.holds(point({**given, dim: size})) is not False for a in own)


def _too_large(made: Inference, at: Mapping[str, int], dim: str, room: int, device: Device, devices: int) -> str:
    parts: dict[str, Size] = {
        "weights": made.weight_bytes,
        "the cache": made.cache_bytes,
        "the rest": made.working_bytes,
    }
    sizes = {name: evaluate(part, at) for name, part in parts.items()}
    worst = max(sizes, key=lambda name: sizes[name])
    has = f"{devices} x {device.name} have" if devices > 1 else f"{device.name} has"
    listed = ", ".join(f"{name} {show(size, 'B')}" for name, size in sizes.items())
    return (
        f"even {dim}={at[dim]} does not fit: {has} {show(room, 'B')}, and a decode step takes {listed}; "
        f"the largest part is {worst}"
    )


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
