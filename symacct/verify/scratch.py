"""What operators allocate and free before they return: the table of all that is known, each entry with a bound.

No tensor that the program can see rests on it, so tensors without data cannot show it. The table is that of PyTorch's
own CPU kernels; an operator that is not in it is allowed nothing. All bounds are in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from symacct.verify.profiled import Operand

NUMBER = 16  # bytes of a number as a tensor of its own, or of that and its cast to another dtype


@dataclass
class Use:
    """One call of an operator: its tensor operands, the threads it had, bytes of its results, most scratch at once."""

    op: str  # "aten.mm.default"
    operands: tuple[Operand, ...]
    threads: int = 1
    results: int = 0
    scratch: int = 0
    _now: int = 0

    def allocates(self, nbytes: int) -> None:
        """Take scratch, or give it back (``nbytes`` < 0)."""
        self._now += nbytes
        self.scratch = max(self.scratch, self._now)

    @property
    def packet(self) -> str:
        """The operator's name without overload, as the table has it: "aten.mm"."""
        return self.op.rpartition(".")[0]

    def bound(self, spare: int = 0) -> int:
        """Bytes of scratch that the table allows, and ``spare`` more; none for an operator that is not in it.

        None either for operands of a form that its formula does not know, so that their scratch is told of.
        """
        known = SCRATCH.get(self.packet)
        try:
            return known(self) + spare if known is not None else 0
        except (IndexError, ValueError, ZeroDivisionError):
            return 0


Bound = Callable[[Use], int]
SCRATCH: dict[str, Bound] = {}  # "aten.mm" -> its bound, whose docstring says what is allocated


def _allocates(*ops: str) -> Callable[[Bound], Bound]:
    """Enter a bound in the table under operators' names without overload."""

    def enter(bound: Bound) -> Bound:
        SCRATCH.update({f"aten.{op}": bound for op in ops})
        return bound

    return enter


def _numel(operand: Operand) -> int:
    return math.prod(operand.shape)


def _nbytes(operand: Operand) -> int:
    return _numel(operand) * operand.dtype.itemsize


def _copied(use: Use) -> int:
    return sum(map(_nbytes, use.operands))


def _in_place_too(*ops: str) -> list[str]:
    return [name for op in ops for name in (op, f"{op}_")]


# -- elementwise, and sums -------------------------------------------------------------


@_allocates(
    *_in_place_too("add", "sub", "mul", "div", "pow", "clamp_min", "addcmul", "addcdiv", "lerp", "masked_fill"),
    *("rsub", "eq", "ne", "lt", "gt", "le", "ge", "where", "maximum", "minimum"),
    *_in_place_too("_foreach_add", "_foreach_mul", "_foreach_div", "_foreach_sub", "_foreach_pow", "_foreach_lerp"),
)
def elementwise(use: Use) -> int:
    """A number as a tensor and its cast; a copy, in the common dtype (a quotient's is floating), of each operand that
    has another dtype.
    """
    tensors = [operand for operand in use.operands if operand.shape]
    if not tensors:
        return NUMBER
    common = max((o.dtype for o in tensors), key=lambda dtype: (dtype.is_floating_point, dtype.itemsize))
    if "div" in use.packet and not (common.is_floating_point or common.is_complex):
        common = torch.float32
    return NUMBER + sum(_numel(o) * common.itemsize for o in tensors if o.dtype != common)


@_allocates("sum", "mean", "var", "cumsum", "all", "any")
def reduction(use: Use) -> int:
    """For operands that are not float32 or wider: a copy in float32 (of integers in int64), and the result so."""
    operand = use.operands[0]
    exact = operand.dtype.itemsize >= 4
    wide = 4 if operand.dtype.is_floating_point else 8
    return NUMBER + (0 if exact else _numel(operand) * wide + use.results * 2)


