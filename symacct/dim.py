"""Dims: ints that remember their symbol.

A `Dim` *is* an int of its trial size, so constructors, ``range``, ``isinstance``
and config validation accept it; and it carries a SymPy expression through
``+ - * // %``. Code that compares dims gets the answer at the trial sizes, and
when that answer is not true for all positive sizes it becomes an `Assumption`
of the scope in which the code ran.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sympy
from sympy.core.sympify import converter

from symacct.errors import AssumptionError, DimError

# -- symbols and trial sizes -------------------------------------------------------

_trial_sizes: dict[str, int] = {}


def symbol(name: str) -> sympy.Symbol:
    """The SymPy symbol of a dim: a positive integer. Names are never parsed, so N, S or I are only names."""
    if not name.isidentifier():
        raise DimError(f"{name!r} cannot be the name of a dim: use letters, digits and _, as in 'B' or 'd_model'")
    return sympy.Symbol(name, integer=True, positive=True)


def trial_size(name: str) -> int:
    """The default trial size of a dim: 8 times a prime >= 11, another one for each name.

    Distinct, so that a coincidence does not look like a relation; larger than kernel
    sizes; divisible by 8, as heads and halves want; small, so that a Python loop is cheap.
    """
    if name not in _trial_sizes:
        _trial_sizes[name] = 8 * sympy.prime(5 + len(_trial_sizes))
    return _trial_sizes[name]


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


def new_dim(name: str, size: int | None = None) -> Dim:
    """One dim by name, at the given or the default trial size."""
    expr = symbol(name)
    return Dim(trial_size(name) if size is None else check_size(name, size), expr)


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
    made = tuple(new_dim(name, sizes.get(name)) for name in wanted)
    return made[0] if len(made) == 1 else made


# -- assumptions and scopes --------------------------------------------------------

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Assumption:
    """A relation between dims that the traced program relied on, or a value that it was given.

    ``relation`` with ``left`` and ``right`` is what the sizes must satisfy. For an answer
    that only data could give, ``relation`` is empty and ``note`` tells what was asked and
    what was answered.
    """

    relation: str
    left: sympy.Expr
    right: sympy.Expr
    note: str = ""

    def holds(self, sizes: Mapping[sympy.Symbol, int]) -> bool | None:
        """Whether sizes satisfy the relation; None while a dim in it has no size."""
        if not self.relation:
            return True
        left, right = self.left.xreplace(sizes), self.right.xreplace(sizes)
        if left.free_symbols or right.free_symbols:
            return None
        return bool(RELATIONS[self.relation](left, right))

    def __str__(self) -> str:
        from symacct.printing import text

        if not self.relation:
            return self.note
        return f"{text(self.left)} {self.relation} {text(self.right)}"


@dataclass
class Scope:
    """Collects the assumptions of the code that runs in it, and what they make exact."""

    assumptions: dict[tuple[str, Any, Any], Assumption] = field(default_factory=dict)
    divisible: dict[tuple[sympy.Expr, sympy.Expr], None] = field(default_factory=dict)  # in order
    cache: dict[Any, Any] = field(default_factory=dict)  # answers that depend on the scope

    def record(self, relation: str, left: sympy.Expr, right: sympy.Expr) -> None:
        """Keep a relation, in a normal form so that each is kept once."""
        relation, left, right = _normal_form(relation, left, right)
        if relation == "==" and right == 0 and isinstance(left, sympy.Mod):
            self.divisible[left.args] = None
            self.cache.clear()
        self.assumptions.setdefault((relation, left, right), Assumption(relation, left, right))

    def note(self, text: str) -> None:
        """Keep an answer that was given in place of data."""
        zero = sympy.Integer(0)
        self.assumptions.setdefault(("", text, None), Assumption("", zero, zero, text))


_scopes: list[Scope] = []


@contextmanager
def scope(into: Scope) -> Iterator[Scope]:
    """Run code whose comparisons of dims are recorded in ``into``."""
    _scopes.append(into)
    try:
        yield into
    finally:
        _scopes.pop()


def recorded() -> int:
    """How many assumptions the current scope has, for `forget_since`."""
    return len(_scopes[-1].assumptions) if _scopes else 0


def forget_since(count: int) -> None:
    """Drop the assumptions that were recorded after there were ``count``."""
    if _scopes:
        kept = list(_scopes[-1].assumptions.items())[:count]
        _scopes[-1].assumptions.clear()
        _scopes[-1].assumptions.update(kept)
        _scopes[-1].cache.clear()


_refused: list[list[tuple[sympy.Expr, sympy.Expr]]] = []


@contextmanager
def refusals() -> Iterator[list[tuple[sympy.Expr, sympy.Expr]]]:
    """Collect the pairs of sizes that are compared and found unequal: what an op that fails may have wanted."""
    _refused.append([])
    try:
        yield _refused[-1]
    finally:
        _refused.pop()


def settle(assumptions: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """The assumptions without repeats and without those that the others make certain."""
    unique = _strongest(dict.fromkeys(assumptions))
    divisible = [a.left.args for a in unique if a.relation == "==" and isinstance(a.left, sympy.Mod) and a.right == 0]
    kept = []
    for each in unique:
        if each.relation and not (isinstance(each.left, sympy.Mod) and each.left.args in divisible):
            left, right = simplify(each.left, divisible), simplify(each.right, divisible)
            if always(each.relation, left, right):
                continue
        kept.append(each)
    return tuple(kept)


def _strongest(assumptions: Iterable[Assumption]) -> list[Assumption]:
    """Of several bounds on one expression keep the tightest on either side, and of "unequal" what no bound implies."""
    lowest: dict[sympy.Expr, Any] = {}
    highest: dict[sympy.Expr, Any] = {}
    for each in assumptions:
        if each.relation in (">", ">=") and exact(each.right):
            bound = each.right + (each.relation == ">")
            lowest[each.left] = max(lowest.get(each.left, bound), bound)
        elif each.relation in ("<", "<=") and exact(each.right):
            bound = each.right - (each.relation == "<")
            highest[each.left] = min(highest.get(each.left, bound), bound)
    kept = []
    for each in assumptions:
        low, high = lowest.get(each.left), highest.get(each.left)
        if exact(each.right):
            loose = {
                ">": low is not None and each.right + 1 < low,
                ">=": low is not None and each.right < low,
                "<": high is not None and each.right - 1 > high,
                "<=": high is not None and each.right > high,
                "!=": (low is not None and each.right < low) or (high is not None and each.right > high),
            }.get(each.relation, False)
            if loose:
                continue
        kept.append(each)
    return kept


def note(text: str) -> None:
    """Record an answer that was given in place of data, in the current scope."""
    if _scopes:
        _scopes[-1].note(text)


def require(assumptions: tuple[Assumption, ...], sizes: Mapping[sympy.Symbol, int]) -> None:
    """Raise `AssumptionError` for the first relation that these sizes break."""
    for assumption in assumptions:
        if assumption.holds(sizes) is False:
            used = assumption.left.free_symbols | assumption.right.free_symbols
            given = ", ".join(f"{s}={sizes[s]}" for s in sorted(used, key=str) if s in sizes)
            raise AssumptionError(
                f"{given}: the traced program relied on {assumption}, so its formulas do not hold at these sizes; "
                "choose sizes that satisfy it, or trace again with trial sizes that do not"
            )


# -- arithmetic --------------------------------------------------------------------


def exact(expr: sympy.Expr) -> bool:
    """Whether an expression is a plain number."""
    return bool(expr.is_Integer)


@lru_cache(maxsize=100_000)
def _quotient(a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Expr, bool]:
    """a/b in lowest terms, and whether it is a polynomial with integer coefficients."""
    quotient = sympy.cancel(a / b)
    return sympy.expand(quotient), sympy.fraction(sympy.together(quotient))[1] == 1


def _floordiv(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    quotient, whole = _quotient(a, b)
    return quotient if whole or _mod(a, b) == 0 else simplify(sympy.floor(quotient), _divisible())


def _mod(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    if _quotient(a, b)[1]:
        return sympy.Integer(0)
    remainder = sympy.Mod(a, b)
    known = _divisible()
    stripped = _strip_factor(remainder)
    if isinstance(stripped, sympy.Mod) and stripped.args in known:
        return sympy.Integer(0)
    return simplify(remainder, known)


def _divisible() -> list[tuple[sympy.Expr, sympy.Expr]]:
    """What the scopes know to be divisible by what."""
    return [pair for scope in _scopes for pair in scope.divisible]


def simplify(expr: sympy.Expr, divisible: Iterable[tuple[sympy.Expr, sympy.Expr]]) -> sympy.Expr:
    """Use that dims are multiples of numbers to resolve floor, ceiling and Mod."""
    for dim, divisor in divisible:
        rounded = expr.atoms(sympy.floor, sympy.ceiling, sympy.Mod)
        if rounded and dim.is_Symbol and divisor.is_Integer and dim in expr.free_symbols:
            part = sympy.Dummy(integer=True, positive=True)
            inside = expr.xreplace({dim: divisor * part})
            parts = inside.atoms(sympy.floor, sympy.ceiling, sympy.Mod)
            resolved = inside.xreplace({r: r.func(*(sympy.expand(x) for x in r.args)) for r in parts})
            expr = sympy.expand(resolved.subs(part, dim / divisor))
    return expr


def _extreme(a: sympy.Expr, b: sympy.Expr, otherwise: Any, relation: str) -> sympy.Expr:
    if always(relation, a, b):
        return a
    return b if always(relation, b, a) else otherwise(a, b)


_EXPR: dict[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "add": lambda a, b: sympy.expand(a + b),
    "sub": lambda a, b: sympy.expand(a - b),
    "mul": lambda a, b: sympy.expand(a * b),
    "pow": lambda a, b: sympy.expand(a**b),
    "floordiv": _floordiv,
    "mod": _mod,
    "max": lambda a, b: _extreme(a, b, sympy.Max, ">="),
    "min": lambda a, b: _extreme(a, b, sympy.Min, "<="),
}
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
_known: dict[tuple[str, Any, Any], int] = {}
_KNOWN_LIMIT = 200_000


def expr_of(value: int) -> sympy.Expr:
    """The SymPy expression of an int: a `Dim`'s own, else a number."""
    return value.expr if isinstance(value, Dim) else sympy.Integer(value)


