"""Formulas as a graph of whole-number operations in which equal parts stand once, and that graph as Python source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy

from symacct.errors import SpecError
from symacct.formulas.expressions import rebuilt
from symacct.printing import text

_Node = tuple[str, tuple[Any, ...]]  # ("const", (5,)), ("size", ("B",)), ("add", (0, 1))
_SOURCE = {"add": "{0} + {1}", "mul": "{0} * {1}", "floordiv": "{0} // {1}", "mod": "{0} % {1}"}
# How large a result can be, by how large its operands can be; a divisor is at least 1.
_BOUND: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a,
    "mod": lambda a, b: b,
    "max": max,
    "min": max,
}
INT64 = 2**63  # beyond its range

# -- the graph ---------------------------------------------------------------------------


class Computation:
    """Operations on whole numbers, each once, in an order in which operands come first."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self._known: dict[_Node, int] = {}

    def node(self, op: str, *args: Any) -> int:
        """The number of an operation, which is added if it is new; constants are folded."""
        if op in ("add", "mul"):
            if args[0] > args[1]:
                args = args[::-1]
            folded = self._folded(op, *args)
            if folded is not None:
                return folded
        key = (op, args)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(key)
        return self._known[key]

    def const(self, value: int) -> int:
        """A whole number."""
        return self.node("const", value)

    def value(self, node: int) -> int | None:
        """The number that a node is, if it is one."""
        op, args = self.nodes[node]
        return args[0] if op == "const" else None

    def _folded(self, op: str, a: int, b: int) -> int | None:
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.const(x + y if op == "add" else x * y)
        for number, other in ((x, b), (y, a)):
            if number == (0 if op == "add" else 1):
                return other
            if number == 0:
                return self.const(0)
        return None

    def combined(self, op: str, parts: Sequence[int]) -> int:
        """Several operands under one operation, from the left."""
        result = parts[0]
        for part in parts[1:]:
            result = self.node(op, result, part)
        return result

    def power(self, base: int, exponent: int) -> int:
        """A node times itself."""
        if exponent == 1:
            return base
        half = exponent // 2
        return self.node("mul", self.power(base, half), self.power(base, exponent - half))

    def whole(self, largest: Mapping[str, int]) -> tuple[bool, ...]:
        """For each node, whether it stays within int64 at all sizes up to the largest ones, and is made of such."""
        bounds: list[int] = []
        fits: list[bool] = []
        for op, args in self.nodes:
            if op in ("const", "size"):
                bound, known = (abs(args[0]) if op == "const" else largest.get(args[0], 1)), True
            else:
                bound, known = _BOUND[op](*(bounds[a] for a in args)), all(fits[a] for a in args)
            bounds.append(bound)
            fits.append(known and bound < INT64)
        return tuple(fits)

    def positive(self, node: int) -> bool:
        """Whether a node is above 0 at all sizes, as far as its form shows."""
        op, args = self.nodes[node]
        if op == "const":
            return bool(args[0] > 0)
        return op == "size" or (op in ("add", "mul", "max", "min") and all(map(self.positive, args)))

    def lost(self, whole: tuple[bool, ...]) -> list[bool]:
        """For each node, whether a remainder of what does not fit goes into it: of a rounded number there is none."""
        found: list[bool] = []
        for op, args in self.nodes:
            inside = op not in ("const", "size") and any(found[a] for a in args)
            found.append(inside or (op == "mod" and not all(whole[a] for a in args)))
        return found

    def source(self, outputs: Iterable[tuple[int, int]], whole: tuple[bool, ...]) -> str:
        """Python source of a function of sizes; nodes that are not whole are floats."""
        lines = ["def run(sizes, maximum, minimum):"]
        names = [f"t{i}" for i in range(len(self.nodes))]
        for i, (op, args) in enumerate(self.nodes):
            if op == "const":
                names[i] = f"({args[0]})" if whole[i] else repr(float(args[0]))
                continue
            if op == "size":
                lines.append(f" t{i} = sizes[{args[0]!r}]")
                continue
            operands = [names[a] for a in args]
            if not whole[i] and all(whole[a] for a in args):
                operands[0] = f"({operands[0]} * 1.0)"
            form = _SOURCE.get(op, f"{op}imum({{0}}, {{1}})")
            lines.append(f" t{i} = {form.format(*operands)}")
        pairs = ", ".join(f"({names[top]}, {names[below]})" for top, below in outputs)
        return "\n".join([*lines, f" return [{pairs}]"])


# -- from SymPy --------------------------------------------------------------------------

_Pair = tuple[int, int]  # numerator and denominator


