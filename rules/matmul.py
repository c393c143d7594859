"""Matrix products.

Counted: 2 FLOP per multiply-add, so a contraction of length k over n outputs is 2*n*k
(the strict count is n*(2*k-1)). The terms of beta*self + alpha*product are pointwise:
one add per output, one multiply more for each factor that is not 1. With beta = 0 the
add is dropped, and `self` is not read. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules, default_bytes, read, written
from symacct.rules.common import each, given, work
from symacct.rules.weights import WEIGHTS

rules = Rules("matrix products")

ADDED = ("aten.addmm", "aten.baddbmm", "aten.addbmm", "aten.addmv", "aten.addr", "aten._addmm_activation")


@rules.flops("aten.mm", "m k, k n -> m n")
@rules.flops("aten._int_mm", "m k, k n -> m n")
@rules.flops("aten.bmm", "b m k, b k n -> b m n")
@rules.flops("aten.addmm", "_, m k, k n -> m n")
@rules.flops("aten._addmm_activation", "_, m k, k n -> m n")
@rules.flops("aten.baddbmm", "_, b m k, b k n -> b m n")
@rules.flops("aten.addbmm", "_, b m k, b k n -> m n")
@rules.flops("aten.mv", "m k, k -> m")
@rules.flops("aten.addmv", "_, m k, k -> m")
@rules.flops("aten.dot", "k, k")
@rules.flops("aten.vdot", "k, k")
@rules.flops("aten._weight_int8pack_mm", "m k, n k, n -> m n")
@rules.flops("aten._weight_int4pack_mm", "m k -> m n")
@rules.flops("aten._weight_int4pack_mm_for_cpu", "m k -> m n")
@rules.flops("aten._weight_int4pack_mm_with_scales_and_zeros", "m k -> m n")
@rules.flops("aten._dyn_quant_matmul_4bit", "m k -> m n")
def matmul(k: Size, m: Size = 1, n: Size = 1, b: Size = 1) -> Size:
    """Each of the b*m*n outputs sums k products. Source: Golub & Van Loan, Matrix Computations 1.1."""
    return 2 * b * m * k * n


@each(rules.flops, "aten.linear", "aten.mkldnn_linear", pattern="*b k, n k -> *b n")
def linear(b: tuple[Size, ...], k: Size, n: Size) -> Size:
    """A matrix product over all leading axes."""
    return matmul(m=product(b), k=k, n=n)


@each(rules.flops, "aten._scaled_mm", "aten._scaled_mm_v2", pattern="m k, k n -> m n")
def scaled_mm(self: TensorMeta, m: Size, k: Size, n: Size) -> Size:
    """A matrix product of scaled numbers; `float4_e2m1fn_x2` stores two of them in one element."""
    return matmul(m=m, k=2 * k if self.dtype.endswith("_x2") else k, n=n)


@each(rules.flops, "aten._grouped_mm", "aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2")
def grouped_mm(self: TensorMeta, mat2: TensorMeta) -> Size:
    """Groups of products whose rows, columns or contracted parts, in total m, n or k, are split by `offs`.

    Exact if the offsets use all of the split axis; an unused tail is counted.
    """
    groups = self.shape[0] if len(self.shape) == len(mat2.shape) == 3 else 1
    packed = 2 if self.dtype.endswith("_x2") else 1
    return matmul(b=groups, m=self.shape[-2], k=packed * self.shape[-1], n=mat2.shape[-1])


@rules.flops("aten._trilinear")
def trilinear(
    i1: TensorMeta,
    i2: TensorMeta,
    i3: TensorMeta,
    expand1: tuple[int, ...],
    expand2: tuple[int, ...],
    expand3: tuple[int, ...],
    sumdim: tuple[int, ...],
) -> Size:
    """Contract i1 with i2 over the summed axes that i3 lacks, then the result with i3 over the others.

    Bilinear from n*d1 and n*d2 to n*o is 2*n*o*d1*d2 + 2*n*o*d2. Source: ATen/native/Linear.cpp.
    """
    sizes: dict[int, Size] = {}
    for tensor, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        axes = [a for a in range(len(tensor.shape) + len(expand)) if a not in expand]
        for axis, size in zip(axes, tensor.shape, strict=True):
            if sizes.get(axis, 1) == 1:
                sizes[axis] = size
    first = product(n for a, n in sizes.items() if not (a in expand1 and a in expand2))
    second = product(n for a, n in sizes.items() if not (a in sumdim and a in expand3))
    return 2 * first + 2 * second


@each(rules.pointwise, *ADDED)
def scaled_sum(call: Call, alpha: Size, beta: Size, use_gelu: bool | None = None) -> Size:
    """Adds and multiplies of beta*self + alpha*product, per output; then an activation where there is one.

    An outer product (addr) sums nothing: its one multiply per output is pointwise too.
    """
    terms = (beta != 0) + (beta not in (0, 1)) + (alpha != 1) + (call.op.split(".")[1].startswith("addr"))
    activation = {None: 0, False: WEIGHTS["relu"], True: WEIGHTS["gelu"]}[use_gelu]
    return (terms + activation) * work(call.outputs[0])


@each(rules.bytes, *ADDED)
def beta_bytes(call: Call, beta: Size) -> tuple[Size, Size]:
    """With beta = 0 the first operand is not read."""
    return (read(*call.inputs[1:]), written(call)) if beta == 0 else default_bytes(call)


@each(rules.pointwise, "aten.linear", "aten.mkldnn_linear", "aten._grouped_mm")
def bias(call: Call, bias: TensorMeta | None) -> Size:
    """One add per output if there is a bias."""
    return given(bias) * work(call.outputs[0])


@each(rules.pointwise, "aten._scaled_mm", "aten._scaled_mm_v2", "aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2")
def scales(call: Call, bias: TensorMeta | None) -> Size:
    """Per output: a multiply by the scale of each operand, and one add if there is a bias."""
    return (2 + given(bias)) * work(call.outputs[0])


@rules.pointwise("aten._weight_int8pack_mm")
def int8_scale(call: Call) -> Size:
    """One multiply by the column's scale per output."""
    return call.outputs[0].numel


@each(rules.pointwise, "aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu")
@each(rules.pointwise, "aten._weight_int4pack_mm_with_scales_and_zeros")
def int4_scale(self: TensorMeta, call: Call) -> Size:
    """Each of the k*n weights is unpacked by one multiply and one add."""
    return 2 * self.shape[-1] * call.outputs[0].shape[-1]
