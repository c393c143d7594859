"""How much of a cost each box has: in symbols, as a number, and as a share of all that is drawn."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import sympy

from symacct.algebra import evaluate, total_of
from symacct.cost import Size
from symacct.device_file import device_or_file
from symacct.drawing.model import Box, Drawing, Part
from symacct.errors import SpecError
from symacct.hardware import Device
from symacct.roofline.bounds import Ceilings
from symacct.roofline.kernels import Use, kernel

COSTS = ("flops", "pointwise", "bytes", "activation_bytes", "seconds")
UNITS = {"flops": "FLOP", "pointwise": "FLOP", "bytes": "B", "activation_bytes": "B", "seconds": "s"}
TITLES = {
    "flops": "FLOP of contractions", "pointwise": "FLOP of all other arithmetic", "bytes": "bytes read and written",
    "activation_bytes": "activation bytes kept for the backward pass", "seconds": "least seconds",
}  # fmt: skip
_FIELDS = {"flops": ("flops",), "pointwise": ("pointwise",), "bytes": ("bytes_read", "bytes_written")}


class Amounts:
    """The amounts of one cost in a drawing.

    ``cost``: one of `COSTS`; "seconds" are the least that a ``device`` takes, kernel by kernel as eager PyTorch runs
    them. ``sizes``: those of the account, or where it has none the trial sizes, which shares are taken at then.

    Raises `SpecError` for another cost and for seconds without a device, and `DeviceError` as `Account.roofline` does.
    """

    def __init__(self, drawing: Drawing, cost: str = "flops", device: str | Device | None = None) -> None:
        if cost not in COSTS:
            raise SpecError(f"cost: {cost!r} is none of {', '.join(COSTS)}")
        if cost == "seconds" and device is None:
            raise SpecError("cost: seconds are those of a device: give one, as in device='h100'")
        self.drawing = drawing
        self.cost = cost
        self.unit = UNITS[cost]
        self.device = device_or_file(device) if device is not None and cost == "seconds" else None
        self.given = drawing.account.sizes is not None
        self.sizes = dict(drawing.account.sizes if drawing.account.sizes is not None else drawing.account.trial_sizes)
        self._symbolic = self._ceilings(None)
        self._numeric = self._ceilings(self.sizes)

    def _ceilings(self, sizes: Any) -> Ceilings | None:
        return Ceilings(self.device, False, sizes) if self.device is not None else None

    @cached_property
    def formulas(self) -> dict[str, Size]:
        """The cost of each box by its id, in symbols."""
        return {box.id: self._formula(box) for box in self.drawing.boxes}

    @cached_property
    def values(self) -> dict[str, Any]:
        """The cost of each box by its id, at the sizes."""
        if self._numeric is not None:
            return {box.id: self._numeric.bound(box.path, _uses(box)).seconds for box in self.drawing.boxes}
        return {key: evaluate(sympy.sympify(expr), self.sizes) for key, expr in self.formulas.items()}

    @cached_property
    def total(self) -> Size:
        """The cost of all boxes, in symbols."""
        return sympy.Add(*self.formulas.values()) if self.device else total_of(Counter(self.formulas.values()))

    @cached_property
    def value(self) -> Any:
        """The cost of all boxes at the sizes."""
        return sum(self.values.values())

    def share(self, box: Box) -> float:
        """The part of the whole that a box has, from 0 to 1."""
        return float(self.values[box.id] / self.value) if self.value else 0.0

    def _formula(self, box: Box) -> Size:
        if self._symbolic is not None:
            return self._symbolic.bound(box.path, _uses(box)).seconds
        if self.cost == "activation_bytes":
            return box.kept
        terms: Counter[Any] = Counter()
        for part in box.parts:
            for name in _FIELDS[self.cost] if part.cost is not None else ():
                terms[getattr(part.cost, name)] += part.times
        return total_of(terms)


def _uses(box: Box) -> list[Use]:
    return [_use(box, part) for part in box.parts if part.cost is not None and not part.free]


def _use(box: Box, part: Part) -> Use:
    cost = part.cost
    assert cost is not None
    flops = Counter({(part.dtype, cost.flops): 1})
    does = kernel(flops, Counter({cost.pointwise: 1}), Counter([cost.bytes_read, cost.bytes_written]))
    return Use(box.phase, box.path, box.ops[0] if box.ops else "", does, part.times)