class Lowering:
    """SymPy expressions as nodes: each a numerator over a denominator, both of whole numbers."""

    def __init__(self, graph: Computation, expressions: Sequence[sympy.Expr]) -> None:
        self.graph = graph
        self.one = graph.const(1)
        self.parts: dict[sympy.Symbol, sympy.Expr] = {}  # what a letter stands for: a function, or a common part
        self.letters: dict[sympy.Expr, sympy.Symbol] = {}
        self.known: dict[sympy.Expr, _Pair] = {}
        sums = [sympy.factor_terms(self._hidden(expr)) for expr in expressions]
        inner = [part.args for part in self.parts.values()]
        flat = [*sums, *(arg for args in inner for arg in args)]
        common, flat = sympy.cse(flat, symbols=(sympy.Dummy(positive=True) for _ in iter(int, 1)), order="none")
        rest = flat[len(sums) :]
        for letter, part in list(self.parts.items()):
            args, rest = rest[: len(part.args)], rest[len(part.args) :]
            self.parts[letter] = part.func(*args, evaluate=False)
        self.parts |= dict(common)
        self.outputs = [self.pair(expr) for expr in flat[: len(sums)]]

    def _hidden(self, expr: sympy.Expr) -> sympy.Expr:
        """An expression with a letter for each function in it."""
        if not expr.args:
            return expr
        made = rebuilt(expr, (self._hidden(a) for a in expr.args))
        if not isinstance(made, (sympy.Max, sympy.Min, sympy.floor, sympy.ceiling, sympy.Mod)):
            return made
        if made not in self.letters:
            self.letters[made] = sympy.Dummy(integer=True)
            self.parts[self.letters[made]] = made
        return self.letters[made]

    def pair(self, expr: sympy.Expr) -> _Pair:
        """Numerator and denominator of an expression."""
        if expr not in self.known:
            self.known[expr] = self._pair(expr)
        return self.known[expr]

    def _pair(self, expr: sympy.Expr) -> _Pair:
        if expr.is_Rational:
            return self.graph.const(int(expr.p)), self.graph.const(int(expr.q))
        if expr.is_Symbol:
            return self.pair(self.parts[expr]) if expr in self.parts else (self.graph.node("size", expr.name), self.one)
        if expr.is_Mul:
            pairs = [self.pair(a) for a in _numbers_last(expr.args)]
            top, below = (self.graph.combined("mul", part) for part in zip(*pairs, strict=True))
            return top, below
        if expr.is_Add:
            tops, below = self._common([self.pair(a) for a in expr.args])
            return self.graph.combined("add", tops), below
        if expr.is_Pow and expr.exp.is_Integer:
            top, below = self.pair(expr.base)
            if expr.exp < 0:
                top, below = below, top
            return self.graph.power(top, abs(int(expr.exp))), self.graph.power(below, abs(int(expr.exp)))
        return self._function(expr)

    def _function(self, expr: sympy.Expr) -> _Pair:
        graph = self.graph
        if isinstance(expr, (sympy.floor, sympy.ceiling)):
            top, below = self.pair(expr.args[0])
            if isinstance(expr, sympy.floor):
                return graph.node("floordiv", top, below), self.one
            minus = graph.const(-1)
            return graph.node("mul", minus, graph.node("floordiv", graph.node("mul", minus, top), below)), self.one
        if isinstance(expr, (sympy.Max, sympy.Min, sympy.Mod)):
            op = {sympy.Max: "max", sympy.Min: "min", sympy.Mod: "mod"}[expr.func]
            tops, below = self._common([self.pair(a) for a in expr.args])
            if op == "mod" or graph.positive(below):
                return graph.combined(op, tops), below
        raise SpecError(
            f"{text(expr)} cannot be compiled: formulas are made of + - * / // %, whole powers, Max and Min"
        )

    def _common(self, pairs: list[_Pair]) -> tuple[list[int], int]:
        """Numerators over one denominator; numbers in denominators become their least common multiple."""
        numbers = [self.graph.value(below) for _, below in pairs]
        multiple = math.lcm(*(n for n in numbers if n is not None))
        others = list(dict.fromkeys(below for (_, below), n in zip(pairs, numbers, strict=True) if n is None))
        tops = []
        for (top, below), number in zip(pairs, numbers, strict=True):
            factors = [self.graph.const(multiple // number if number is not None else multiple)]
            factors += [other for other in others if other != below]
            tops.append(self.graph.combined("mul", [top, *factors]))
        return tops, self.graph.combined("mul", [*others, self.graph.const(multiple)])


def _numbers_last(factors: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    return sorted(factors, key=lambda f: bool(f.is_number))
