"""Accounts, phases and tables as notebooks show them: HTML with set formulas, and LaTeX of what is one formula.

`pages` tells what is shown of an object, `html` writes it, `showing` is what Jupyter asks for. Plain text stays what
``repr()`` gives.
"""

from symacct.notebook.html import to_html
from symacct.notebook.showing import mimebundle, to_latex

__all__ = ["mimebundle", "to_html", "to_latex"]
