"""What is proven of a published formula: the traced expression, the published one, and all that lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import sympy

import symacct as sa
from symacct.algebra import evaluate
from symacct.dim import symbol
from symacct.formulas.expressions import read
from symacct.formulas.terms import express


def symbols(names: str) -> Any:
    """The symbols of dims, as a trace has them: `symbols("B T")` are two of them."""
    found = tuple(symbol(name) for name in names.split())
    return found if len(found) > 1 else found[0]


@dataclass(frozen=True)
class Number:
    """A published number at sizes: a whole number (an int), or the digits that are printed ("540.35e9").

    ``over``: where a ratio is published, what the figure is divided by, in the symbols of the paper.
    """

    label: str
    sizes: Mapping[str, int]
    published: int | str
    over: Any = 1


@dataclass(frozen=True)
class Figure:
    """A quantity of an account beside what is published for it.

    ``measure`` reads it from the account, in formulas or, of ``account.at(...)``, in numbers. ``published`` and
    ``differences`` (what the trace has beside it, each with the reason) are in the symbols of the paper.
    ``per``: dims that the quantity is divided by, such as tokens. ``names``: instead of those of the proof.
    """

    name: str
    account: sa.Account
    measure: Callable[[Any], Any]
    published: Any
    differences: tuple[tuple[Any, str], ...] = ()
    numbers: tuple[Number, ...] = ()
    per: str = ""
    names: Mapping[str, Any] | None = None

    @property
    def traced(self) -> Any:
        """The quantity as it was traced, a SymPy expression."""
        return sympy.expand(sympy.sympify(self.measure(self.account)) / self._divisor)

    @property
    def difference(self) -> Any:
        """All that the trace has and the formula has not."""
        return sympy.Add(*(term for term, _ in self.differences))

    @property
    def _divisor(self) -> Any:
        return sympy.Mul(*map(symbol, self.per.split()))

    def value(self, sizes: Mapping[str, int]) -> int:
        """The quantity at sizes, read from the account in numbers. Raises `ValueError` where it is no whole number."""
        found, rest = divmod(self.measure(self.account.at(**sizes)), int(evaluate(self._divisor, sizes)))
        if rest:
            raise ValueError(f"{self.name}: no whole number for each of {self.per}")
        return found


@dataclass(frozen=True)
class Proof:
    """What a trace gives: ``how`` it was made, its figures, and ``names`` of the paper for products of traced dims."""

    how: str
    figures: tuple[Figure, ...]
    names: Mapping[str, Any] = field(default_factory=dict)

    def plain(self, expr: Any, figure: Figure) -> Any:
        """A formula of the paper in the dims of the trace."""
        values = {symbol(name): read(value) for name, value in self.names_of(figure).items()}
        return sympy.expand(sympy.sympify(expr).xreplace(values))

    def shown(self, figure: Figure) -> Any:
        """The traced formula, in those names of the paper that its formula has and the trace has not."""
        traced, paper = figure.traced, sympy.sympify(figure.published) + figure.difference
        wanted = {n: read(v) for n, v in self.names_of(figure).items() if symbol(n) in paper.free_symbols}
        return express(
            traced, **{n: v for n, v in wanted.items() if v.free_symbols and symbol(n) not in traced.free_symbols}
        )

    def names_of(self, figure: Figure) -> Mapping[str, Any]:
        """The names of the paper for products of traced dims, as one figure uses them."""
        return self.names if figure.names is None else figure.names

    def left(self, figure: Figure) -> Any:
        """Traced less published less differences: 0 is the proof."""
        return sympy.expand(
            figure.traced - self.plain(figure.published, figure) - self.plain(figure.difference, figure)
        )

    def less(self, figure: Figure, number: Number) -> int:
        """What the trace has beside the published number, at its sizes."""
        return int(evaluate(self.plain(figure.difference, figure), number.sizes))

    def value(self, figure: Figure, number: Number) -> int | Fraction:
        """The number that must be the published one: traced, at its sizes, less the differences."""
        found = figure.value(number.sizes) - self.less(figure, number)
        over = int(evaluate(self.plain(number.over, figure), number.sizes))
        return found if number.over == 1 else Fraction(found, over)


@dataclass(frozen=True)
class Entry:
    """One published statement: its ids in the napkin-math reference, where it is from, and how it is proven."""

    ids: str
    title: str
    source: str
    statement: str
    prove: Callable[[], Proof]
    slow: bool = False


@cache
def proof_of(entry: Entry) -> Proof:
    """The proof, traced once."""
    return entry.prove()


def rounded(value: int | Fraction, printed: str) -> str:
    """A number with as many digits as are printed: ``rounded(540354281472, "540.35e9")`` is "540.35e9"."""
    shown, exact = Decimal(printed), Fraction(value)
    digits = Decimal((0, (1,), int(shown.as_tuple().exponent)))
    found = (Decimal(exact.numerator) / exact.denominator).quantize(digits, ROUND_HALF_UP)
    return printed if found == shown else str(found)


def agrees(value: int | Fraction, published: int | str) -> bool:
    """Whether a number is the published one, or rounds to its digits."""
    return value == published if isinstance(published, int) else rounded(value, published) == published
