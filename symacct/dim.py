"""Dims: ints that remember their symbol.

A `Dim` *is* an int of its trial size, so constructors, ``range``, ``isinstance``
and config validation accept it; and it carries a SymPy expression through
``+ - * // %``. Code that compares dims gets the answer at the trial sizes, and
when that answer is not true for all positive sizes it becomes an assumption of the
scope in which the code ran. Floats made of dims remember too, until Python's ``int``
takes the symbol away; then the number itself is remembered, see `restored`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
from sympy.core.sympify import converter

from symacct.algebra import NEGATED, RELATIONS, always, exact, extreme, floor_divide, modulo, normal_form
from symacct.assumptions import current
from symacct.errors import DimError
from symacct.printing import text

# -- symbols and trial sizes -------------------------------------------------------

_trial_sizes: dict[str, int] = {}  # of the dims that `dims` made; a build or trace gives its own


def symbol(name: str) -> sympy.Symbol:
    """The SymPy symbol of a dim: a positive integer. Names are never parsed, so N, S or I are only names."""
    if not name.isidentifier():
        raise DimError(f"{name!r} cannot be the name of a dim: use letters, digits and _, as in 'B' or 'd_model'")
    return sympy.Symbol(name, integer=True, positive=True)


def free_size(taken: Collection[int]) -> int:
    """A default trial size that is not taken: 8 times a prime >= 11.

    Distinct, so that a coincidence does not look like a relation; larger than kernel
    sizes; divisible by 8, as heads and halves want; small, so that a Python loop is cheap.
    """
    index = 5
    while (size := 8 * int(sympy.prime(index))) in taken:
        index += 1
    return size


def named_dims(
    names: Iterable[str], sizes: Mapping[str, int], taken: Mapping[str, int] | None = None
) -> dict[str, Dim]:
    """Dims by name, each at the size that is given or at a default one; the same names always get the same."""
    made: dict[str, Dim] = {}
    used = {plain(s) for s in (taken or {}).values()} | {check_size(n, s) for n, s in sizes.items()}
    for name in names:
        size = check_size(name, sizes[name]) if name in sizes else free_size(used)
        used.add(size)
        made[name] = Dim(size, symbol(name))
    return made


def check_size(name: str, size: Any) -> int:
    """The size as an int; a `DimError` unless it is a whole number >= 1."""
    try:
        value = operator.index(size)
    except TypeError:
        if not (isinstance(size, float) and size.is_integer()) and not getattr(size, "is_Integer", False):
            raise DimError(f"{name}={size!r}: the size of a dim is a whole number") from None
        value = int(size)
    if isinstance(size, bool) or value < 1:
        raise DimError(f"{name}={size!r}: the size of a dim is a whole number >= 1")
    return value


def dims(names: str, **sizes: int) -> Any:
    """Symbolic ints by name.

    >>> B, L, D = dims("B L D")
    >>> (B * L) // L
    B

    ``sizes`` sets the trial size of a dim where the default does not suit. One name
    gives one `Dim`, several a tuple. Raises `DimError` for a bad name or size.
    """
    wanted = names.replace(",", " ").split()
    if not wanted:
        raise DimError("dims() needs at least one name, as in dims('B L D')")
    for name, size in sizes.items():
        if name not in wanted:
            raise DimError(f"dims({names!r}): there is no dim {name!r} to give the size {size} to")
    made = []
    for name in wanted:
        expr = symbol(name)
        if name not in sizes and name not in _trial_sizes:
            _trial_sizes[name] = free_size(_trial_sizes.values())
        made.append(Dim(check_size(name, sizes[name]) if name in sizes else _trial_sizes[name], expr))
    return made[0] if len(made) == 1 else tuple(made)


# -- arithmetic --------------------------------------------------------------------

_EXPR: dict[str, Callable[..., sympy.Expr]] = {
    "add": lambda a, b: sympy.expand(a + b),
    "sub": lambda a, b: sympy.expand(a - b),
    "mul": lambda a, b: sympy.expand(a * b),
    "pow": lambda a, b: sympy.expand(a**b),
    "max": lambda a, b: extreme(a, b, sympy.Max, ">="),
    "min": lambda a, b: extreme(a, b, sympy.Min, "<="),
}
_SCOPED: dict[str, Callable[..., sympy.Expr]] = {"floordiv": floor_divide, "mod": modulo}
VALUE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "pow": operator.pow,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
_interned: dict[tuple[sympy.Expr, int], Dim] = {}  # one object for equal dims, so that lookups are by identity
_known: dict[Any, int] = {}
_KNOWN_LIMIT = 200_000


def expr_of(value: int) -> sympy.Expr:
    """The SymPy expression of an int: a `Dim`'s own, else a number."""
    return value.expr if isinstance(value, Dim) else sympy.Integer(value)


def plain(value: int) -> int:
    """The trial size alone, an exact int; ``int(dim)`` is what models write, and is remembered."""
    return int.__int__(value)


