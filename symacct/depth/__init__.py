"""Dims that change the graph, such as depth: every figure a polynomial in them, proven or refused.

`fitting` finds polynomials, `templates` the modules that count layers, `skeleton` what repeats in a sequence of nodes,
`memory` the moments that can be the peak, `structural` the account.
"""