def arithmetic(op: str, a: int, b: int) -> int:
    """``a op b`` for ints of which at least one is a `Dim`: a `Dim`, or an int once no symbol is left."""
    key = (op, a.key if type(a) is Dim else int(a), b.key if type(b) is Dim else int(b))
    # What // and % give depends on what the scope knows to be divisible.
    cache = _scopes[-1].cache if op in ("floordiv", "mod") and _scopes else _known
    result = cache.get(key)
    if result is None:
        expr = _EXPR[op](expr_of(a), expr_of(b))
        value = VALUE[op](int(a), int(b))
        result = value if exact(expr) else Dim(value, expr)
        if len(cache) > _KNOWN_LIMIT:
            cache.clear()
        cache[key] = result
    return result


# -- comparisons -------------------------------------------------------------------

_decided: dict[tuple[str, sympy.Expr, sympy.Expr], bool | None] = {}


def always(relation: str, left: sympy.Expr, right: sympy.Expr) -> bool | None:
    """Whether a relation is true (or false) for all positive sizes; None when it depends on them."""
    key = (relation, left, right)
    if key not in _decided:
        if len(_decided) > _KNOWN_LIMIT:
            _decided.clear()
        _decided[key] = _decide(relation, left, right)
    return _decided[key]


def _decide(relation: str, left: sympy.Expr, right: sympy.Expr) -> bool | None:
    difference = sympy.expand(left - right)
    if difference.is_Integer:
        return bool(RELATIONS[relation](int(difference), 0))
    low = _lower_bound(difference)
    high = _lower_bound(-difference)
    if low is not None and (low > 0 or (low == 0 and relation in ("<", ">="))):
        return bool(RELATIONS[relation](1, 0)) if low > 0 else relation == ">="
    if high is not None and (high > 0 or (high == 0 and relation in (">", "<="))):
        return bool(RELATIONS[relation](-1, 0)) if high > 0 else relation == "<="
    return None


