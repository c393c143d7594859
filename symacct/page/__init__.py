"""One HTML file in which the sizes of a model can be moved: `to_html`.

`content` says in JSON what a page knows, with all formulas as one JavaScript function (`javascript`); what stands in
``static/`` computes and draws; ``vendor/`` has the libraries that it uses, as they were published.
"""

from symacct.page.rendering import to_html

__all__ = ["to_html"]