@_allocates("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
def losses(use: Use) -> int:
    """The terms of the loss before they are summed, twice for binary cross-entropy."""
    return 2 * _nbytes(use.operands[0]) + NUMBER


# -- products and convolutions ---------------------------------------------------------


@_allocates("mm", "bmm", "addmm", "baddbmm", "mv", "addmv")
def product(use: Use) -> int:
    """Copies of operands (and the result) whose strides the product cannot read, for one an expanded gradient."""
    return _copied(use) + use.results


@_allocates("_trilinear")
def products(use: Use) -> int:
    """The product of two operands and copies of all, for one slice of what is summed at a time."""
    return _copied(use) + 2 * use.results


@_allocates("convolution")
def convolution(use: Use) -> int:
    """The unfolded input ("im2col"): kernel elements times input channels for each place of the output; for groups
    and dilations also copies of operands and results.
    """
    (batch, channels, *_), dtype = use.operands[0].shape, use.operands[0].dtype
    out, _, *kernel = use.operands[1].shape
    places = use.results // (batch * out * dtype.itemsize)
    return batch * channels * math.prod(kernel) * places * dtype.itemsize + _copied(use) + use.results


@_allocates("convolution_backward")
def convolution_backward(use: Use) -> int:
    """The unfolded input, or its gradient, as in the forward pass; a copy of an expanded gradient; results."""
    (batch, _, *places), dtype = use.operands[0].shape, use.operands[0].dtype
    channels, kernel = use.operands[1].shape[1], use.operands[2].shape[2:]
    columns = batch * channels * math.prod(kernel) * math.prod(places) * dtype.itemsize
    return columns + _copied(use) + use.results


# -- norms -----------------------------------------------------------------------------


@_allocates("native_batch_norm")
def batch_norm(use: Use) -> int:
    """For each channel a factor and an offset, and where channels lie last a sum for each thread, in float32."""
    return (2 + use.threads) * 4 * use.operands[0].shape[1]


@_allocates("native_batch_norm_backward")
def batch_norm_backward(use: Use) -> int:
    """A copy of an expanded gradient; two sums for each channel, and for each thread, in float32."""
    return _nbytes(use.operands[0]) + 2 * (1 + use.threads) * 4 * use.operands[0].shape[1]


@_allocates("native_layer_norm_backward")
def layer_norm_backward(use: Use) -> int:
    """Sums for weight and bias for each thread, in float32; a copy of an expanded gradient."""
    gradient, rows = use.operands[0], _numel(use.operands[2])
    return _nbytes(gradient) + 2 * 4 * use.threads * _numel(gradient) // rows


@_allocates("native_group_norm_backward")
def group_norm_backward(use: Use) -> int:
    """Two sums for each channel of each sample, in float32; copies of expanded operands."""
    return _copied(use) + 2 * 4 * math.prod(use.operands[0].shape[:2])


# -- softmax, indices, sorting ---------------------------------------------------------


@_allocates("_softmax_backward_data", "_log_softmax_backward_data", "embedding_dense_backward", "avg_pool2d_backward")
def copies(use: Use) -> int:
    """Copies of operands that are not contiguous (expanded gradients, strided indices)."""
    return _copied(use)


@_allocates("logsumexp")
def logsumexp(use: Use) -> int:
    """The exponentials, and the largest of each."""
    return _copied(use) + use.results


@_allocates("sort")
def sort(use: Use) -> int:
    """The values and positions of one row for each thread."""
    return use.threads * max(use.operands[0].shape, default=1) * (use.operands[0].dtype.itemsize + 8)


@_allocates("_safe_softmax")
def safe_softmax(use: Use) -> int:
    """Which elements are -inf, and which rows are so throughout, as bools."""
    shape = use.operands[0].shape
    return math.prod(shape) + math.prod(shape[:-1]) + NUMBER


# -- attention -------------------------------------------------------------------------


def _block(use: Use) -> tuple[int, int, int, int, torch.dtype]:
    """Threads, rows and columns of scores that a thread works on, size of a head, dtype."""
    query, key = use.operands[:2] if len(use.operands) < 5 else use.operands[1:3]
    return use.threads, min(query.shape[-2], 256), min(key.shape[-2], 512), query.shape[-1], query.dtype


@_allocates("_scaled_dot_product_flash_attention_for_cpu")
def attention(use: Use) -> int:
    """For each thread a block of scores (at most 256 x 512), of the result, and two numbers a row, in float32; for
    bfloat16 the scores again in that.
    """
    threads, rows, columns, head, dtype = _block(use)
    again = 2 * rows * columns if dtype.itemsize == 2 else 0
    return threads * (4 * (rows * columns + 2 * rows + rows * head) + again)


@_allocates("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(use: Use) -> int:
    """For each thread two blocks of scores, in float32, and for bfloat16 again in that; a number for each row; a copy
    of an expanded gradient.
    """
    threads, rows, columns, _, dtype = _block(use)
    again = 4 * rows * columns if dtype.itemsize == 2 else 0
    return threads * (8 * rows * columns + again) + 4 * rows + _nbytes(use.operands[0])
