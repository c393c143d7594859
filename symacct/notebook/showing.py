"""What Jupyter asks an object for, by MIME type."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from symacct.notebook.html import to_html
from symacct.notebook.pages import kind_of, page_of
from symacct.reports.mathematics import latex_formula


def to_latex(what: Any) -> str | None:
    """The FLOP of an account (all phases) or of a phase as a formula between dollars; None for what is no formula."""
    if kind_of(what) not in ("Account", "Expressed", "Phase"):
        return None
    flops = getattr(getattr(what, "total", what), "flops", None)
    return None if flops is None else f"${latex_formula(flops)}$"


def mimebundle(
    what: Any, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> dict[str, str]:
    """All forms of an object by MIME type, of those that are asked for.

    Plain text is left to ``repr()``, but where that would be an address or a list of all fields it is ``str()``.
    """
    makers: dict[str, Callable[[Any], str | None]] = {
        "text/html": to_html, "text/latex": to_latex, "text/plain": _plain,
    }  # fmt: skip
    wanted = [kind for kind in makers if (not include or kind in include) and kind not in (exclude or ())]
    made = {kind: makers[kind](what) for kind in wanted}
    return {kind: text for kind, text in made.items() if text is not None}


def _plain(what: Any) -> str | None:
    kind: Any = type(what)
    own = kind.__repr__
    lists_fields = hasattr(own, "__wrapped__")  # as those that dataclasses get
    if kind.__str__ is not object.__str__ and (own is object.__repr__ or lists_fields):
        return str(what)
    return f"<{kind.__name__}: {page_of(what).heading[0]}>" if own is object.__repr__ else None
