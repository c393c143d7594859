"""What shows itself in notebooks: methods that Jupyter asks for, on the classes whose objects people look at."""

from __future__ import annotations

from collections.abc import Collection


class Shown:
    """A base of what has a page in a notebook. What the page says is in `symacct.notebook`, imported when asked for."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from symacct.notebook import to_html

        return to_html(self)

    def _repr_latex_(self) -> str | None:
        from symacct.notebook import to_latex

        return to_latex(self)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from symacct.notebook import mimebundle

        return mimebundle(self, include, exclude)
