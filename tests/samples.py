"""Calls that torch's own samples do not make: run where this machine can, described by hand where it cannot."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from harvest import Recorder
from torch import nn
from torch.utils._pytree import tree_leaves

from symacct.cost import Call, TensorMeta
from symacct.eight_bit import AdamW8bit

aten = torch.ops.aten


def m(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A meta tensor."""
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def r(*shape: int, grad: bool = False) -> torch.Tensor:
    """A real tensor."""
    return torch.randn(shape, requires_grad=grad)


def i(*shape: int, high: int = 2) -> torch.Tensor:
    """A real tensor of indices."""
    return torch.randint(0, high, shape)


HALF, LONG, INT8 = torch.bfloat16, torch.int64, torch.int8


def sdpa(op: Any, *rest: Any, dtype: torch.dtype = HALF, layout: tuple[int, ...] = (2, 4, 8, 16)) -> list[Any]:
    """A fused attention on meta tensors, without gradient."""
    return list(tree_leaves(op(*(m(*layout, dtype=dtype) for _ in range(3)), *rest)))


def fused_step(optimizer: Any, **options: Any) -> None:
    """Two steps of a fused optimizer."""
    parameters = [nn.Parameter(r(3, 4)), nn.Parameter(r(5))]
    step = optimizer(parameters, fused=True, lr=0.1, **options)
    for _ in range(2):
        for p in parameters:
            p.grad = torch.ones_like(p)
        step.step()


def eight_bit_step() -> None:
    """A step of the 8-bit optimizer on meta tensors: one state of each kind."""
    parameters = [nn.Parameter(m(64, 80)), nn.Parameter(m(5))]
    for p in parameters:
        p.grad = torch.ones_like(p)
    AdamW8bit(parameters).step()


def inference(module: nn.Module, *inputs: torch.Tensor) -> Any:
    """A module in its inference path."""
    with torch.no_grad():
        return module.eval()(*inputs)


def attention_layer() -> Any:
    """The fast path of multi-head attention."""
    x = r(2, 3, 8)
    return inference(nn.MultiheadAttention(8, 2, batch_first=True), x, x, x)


