"""Formulas as one JavaScript function of sizes, exact at any magnitude: whole numbers are BigInt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from symacct.formulas.computation import Computation, Lowering

_SOURCE = {
    "add": "{0}+{1}",
    "mul": "{0}*{1}",
    "floordiv": "floor({0},{1})",
    "mod": "mod({0},{1})",
    "max": "max({0},{1})",
    "min": "min({0},{1})",
}


class Formulas:
    """Numbers and SymPy expressions, each with a place in what the function gives; equal ones have one place."""

    def __init__(self, dims: Iterable[str]) -> None:
        self.dims = tuple(dims)
        self._places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        """The place of a value; None (what has no rule, say) has the place -1."""
        if value is None:
            return -1
        return self._places.setdefault(sympy.sympify(value), len(self._places))

    def source(self) -> str:
        """JavaScript source of the body of ``function (s, floor, mod, max, min)``.

        ``s``: BigInt sizes in the order of ``dims``. It returns a flat array: numerator and denominator of each value
        by its place, both BigInt. ``floor`` and ``mod`` round towards minus infinity, as Python does.
        """
        computation = Computation()
        outputs = Lowering(computation, list(self._places)).outputs
        at = {name: i for i, name in enumerate(self.dims)}
        names: list[str] = []
        lines: list[str] = []
        for i, (op, args) in enumerate(computation.nodes):
            if op == "const":
                names.append(f"{args[0]}n" if args[0] >= 0 else f"({args[0]}n)")
            elif op == "size":
                names.append(f"s[{at[args[0]]}]")
            else:
                names.append(f"t{i}")
                lines.append(f"t{i}={_SOURCE[op].format(*(names[a] for a in args))}")
        declared = f"const {','.join(lines)};" if lines else ""
        pairs = ",".join(f"{names[top]},{names[below]}" for top, below in outputs)
        return f"{declared}return [{pairs}];"