def _lower_bound(expr: sympy.Expr) -> int | None:
    """A number that an expression in positive integers never falls below, if its shifted coefficients show one."""
    expr = _without_rounding(expr)
    symbols = sorted(expr.free_symbols, key=str)
    if not expr.is_polynomial(*symbols):
        return None
    coefficients = dict(sympy.Poly(expr.subs({s: s + 1 for s in symbols}), *symbols).terms()) if symbols else {}
    constant = coefficients.pop((0,) * len(symbols), sympy.Integer(0)) if symbols else expr
    return int(sympy.ceiling(constant)) if all(c >= 0 for c in coefficients.values()) else None


def _without_rounding(expr: sympy.Expr) -> sympy.Expr:
    """Something that an expression is never less than, without floor, ceiling, Mod and Max where possible."""
    for _ in range(4):  # they nest
        atoms = sorted(expr.atoms(sympy.floor, sympy.ceiling, sympy.Mod, sympy.Max), key=str)
        if not atoms:
            break
        for atom in atoms:
            coefficient = sympy.expand(expr).coeff(atom)
            if coefficient == 0:
                continue
            symbolic = bool(coefficient.free_symbols)
            grows = all(c >= 0 for c in sympy.Poly(coefficient).coeffs()) if symbolic else coefficient > 0
            inside = atom.args[0]
            slack = 1 - 1 / sympy.fraction(sympy.together(inside))[1]
            if isinstance(atom, sympy.floor):
                bound = inside - slack if grows else inside
            elif isinstance(atom, sympy.ceiling):
                bound = inside if grows else inside + slack
            elif isinstance(atom, sympy.Mod):
                bound = sympy.Integer(0) if grows else atom.args[1] - 1
            elif grows:
                bound = atom.args[-1]
            else:
                continue
            expr = sympy.expand(expr.xreplace({atom: bound}))
    return expr


