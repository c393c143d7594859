"""Fourier transforms, distances and linear algebra.

Transforms and factorisations are models, not exact: what an algorithm needs depends on the library and partly on
the data. They are pointwise, so that `flops` holds exact contractions only. Units: FLOP.

    Fourier, length n        5*n*log2(n), half of it for real input or output (log2 rounded up)
    Cholesky                 sum of i**2 = n**3/3 to leading order
    LU, m x n                sum of (m - i) + 2*(m - i)*(n - i) = 2*n**3/3 for square matrices
    QR, Householder          sum of 4*(m - i)*(n - i) = 4*n**3/3 for R, as much again for Q
    triangular solve         n**2 per right-hand side
    symmetric eigenvalues    4*n**3/3, with vectors 9*n**3;  general 10*n**3 and 25*n**3
    singular values          4*m*k**2, with vectors 14*m*k**2 + 8*k**3 (k the smaller side, m the larger)
    matrix exponential       five products: 10*n**3, no squaring

Source: Golub & Van Loan, Matrix Computations (4th ed.); Cooley & Tukey 1965.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules
from symacct.rules.common import each, exactly, larger, log2, smaller, total
from symacct.rules.matmul import matmul

rules = Rules("transforms and linear algebra")

Batch = tuple[Size, ...]
SQUARE = "*b n n"


# -- Fourier -------------------------------------------------------------------


def fft(tensor: TensorMeta, dim: tuple[int, ...]) -> Size:
    """5*n*log2(n) along each axis in turn."""
    return 5 * tensor.numel * total([log2(tensor.shape[d]) for d in dim])


@rules.pointwise("aten._fft_c2c")
def fft_complex(self: TensorMeta, dim: tuple[int, ...]) -> Size:
    """A complex transform of the input. A model, not exact."""
    return fft(self, dim)


@rules.pointwise("aten._fft_r2c")
def fft_real(self: TensorMeta, dim: tuple[int, ...]) -> Size:
    """Half a complex transform of the real input, rounded down. A model, not exact."""
    return fft(self, dim) // 2


@rules.pointwise("aten._fft_c2r")
def fft_to_real(call: Call, dim: tuple[int, ...]) -> Size:
    """Half a complex transform of the size of the real output, rounded down. A model, not exact."""
    return fft(call.outputs[0], dim) // 2


# -- distances -----------------------------------------------------------------


@rules.flops("aten._euclidean_dist", "*b p k, ... r k")
def euclidean(b: Batch, p: Size, r: Size, k: Size) -> Size:
    """|x|**2 - 2*x*y + |y|**2 as one product over k + 2."""
    return matmul(b=product(b), m=p, k=k + 2, n=r)


@rules.pointwise("aten._euclidean_dist")
def euclidean_norms(x1: TensorMeta, x2: TensorMeta, call: Call) -> Size:
    """Squared norms (2 per element), the factor -2, a comparison and a root per distance."""
    return 3 * x1.numel + 2 * x2.numel + 2 * call.outputs[0].numel


@rules.pointwise("aten._cdist_forward", "... k")
def cdist(k: Size, call: Call) -> Size:
    """Subtract, power, add per coordinate, a root per distance."""
    return call.outputs[0].numel * (3 * k + 1)


@rules.pointwise("aten._cdist_backward", "_, ... k, _, *distances")
def cdist_backward(k: Size, cdist: TensorMeta) -> Size:
    """Per coordinate of each distance: subtract, power, divide, multiply by the gradient, add."""
    return 5 * k * cdist.numel


@rules.pointwise("aten._pdist_forward", "n k")
def pdist(k: Size, call: Call) -> Size:
    """Subtract, power, add per coordinate, a root per distance."""
    return call.outputs[0].numel * (3 * k + 1)


@rules.pointwise("aten._pdist_backward", "_, n k")
def pdist_backward(k: Size, pdist: TensorMeta) -> Size:
    """Per coordinate of each distance: subtract, power, divide, multiply by the gradient, add twice."""
    return 6 * k * pdist.numel


@rules.pointwise("aten.linalg_cross")
def cross(call: Call) -> Size:
    """Two multiplies and a subtraction per result."""
    return 3 * call.outputs[0].numel


@rules.pointwise("aten._compute_linear_combination")
def linear_combination(input: TensorMeta, coefficients: TensorMeta) -> Size:
    """A multiply-add for each coefficient and element."""
    return 2 * input.numel * coefficients.shape[0]


# -- factorisations --------------------------------------------------------------


def squares(n: Size) -> Size:
    """1 + 4 + ... + n**2."""
    return exactly(n * (n + 1) * (2 * n + 1), 6)


def lu_steps(m: Size, n: Size) -> Size:
    """For each of k columns: m - i divisions, (m - i)*(n - i) multiply-adds."""
    k = smaller(m, n)
    triangle = exactly(k * (k + 1), 2)
    return m * k - triangle + 2 * (m * n * k - (m + n) * triangle + squares(k))


def qr_steps(m: Size, n: Size) -> Size:
    """For each of k reflections: 4 FLOP for each element of the rest."""
    k = smaller(m, n)
    before = k - 1
    return 4 * (m * n * k - (m + n) * exactly(k * before, 2) + exactly(before * k * (2 * k - 1), 6))


@each(rules.pointwise, "aten.cholesky", "aten.linalg_cholesky_ex", "aten.linalg_ldl_factor_ex", pattern=SQUARE)
def cholesky(b: Batch, n: Size) -> Size:
    """n**3/3 to leading order. A model, not exact."""
    return product(b) * squares(n)


@each(rules.pointwise, "aten.cholesky_inverse", pattern=SQUARE)
def cholesky_inverse(b: Batch, n: Size) -> Size:
    """Inverse of the factor, and its product: 2*n**3/3. A model, not exact."""
    return 2 * product(b) * squares(n)


LU = ("aten.linalg_lu", "aten.linalg_lu_factor_ex", "aten._linalg_det", "aten._linalg_slogdet")


@each(rules.pointwise, *LU, pattern="*b m n")
def lu(b: Batch, m: Size, n: Size) -> Size:
    """Gaussian elimination; a determinant is one, its diagonal neglected. A model, not exact."""
    return product(b) * lu_steps(m, n)


@rules.pointwise("aten.linalg_inv_ex", SQUARE)
def inverse(b: Batch, n: Size) -> Size:
    """2*n**3. A model, not exact."""
    return 2 * product(b) * n**3


@rules.pointwise("aten._linalg_solve_ex", SQUARE)
def solve(b: Batch, n: Size, call: Call) -> Size:
    """Elimination, then two triangular solves. A model, not exact."""
    return product(b) * lu_steps(n, n) + 2 * n * call.outputs[0].numel


@each(rules.pointwise, "aten.linalg_lu_solve", "aten.linalg_ldl_solve", pattern=SQUARE)
@each(rules.pointwise, "aten.cholesky_solve", "aten._cholesky_solve_helper", pattern="_, *b n n")
def solve_factored(n: Size, call: Call) -> Size:
    """Two triangular solves."""
    return 2 * n * call.outputs[0].numel


@rules.pointwise("aten.linalg_solve_triangular", SQUARE)
@rules.pointwise("aten.triangular_solve", "_, *b n n")
def solve_triangular(n: Size, call: Call) -> Size:
    """n**2 per right-hand side."""
    return n * call.outputs[0].numel


@each(rules.pointwise, "aten.geqrf", "aten.linalg_householder_product", pattern="*b m n")
def qr_half(b: Batch, m: Size, n: Size) -> Size:
    """Only R, or only Q from its reflections. A model, not exact."""
    return product(b) * qr_steps(m, n)


@rules.pointwise("aten.linalg_qr", "*b m n")
def qr(b: Batch, m: Size, n: Size, mode: str) -> Size:
    """R, and Q unless only R is asked for. A model, not exact."""
    return product(b) * qr_steps(m, n) * (1 if mode == "r" else 2)


@rules.pointwise("aten.ormqr", "*b m k")
def ormqr(k: Size, call: Call) -> Size:
    """4 FLOP per element of the result for each of k reflections. A model, not exact."""
    return 4 * k * call.outputs[0].numel


@rules.pointwise("aten.linalg_lstsq", "*b m n, ...")
def lstsq(b: Batch, m: Size, n: Size, call: Call) -> Size:
    """QR, the right-hand side by Q (4*m*n each), a triangular solve. A model, not exact."""
    return product(b) * qr_steps(m, n) + 4 * m * call.outputs[0].numel + n * call.outputs[0].numel


@rules.pointwise("aten._linalg_eigh", SQUARE)
def eigh(b: Batch, n: Size, compute_v: bool) -> Size:
    """Tridiagonalisation; with vectors 9*n**3. A model, not exact."""
    return product(b) * (9 * n**3 if compute_v else 4 * squares(n))


@rules.pointwise("aten.linalg_eig", SQUARE)
def eig(b: Batch, n: Size) -> Size:
    """25*n**3. A model, not exact."""
    return 25 * product(b) * n**3


@rules.pointwise("aten._linalg_eigvals", SQUARE)
def eigvals(b: Batch, n: Size) -> Size:
    """10*n**3. A model, not exact."""
    return 10 * product(b) * n**3


@rules.pointwise("aten._linalg_svd", "*b m n")
def svd(b: Batch, m: Size, n: Size, compute_uv: bool) -> Size:
    """4*m*k**2 for values, 14*m*k**2 + 8*k**3 with vectors. A model, not exact."""
    long, k = larger(m, n), smaller(m, n)
    return product(b) * (14 * long * k**2 + 8 * k**3 if compute_uv else 4 * long * k**2)


@rules.pointwise("aten.linalg_pinv", "*b m n")
def pinv(b: Batch, m: Size, n: Size) -> Size:
    """Singular values and vectors, then V S U^T. A model, not exact."""
    return svd(b, m, n, True) + product(b) * matmul(m=m, n=n, k=smaller(m, n))


@rules.pointwise("aten.linalg_matrix_exp", SQUARE)
def matrix_exp(b: Batch, n: Size) -> Size:
    """Taylor polynomial of degree 18 in five products. A model, not exact."""
    return 5 * matmul(b=product(b), m=n, k=n, n=n)


rules.no_arithmetic("aten.lu_unpack")
