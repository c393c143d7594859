"""Published formulas, each with a trace that proves it.

`entry` says what is proven, `language` has the papers' language models, the other modules the entries by subject, and
`page` writes docs/published.md.
"""
