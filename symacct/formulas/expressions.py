"""Expressions written and taken apart: text that is read safely, sums of monomials, parts replaced.

Text is read by a grammar of its own (names, whole numbers, ``+ - * / // **`` and parentheses) and never
handed to SymPy's parser, to which N, S, E, I, O, Q, beta, gamma and zeta are no names of dims.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy

from symacct.algebra import floor_divide
from symacct.dim import symbol
from symacct.errors import SpecError

Monomial = tuple[tuple[sympy.Expr, int], ...]  # (base, power), bases in the order of their names
Terms = dict[Monomial, Any]  # coefficient of each

# -- text ----------------------------------------------------------------------------

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: floor_divide,
}
_LARGEST_POWER = 64
_LARGEST_BITS = 1024
_LONGEST = 1_000  # characters, so that what is nested in them stays within Python's stack


def parse(source: str) -> sympy.Expr:
    """The expression that a text such as ``"24*B*L*D**2 + H*Dh"`` stands for; every name is a dim.

    Raises `SpecError` with what cannot be read in it.
    """
    if len(source) > _LONGEST:
        raise SpecError(f"an expression of {len(source):,} characters is longer than the {_LONGEST:,} that are read")
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            f"{source!r} cannot be read as an expression; write dims and whole numbers, as in 'H*Dh' or '4*D**2 + D'"
        ) from None
    return _read(tree, source)


def _read(node: ast.expr, source: str) -> sympy.Expr:
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sympy.Integer(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inside = _read(node.operand, source)
        return -inside if isinstance(node.op, ast.USub) else inside
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = _read(node.right, source)
        if not power.is_Integer or not 0 <= power <= _LARGEST_POWER:
            raise _unreadable(node.right, source, f"a power is a whole number from 0 to {_LARGEST_POWER}")
        base = _read(node.left, source)
        if base.is_Integer and abs(int(base)).bit_length() * int(power) > _LARGEST_BITS:
            raise _unreadable(node, source, f"a number has at most {_LARGEST_BITS} bits")
        return base**power
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _read(node.left, source), _read(node.right, source)
        if right == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            raise _unreadable(node, source, "nothing is divided by 0")
        return _OPERATORS[type(node.op)](left, right)
    raise _unreadable(node, source, "an expression is made of dims, whole numbers, + - * / // ** and parentheses")


def _unreadable(node: ast.expr, source: str, rule: str) -> SpecError:
    return SpecError(f"{source!r}: cannot read {ast.unparse(node)!r}; {rule}")


def read(value: Any) -> sympy.Expr:
    """A text, a number, a dim or a SymPy expression as an expression."""
    if isinstance(value, str):
        return parse(value)
    try:
        expr = sympy.sympify(value, strict=True)
    except sympy.SympifyError:
        expr = None
    if not isinstance(expr, sympy.Expr):
        raise SpecError(f"{value!r} is no expression; give a text such as 'H*Dh', a number or an expression")
    return expr


# -- expressions taken apart -----------------------------------------------------------


def rebuilt(expr: sympy.Expr, args: Iterable[sympy.Expr]) -> sympy.Expr:
    """An expression of the same kind with other arguments; ``Max`` keeps all that differ, unevaluated."""
    args = list(args)
    if isinstance(expr, (sympy.Max, sympy.Min)):
        args = list(dict.fromkeys(args))
        if len(args) == 1:
            return args[0]
        return expr.func(*args, evaluate=all(a.is_number for a in args))
    try:
        return expr.func(*args)
    except RecursionError:  # SymPy's own, on some Mod
        return expr.func(*args, evaluate=False)


def changed(expr: sympy.Expr, change: Callable[[sympy.Expr], sympy.Expr]) -> sympy.Expr:
    """An expression with ``change`` applied to each part of it, innermost first."""
    if expr.args:
        args = [changed(a, change) for a in expr.args]
        if any(new is not old for new, old in zip(args, expr.args, strict=True)):
            expr = rebuilt(expr, args)
    return change(expr)


class Opened:
    """Expressions as sums of monomials, in which Max, floor, powers of sums and the like stand as one letter each.

    ``inner`` is applied to what stands inside of those. Several expressions that are opened by one
    `Opened` share its letters.
    """

    def __init__(self, inner: Callable[[sympy.Expr], sympy.Expr] = lambda e: e) -> None:
        self.inner = inner
        self.letters: dict[sympy.Expr, sympy.Dummy] = {}
        self.wholes: dict[sympy.Expr, sympy.Expr] = {}

    def terms(self, expr: sympy.Expr) -> Terms:
        """The coefficient of each monomial of an expression."""
        found: Terms = {}
        for term in sympy.Add.make_args(sympy.expand(self._opened(expr))):
            coefficient, rest = term.as_coeff_Mul()
            if coefficient != 0:
                found[monomial_of({b: int(p) for b, p in rest.as_powers_dict().items() if b != 1})] = coefficient
        return found

    def whole(self, base: sympy.Expr) -> sympy.Expr:
        """What a base of a monomial stands for."""
        return self.wholes.get(base, base)

    def closed(self, terms: Terms) -> sympy.Expr:
        """The expression that monomials with coefficients are."""
        products = (sympy.Mul(c, *(self.whole(b) ** p for b, p in monomial)) for monomial, c in terms.items())
        return sympy.Add(*products)

    def _opened(self, expr: sympy.Expr) -> sympy.Expr:
        if expr.is_Symbol or expr.is_Rational:
            return expr
        if expr.is_Add or expr.is_Mul:
            return expr.func(*(self._opened(a) for a in expr.args))
        if expr.is_Pow and expr.exp.is_Integer and (expr.exp > 0 or not expr.base.is_Add):
            return self._opened(expr.base) ** expr.exp
        if expr.is_Pow and expr.exp.is_Integer:  # one over a sum
            return self._letter(rebuilt(expr, (self.inner(expr.base), sympy.Integer(-1)))) ** -expr.exp
        return self._letter(rebuilt(expr, (self.inner(a) for a in expr.args)))

    def _letter(self, whole: sympy.Expr) -> sympy.Expr:
        if whole.is_Symbol or whole.is_Rational:
            return whole
        if whole not in self.letters:
            letter = sympy.Dummy(f"_{len(self.letters)}", positive=True)
            self.letters[whole], self.wholes[letter] = letter, whole
        return self.letters[whole]


def monomial_of(powers: Mapping[Any, int]) -> Monomial:
    """The monomial of bases with powers."""
    return tuple(sorted(((b, p) for b, p in powers.items() if p), key=lambda power: str(power[0])))


def expanded(expr: sympy.Expr) -> sympy.Expr:
    """A sum of products, outside and inside of Max, floor and the like, which stay as they are."""
    opened = Opened(expanded)
    return opened.closed(opened.terms(expr))
