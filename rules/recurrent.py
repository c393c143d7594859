"""Recurrent layers and cells.

Counted: every weight matrix meets every step of every sequence once, 2 FLOP per multiply-add;
the backward does so twice, for inputs and for weights. Bias is one add per gate and vector, and the
input's and the hidden gates are added. The rest of a cell, per hidden element, is pointwise:

    lstm       sigmoid(i), sigmoid(f), sigmoid(o), tanh(g), f*c + i*g, o*tanh(c)                     18
    gru        sigmoid(r), sigmoid(z), tanh(in + r*hn), n + z*(h - n)                                 14
    rnn        tanh or relu                                                                            1

Their derivatives are 23, 16 and 3. Packed sequences are counted by their true number of steps.
Units: FLOP. Source: Hochreiter & Schmidhuber 1997; Cho et al. 2014.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules, read, written
from symacct.rules.common import each, given, total

rules = Rules("recurrent layers")

CELLS = {  # mode of cuDNN and oneDNN: (gates, FLOP per hidden element, FLOP of its derivative)
    0: (1, 1, 3), 1: (1, 1, 3), 2: (4, 18, 23), 3: (3, 14, 16),
}  # fmt: skip
LSTM, GRU = 2, 3


def matrices(call: Call) -> list[TensorMeta]:
    """The weight matrices of all layers and directions: one for the input, one for the hidden state, in turn."""
    return [t for t in weights(call) if len(t.shape) == 2]


def weights(call: Call) -> tuple[TensorMeta, ...]:
    """All weights of a layer or a stack of them."""
    listed = call.args.get("weight")
    names = ("weight0", "weight1", "weight2", "weight3", "weight4")
    return tuple(listed) if listed is not None else tuple(call.args[n] for n in names if n in call.args)


def steps(input: TensorMeta) -> Size:
    """Time steps of all sequences together."""
    return product(input.shape[:-1])


def gates(call: Call) -> Size:
    """Gates per step, over all layers and directions."""
    return total([w.shape[0] for w in matrices(call)[::2]])


@each(rules.flops, "aten.mkldnn_rnn_layer", "aten._cudnn_rnn")
def layers(input: TensorMeta, call: Call) -> Size:
    """Every matrix, every step."""
    return 2 * steps(input) * total([w.numel for w in matrices(call)])


@each(rules.flops, "aten.mkldnn_rnn_layer_backward", "aten._cudnn_rnn_backward")
def layers_backward(input: TensorMeta, call: Call) -> Size:
    """The products of the forward for the inputs' gradients, and once more for the weights'."""
    return 2 * layers(input, call)


@each(rules.pointwise, "aten.mkldnn_rnn_layer", "aten._cudnn_rnn")
def cells(input: TensorMeta, mode: int, call: Call) -> Size:
    """Biases, the sum of both products, the cell."""
    return steps(input) * (bias_adds(call) + gates(call)) + steps(input) * cell_work(call, mode, 1)


@each(rules.pointwise, "aten.mkldnn_rnn_layer_backward", "aten._cudnn_rnn_backward")
def cells_backward(input: TensorMeta, mode: int, call: Call) -> Size:
    """Sums for the biases, the derivative of the cell."""
    return steps(input) * (bias_adds(call) + cell_work(call, mode, 2))


def bias_adds(call: Call) -> Size:
    """One add per bias element; without biases oneDNN gets zeros, which are not counted."""
    if call.args.get("has_biases") is False:
        return 0
    return total([t.numel for t in weights(call) if len(t.shape) == 1])


def cell_work(call: Call, mode: int, column: int) -> Size:
    """FLOP of one step's cells: `column` of the table for each hidden element of each layer and direction."""
    return total([CELLS[mode][column] * hidden.shape[1] for hidden in matrices(call)[1::2]])


@each(rules.bytes, "aten._cudnn_rnn", "aten._cudnn_rnn_backward")
def without_buffer(call: Call) -> tuple[Size, Size]:
    """The flat weight buffer is the weights again."""
    buffers = [call.args.get("weight_buf")]
    return read(*(t for t in call.inputs if t not in buffers)), written(call)


@rules.pointwise("aten._thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: TensorMeta, cx: TensorMeta, input_bias: TensorMeta | None, hidden_bias: TensorMeta | None
) -> Size:
    """Sum of the gates, biases, the cell."""
    return input_gates.numel * (1 + given(input_bias, hidden_bias)) + CELLS[LSTM][1] * cx.numel


@rules.pointwise("aten._thnn_fused_gru_cell")
def gru_cell(
    input_gates: TensorMeta, hx: TensorMeta, input_bias: TensorMeta | None, hidden_bias: TensorMeta | None
) -> Size:
    """Sum of the gates, biases, the cell."""
    return input_gates.numel * (1 + given(input_bias, hidden_bias)) + CELLS[GRU][1] * hx.numel


@rules.pointwise("aten._thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(cx: TensorMeta, has_bias: bool) -> Size:
    """The derivative of the cell; the bias' gradient sums four gates."""
    return cx.numel * (CELLS[LSTM][2] + 4 * has_bias)


@rules.pointwise("aten._thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: TensorMeta, has_bias: bool) -> Size:
    """The derivative of the cell; the biases' gradients sum three gates each."""
    return grad_hy.numel * (CELLS[GRU][2] + 6 * has_bias)


rules.no_arithmetic("aten._cudnn_rnn_flatten_weight")
