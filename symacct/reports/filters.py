"""The filters of templates: values with units, formulas in three notations, what a figure is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from symacct.account import Account
from symacct.errors import UnitError
from symacct.formulas.growth import leading as leading_of
from symacct.formulas.terms import express as express_of
from symacct.parts import Phase
from symacct.printing import formula as formula_text
from symacct.reports.dimensions import unit_text
from symacct.reports.figures import Figure, Given, Leaf, must_be
from symacct.reports.figures import figure as figure_of
from symacct.reports.forms import Form
from symacct.reports.mathematics import latex_formula
from symacct.reports.provenance import Provenance, percent, provenance, terms
from symacct.reports.views import View
from symacct.units import show

_IN_FULL = 10**15
_BRIEF = 4  # a peak that has more moments to choose from is a page of its own
_PLAIN = {"bytes": "B", "flops": "FLOP", "seconds": "s", "tokens": "tokens", "percent": "%"}


def filters(form: Form) -> dict[str, Callable[..., Any]]:
    """All filters by name, for a form of report."""
    by_name: dict[str, Callable[..., Any]] = {name: _shows(name, unit) for name, unit in _PLAIN.items()}
    own = (at, value, rate, money, si, binary, number, formula, brief, latex, leading, express, figure)
    by_name |= {each.__name__: each for each in own}
    by_name |= {"int": whole, "float": real, "provenance": _provenance, "terms": _terms}

    def math(value: Any) -> Markup:
        return form.math(_figure(value, "math").formula)

    def code(value: Any) -> Markup:
        return form.code(value)

    def share(value: Any, digits: int = 3) -> Markup:
        found = _figure(value, "share")
        must_be(found, "", "share")
        return form.share(float(found.value), percent(float(found.value), digits))

    def closed(value: Any) -> Markup:
        return _closed(form, _figure(value, "closed"))

    def shown(value: Any, digits: int = 3, binary: bool = False, depth: int | None = None, top: int = 4) -> Markup:
        return _shown(form, _figure(value, "shown"), digits, binary, depth, top)

    def join(value: Any, between: str = "", attribute: str | None = None) -> Any:
        parts = list(value) if attribute is None else [getattr(each, attribute) for each in value]
        return joined(form, [each for i, part in enumerate(parts) for each in ((between, part) if i else (part,))])

    return by_name | {"join": join, "math": math, "code": code, "share": share, "closed": closed, "shown": shown}


def joined(form: Form, parts: Iterable[Any]) -> str:
    """Texts in a row; what is plain is escaped where something else is not, in the form's own way."""
    texts = list(parts)
    if not any(hasattr(each, "__html__") for each in texts):
        return "".join(map(str, texts))
    return Markup("").join(each if hasattr(each, "__html__") else form.text(each) for each in texts)


def _figure(value: Any, name: str) -> Figure:
    if isinstance(value, jinja2.Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, View) and isinstance(value._part, Phase):
        value = value.flops
    if isinstance(value, Phase):
        value = value.flops
    try:
        return figure_of(value)
    except UnitError:
        what = "nothing (None)" if value is None else f"a {type(value).__name__}"
        raise UnitError(f"| {name} shows a figure, an expression or a number, not {what}") from None


# -- values ----------------------------------------------------------------------------


def _shows(name: str, unit: str) -> Callable[..., str]:
    """A filter for amounts of one unit."""

    def showing(value: Any, digits: int = 3, binary: bool = False) -> str:
        found = _figure(value, name)
        must_be(found, {"%": ""}.get(unit, unit), name)
        return show(found.value, unit, digits, binary)

    showing.__name__ = showing.__qualname__ = name
    return showing


def at(value: Any, **sizes: int) -> Any:
    """An account, a part of one, a figure or an expression at sizes."""
    if isinstance(value, (View, Account)):
        return value.at(**sizes)
    return _figure(value, "at").at(**sizes)


def value(value: Any, digits: int = 3, binary: bool = False) -> str:
    """The value in the figure's own unit; a whole number without a unit in full."""
    found = _figure(value, "value")
    if not found.unit and isinstance(found.value, int) and abs(found.value) < _IN_FULL:
        return formula_text(found.value)
    return found.shown(digits, binary)


def figure(value: Any, path: str) -> Figure:
    """The figure of an account that has this name, such as "forward.flops"."""
    if not isinstance(value, View):
        raise UnitError(f"| figure takes an account, not a {type(value).__name__}")
    return value.figure(path)