def point(sizes: Mapping[str, int]) -> dict[sympy.Symbol, sympy.Integer]:
    """Sizes by symbol, to be put into expressions."""
    return {symbol(name): sympy.Integer(plain(size)) for name, size in sizes.items()}


def _key(value: int) -> Any:
    return value.key if type(value) is Dim else plain(value)


def arithmetic(op: str, a: int, b: int) -> int:
    """``a op b`` for ints of which at least one is a `Dim`: a `Dim`, or an int once no symbol is left."""
    scope = current()
    if scope is not None and scope.lost:
        a, b = restored(a), restored(b)
    # What // and % give depends on what the scope knows to be divisible.
    cache = scope.cache if op in _SCOPED and scope is not None else _known
    key = (op, _key(a), _key(b))
    result = cache.get(key)
    if result is None:
        if op in _SCOPED:
            expr = _SCOPED[op](expr_of(a), expr_of(b), scope.divisible if scope is not None else ())
        else:
            expr = _EXPR[op](expr_of(a), expr_of(b))
        value = VALUE[op](plain(a), plain(b))
        result = value if exact(expr) else Dim(value, expr)
        if len(cache) > _KNOWN_LIMIT:
            cache.clear()
        cache[key] = result
    return result


_SMALLEST_LOST = 40  # smaller numbers are too common to be recognised


def lose(value: int, expr: sympy.Expr) -> int:
    """Python's ``int`` wants an exact int: give it, and remember what it was."""
    scope = current()
    if scope is not None and value >= _SMALLEST_LOST and not exact(expr):
        scope.lost[value] = expr
    return value


def restored(value: int) -> int:
    """The dim that a plain int was before ``int(...)`` took its symbol, if the scope remembers such a number.

    A guess, which default trial sizes make a good one and which the check at other sizes proves or refutes.
    """
    if type(value) is int:
        scope = current()
        if scope is not None and value in scope.lost:
            return Dim(value, scope.lost[value])
    return value


# -- comparisons -------------------------------------------------------------------

_refused: list[list[tuple[sympy.Expr, sympy.Expr]]] = []


@contextmanager
def refusals() -> Iterator[list[tuple[sympy.Expr, sympy.Expr]]]:
    """Collect the pairs of sizes that are compared and found unequal: what an op that fails may have wanted."""
    _refused.append([])
    try:
        yield _refused[-1]
    finally:
        _refused.pop()


def compare(relation: str, a: int, b: int, *, by_user: bool) -> bool:
    """Compare at the trial sizes, and record what the answer assumes.

    What Python code of the model asks is recorded either way. torch itself asks
    thousands of layout questions ("is this stride that stride?") whose usual answer does
    not matter; `_generic` tells them from relations that the model forces.
    """
    scope = current()
    if scope is None:
        return bool(RELATIONS[relation](plain(a), plain(b)))
    if _refused and relation in ("==", "!=") and plain(a) != plain(b):
        _refused[-1].append((expr_of(a), expr_of(b)))
    if scope.lost:
        a, b = restored(a), restored(b)
    key = (relation, _key(a), _key(b), by_user)
    if key not in scope.cache:
        answer = bool(RELATIONS[relation](plain(a), plain(b)))
        scope.cache[key] = answer
        _record(relation, answer, expr_of(a), expr_of(b), by_user)
        scope.cache[key] = answer
    return bool(scope.cache[key])


def _record(relation: str, answer: bool, left: sympy.Expr, right: sympy.Expr, by_user: bool) -> None:
    scope = current()
    if scope is not None and always(relation, left, right) is None:
        kept = relation if answer else NEGATED[relation]
        if by_user or not _generic(kept, left, right):
            scope.record(kept, left, right)


_GENERIC_MIN, _GENERIC_MAX = 2, 2**31 - 1


def _generic(relation: str, left: sympy.Expr, right: sympy.Expr) -> bool:
    """Whether torch's question is one of layout, whose usual answer holds for all but degenerate sizes.

    "Is this axis of size 1", "is this stride larger than that one", "does this fit into an index": torch
    asks them to choose strides and index types, not to choose what is computed. That two dims
    differ is no such thing: kernels are chosen by it.
    """
    if relation == "!=":
        return not (left.is_Symbol and right.is_Symbol)
    if relation == "==":
        return False
    relation, left, right = normal_form(relation, left, right)
    if not exact(right):
        return False
    bound = int(right)
    return bound <= _GENERIC_MIN if relation in (">", ">=") else bound >= _GENERIC_MAX


_taken: list[list[Dim]] = []


@contextmanager
def taking() -> Iterator[list[Dim]]:
    """Collect the dims that are taken as numbers meanwhile, instead of recording them."""
    _taken.append([])
    try:
        yield _taken[-1]
    finally:
        _taken.pop()


def specialize(dim: Dim) -> None:
    """Something took the trial size as a number. Whether that matters, other sizes will tell."""
    scope = current()
    if _taken:
        _taken[-1].append(dim)
    elif scope is not None:
        scope.record("==", dim.expr, sympy.Integer(plain(dim)), doubtful=True)