def compare(relation: str, a: int, b: int, *, by_user: bool) -> bool:
    """Compare at the trial sizes, and record what the answer assumes.

    What Python code of the model asks is recorded either way. torch itself asks
    thousands of layout questions ("is this stride that stride?") whose answer no does not matter, so
    of torch's equalities only a yes, which is a relation that the model forces, is kept.
    """
    if not _scopes:
        return bool(RELATIONS[relation](int(a), int(b)))
    if _refused and relation in ("==", "!=") and int(a) != int(b):
        _refused[-1].append((expr_of(a), expr_of(b)))
    cache = _scopes[-1].cache
    key = (relation, a.key if type(a) is Dim else int(a), b.key if type(b) is Dim else int(b), by_user)
    if key not in cache:
        cache[key] = _compare(relation, a, b, by_user)
    return bool(cache[key])


def _compare(relation: str, a: int, b: int, by_user: bool) -> bool:
    answer = bool(RELATIONS[relation](int(a), int(b)))
    left, right = expr_of(a), expr_of(b)
    if always(relation, left, right) is None:
        kept = relation if answer else _NEGATED[relation]
        if by_user or not _generic(kept, left, right):
            _scopes[-1].record(kept, left, right)
    return answer


_GENERIC_MIN, _GENERIC_MAX = 2, 2**31 - 1


