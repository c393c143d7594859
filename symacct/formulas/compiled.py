"""Many formulas at many sizes: one compiled function with shared subexpressions, on ints or NumPy arrays.

Formulas become a graph of whole-number operations in which equal parts stand once, and the graph becomes Python
source. Before it runs, every operation is bounded with exact ints at the largest sizes: what cannot leave
the range of int64 is computed in int64 and exact, the rest in float64, and the result says which. Given ints
alone, everything is an exact Python int and NumPy is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from symacct.dim import check_size
from symacct.errors import DimError, MissingSizeError, SpecError
from symacct.formulas.computation import INT64, Computation, Lowering

_BLOCK = 2**15  # elements at a time, so that what is between stays in the processor's cache


class Results(dict[str, Any]):
    """Values by name. ``exact`` names those that are whole numbers without any rounding; others are float64."""

    exact: frozenset[str] = frozenset()


def compile_expressions(expressions: Mapping[str, Any]) -> Compiled:
    """One function for many formulas, by name: ``compile_expressions({"flops": 2*B*D})(B=8, D=array)``.

    Formulas are sums, products and quotients of dims, with Max, Min, floor, ceiling and Mod; plain numbers are
    allowed. Raises `SpecError` for what cannot be compiled.
    """
    return Compiled(expressions)


class Compiled:
    """Formulas as one function of sizes; see `compile_expressions`. ``dims`` are those that they depend on."""

    def __init__(self, expressions: Mapping[str, Any]) -> None:
        self.expressions = {name: sympy.sympify(expr) for name, expr in expressions.items()}
        self.dims = tuple(sorted({s.name for expr in self.expressions.values() for s in expr.free_symbols}))
        self._computation = Computation()
        lowered = Lowering(self._computation, list(self.expressions.values())).outputs
        self._outputs = dict(zip(self.expressions, lowered, strict=True))
        self._functions: dict[tuple[bool, ...], Any] = {}

    def __call__(self, **sizes: Any) -> Results:
        """The values at sizes that are ints, or NumPy arrays that broadcast.

        All values have the shape of the sizes together: int64 where that is exact, else float64 (what is larger
        than int64 holds, or not whole). Ints alone give Python ints, exact at any magnitude, and floats for what is
        not whole. Sizes of other dims than ``dims`` only take part in the shape. Raises `MissingSizeError` and,
        for sizes that are not whole numbers >= 1, `DimError`.
        """
        missing = [name for name in self.dims if name not in sizes]
        if missing:
            raise MissingSizeError(f"no size for {', '.join(missing)}; give one for each of {', '.join(self.dims)}")
        plain = {name: whole_sizes(name, size) for name, size in sizes.items()}
        if all(isinstance(size, int) for size in plain.values()):
            return self._at_ints(plain)
        return self._at_arrays(plain)

    def _at_ints(self, sizes: Mapping[str, Any]) -> Results:
        every = (True,) * len(self._computation.nodes)
        found = self._function(every)(sizes, max, min)
        results = Results()
        for name, (top, below) in zip(self._outputs, found, strict=True):
            whole = below != 0 and top % below == 0
            results[name] = top // below if whole else top / below if below else math.nan
        results.exact = frozenset(name for name, value in results.items() if isinstance(value, int))
        return results

    def _at_arrays(self, sizes: Mapping[str, Any]) -> Results:
        np = numpy()
        largest = {name: size if isinstance(size, int) else int(size.max(initial=1)) for name, size in sizes.items()}
        whole = self._computation.whole(largest)
        function = self._function(whole)
        try:
            shape = np.broadcast_shapes(*(np.shape(size) for size in sizes.values()))
        except ValueError:
            shapes = ", ".join(f"{name}: {np.shape(size)}" for name, size in sizes.items() if np.ndim(size))
            raise DimError(f"arrays of sizes have shapes that do not broadcast together: {shapes}") from None
        count = math.prod(shape)
        flat = {
            name: size if isinstance(size, int) else np.broadcast_to(size, shape).reshape(-1)
            for name, size in sizes.items()
            if name in self.dims
        }
        kinds = {
            name: whole[top] and whole[below] and self._computation.nodes[below][0] == "const"
            for name, (top, below) in self._outputs.items()
        }
        out = {name: np.empty(count, np.int64 if exact else np.float64) for name, exact in kinds.items()}
        with np.errstate(divide="ignore", invalid="ignore"):
            for start in range(0, count, _BLOCK):
                part = slice(start, start + _BLOCK)
                block = {name: size if isinstance(size, int) else size[part] for name, size in flat.items()}
                for name, (top, below) in zip(out, function(block, np.maximum, np.minimum), strict=True):
                    out[name][part] = top if kinds[name] else np.true_divide(top, below)
        lost = self._computation.lost(whole)
        out |= self._at_objects([n for n, pair in self._outputs.items() if any(lost[i] for i in pair)], flat, count)
        return self._finished(out, kinds, shape)

    def _at_objects(self, names: list[str], sizes: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Formulas with remainders of what int64 does not hold, in Python's ints, one by one, and then rounded."""
        np = numpy()
        if not names:
            return {}
        one = Compiled({name: self.expressions[name] for name in names})
        rows = [
            one(**{name: size if isinstance(size, int) else int(size[i]) for name, size in sizes.items()})
            for i in range(count)
        ]
        return {name: np.array([float(row[name]) for row in rows]) for name in names}

    def _finished(self, out: Mapping[str, Any], kinds: Mapping[str, bool], shape: tuple[int, ...]) -> Results:
        """Whole values divided by their common denominators; floats where that leaves remainders."""
        results, exact = Results(), []
        for name, top in out.items():
            divisor = self._computation.nodes[self._outputs[name][1]][1][0] if kinds[name] else 1
            if kinds[name] and not (divisor != 1 and (top % divisor).any()):
                exact.append(name)
                results[name] = (top if divisor == 1 else top // divisor).reshape(shape)
            else:
                results[name] = (top / divisor if kinds[name] else top).reshape(shape)
        results.exact = frozenset(exact)
        return results

    def _function(self, whole: tuple[bool, ...]) -> Any:
        if whole not in self._functions:
            space: dict[str, Any] = {}
            exec(self._computation.source(self._outputs.values(), whole), space)
            self._functions[whole] = space["run"]
        return self._functions[whole]


def whole_sizes(name: str, size: Any) -> Any:
    """A size as an int, or an array of sizes as int64, all checked to be whole numbers >= 1.

    Raises `DimError` that says how many are not, and shows the first.
    """
    if not getattr(size, "shape", ()) and not isinstance(size, (list, tuple, range)):
        return check_size(name, size.item() if hasattr(size, "item") else size)
    np = numpy()
    given = np.asarray(size)
    if given.dtype.kind not in "iuf":
        raise DimError(f"{name}: an array of {given.dtype} holds no sizes; the size of a dim is a whole number >= 1")
    bad = ~((given >= 1) & (given < INT64) & (given == np.floor(given)))
    if bad.any():
        first = given[bad][0]
        raise DimError(
            f"{name}: {int(bad.sum()):,} of {given.size:,} sizes are not whole numbers >= 1 (and below 2**63), "
            f"the first of them {first}"
        )
    return given.astype(np.int64)


def numpy() -> Any:
    """NumPy, which only arrays of sizes need. Raises `SpecError` where it is not installed."""
    try:
        import numpy
    except ImportError:
        raise SpecError("arrays of sizes need NumPy, which is not there: pip install numpy") from None
    return numpy