def rate(value: Any, unit: str = "", digits: int = 3) -> str:
    """An amount per second; a number without a unit needs one: ``rate("B/s")``."""
    found = _figure(value, "rate")
    own = unit_text(found.unit or ())
    if not own and not unit:
        raise UnitError('| rate does not know of what; say it, as in rate("FLOP/s") or rate("B/s")')
    if not (unit or own).endswith("/s"):
        raise UnitError(f"| rate shows amounts per second, and {found.name or 'this'} is in {own or unit}")
    if own and unit:
        must_be(found, unit, "rate")
    return show(found.value, unit or own, digits)


def money(value: Any) -> str:
    """US dollars."""
    found = _figure(value, "money")
    must_be(found, "USD", "money")
    return show(found.value, "USD")


def si(value: Any, unit: str = "", digits: int = 3) -> str:
    """A number with an SI prefix and a unit: ``si("FLOP", 4)``. The figure's own unit where none is given."""
    found = _figure(value, "si")
    own = unit_text(found.unit or ())
    if unit and own:
        must_be(found, unit, "si")
    unit = unit or own
    # Without a unit there would be no prefix.
    return show(found.value, unit, digits) if unit else show(found.value, "x", digits).removesuffix("x").strip()


def binary(value: Any, digits: int = 3) -> str:
    """Bytes with a binary prefix: "1.5 GiB"."""
    found = _figure(value, "binary")
    must_be(found, "B", "binary")
    return show(found.value, "B", digits, binary=True)


def number(value: Any) -> str:
    """The exact number with commas: "1,234,567"."""
    return formula_text(_figure(value, "number").value)


def whole(value: Any) -> int:
    """A whole number to calculate with; there is no other to fall back to where sizes are missing."""
    return int(value) if isinstance(value, str) else int(_figure(value, "int").value)


def real(value: Any) -> float:
    """A number with a point to calculate with."""
    return float(value) if isinstance(value, str) else float(_figure(value, "float").value)


# -- formulas --------------------------------------------------------------------------


def formula(value: Any) -> str:
    """The formula as text."""
    return formula_text(_figure(value, "formula").formula)


def latex(value: Any) -> Markup:
    """The formula in LaTeX, without dollars."""
    return Markup(latex_formula(_figure(value, "latex").formula))


def brief(value: Any) -> str:
    """The formula as text, or of a peak with many moments their number."""
    found = _figure(value, "brief")
    return _instead(found) or formula(found)


def _instead(found: Figure) -> str:
    """What is said instead of a formula that there is none of, or that is a page of its own; "" for the others."""
    if not isinstance(found, Leaf):
        return ""
    if found.refusal:
        return f"no closed form: {found.refusal}"
    moments = len(found.account.symbolic.memory.candidates) if found.name.endswith("peak_bytes") else 0
    return f"the largest of {moments} moments" if moments > _BRIEF else ""


def leading(value: Any, *large: str, **powers: int) -> Figure:
    """The terms of highest order as dims grow: ``leading("L")``, ``leading(L=1, D=2)``."""
    found = _figure(value, "leading")
    return Given(leading_of(found.formula, *large, **powers), found.unit, found.name, _sizes(found))


def express(value: Any, **names: Any) -> Figure:
    """The formula in other names: ``express(D="H*Dh")``."""
    found = _figure(value, "express")
    return Given(express_of(found.formula, **names), found.unit, found.name)


def _sizes(found: Figure) -> Mapping[str, int]:
    if isinstance(found, Leaf):
        return found.account.sizes or found.given
    return getattr(found, "sizes", {})


# -- where it comes from ---------------------------------------------------------------


def _provenance(value: Any, depth: int | None = None, top: int = 6) -> Provenance:
    return provenance(_figure(value, "provenance"), depth, top)


def _terms(value: Any) -> Provenance:
    return Provenance("terms", tuple(terms(_figure(value, "terms"))))


def _shown(form: Form, found: Figure, digits: int, binary: bool, depth: int | None, top: int) -> Markup:
    """Formula, value and provenance together."""
    out = _closed(form, found)
    if found.known and bool(getattr(found.formula, "free_symbols", None)):
        out += form.text(f" = {found.shown(digits, binary)}")
    made = provenance(found, depth, top)
    if (len(made) < 2 and not made.note) or (made.by == "terms" and not found.known):
        return out  # a formula shows its terms
    out += form.text(f"; {made.by}: ")
    for i, part in enumerate(made):
        out += form.text(", " if i else "") + form.code(part.name)
        out += form.text(f" {percent(part.share)}") if part.share is not None else " = " + form.math(part.formula)
    return out + (form.text(f" ({made.note})") if made.note else Markup(""))


def _closed(form: Form, found: Figure) -> Markup:
    """The formula in the form's own notation, or what is said instead."""
    words = _instead(found)
    return form.text(words) if words else form.math(found.formula)