def _generic(relation: str, left: sympy.Expr, right: sympy.Expr) -> bool:
    """Whether torch's question is one of layout, whose usual answer holds for all but degenerate sizes.

    "Is this axis of size 1", "is this stride larger than that one", "does this fit into an index": torch
    asks them to choose strides and index types, not to choose what is computed.
    """
    if relation == "!=":
        return True
    if relation == "==":
        return False
    relation, left, right = _normal_form(relation, left, right)
    if not exact(right):
        return False
    bound = int(right)
    return bound <= _GENERIC_MIN if relation in (">", ">=") else bound >= _GENERIC_MAX


def specialize(dim: Dim) -> None:
    """Something took the trial size for good: that is an assumption like any other."""
    if _scopes:
        _scopes[-1].record("==", dim.expr, sympy.Integer(int(dim)))


def _strip_factor(expr: sympy.Expr) -> sympy.Expr:
    """Drop the positive factors of a product: they do not matter to a comparison with 0."""
    if isinstance(expr, sympy.Mul):
        kept = [f for f in expr.args if not (f.is_positive)]
        return sympy.Mul(*kept) if kept else expr
    return expr


def _normal_form(relation: str, left: sympy.Expr, right: sympy.Expr) -> tuple[str, sympy.Expr, sympy.Expr]:
    difference = sympy.factor_terms(left - right)
    stripped = _strip_factor(difference)
    if isinstance(stripped, sympy.Mod):
        return relation, stripped, sympy.Integer(0)
    if stripped != difference:
        positive: list[sympy.Expr] = []
        negative: list[sympy.Expr] = []
        for term in sympy.Add.make_args(sympy.expand(stripped)):
            (negative if term.could_extract_minus_sign() else positive).append(term)
        left, right = sympy.Add(*positive), -sympy.Add(*negative)
    if exact(left) or (relation in ("==", "!=") and str(left) > str(right) and not exact(right)):
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(relation, relation)
        return flipped, right, left
    return relation, left, right


# -- the int -----------------------------------------------------------------------


def _binary(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Dim, other: Any) -> Any:
        return arithmetic(op, self, other) if isinstance(other, int) else NotImplemented

    def backward(self: Dim, other: Any) -> Any:
        return arithmetic(op, other, self) if isinstance(other, int) else NotImplemented

    return forward, backward


def _comparison(relation: str) -> Callable[..., Any]:
    def method(self: Dim, other: Any) -> Any:
        if isinstance(other, int):
            return compare(relation, self, other, by_user=True)
        return getattr(int, method.__name__)(int(self), other)

    method.__name__ = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[
        relation
    ]
    return method


class Dim(int):
    """An int with a symbol: its value is the trial size, ``expr`` the SymPy expression.

    Everything that an int can do works; sums, differences, products, ``//`` and ``%``
    with ints and other dims are dims again. ``float``, ``/`` and ``int(...)`` give plain
    numbers and so lose the symbol; a run at other sizes finds that out.
    """

    expr: sympy.Expr
    key: object  # what stands for the dim in dictionaries: comparing dims there would record assumptions

    def __new__(cls, size: int, expr: sympy.Expr) -> Dim:
        self = _interned.get((expr, size))
        if self is None:
            self = super().__new__(cls, size)
            self.expr = expr
            self.key = object()
            _interned[expr, size] = self
        return self

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __floordiv__, __rfloordiv__ = _binary("floordiv")
    __mod__, __rmod__ = _binary("mod")

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if isinstance(other, int) and other >= 0 and modulo is None:
            return arithmetic("pow", self, int(other))
        return int.__pow__(int(self), other, modulo)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, int) else NotImplemented

    def __neg__(self) -> Any:
        return arithmetic("mul", self, -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __round__(self, digits: Any = None) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__

    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def __bool__(self) -> bool:
        return compare("!=", self, 0, by_user=True)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __repr__(self) -> str:
        from symacct.printing import text

        return text(self.expr)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(int(self), spec)

    def __reduce__(self) -> Any:
        return Dim, (int(self), self.expr)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self


converter[Dim] = lambda dim: dim.expr
