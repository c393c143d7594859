"""Small words that the families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd as integer_gcd
from typing import Any

import sympy

from symacct.cost import Size, TensorMeta, product, tensors
from symacct.rule import RuleFunction, read

Decorator = Callable[[str], Callable[[RuleFunction], RuleFunction]]


def each(
    decorate: Callable[..., Any], *keys: str, pattern: str | None = None
) -> Callable[[RuleFunction], RuleFunction]:
    """Decorate one function as the rule of many ops: ``@each(rules.pointwise, "aten.a", "aten.b")``."""

    def wrap(function: RuleFunction) -> RuleFunction:
        for key in keys:
            decorate(key, pattern)(function)
        return function

    return wrap


def work(tensor: TensorMeta | None) -> Size:
    """Real numbers in a tensor: its elements, twice for complex ones, none for an absent tensor."""
    if tensor is None:
        return 0
    return 2 * tensor.numel if tensor.is_complex else tensor.numel


def given(*values: Any) -> int:
    """How many of these optional arguments were given."""
    return sum(v is not None for v in values)


def total(sizes: Sequence[Size]) -> Size:
    """Sum of sizes."""
    result: Size = 0
    for size in sizes:
        result = result + size
    return result


def without(shape: Sequence[Size], dim: int) -> Size:
    """Number of lines along ``dim``: the product of all other sizes."""
    return product(n for i, n in enumerate(shape) if not shape or i != dim % len(shape))


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> Size:
    """Number of elements of shapes broadcast together."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return product(next((n for n in axis if n != 1), 1) for axis in zip(*padded, strict=True))


def elements(count: Size, like: TensorMeta) -> Size:
    """Bytes of ``count`` elements of a tensor."""
    return count * like.itemsize


def all_of(*values: Any) -> Size:
    """Bytes of all tensors among these arguments, each region once."""
    return read(*(t for v in values for t in tensors(v)))


def exactly(numerator: Size, divisor: int) -> Size:
    """A quotient that is known to be whole."""
    return numerator // divisor if isinstance(numerator, int) else numerator / divisor


def smaller(a: Size, b: Size) -> Size:
    """The smaller of two sizes, as an expression where it has to be."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else sympy.Min(a, b)


def larger(a: Size, b: Size) -> Size:
    """The larger of two sizes, as an expression where it has to be."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else sympy.Max(a, b)


class ceil_log2(sympy.Function):  # type: ignore[misc]  # noqa: N801 - SymPy functions are lower case
    """Smallest k with 2**k >= n; stays unevaluated for a symbol."""

    @classmethod
    def eval(cls, n: Any) -> Any:
        """A number for a number."""
        return sympy.Integer((int(n) - 1).bit_length()) if n.is_Integer and n > 0 else None

    is_integer = True
    is_nonnegative = True


class gcd(sympy.Function):  # type: ignore[misc]  # noqa: N801
    """Greatest common divisor of two sizes; stays unevaluated for symbols (SymPy's own treats them as polynomials)."""

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        """A number for numbers; 1 if one of them is 1; n for n and n."""
        if a == b:
            return a
        if a == 1 or b == 1:
            return sympy.Integer(1)
        return sympy.Integer(integer_gcd(int(a), int(b))) if a.is_Integer and b.is_Integer else None

    is_integer = True
    is_positive = True


def log2(n: Size) -> Size:
    """Levels of a binary tree over n leaves, which is the binary logarithm rounded up."""
    return max(n - 1, 0).bit_length() if isinstance(n, int) else ceil_log2(n)


def common_divisor(a: Size, b: Size) -> Size:
    """Greatest common divisor, as an expression where it has to be."""
    return integer_gcd(a, b) if isinstance(a, int) and isinstance(b, int) else gcd(a, b)
