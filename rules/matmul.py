"""Matrix products.

Counted: 2 FLOP per multiply-add, so a contraction of length k over n outputs is 2*n*k
(the strict count is n*(2*k-1)). Bias and beta terms are pointwise. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Size
from symacct.rule import Rules

rules = Rules("matrix products")


@rules.flops("aten.mm", "m k, k n -> m n")
@rules.flops("aten.bmm", "b m k, b k n -> b m n")
@rules.flops("aten.addmm", "_, m k, k n -> m n")
def matmul(m: Size, k: Size, n: Size, b: Size = 1) -> Size:
    """Each of the b*m*n outputs sums k products. Source: Golub & Van Loan, Matrix Computations 1.1."""
    return 2 * b * m * k * n
