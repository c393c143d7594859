"""How expressions and quantities look to people. One printer writes every expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from sympy.printing.str import StrPrinter


def term_key(term: sympy.Expr) -> tuple[Any, ...]:
    """Order of terms in a sum: higher degree first, then more dims, then by name; numbers last."""
    powers = term.as_powers_dict()
    names = sorted((str(b), e) for b, e in powers.items() if not b.is_number)
    degree = sum(e for _, e in names if getattr(e, "is_number", False))
    return (-degree, -len(names), [(n, str(e)) for n, e in names], str(term))


class _Printer(StrPrinter):  # type: ignore[misc]
    """SymPy's own printer, with sums ordered so that ``2*B*D*K`` stands before ``2*B*D**2``."""

    def _print_Add(self, expr: sympy.Expr, order: Any = None) -> str:
        terms = sorted(expr.args, key=term_key)
        opening = next((t for t in terms if not t.could_extract_minus_sign()), terms[0])
        terms.remove(opening)
        out = self._factor(opening)
        for term in terms:
            out += f" - {self._factor(-term)}" if term.could_extract_minus_sign() else f" + {self._factor(term)}"
        return out

    def _factor(self, term: sympy.Expr) -> str:
        return f"({self._print(term)})" if term.is_Add else str(self._print(term))

    def _print_Mod(self, expr: sympy.Expr) -> str:
        a, b = (self._print(x) if x.is_Symbol or x.is_Integer else f"({self._print(x)})" for x in expr.args)
        return f"{a} % {b}"

    def _print_floor(self, expr: sympy.Expr) -> str:
        numerator, denominator = sympy.fraction(sympy.together(expr.args[0]))
        if denominator == 1:
            return f"floor({self._print(expr.args[0])})"
        closed = numerator.is_Symbol or isinstance(numerator, sympy.floor)
        top = self._print(numerator) if closed else f"({self._print(numerator)})"
        bottom = (
            self._print(denominator)
            if denominator.is_Symbol or denominator.is_Integer
            else f"({self._print(denominator)})"
        )
        return f"({top}//{bottom})"


_PRINTER = _Printer()


def text(expr: Any) -> str:
    """An expression on one line, as it stands.

    >>> text(sympy.sympify("2*B*D**2 + 2*B*D*K"))
    '2*B*D*K + 2*B*D**2'
    """
    return str(_PRINTER.doprint(sympy.sympify(expr)))


def formula(expr: Any) -> str:
    """An expression as people want to read it: a number, a short sum, or a longer one with its common factor drawn out.

    >>> formula(sympy.sympify("24*B*L*D**2 + 4*B*D*L**2 + 2*B*D*L*V"))
    '2*B*D*L*(12*D + 2*L + V)'
    """
    if expr is None:
        return "-"
    if not isinstance(expr, sympy.Basic):
        return f"{expr:,}" if isinstance(expr, int) else f"{expr:.4g}"
    return _maximum(expr) if isinstance(expr, sympy.Max) else text(readable(expr))


def readable(expr: sympy.Expr) -> sympy.Expr:
    """An expression expanded, or with its common factor drawn out where that makes a longer sum shorter."""
    expanded = expr if expr.is_Atom else sympy.expand(expr)
    if expanded.is_Add and len(expanded.args) > 2:
        short = sympy.gcd_terms(expanded, clear=False)
        if len(text(short)) < len(text(expanded)):
            return short
    return expanded


def multiple(times: int, total: Any) -> str:
    """A sum of so many equal parts, as their number times one of them.

    >>> multiple(12, sympy.sympify("24*B*D**2 + 12*B*D"))
    '12*(2*B*D**2 + B*D)'
    """
    one = formula(sympy.expand(sympy.sympify(total) / times))
    if one == "0":
        return one
    outside, depth = [], 0
    for sign in one:
        depth += (sign == "(") - (sign == ")")
        outside.append(sign if depth == 0 else "")
    is_sum = any(sign in "".join(outside) for sign in (" + ", " - "))
    return f"{times}*({one})" if is_sum else f"{times}*{one}"


def common_part(exprs: Sequence[Any]) -> Any:
    """The terms that all sums have, each with its least coefficient, so that what is left of them is not negative."""
    terms = [sympy.expand(each).as_coefficients_dict() for each in exprs]
    least = {monomial: min(t[monomial] for t in terms) for monomial in terms[0]}
    return sympy.Add(*(c * monomial for monomial, c in least.items() if c > 0))


def _maximum(expr: sympy.Max) -> str:
    """What all arguments have in common first, then ``Max(...)`` of the rest.

    >>> B, D = sympy.symbols("B D")
    >>> formula(sympy.Max(2*B*D + 8*D**2, 4*B*D + 4*D**2, evaluate=False))
    '2*B*D + 4*D**2 + Max(4*D**2, 2*B*D)'
    """
    common = common_part(expr.args)
    rest = sorted((formula(sympy.expand(each - common)) for each in expr.args), key=lambda s: (-len(s), s))
    inner = f"Max({', '.join(rest)})"
    return inner if common == 0 else f"{formula(common)} + {inner}"


_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def quantity(value: Any, unit: str = "") -> str:
    """A number with an SI prefix and four digits.

    >>> quantity(43980465111040, "FLOP")
    '43.98 TFLOP'
    """
    if isinstance(value, sympy.Basic):
        return formula(value)
    power = 0
    scaled = float(value)
    while abs(scaled) >= 999.95 and power < len(_PREFIXES) - 1:
        scaled /= 1000
        power += 1
    digits = f"{value:,}" if power == 0 and float(value).is_integer() else f"{scaled:.4g}"
    return f"{digits} {_PREFIXES[power]}{unit}".strip()
