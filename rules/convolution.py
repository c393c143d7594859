"""Convolutions of any rank, grouped, dilated, transposed, and their gradients.

Counted: 2 FLOP per multiply-add. Every weight element meets every position once, where the
positions are those of the output, or of the input if the convolution is transposed, so
FLOP = 2 * batch * positions * numel(weight), in which groups need no mention: the weight
has in/groups channels. Taps on padding, or cropped by the padding of a transposed
convolution, are counted. Bias is pointwise: one add per output; so is its gradient: one
add per element of the output's gradient. Either other gradient costs what the forward
costs. Bytes of a backward: what the gradients asked for need. Units: FLOP.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules, read, written
from symacct.rules.common import each, given, work

rules = Rules("convolutions")

Shape = tuple[Size, ...]

EITHER = ("aten.convolution", "aten._convolution", "aten.convolution_overrideable")
FORWARD = (
    "aten.mkldnn_convolution", "aten.cudnn_convolution", "aten._conv_depthwise2d", "aten.conv_depthwise3d",
    "aten._slow_conv2d_forward", "aten.slow_conv3d_forward", "aten.slow_conv_dilated2d", "aten.slow_conv_dilated3d",
    "aten._nnpack_spatial_convolution", "aten.miopen_convolution", "aten.miopen_depthwise_convolution",
)  # fmt: skip
TRANSPOSED = (
    "aten.cudnn_convolution_transpose", "aten.slow_conv_transpose2d", "aten.slow_conv_transpose3d",
    "aten.miopen_convolution_transpose",
)  # fmt: skip
BACKWARD = ("aten.convolution_backward", "aten.convolution_backward_overrideable", "aten._slow_conv2d_backward")


def positions(shape: Shape, w: Shape) -> Size:
    """Batch times spatial positions: all axes but the channels, batched or not."""
    channels = len(shape) - (len(w) - 2) - 1
    return product(n for i, n in enumerate(shape) if i != channels)


@each(rules.flops, *EITHER, *FORWARD, pattern="*x, *w -> *y")
def convolution(x: Shape, w: Shape, y: Shape, transposed: bool = False) -> Size:
    """Every weight element times every output position (transposed: input position)."""
    return 2 * positions(x if transposed else y, w) * product(w)


@each(rules.flops, *TRANSPOSED, pattern="*x, *w -> *y")
def transposed(x: Shape, w: Shape, y: Shape) -> Size:
    """Every weight element times every input position."""
    return convolution(x, w, y, transposed=True)


@rules.flops("aten.conv_tbc", "_, *w -> t b o")
def conv_tbc(w: Shape, t: Size, b: Size) -> Size:
    """Every weight element times every output step of every batch row."""
    return 2 * t * b * product(w)


@each(rules.flops, *BACKWARD, pattern="*y, *x, *w")
def backward(x: Shape, w: Shape, y: Shape, output_mask: tuple[bool, ...], transposed: bool = False) -> Size:
    """One forward's products for the input's gradient, and one for the weight's."""
    return (output_mask[0] + output_mask[1]) * convolution(x, w, y, transposed)


@each(rules.pointwise, *EITHER, *FORWARD, *TRANSPOSED, "aten.conv_tbc")
def bias(call: Call, bias: TensorMeta | None = None) -> Size:
    """One add per output if there is a bias."""
    return given(bias) * work(call.outputs[0])


@each(rules.pointwise, *BACKWARD)
def bias_backward(grad_output: TensorMeta, output_mask: tuple[bool, ...]) -> Size:
    """The bias' gradient sums the output's."""
    return int(output_mask[2]) * work(grad_output)


@each(rules.bytes, *BACKWARD)
def backward_bytes(call: Call, output_mask: tuple[bool, ...]) -> tuple[Size, Size]:
    """The input's gradient needs the weight, the weight's gradient the input."""
    grad, x, w = call.inputs[:3]
    return read(grad, x if output_mask[1] else None, w if output_mask[0] else None), written(call)