SMALL = (2, 3, 4, 5)
RUNS: tuple[Any, ...] = (
    lambda: aten._addmm_activation(r(3), r(2, 4), r(4, 3), use_gelu=True),
    lambda: aten._int_mm(m(32, 16, dtype=INT8), m(16, 8, dtype=INT8)),
    lambda: aten._weight_int8pack_mm(m(4, 8, dtype=HALF), m(6, 8, dtype=INT8), m(6, dtype=HALF)),
    lambda: aten._grouped_mm(m(8, 16, dtype=HALF), m(2, 16, 32, dtype=HALF), m(2, dtype=torch.int32)),
    lambda: aten._grouped_mm(m(2, 8, 16, dtype=HALF), m(2, 16, 32, dtype=HALF)),
    lambda: sdpa(aten._scaled_dot_product_flash_attention),
    lambda: sdpa(aten._scaled_dot_product_efficient_attention, None, True),
    lambda: sdpa(aten._scaled_dot_product_cudnn_attention, None, True),
    lambda: sdpa(aten._scaled_dot_product_fused_attention_overrideable),
    lambda: sdpa(aten._scaled_dot_product_flash_attention_for_cpu, 0.1),
    lambda: nn.functional.scaled_dot_product_attention(*(r(2, 4, 8, 16, grad=True) for _ in range(3))),
    lambda: aten._flash_attention_forward(*(m(2, 8, 4, 16, dtype=HALF),) * 3, None, None, 8, 8, 0.0, True, False),
    lambda: aten._efficient_attention_forward(*(m(2, 8, 4, 16, dtype=HALF),) * 3, None, None, None, None, None, 0.0, 0),
    lambda: nn.LSTM(4, 6, 2, bidirectional=True)(r(5, 3, 4, grad=True)),
    lambda: aten._thnn_fused_lstm_cell(m(2, 12), m(2, 12), m(2, 3), m(12), m(12)),
    lambda: aten._thnn_fused_lstm_cell_backward_impl(m(2, 3), m(2, 3), m(2, 3), m(2, 3), m(2, 12), True),
    attention_layer,
    lambda: inference(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), r(2, 3, 8)),
    lambda: fused_step(torch.optim.Adam, weight_decay=0.1, amsgrad=True),
    lambda: fused_step(torch.optim.AdamW),
    lambda: fused_step(torch.optim.SGD, momentum=0.9, nesterov=True),
    lambda: fused_step(torch.optim.Adagrad),
    eight_bit_step,
    lambda: aten._amp_foreach_non_finite_check_and_unscale_([r(3, 2), r(4)], r(1), r(1)),
    lambda: aten._amp_update_scale_(r(1), torch.zeros(1, dtype=torch.int32), r(1), 2.0, 0.5, 3),
    lambda: aten._masked_softmax(r(*SMALL), torch.zeros(SMALL, dtype=torch.bool), 3, 2),
    lambda: aten._masked_softmax_backward(r(*SMALL), r(*SMALL), torch.zeros(SMALL, dtype=torch.bool), 3),
    lambda: aten._native_batch_norm_legit_functional(r(2, 3, 4), r(3), r(3), r(3), r(3).abs(), True, 0.1, 1e-5),
    lambda: aten._native_batch_norm_legit_no_training(r(2, 3, 4), r(3), r(3), r(3), r(3).abs(), 0.1, 1e-5),
    lambda: aten._batch_norm_with_update_functional(r(2, 3, 4), r(3), r(3), r(3), r(3).abs(), 0.1, 1e-5),
    lambda: aten._batch_norm_no_update(r(2, 3, 4), r(3), r(3), r(3), r(3).abs(), 0.1, 1e-5),
    lambda: aten.batch_norm_update_stats(r(2, 3, 4), r(3), r(3), 0.1),
    lambda: aten._fused_rms_norm(m(2, 3, 4), [4], m(4), 1e-5),
    lambda: aten._fused_rms_norm_backward(m(2, 3, 4), m(2, 3, 4), [4], m(2, 3, 1), m(4), [True, True]),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))(r(2, 3)),
    lambda: torch._weight_norm(r(4, 3, grad=True), r(4, 1, grad=True), 0),
    lambda: aten._weight_norm_interface(r(4, 3), r(4, 1), 0),
    lambda: aten._weight_norm_interface_backward(r(4, 3), r(4, 3), r(4, 1), r(4, 1), 0),
    lambda: aten._unsafe_index(r(4, 3), [i(5)]),
    lambda: aten._unsafe_index_put(r(4, 3), [i(5)], r(5, 3), True),
    lambda: aten._index_put_impl_(r(4, 3), [i(5)], r(5, 3), True),
    lambda: aten._index_put_impl_(r(4, 3), [None, i(5)], r(4, 5), False),
    lambda: aten.embedding_renorm_(r(6, 3), i(4), 1.0, 2.0),
    lambda: aten._embedding_bag_forward_only(r(6, 3), i(4), torch.tensor([0, 2]), False, 1),
    lambda: aten._embedding_bag_dense_backward(r(2, 3), i(4), i(4), i(2), i(2), 6, False, 0, None),
    lambda: nn.EmbeddingBag(6, 3, mode="sum")(i(2, 4), None, r(2, 4)),
    lambda: nn.functional.pad(r(2, 3, 4, 4, grad=True), (1, 1, 1, 1), mode="reflect"),
    lambda: nn.functional.pad(r(2, 3, 4, 4, 4, grad=True), (1,) * 6, mode="reflect"),
    lambda: nn.functional.pad(r(2, 3, 4, 4, 4, grad=True), (1,) * 6, mode="replicate"),
    lambda: nn.functional.interpolate(r(2, 3, 4, 4, 4, grad=True), scale_factor=2),
    lambda: nn.functional.interpolate(r(2, 3, 4, 4, grad=True), scale_factor=2, mode="nearest-exact"),
    lambda: nn.functional.interpolate(r(2, 3, 4, 4, 4, grad=True), scale_factor=2, mode="nearest-exact"),
    lambda: nn.functional.interpolate(r(2, 3, 4, 6, grad=True), size=(3, 5), mode="bicubic", antialias=True),
    lambda: nn.functional.interpolate(r(2, 3, 4, 6, grad=True), size=(3, 5), mode="bilinear", antialias=True),
    lambda: aten._upsample_lanczos2d_aa(r(2, 3, 4, 6), [3, 5], False),
    lambda: aten._upsample_lanczos2d_aa_backward(r(2, 3, 3, 5), [3, 5], [2, 3, 4, 6], False),
    lambda: aten._grid_sampler_2d_cpu_fallback(r(2, 3, 4, 5), r(2, 6, 7, 2), 0, 0, False),
    lambda: aten._grid_sampler_2d_cpu_fallback_backward(r(2, 3, 6, 7), r(2, 3, 4, 5), r(2, 6, 7, 2), 0, 0, False),
    lambda: nn.functional.affine_grid(r(2, 2, 3), [2, 3, 4, 5]),
    lambda: aten._pack_padded_sequence(r(5, 2, 3), torch.tensor([5, 3]), False),
    lambda: aten.native_dropout(m(*SMALL), 0.5, True),
    lambda: aten.normal_functional(m(*SMALL), 1.0, 2.0),
    lambda: aten._euclidean_dist(r(4, 3), r(5, 3)),
    lambda: aten._cholesky_solve_helper(r(3, 2), torch.eye(3), False),
    lambda: aten._linalg_eigvals(r(3, 3)),
    lambda: aten._compute_linear_combination(r(2, 3, 3), r(4, 2)),
    lambda: aten._transform_bias_rescale_qkv(r(2, 3, 24), r(24), 2),
    lambda: aten.fake_quantize_per_tensor_affine_cachemask(r(2, 3), 0.1, 0, -128, 127),
    lambda: aten.conv_tbc(r(5, 2, 3), r(2, 3, 4), r(4), 1),
    lambda: aten.mkldnn_convolution(r(2, 4, 5, 5), r(6, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], 2),
    lambda: aten._slow_conv2d_forward(r(2, 4, 5, 5), r(6, 4, 3, 3), [3, 3], r(6), [1, 1], [0, 0]),
    lambda: aten._slow_conv2d_backward(
        r(2, 6, 3, 3), r(2, 4, 5, 5), r(6, 4, 3, 3), [3, 3], [1, 1], [0, 0], [True, True, True]
    ),
    lambda: aten.slow_conv3d_forward(r(1, 2, 4, 4, 4), r(3, 2, 2, 2, 2), [2, 2, 2], r(3), [1] * 3, [0] * 3),
    lambda: aten.slow_conv_dilated2d(r(2, 4, 7, 7), r(6, 4, 3, 3), [3, 3], r(6), [1, 1], [0, 0], [2, 2]),
    lambda: aten.slow_conv_dilated3d(r(1, 2, 5, 5, 5), r(3, 2, 2, 2, 2), [2] * 3, None, [1] * 3, [0] * 3, [2] * 3),
    lambda: aten.slow_conv_transpose2d(r(2, 4, 3, 3), r(4, 6, 2, 2), [2, 2], r(6)),
    lambda: aten.slow_conv_transpose3d(r(1, 4, 3, 3, 3), r(4, 6, 2, 2, 2), [2, 2, 2], r(6)),
    lambda: aten._convolution(r(2, 4, 5), r(6, 4, 3), r(6), [1], [0], [1], False, [0], 1, False, False, False, False),
    lambda: aten.unique_dim(i(4, 3), 0),
    lambda: aten._foreach_powsum([m(2, 3), m(4)], 2),
    lambda: aten.linalg__powsum(m(2, 3)),
    lambda: torch.sort(i(4, 3)),
    lambda: aten.set_(r(2), r(3)),
    lambda: r(1).item(),
    lambda: aten.randint_like(m(3, 4), 5),
)


