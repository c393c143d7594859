"""Recurrent layers and cells.

Counted: every weight matrix meets every step of every sequence once, 2 FLOP per multiply-add;
the backward does so twice, for inputs and for weights. Bias is one add per gate and vector, and the
input's and the hidden gates are added. The rest of a cell, per hidden element, is pointwise:

    lstm       sigmoid(i), sigmoid(f), sigmoid(o), tanh(g), f*c + i*g, o*tanh(c)                     18
    gru        sigmoid(r), sigmoid(z), tanh of i + r*h (its add is that of the gates), n + z*(h - n)  13
    rnn        tanh or relu                                                                            1

Their derivatives are 23, 16 and 3. Packed sequences are counted by their true number of steps.
Units: FLOP. Source: Hochreiter & Schmidhuber 1997; Cho et al. 2014.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta, product
from symacct.rule import Rules, read, written
from symacct.rules.common import each, given, total

rules = Rules("recurrent layers")

CELLS = {0: (1, 3), 1: (1, 3), 2: (18, 23), 3: (13, 16)}  # mode of cuDNN and oneDNN: (forward, derivative)
LSTM, GRU = 2, 3


def matrices(call: Call) -> list[TensorMeta]:
    """The weight matrices of each layer and direction in turn: input, hidden state, projection where there is one."""
    return [t for t in weights(call) if len(t.shape) == 2]


def weights(call: Call) -> tuple[TensorMeta, ...]:
    """All weights of a layer or a stack of them."""
    listed = call.args.get("weight")
    names = ("weight0", "weight1", "weight2", "weight3", "weight4")
    return tuple(listed) if listed is not None else tuple(call.args[n] for n in names if n in call.args)


def steps(input: TensorMeta) -> Size:
    """Time steps of all sequences together."""
    return product(input.shape[:-1])


def per_cell(call: Call) -> int:
    """How many matrices a layer has in each direction."""
    return 2 if call.args.get("proj_size") in (None, 0) else 3


def gates(call: Call) -> Size:
    """Gates per step, over all layers and directions."""
    return total([w.shape[0] for w in matrices(call)[:: per_cell(call)]])


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
    return steps(input) * (bias_adds(call) + gates(call)) + steps(input) * cell_work(call, mode, 0)


@each(rules.pointwise, "aten.mkldnn_rnn_layer_backward", "aten._cudnn_rnn_backward")
def cells_backward(input: TensorMeta, mode: int, call: Call) -> Size:
    """Sums for the biases, the derivative of the cell."""
    return steps(input) * (bias_adds(call) + cell_work(call, mode, 1))


def bias_adds(call: Call) -> Size:
    """One add per bias element; without biases oneDNN gets zeros, which are not counted."""
    if call.args.get("has_biases") is False:
        return 0
    return total([t.numel for t in weights(call) if len(t.shape) == 1])


def cell_work(call: Call, mode: int, column: int) -> Size:
    """FLOP of one step's cells: `column` of the table for each hidden element of each layer and direction."""
    count = per_cell(call)
    return total([CELLS[mode][column] * last.shape[1] for last in matrices(call)[count - 1 :: count]])


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
    return input_gates.numel * (1 + given(input_bias, hidden_bias)) + CELLS[LSTM][0] * cx.numel


@rules.pointwise("aten._thnn_fused_gru_cell")
def gru_cell(
    input_gates: TensorMeta, hx: TensorMeta, input_bias: TensorMeta | None, hidden_bias: TensorMeta | None
) -> Size:
    """Sum of the gates, biases, the cell."""
    return input_gates.numel * (1 + given(input_bias, hidden_bias)) + CELLS[GRU][0] * hx.numel


@rules.pointwise("aten._thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(cx: TensorMeta, has_bias: bool) -> Size:
    """The derivative of the cell; the bias' gradient sums four gates."""
    return cx.numel * (CELLS[LSTM][1] + 4 * has_bias)


@rules.pointwise("aten._thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: TensorMeta, has_bias: bool) -> Size:
    """The derivative of the cell; the biases' gradients sum three gates each."""
    return grad_hy.numel * (CELLS[GRU][1] + 6 * has_bias)


rules.no_arithmetic("aten._cudnn_rnn_flatten_weight")
