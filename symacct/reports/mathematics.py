"""Formulas in HTML and LaTeX, ordered and shortened as in text: the structure is that of `symacct.printing.formula`."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter

from symacct.printing import common_part, formula, readable, term_key, text

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "\N{MULTIPLICATION SIGN}": r"$\times$",
    "µ": r"\textmu{}", "\N{NO-BREAK SPACE}": "~", '"': r"\textquotedbl{}",
}  # fmt: skip


def latex_text(plain: str) -> str:
    """Plain text with what LaTeX would read as commands escaped."""
    return "".join(_SPECIAL.get(sign, sign) for sign in plain)


# -- LaTeX -----------------------------------------------------------------------------


def latex_formula(expr: Any) -> str:
    """A formula in LaTeX, without dollars: names of several letters upright, products with spaces."""
    if not isinstance(expr, sympy.Basic):
        return latex_text(formula(expr)).replace(",", "{,}")
    if isinstance(expr, sympy.Max):
        common = common_part(expr.args)
        rest = sorted((sympy.expand(each - common) for each in expr.args), key=lambda e: (-len(formula(e)), formula(e)))
        maximum = rf"\max({', '.join(latex_formula(each) for each in rest)})"
        return maximum if common == 0 else f"{latex_formula(common)} + {maximum}"
    written: str = _PRINTER.doprint(readable(expr))
    return written.replace(r"\left(", "(").replace(r"\right)", ")")  # which TeX may break a line inside of


class _Latex(LatexPrinter):  # type: ignore[misc]
    """SymPy's LaTeX, with the order of terms of `symacct.printing`."""

    def _as_ordered_terms(self, expr: sympy.Expr, order: Any = None) -> list[sympy.Expr]:
        terms = sorted(expr.args, key=term_key)
        opening = next((t for t in terms if not t.could_extract_minus_sign()), terms[0])
        terms.remove(opening)
        return [opening, *terms]

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> str:  # noqa: N802 (SymPy's names)
        return latex_name(expr.name)

    def _print_Max(self, expr: sympy.Max, exp: Any = None) -> str:  # noqa: N802
        inner = rf"\max({', '.join(latex_formula(each) for each in sorted(expr.args, key=text))})"
        return inner if exp is None else f"{inner}^{{{exp}}}"


_PRINTER = _Latex({"mul_symbol": r" \, ", "order": None})


def latex_name(name: str) -> str:
    """A dim's name: one letter as it is, with a number below it, and words upright."""
    match = re.fullmatch(r"([^\W\d_])_?(\d+)", name)
    if match:
        return f"{match[1]}_{{{match[2]}}}"
    return name if len(name) == 1 else rf"\mathrm{{{latex_text(name)}}}"


# -- HTML ------------------------------------------------------------------------------

_TOKEN = re.compile(r"(\*\*)(\w+|\([^()]*\))|(\*)|(//)|([^\W\d]\w*)(\()?|(.)", re.DOTALL)


def html_formula(expr: Any) -> str:
    """A formula in HTML: dims as ``<var>``, powers as ``<sup>``, a thin space between factors.

    Browsers do not break MathML into lines, which closed forms need, so that it is plain text with marks.
    """
    return html_of(formula(expr))


def html_of(plain: str) -> str:
    """A formula that `symacct.printing` wrote, in HTML."""
    return _TOKEN.sub(_marked, plain)


def _marked(match: re.Match[str]) -> str:
    if match[1]:
        return f"<sup>{html_of(match[2])}</sup>"
    if match[3]:
        number = match.string[match.end() : match.end() + 1].isdigit()  # 12 24 would be another one
        return "\N{NARROW NO-BREAK SPACE}" + ("\N{MULTIPLICATION SIGN}\N{NARROW NO-BREAK SPACE}" if number else "")
    if match[4]:
        return "\N{NARROW NO-BREAK SPACE}//\N{NARROW NO-BREAK SPACE}"
    if match[5]:
        word = ' class="word"' if len(match[5]) > 1 else ""
        return f"{match[5]}(" if match[6] else f"<var{word}>{escape(match[5])}</var>"
    return {"-": "\N{MINUS SIGN}"}.get(match[7], escape(match[7]))
