"""Figures: amounts that know their formula, their unit, and from which part of which account they come."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.assumptions import require
from symacct.cost import Size
from symacct.dim import check_size, point
from symacct.errors import MissingSizeError, StructuralError, UnitError, UnknownDimError
from symacct.printing import formula
from symacct.reports.dimensions import Unit, joined, unit_of, unit_text, unit_words
from symacct.units import show

# -- figures ---------------------------------------------------------------------------


class Figure:
    """An amount in a report: a formula in dims, its value where sizes are known, its unit (None: not known), its name.

    Figures add, multiply and divide with each other and with numbers, units included. ``str()`` is the value with
    three digits where sizes are known, else the formula.
    """

    name: str = ""
    unit: Unit | None = None

    @property
    def formula(self) -> Size:
        """A SymPy expression or a number."""
        raise NotImplementedError

    @property
    def value(self) -> Any:
        """The number at the figure's sizes. Raises `MissingSizeError` where it has none."""
        raise NotImplementedError

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        raise NotImplementedError

    def at(self, **sizes: int) -> Figure:
        """The figure at sizes."""
        raise NotImplementedError

    def shown(self, digits: int = 3, binary: bool = False) -> str:
        """The value with its unit."""
        return show(self.value, unit_text(self.unit or ()), digits, binary)

    def __str__(self) -> str:
        return self.shown() if self.known else formula(self.formula)

    def __repr__(self) -> str:
        return f"<Figure {self.name}>"

    # -- arithmetic ----------------------------------------------------------------------

    def __add__(self, other: Any) -> Figure:
        return _Combined("+", operator.add, self, other)

    def __radd__(self, other: Any) -> Figure:
        return self if isinstance(other, int) and other == 0 else _Combined("+", operator.add, other, self)

    def __sub__(self, other: Any) -> Figure:
        return _Combined("-", operator.sub, self, other)

    def __rsub__(self, other: Any) -> Figure:
        return _Combined("-", operator.sub, other, self)

    def __mul__(self, other: Any) -> Figure:
        return _Combined("*", operator.mul, self, other)

    def __rmul__(self, other: Any) -> Figure:
        return _Combined("*", operator.mul, other, self)

    def __truediv__(self, other: Any) -> Figure:
        return _Combined("/", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Figure:
        return _Combined("/", operator.truediv, other, self)

    def __neg__(self) -> Figure:
        return _Combined("*", operator.mul, -1, self)

    # -- as a number ---------------------------------------------------------------------

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.formula != 0)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _value(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= _value(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > _value(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= _value(other))

    def __eq__(self, other: object) -> bool:
        known = self.known and (not isinstance(other, Figure) or other.known)
        pair = (self.value, _value(other)) if known else (self.formula, _formula(other))
        return bool(pair[0] == pair[1])

    __hash__ = None  # type: ignore[assignment]  # equal formulas may have other names


class Given(Figure):
    """A number or an expression with a unit: what a device does, or what a question has as its answer."""

    def __init__(self, amount: Any, unit: Unit | None, name: str = "", sizes: Mapping[str, int] | None = None) -> None:
        self.amount, self.unit, self.name, self.sizes = amount, unit, name, dict(sizes or {})

    @property
    def formula(self) -> Size:
        """The amount as it was given."""
        return self.amount

    @property
    def known(self) -> bool:
        """Whether every dim of it has a size."""
        return all(s.name in self.sizes for s in getattr(self.amount, "free_symbols", ()))

    @property
    def value(self) -> Any:
        """The number at the given sizes."""
        return evaluated(self.amount, self.sizes, self.name)

    def at(self, **sizes: int) -> Figure:
        """The same at sizes."""
        checked = {name: check_size(name, size) for name, size in sizes.items()}
        return Given(self.amount, self.unit, self.name, {**self.sizes, **checked})


class Told(Figure):
    """A formula and its value, both worked out elsewhere (None: no sizes are known)."""

    def __init__(self, name: str, expr: Any, unit: Unit | None, value: Any = None) -> None:
        self.name, self.unit = name, unit
        self._formula, self._value = expr, value

    @property
    def formula(self) -> Size:
        """The formula."""
        return self._formula

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self._value is not None or not getattr(self._formula, "free_symbols", ())

    @property
    def value(self) -> Any:
        """The value."""
        return self._value if self._value is not None else evaluated(self._formula, {}, self.name)

    def at(self, **sizes: int) -> Figure:
        """The formula at sizes."""
        return Given(self._formula, self.unit, self.name).at(**sizes)


class Leaf(Figure):
    """A figure of an account, or of a part of one; ``get`` takes it from the account in formulas or at sizes."""

    def __init__(
        self, account: Account, get: Callable[[Account], Size], name: str, unit: Unit | None, part: Any = None,
        given: Mapping[str, int] | None = None, at_sizes: Callable[[Account, Mapping[str, int]], Account] | None = None,
    ) -> None:  # fmt: skip
        self.account, self.get, self.name, self.unit, self.part = account, get, name, unit, part
        self.given = dict(given or {})
        self._at_sizes = at_sizes or (lambda a, sizes: a.at(**sizes))

    @cached_property
    def formula(self) -> Size:
        """The closed form. Raises `StructuralError` where there is none."""
        return self.get(self.account.symbolic)

    @property
    def refusal(self) -> str:
        """Why there is no closed form; "" where there is one."""
        try:
            _ = self.formula
        except StructuralError as error:
            return str(error)
        return ""

    @property
    def known(self) -> bool:
        """Whether the account is at sizes, or enough of them were given."""
        if self.account.sizes is not None:
            return True
        if self.refusal:
            return False
        return all(s.name in self.given for s in getattr(self.formula, "free_symbols", ()))

    @cached_property
    def value(self) -> Any:
        """The account's own number at its sizes; where only some are given, the formula's."""
        if self.account.sizes is not None:
            return self.get(self.account)
        return evaluated(self.formula, self.given, self.name)

    def at(self, **sizes: int) -> Figure:
        """The figure at sizes, of which those of an account that has some are a part.

        Raises `UnknownDimError` for a name that is no dim of the account, `AssumptionError` for sizes that break what
        the trace relied on, `MissingSizeError` for a dim of the formula without a size.
        """
        account = self.account.symbolic
        for name in sizes:
            if name not in account.trial_sizes:
                known = ", ".join(account.trial_sizes) or "none"
                raise UnknownDimError(f"at(): there is no dim {name!r}; the account's dims are {known}")
        given = {**(self.account.sizes or self.given)}
        given |= {name: check_size(name, size) for name, size in sizes.items()}
        if all(name in given for name in account.dims):
            account = self._at_sizes(account, given)
            return Leaf(account, self.get, self.name, self.unit, self.part, None, self._at_sizes)
        require(account.assumptions, point(given))
        found = Leaf(account, self.get, self.name, self.unit, self.part, given, self._at_sizes)
        _ = found.value  # or the sizes are not enough
        return found

    def __bool__(self) -> bool:
        return bool(self.refusal) or super().__bool__()


class _Combined(Figure):
    """Two figures, or a figure and a number, put together."""

    def __init__(self, sign: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> None:
        self.sign, self.operation, self.left, self.right = sign, operation, left, right
        names = [_name(each) for each in (left, right)]
        self.name = f"({names[0]} {sign} {names[1]})"
        self.unit = self._unit(*(each.unit if isinstance(each, Figure) else () for each in (left, right)))

    def _unit(self, left: Unit | None, right: Unit | None) -> Unit | None:
        if left is None or right is None:
            return None
        if self.sign in "*/":
            return joined(dict(left), dict(right), 1 if self.sign == "*" else -1)
        plain = [each for each in (self.left, self.right) if not isinstance(each, Figure)]
        if left != right and not plain:
            raise UnitError(
                f"{self.name}: {_name(self.left)} is in {unit_words(left)} and {_name(self.right)} in "
                f"{unit_words(right)}, which do not add up"
            )
        return left or right

    @cached_property
    def formula(self) -> Size:
        """The two formulas put together."""
        if self.sign != "/":
            return self.operation(_formula(self.left), _formula(self.right))
        above, below = (sympy.sympify(_formula(each)) for each in (self.left, self.right))
        if below == 0:
            raise UnitError(f"{self.name}: {_name(self.right)} is 0")
        return above / below if above.has(sympy.Max) or below.has(sympy.Max) else sympy.cancel(above / below)

    @property
    def known(self) -> bool:
        """Whether both have values."""
        return all(each.known for each in (self.left, self.right) if isinstance(each, Figure))

    @cached_property
    def value(self) -> Any:
        """The two values put together."""
        left, right = _value(self.left), _value(self.right)
        if self.sign == "/" and right == 0:
            raise UnitError(f"{self.name}: {_name(self.right)} is 0")
        found = self.operation(left, right)
        return found

    def at(self, **sizes: int) -> Figure:
        """Both at sizes."""
        left, right = (each.at(**sizes) if isinstance(each, Figure) else each for each in (self.left, self.right))
        return _Combined(self.sign, self.operation, left, right)


# -- what filters take -----------------------------------------------------------------


def figure(value: Any, name: str = "") -> Figure:
    """A figure as it is; a number, an expression or anything with ``flops`` as a figure without a known unit."""
    if isinstance(value, Figure):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, sympy.Expr)):
        try:
            value = sympy.sympify(value, strict=True)
        except sympy.SympifyError:
            value = None
        if not isinstance(value, sympy.Expr):
            raise UnitError("expected a figure, an expression or a number")
    return Given(value, None, name)


def evaluated(expr: Any, sizes: Mapping[str, int], name: str = "") -> Any:
    """A number, or an expression's value at sizes. Raises `MissingSizeError` with what is missing."""
    missing = sorted(s.name for s in getattr(expr, "free_symbols", ()) if s.name not in sizes)
    if missing:
        example = ", ".join(f"{each}=..." for each in missing)
        what = name or "this formula"
        raise MissingSizeError(
            f"no size for {', '.join(missing)}, which {what} depends on; put | at({example}) before the filter, "
            "or give the report sizes"
        )
    return evaluate(expr, sizes)


def _name(each: Any) -> str:
    return (each.name or formula(each.formula)) if isinstance(each, Figure) else formula(each)


def _value(each: Any) -> Any:
    return each.value if isinstance(each, Figure) else evaluated(each, {})


def _formula(each: Any) -> Any:
    return each.formula if isinstance(each, Figure) else each


def must_be(what: Figure, unit: str, filter_name: str) -> None:
    """Raise `UnitError` where a figure is in another unit than a filter shows."""
    if what.unit is not None and what.unit != unit_of(unit):
        own = f"in {unit_words(what.unit)}" if what.unit else "a bare number"
        shown = unit_words(unit_of(unit)) if unit else "bare numbers"
        raise UnitError(f"{what.name or 'the figure'} is {own}, where | {filter_name} shows {shown}")
