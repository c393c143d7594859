"""Reports from Jinja2 templates, in Markdown, HTML and LaTeX."""

from symacct.errors import ReportError
from symacct.reports.rendering import BUILT_IN, render, write

__all__ = ["BUILT_IN", "ReportError", "render", "write"]