# -- the numbers -------------------------------------------------------------------

_METHODS = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
_FLOATS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv}


def _rational(value: Any) -> sympy.Expr | None:
    """The expression of a number: exact for dims and ints, the nearest simple fraction for floats."""
    if isinstance(value, (Dim, DimFloat)):
        return value.expr
    if isinstance(value, int):
        return expr_of(restored(value))
    return sympy.Rational(value).limit_denominator(10**9) if math.isfinite(value) else None


def _as_float(op: str, a: Any, b: Any) -> float:
    """``a op b`` as a float that remembers."""
    value = float(_FLOATS[op](float(a), float(b)))
    left, right = _rational(a), _rational(b)
    if left is None or right is None:
        return value
    expr = sympy.expand(_FLOATS[op](left, right))
    return value if expr.is_number else DimFloat(value, expr)


def _behind(value: Any) -> Any:
    """The dim behind a ``torch.SymInt`` of ours; code that torch calls back meets both. Other values as they are."""
    return value if isinstance(value, (int, float)) else getattr(getattr(value, "node", None), "dim", value)


def _binary(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Any, other: Any) -> Any:
        other = _behind(other)
        if isinstance(other, int) and isinstance(self, Dim) and op != "truediv":
            return arithmetic(op, self, other)
        return _as_float(op, self, other) if isinstance(other, (int, float)) and op in _FLOATS else NotImplemented

    def backward(self: Any, other: Any) -> Any:
        other = _behind(other)
        if isinstance(other, int) and isinstance(self, Dim) and op != "truediv":
            return arithmetic(op, other, self)
        return _as_float(op, other, self) if isinstance(other, (int, float)) and op in _FLOATS else NotImplemented

    return forward, backward


def _comparison(relation: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        other = _behind(other)
        if isinstance(self, Dim) and isinstance(other, int):
            return compare(relation, self, other, by_user=True)
        if not isinstance(other, (int, float)):
            return NotImplemented
        answer = bool(RELATIONS[relation](float(self), float(other)))
        left, right = _rational(self), _rational(other)
        if left is not None and right is not None:
            _record(relation, answer, left, right, by_user=True)
        return answer

    method.__name__ = _METHODS[relation]
    return method


class _Numeric:
    """What dims and floats made of dims do alike."""

    expr: sympy.Expr

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("truediv")
    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __repr__(self) -> str:
        return text(self.expr)

    def __hash__(self) -> int:
        return hash(float(self))  # type: ignore[arg-type]  # of an equal number, as dictionaries need it


class Dim(_Numeric, int):
    """An int with a symbol: its value is the trial size, ``expr`` the SymPy expression.

    Everything that an int can do works; sums, differences, products, ``//`` and ``%``
    with ints and other dims are dims again.
    """

    key: object  # what stands for the dim in dictionaries: comparing dims there would record assumptions

    def __new__(cls, size: int, expr: sympy.Expr) -> Dim:
        self = _interned.get((expr, size))
        if self is None:
            self = super().__new__(cls, size)
            self.expr = expr
            self.key = object()
            _interned[expr, size] = self
        return self

    __floordiv__, __rfloordiv__ = _binary("floordiv")
    __mod__, __rmod__ = _binary("mod")

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if isinstance(other, int) and other >= 0 and modulo is None:
            return arithmetic("pow", self, plain(other))
        return int.__pow__(plain(self), other, modulo)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, int) else NotImplemented

    def __round__(self, digits: Any = None) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__ = _Numeric.__pos__

    def __int__(self) -> int:
        return lose(plain(self), self.expr)

    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        return compare("!=", self, 0, by_user=True)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(plain(self), spec)

    def __reduce__(self) -> Any:
        return Dim, (plain(self), self.expr)


class DimFloat(_Numeric, float):
    """A float that a dim went into; ``floor``, ``ceil`` and ``round`` lead back to dims, ``int`` to a number."""

    def __new__(cls, value: float, expr: sympy.Expr) -> DimFloat:
        self = super().__new__(cls, value)
        self.expr = expr
        return self

    def __floor__(self) -> int:
        return Dim(math.floor(float(self)), sympy.floor(self.expr))

    def __ceil__(self) -> int:
        return Dim(math.ceil(float(self)), sympy.ceiling(self.expr))

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            return round(float(self), digits)
        return Dim(round(float(self)), sympy.floor(self.expr + sympy.Rational(1, 2)))

    def __int__(self) -> int:
        return lose(int(float(self)), sympy.floor(self.expr))

    __trunc__ = __int__

    def __floordiv__(self, other: Any) -> Any:
        return math.floor(self / other) if isinstance(other, (int, float)) else NotImplemented

    def __str__(self) -> str:
        return float.__repr__(self)

    def __reduce__(self) -> Any:
        return DimFloat, (float(self), self.expr)


converter[Dim] = converter[DimFloat] = lambda number: number.expr