def run_samples() -> Iterator[tuple[Call, Any]]:
    """The calls of all runs, their backwards included."""
    for function in RUNS:
        recorder = Recorder()
        with warnings.catch_warnings(), contextlib.suppress(NotImplementedError), recorder:
            warnings.simplefilter("ignore")
            result = function()
            outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
        yield from recorder.calls


def t(*shape: int, dtype: str = "float32", storage: int = 0) -> TensorMeta:
    """A contiguous tensor, described."""
    stride, strides = 1, []
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return TensorMeta(shape, tuple(reversed(strides)), dtype, storage)


def apart(value: Any, position: int) -> Any:
    """A tensor that was given no storage of its own, on one: at equal sizes two operands are still two."""
    if isinstance(value, TensorMeta) and value.storage == 0 and position:
        return replace(value, storage=100 * position)
    return value


def call(op: str, *outputs: TensorMeta, mutated: tuple[str, ...] = (), **args: Any) -> Call:
    """A call described by hand: arguments by name, in the order of the schema, the rest at their defaults."""
    namespace, name, *overload = op.split(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    func = getattr(packet, overload[0] if overload else packet.overloads()[0])
    bound: dict[str, Any] = {}
    for a in func._schema.arguments:
        bound[a.name] = args.pop(a.name, a.default_value if a.has_default_value() else None)
    assert not args, f"{op} has no arguments {list(args)}"
    bound = {name: apart(value, i) for i, (name, value) in enumerate(bound.items())}
    return Call(str(func), bound, outputs, mutated)


Q, K, LSE = t(2, 4, 8, 16), t(2, 4, 6, 16, storage=1), t(2, 4, 8, storage=2)
QKV: dict[str, Any] = {"query": Q, "key": K, "value": K}
BACK: dict[str, Any] = {**QKV, "logsumexp": LSE, "out": Q, "dropout_p": 0.5, "is_causal": True}
IMAGE, FILTER, VIDEO, FILTER3 = t(2, 4, 5, 5), t(6, 4, 3, 3), t(2, 4, 5, 5, 5), t(4, 1, 3, 3, 3)
BATCH, CHANNEL = t(2, 3, 4), t(3, storage=1)
LSTM = {"weight": (t(24, 4), t(24, 6), t(24), t(24)), "input": t(5, 3, 4), "mode": 2}
SDP = "aten._scaled_dot_product_"

BY_HAND: tuple[Call, ...] = (
    call("aten.linear", t(2, 5, 3), input=t(2, 5, 4), weight=t(3, 4), bias=t(3)),
    call("aten.mkldnn_linear", t(2, 3), self=t(2, 4), weight=t(3, 4)),
    call("aten._dyn_quant_matmul_4bit", t(2, 3), inp=t(2, 4), packed_weights=t(20), block_size=4),
    *(
        call(f"aten._weight_int4pack_mm{kind}", t(2, 3), self=t(2, 4), mat2=t(3, 4))
        for kind in ("", "_for_cpu", "_with_scales_and_zeros")
    ),
    call("aten._scaled_mm", t(2, 3), self=t(2, 4, dtype="float8_e4m3fn"), mat2=t(4, 3, dtype="float8_e4m3fn")),
    call("aten._scaled_mm_v2", t(2, 3), self=t(2, 4, dtype="float4_e2m1fn_x2"), mat2=t(4, 3)),
    call("aten._scaled_grouped_mm", t(8, 3), self=t(8, 4), mat2=t(2, 4, 3), offs=t(2, dtype="int32")),
    call("aten._scaled_grouped_mm_v2", t(2, 8, 3), self=t(2, 8, 4), mat2=t(2, 4, 3)),
    *(
        call(f"aten.{op}", t(2, 6, 3, 3), **{first: IMAGE}, weight=FILTER)
        for op, first in (
            ("convolution_overrideable", "input"),
            ("cudnn_convolution", "self"),
            ("_conv_depthwise2d", "self"),
            ("_nnpack_spatial_convolution", "input"),
            ("miopen_convolution", "self"),
            ("miopen_depthwise_convolution", "self"),
        )
    ),
    call("aten.conv_depthwise3d", t(2, 4, 3, 3, 3), self=VIDEO, weight=FILTER3, bias=t(4)),
    *(
        call(f"aten.{op}", t(2, 2, 7, 7), self=IMAGE, weight=t(4, 2, 3, 3))
        for op in ("cudnn_convolution_transpose", "miopen_convolution_transpose")
    ),
    call(
        "aten.convolution_backward_overrideable",
        IMAGE,
        FILTER,
        t(6),
        grad_output=t(2, 6, 3, 3),
        input=IMAGE,
        weight=FILTER,
        output_mask=(True, True, True),
        transposed=False,
    ),
    call(f"{SDP}attention_math", Q, t(2, 4, 8, 6), **QKV),
    call(f"{SDP}attention_math_for_mps", Q, t(2, 4, 8, 6), **QKV),
    call("aten._cudnn_attention_forward", Q, LSE, **QKV),
    call("aten._flash_attention_forward_no_dropout_inplace", LSE, **QKV, out=Q, dropout_p=0.0, mutated=("out",)),
    *(
        call(op, Q, K, K, **{grad: Q}, **BACK)
        for op, grad in (
            (f"{SDP}flash_attention_backward", "grad_out"),
            (f"{SDP}efficient_attention_backward", "grad_out_"),
            (f"{SDP}cudnn_attention_backward", "grad_out"),
            (f"{SDP}fused_attention_overrideable_backward", "grad_out"),
            ("aten._cudnn_attention_backward", "grad_out"),
            ("aten._flash_attention_backward", "grad_out"),
        )
    ),
    call(
        "aten._efficient_attention_backward",
        Q,
        K,
        K,
        grad_out_=Q,
        **QKV,
        out=Q,
        logsumexp=LSE,
        dropout_p=0.0,
        cu_seqlens_q=t(3, dtype="int32"),
        cu_seqlens_k=t(3, dtype="int32"),
        max_seqlen_q=8,
        max_seqlen_k=6,
    ),
    *(
        call(f"aten.{op}", BATCH, CHANNEL, CHANNEL, t(0), input=BATCH, weight=CHANNEL, bias=CHANNEL, training=True)
        for op in ("cudnn_batch_norm", "miopen_batch_norm")
    ),
    *(
        call(f"aten.{op}", BATCH, CHANNEL, CHANNEL, input=BATCH, grad_output=BATCH, weight=CHANNEL)
        for op in ("cudnn_batch_norm_backward", "miopen_batch_norm_backward")
    ),
    call("aten.copy", t(2, 3, storage=2), self=t(2, 3), src=t(3, storage=1)),
    call("aten._fused_rms_norm", BATCH, t(2, 3, 1), input=BATCH, weight=t(4)),
    call("aten.unique_dim_consecutive", t(4, 3), t(4, dtype="int64"), t(4, dtype="int64"), self=t(4, 3), dim=0),
    call("aten.batch_norm_stats", CHANNEL, CHANNEL, input=BATCH),
    call("aten.batch_norm_elemt", BATCH, input=BATCH, weight=CHANNEL, bias=CHANNEL, mean=CHANNEL, invstd=CHANNEL),
    *(
        call(f"aten.{op}", CHANNEL, CHANNEL, input=BATCH, mean=t(2, 3), invstd=t(2, 3))
        for op in ("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
    ),
    call("aten.batch_norm_backward_reduce", CHANNEL, CHANNEL, CHANNEL, CHANNEL, grad_out=BATCH, input=BATCH),
    call("aten.batch_norm_backward_elemt", BATCH, grad_out=BATCH, input=BATCH, weight=CHANNEL),
    call("aten.cudnn_grid_sampler", t(2, 3, 6, 7), self=t(2, 3, 4, 5), grid=t(2, 6, 7, 2)),
    call(
        "aten.cudnn_grid_sampler_backward",
        t(2, 3, 4, 5),
        t(2, 6, 7, 2),
        self=t(2, 3, 4, 5),
        grid=t(2, 6, 7, 2),
        grad_output=t(2, 3, 6, 7),
    ),
    call("aten.cudnn_affine_grid_generator", t(2, 4, 5, 2), theta=t(2, 2, 3)),
    call("aten.cudnn_affine_grid_generator_backward", t(2, 2, 3), grad=t(2, 4, 5, 2)),
    call("aten._cudnn_rnn", t(5, 3, 6), t(1, 3, 6), t(1, 3, 6), **LSTM, hx=t(1, 3, 6), cx=t(1, 3, 6)),
    call(
        "aten._cudnn_rnn",
        t(5, 3, 2),
        t(1, 3, 2),
        t(1, 3, 6),
        input=t(5, 3, 4),
        mode=2,
        proj_size=2,
        hx=t(1, 3, 2),
        weight=(t(24, 4), t(24, 2), t(24), t(24), t(2, 6)),
    ),
    call("aten._cudnn_rnn_backward", t(5, 3, 4), t(1, 3, 6), **LSTM, hx=t(1, 3, 6), output=t(5, 3, 6)),
    call("aten._thnn_fused_gru_cell", t(2, 3), t(2, 15), input_gates=t(2, 9), hidden_gates=t(2, 9), hx=t(2, 3)),
    call("aten._thnn_fused_gru_cell_backward", t(2, 9), grad_hy=t(2, 3), workspace=t(2, 15), has_bias=True),
)


def plain(key: str) -> Call:
    """A call of any operator as a function of one tensor: enough for a rule that looks at no argument."""
    name = key if key.count(".") == 1 else key.rpartition(".")[0]
    x, out = t(2, 3), t(2, 3, storage=1)
    return Call(f"{name}.default", {"self": x}, (out,))
