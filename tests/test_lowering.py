"""A run on CUDA described where there is none: which operators run, what they save, and that nothing stays behind.

No test here has a device to compare with. What CUDA runs is taken from PyTorch's sources, which
`symacct.lowering` names; that its own meta functions and its FLOP counter agree is tested.
"""

import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from test_memory_cases import FusedLayer, Layer, same, symbols
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)
from typer.testing import CliRunner

import symacct as sa
from symacct.cli import app
from symacct.errors import AssumptionError, SpecError, TraceError
from symacct.lowering import CPU, TABLE
from symacct.torch_private import operator_named, operators_with_kernel

CUDA = {"device": "cuda"}
SDPA = "aten._scaled_dot_product_"
sdpa = F.scaled_dot_product_attention


def ops(account, *words, phase=None):
    """The operators with one of the words in their names, in order, without "aten." and overload."""
    found = [n.op.split(".")[1] for n in account.nodes if phase in (None, n.phase)]
    return [op for op in found if not words or any(word in op for word in words)]


def relations(account):
    """The assumptions of an account as text."""
    return {str(a) for a in account.assumptions}


def attended(dtype="bf16", size=64, heads=("H", "H"), mask=None, lengths=("L", "S"), **options):
    """An account of attention alone, of heads of the given size; all of its operands want gradients."""
    q = f"{dtype}[B, {heads[0]}, {lengths[0]}, {size}]"
    kv = f"{dtype}[B, {heads[1]}, {lengths[1]}, {size}]"
    call = partial(sdpa, enable_gqa=heads[0] != heads[1])
    masks = [mask] if mask else []
    return sa.trace(call, q, kv, kv, *masks, grad=(0, 1, 2), **CUDA, **options)


# -- the table ---------------------------------------------------------------------------


def test_every_entry_names_operators_that_exist():
    """Each operator of the table and each that it calls is one of this PyTorch, and no operator has two entries."""
    for entry in TABLE:
        for op in (entry.op, *entry.calls):
            assert str(operator_named(op)) == op.removesuffix(".default") or str(operator_named(op)) == op
    assert len({(e.op, e.key) for e in TABLE}) == len(TABLE)


def test_device_and_attention_are_checked():
    """An unknown device or attention is named beside those that are known; attention is for CUDA."""
    with pytest.raises(SpecError, match=r"^device: 'tpu' is none of cpu, cuda$"):
        sa.trace(torch.sin, "B", device="tpu")
    with pytest.raises(SpecError, match=r"^attention: 'fast' is none of flash, efficient, cudnn, math$"):
        sa.trace(torch.sin, "B", device="cuda", attention="fast")
    with pytest.raises(SpecError, match=r"^attention: 'flash' is for device='cuda'; a CPU has one kernel"):
        sa.trace(torch.sin, "B", attention="flash")


def test_the_account_says_whose_kernels_it_describes():
    """On a CPU nothing changes; with CUDA the account, its reports and its JSON name what was used, in order."""

    def step(q):
        return F.dropout(sdpa(q, q, q), 0.1)

    here, there = (sa.trace(step, "bf16[B, H, L, 64]", grad=True, **options) for options in ({}, CUDA))
    assert here.lowering == CPU
    assert there.lowering == "cuda: flash attention, native_dropout"
    assert there.at(B=1, H=1, L=8).lowering == there.lowering
    for text in (there.report(), there.to_markdown(), there.to_json()):
        assert "kernels: cuda: flash attention, native_dropout" in " ".join(text.split())
    assert sa.trace(torch.sin, "B", **CUDA).lowering == "cuda: none that differs"


# -- nothing is left behind --------------------------------------------------------------


def world():
    """What a lowering changes in the process, as one sees it from outside."""
    x = torch.ones(2, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        halves = F.linear(x, torch.ones(8, 8))
        dtypes = [f(halves).dtype for f in (partial(F.layer_norm, normalized_shape=(8,)), torch.exp, torch.sum)]
        dtypes += [F.mse_loss(halves, halves).dtype, torch.stack([halves, x]).dtype]
    made = (
        F.dropout(x, 0.5),
        sdpa(*(x[None, None],) * 3),
        nn.BatchNorm2d(8)(x.view(1, 8, 2, 1)),
        F.rms_norm(x, (8,)),
        F.softmax(x.half(), -1, dtype=torch.float32),
        nn.GRU(8, 8)(x)[0],
    )
    by_lists = sys.modules["torch.optim.sgd"]._default_to_fused_or_foreach([x], False)
    lists = list(sys.modules["torch.optim.optimizer"]._foreach_supported_types)
    names = (F.scaled_dot_product_attention, torch.clear_autocast_cache, torch.autocast.__init__)
    return dtypes, [t.grad_fn.name() for t in made], by_lists, lists, names, operators_with_kernel("AutocastCPU")


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(fails, recwarn):
    """After a trace for CUDA, also one that fails, autocast, kernels, optimizers and names are as before."""

    def step(x):
        y = F.dropout(F.layer_norm(x @ x.t(), (x.shape[0],)), 0.1)
        if fails:
            raise ValueError("on purpose")
        return y

    before = world()
    recwarn.clear()
    for _ in range(2):
        if fails:
            with pytest.raises(TraceError, match="on purpose"):
                sa.trace(step, "B D", grad=True, autocast="bf16", **CUDA)
        else:
            assert "native_dropout" in ops(sa.trace(step, "B D", grad=True, autocast="bf16", **CUDA))
    assert [str(w.message) for w in recwarn] == []
    assert world() == before
    assert "native_dropout" not in ops(sa.trace(lambda x: F.dropout(x, 0.1), "B D", grad=True))


# -- attention ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "saved"),
    [
        ("flash", lambda rows: 4 * rows + 2 * 8 + 8),  # log-sum-exp, the state of the generator and what is unused
        ("efficient", lambda rows: 4 * rows + 2 * 8),  # seed and offset
        ("cudnn", lambda rows: 4 * rows + 2 * 8),
    ],
)
def test_fused_attention_saves_a_number_for_each_row(kind, saved):
    """Forward and backward are one operator each; beyond operands and result, a row keeps four bytes."""
    B, H, L = symbols("B H L")
    step = attended(attention=kind)
    names = [f"_scaled_dot_product_{kind}_attention", f"_scaled_dot_product_{kind}_attention_backward"]
    assert ops(step, "attention") == names
    assert step.lowering == f"cuda: {kind} attention"
    assert step.unknown == []
    assert step.checked
    assert relations(step) == set()
    result, loss = 2 * B * H * L * 64, 2
    at = {B: 2, H: 3, L: 96}  # a multiple of the 32 rows to which efficient attention pads
    assert (step.activation_bytes - result - loss).subs(at) == saved(2 * 3 * 96)
    if kind == "efficient":
        lse = next(n.outputs[1] for n in step.nodes if n.op.endswith("efficient_attention.default"))
        assert [lse.shape[2].subs(L, n) for n in (1, 32, 33)] == [32, 32, 64]


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_inference_keeps_no_row_sums(kind):
    """Without a gradient efficient attention is told to keep nothing, and no backward runs."""
    step = sa.trace(sdpa, *("bf16[B, H, L, 64]",) * 3, train=False, grad=True, attention=kind, **CUDA)
    (node,) = [n for n in step.nodes if "attention" in n.op]
    assert node.op == f"{SDPA}{kind}_attention.default"
    call = step.step.record.calls[step.step.record.nodes[node.index].call]
    assert call.args.get("compute_log_sumexp", False) is False
    assert "backward" not in {n.phase for n in step.nodes}


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_flops_are_those_of_the_cpu_and_of_torchs_counter(kind):
    """Two products forward and five backward, as by the CPU's fused kernel; torch's own formulas agree."""
    at = {"B": 2, "H": 3, "L": 40, "S": 56}
    fused = attended(attention=kind).at(**at)
    here = sa.trace(sdpa, *(f"bf16[B, H, {n}, 64]" for n in "LSS"), grad=(0, 1, 2)).at(**at)
    forward = 2 * 2 * 3 * 40 * 56 * 64 * 2
    assert fused.forward.flops == here.forward.flops == forward
    assert fused.backward.flops == here.backward.flops == forward // 2 * 5
    q, k = (2, 3, 40, 64), (2, 3, 56, 64)
    packet = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention")
    back = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention_backward")
    counted = flop_registry[packet](*(torch.empty(s, device="meta") for s in (q, k, k)))
    assert counted == fused.forward.flops
    counted = flop_registry[back](*(torch.empty(s, device="meta") for s in (q, q, k, k)))
    assert counted == fused.backward.flops


def test_what_pytorch_takes_by_itself():
    """Flash for two bytes, efficient for float32 and masks, products for what neither can serve."""
    for dtype, options, expected in (
        ("bf16", {}, "flash"),
        ("f16", {}, "flash"),
        ("f32", {}, "efficient"),
        ("f64", {}, "math"),
        ("bf16", {"mask": "bf16[L, S]"}, "efficient"),
        ("bf16", {"size": 264}, "efficient"),  # more than 256
        ("f32", {"size": 30}, "math"),  # no multiple of 4
        ("bf16", {"heads": ("(G H)", "G")}, "flash"),
        ("f32", {"heads": ("(G H)", "G")}, "math"),
    ):
        assert attended(dtype, check=False, **options).lowering == f"cuda: {expected} attention"
    causal = partial(sdpa, is_causal=True)
    for length, expected in (("L", "flash"), ("S", "efficient")):
        specs = ("bf16[B, H, L, 64]", f"bf16[B, H, {length}, 64]", f"bf16[B, H, {length}, 64]")
        assert sa.trace(causal, *specs, check=False, **CUDA).lowering == f"cuda: {expected} attention"
    three = sa.trace(lambda q: sdpa(q, q, q), "bf16[H, L, 64]", check=False, **CUDA)
    assert three.lowering == "cuda: math attention"


def test_what_the_model_allows_is_heeded():
    """Within `sdpa_kernel` only the kernels that it allows are taken; none left is an error that says so."""

    def only(*backends):
        def step(q):
            with sdpa_kernel(list(backends)):
                return sdpa(q, q, q)

        return lambda dtype: sa.trace(step, f"{dtype}[B, H, L, 64]", check=False, **CUDA).lowering

    assert only(SDPBackend.EFFICIENT_ATTENTION)("bf16") == "cuda: efficient attention"
    assert only(SDPBackend.CUDNN_ATTENTION)("bf16") == "cuda: cudnn attention"
    assert only(SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)("f32") == "cuda: math attention"
    with pytest.raises(TraceError, match=r"no kernel of attention is left for the call at .*test_lowering.py:\d+"):
        only(SDPBackend.FLASH_ATTENTION)("f32")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("flash", {"dtype": "f32"}, r"flash attention takes float16 and bfloat16, not float32; choose 'efficient' or"),
        ("flash", {"mask": "bool[L, S]"}, r"flash attention takes no mask; choose 'efficient' or 'math', or None"),
        ("flash", {"size": 264}, r"flash attention takes heads of one size, of at most 256; choose 'efficient'"),
        ("efficient", {"dtype": "f64"}, r"efficient attention takes float32, float16 and bfloat16, not float64; "),
        (
            "efficient",
            {"size": 36},
            r"efficient attention takes heads whose size is a multiple of 8 in bfloat16; choose 'flash' or 'math'",
        ),
        (
            "efficient",
            {"heads": ("(G H)", "G")},
            r"efficient attention takes as many heads of keys and values as of queries; choose 'flash'",
        ),
        ("cudnn", {"dtype": "f32"}, r"cuDNN's attention takes float16 and bfloat16, not float32; choose 'efficient'"),
        ("cudnn", {"size": 36}, r"cuDNN's attention takes heads whose size is a multiple of 8, of at most 256; "),
    ],
)
def test_a_kernel_that_cannot_serve_is_refused(kind, options, message):
    """The error names the place, the reason and what to choose."""
    with pytest.raises(TraceError, match=rf"^attention='{kind}' cannot serve the call at .*: {message}"):
        attended(**{"dtype": "bf16", **options}, attention=kind)


def test_heads_are_padded_for_flash():
    """Heads of 36 are padded to 40 before, and cut after; heads that are a multiple of 8 are an assumption."""
    step = attended(size=36)
    assert ops(step, "pad", "attention", phase="forward") == [
        *["constant_pad_nd"] * 3,
        "_scaled_dot_product_flash_attention",
    ]
    node = next(n for n in step.nodes if n.op.endswith("flash_attention.default"))
    assert [x.shape[3] for x in node.inputs] == [40, 40, 40]
    call = step.step.record.calls[step.step.record.nodes[node.index].call]
    assert call.args["scale"] == 36**-0.5
    assert relations(step) == set()
    assert relations(attended(size="D")) == {"D % 8 == 0", "D <= 256"}
    with pytest.raises(AssumptionError, match=r"D=36: the traced program relied on D % 8 == 0"):
        attended(size="D", check=False).at(B=1, H=1, L=8, S=8, D=36)


def test_masks_are_added_and_aligned():
    """A mask of bools becomes one of numbers; rows that are no multiple of 8 are padded."""
    bools = attended("f32", mask="bool[B, 1, L, S]")
    assert ops(bools, "where", "pad") == ["where"]
    assert relations(bools) == {"S % 8 == 0"}
    rows = attended("f32", mask="L 13", lengths=("L", "13"))
    assert ops(rows, "where", "pad") == ["constant_pad_nd"]
    (pad,) = [n for n in rows.nodes if "pad" in n.op]
    assert pad.outputs[0].shape[1] == 16
    node = next(n for n in rows.nodes if n.op.endswith("efficient_attention.default"))
    B, H, L = symbols("B H L")
    assert node.inputs[3].shape == (B, H, L, 13)
    assert node.inputs[3].stride == (0, 0, 16, 1)
    wanted = sa.trace(sdpa, *("B H L 64", "B H 13 64", "B H 13 64", "H L 13"), grad=True, **CUDA)
    assert ops(wanted, "pad") == ["constant_pad_nd", "constant_pad_nd"]  # and its backward


def test_gradient_of_a_mask_has_aligned_rows():
    """Efficient attention makes it with rows of a multiple of 16; that a length is one is an assumption."""
    for length, rows, asked in ((40, "16*((S + 15)//16)", {"S % 8 == 0"}), (48, "S", {"S % 8 == 0", "(S/8) % 2 == 0"})):
        specs = ("B H L 64", "B H S 64", "B H S 64", "H L S")
        step = sa.trace(sdpa, *specs, grad=True, sizes={"S": length}, check=False, **CUDA)
        node = next(n for n in step.nodes if n.op.endswith("attention_backward.default"))
        bias = node.outputs[3]
        assert sa.formula(bias.stride[2]) == rows
        assert asked <= relations(step)


def test_grouped_queries_are_not_repeated():
    """Flash attention reads keys and values as they are, and gives them gradients of their size."""
    B, G, S = symbols("B G S")
    step = attended(heads=("(G H)", "G"))
    back = next(n for n in step.nodes if n.op.endswith("attention_backward.default"))
    assert [x.shape for x in back.outputs[1:]] == [(B, G, S, 64)] * 2
    assert ops(step, "clone", "repeat") == []


@pytest.mark.parametrize("call", ["functional", "binding", "layer", "encoder"])
def test_every_caller_is_reached(call):
    """By the function, by torch's binding of it, from `nn.MultiheadAttention` and from an encoder layer."""
    attend = {"functional": sdpa, "binding": torch._C._nn.scaled_dot_product_attention}
    if call in attend:
        step = sa.trace(lambda q: attend[call](q, q, q), "bf16[B, H, L, 64]", grad=True, **CUDA)
    elif call == "layer":

        class Net(nn.Module):
            def __init__(self, H, D):
                super().__init__()
                self.attention = nn.MultiheadAttention(H * D, H, batch_first=True, dtype=torch.bfloat16)

            def forward(self, x):
                return self.attention(x, x, x, need_weights=False)[0]

        step = sa.trace(sa.build(Net), "bf16[B, L, (H D)]", **CUDA)
    else:
        make = sa.build(lambda H, D: nn.TransformerEncoderLayer(H * D, H, 4 * H * D, batch_first=True))
        step = sa.trace(make, "B L (H D)", autocast="bf16", **CUDA)
        assert ops(step, "native_dropout", phase="forward") == ["native_dropout"] * 3
    assert ops(step, "flash") == [f"_scaled_dot_product_flash_attention{end}" for end in ("", "_backward")]
    assert step.unknown == []


def test_products_add_the_mask_in_place_and_drop_out_by_bytes():
    """Attention by products is the CPU's, dropout apart: its sum with the mask is in place here too."""

    def call(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)

    here, there = (
        sa.trace(call, *("B H L 64",) * 3, grad=True, **options) for options in ({}, {**CUDA, "attention": "math"})
    )
    drops = ("empty_like", "bernoulli_", "div_", "native_dropout", "native_dropout_backward")
    without = [[op for op in ops(step) if op not in (*drops, "mul")] for step in (here, there)]
    assert without[0] == without[1]
    assert "add_" in without[1]
    assert "native_dropout" in ops(there)


def test_checkpoints_run_the_kernel_again():
    """A checkpointed call runs flash attention in the forward, again in the recomputation, and its backward once."""

    def step(q):
        return checkpoint(lambda x: sdpa(x, x, x), q, use_reentrant=False)

    account = sa.trace(step, "bf16[B, H, L, 64]", grad=True, **CUDA)
    found = Counter((n.phase, n.op.removeprefix(SDPA)) for n in account.nodes if n.op.startswith(SDPA))
    forward, backward = "flash_attention.default", "flash_attention_backward.default"
    assert found == {("forward", forward): 1, ("recompute", forward): 1, ("backward", backward): 1}


# -- a transformer layer -----------------------------------------------------------------


def activations(layer, **options):
    """Bytes that a float16 layer with dropout 0.1 saves, its input with them, without the loss; and the account."""
    drop = partial(F.dropout, p=0.1)
    step = sa.trace(sa.build(lambda a, Dh: layer(a, Dh, drop)), "f16[b, s, (a Dh)]", **CUDA, **options)
    assert step.unknown == []
    assert step.checked
    return step.activation_bytes + step.input_bytes - 2, step


def test_transformer_layer_N095():
    """34*s*b*h + 5*a*s^2*b (Korthikanti et al. 2022), no mask made by hand, and 16*s*b of statistics beside it.

    The formula leaves out mean and rstd of two norms, float32 on CUDA: 2*2*4*s*b. On a CPU they are float16.
    """
    s, b, a, Dh = symbols("s b a Dh")
    h = a * Dh
    total, step = activations(Layer, attention="math")
    assert same(total, 34 * s * b * h + 5 * a * s**2 * b + 16 * s * b)
    assert step.lowering == "cuda: native_dropout"
    masks = [x for x in step.memory.later.moments[-1].live if x.dtype == "bool"]
    assert masks == []  # they are gone in the end


def test_transformer_layer_with_flash_attention():
    """The term that grows with s^2 is gone: a float32 for each row of scores instead, and 24 bytes of random state."""
    s, b, a, Dh = symbols("s b a Dh")
    total, step = activations(FusedLayer)
    assert same(total, 34 * s * b * a * Dh + 4 * a * s * b + 16 * s * b + 24)
    assert relations(step) == {"Dh % 8 == 0", "Dh <= 256"}


def test_transformer_layer_by_products_of_fused_attention():
    """The same call by products: PyTorch computes float16 attention in float32, and saves that.

    The weights and both scaled operands of the scores in float32 are 4*a*s^2*b and 2*4*s*b*h in place of two bytes
    each; of the two copies of the weights in float16 one is left, for the product with the values.
    """
    s, b, a, Dh = symbols("s b a Dh")
    h = a * Dh
    total, _ = activations(FusedLayer, attention="math")
    fused = 34 * s * b * h + 16 * s * b  # 11*s*b*h of attention's among it: input, q, k, v, result
    assert same(total - fused, 4 * a * s**2 * b + 6 * s * b * h)


# -- dropout, normalization, softmax -----------------------------------------------------


def test_dropout_keeps_a_byte_for_each_element():
    """One operator forward and backward, a mask of bools; without training, and with p of 0 or 1, as on the CPU."""
    B, D = symbols("B D")
    net = sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Dropout(0.1), nn.Linear(D, D)))
    here, there = sa.trace(net, "B D"), sa.trace(net, "B D", **CUDA)
    assert ops(there, "drop", "bernoulli") == ["native_dropout", "native_dropout_backward"]
    assert same(here.activation_bytes - there.activation_bytes, 4 * B * D - B * D)
    assert there.forward.flops == here.forward.flops
    for options in ({"training": False}, {"p": 0.0}, {"p": 1.0}, {"inplace": True}):
        call = lambda x, given=options: F.dropout(x * 2, **{"p": 0.1, **given})  # noqa: E731
        assert ops(sa.trace(call, "B D", grad=True, **CUDA)) == ops(sa.trace(call, "B D", grad=True))


def convolved(autocast=None, train=True, half=False, layer=nn.BatchNorm2d):
    """An account of a convolution and a norm of C channels."""

    def make(C):
        net = nn.Sequential(nn.Conv2d(3, C, 3), layer(C))
        return net.half() if half else net

    spec = "f16[B, 3, 8, 8]" if half else "B 3 8 8"
    return sa.trace(sa.build(make), spec, autocast=autocast, train=train, **CUDA)


def test_batch_norm_is_cudnns_where_it_takes_the_dtype():
    """For float32, and float16 with float32 weights; its statistics are float32, its reserve is named as unknown."""
    C = symbols("C")
    for autocast in (None, "f16"):
        step = convolved(autocast)
        assert ops(step, "batch_norm") == ["cudnn_batch_norm", "cudnn_batch_norm_backward"]
        node = next(n for n in step.nodes if n.op == "aten.cudnn_batch_norm.default")
        assert [(x.shape, x.dtype) for x in node.outputs[1:]] == [((C,), "float32")] * 2 + [((0,), "uint8")]
        assert "cudnn batch norm (its reserve, which cuDNN alone knows, as 0 bytes)" in step.lowering
        assert step.unknown == []
        assert relations(step) == set()
    (node,) = [n for n in convolved(train=False).nodes if "batch_norm" in n.op]
    assert (node.op, [x.shape for x in node.outputs[1:]]) == ("aten.cudnn_batch_norm.default", [(0,)] * 3)
    assert ops(convolved(layer=partial(nn.InstanceNorm2d, affine=True)), "cudnn") == [
        "cudnn_batch_norm", "cudnn_batch_norm_backward"
    ]  # fmt: skip


def test_batch_norm_is_pytorchs_own_elsewhere():
    """For bfloat16, for float16 throughout, without weights and for two axes; its statistics are float32 always."""
    C = symbols("C")
    for step in (convolved("bf16"), convolved(half=True), convolved("bf16", train=False)):
        node = next(n for n in step.nodes if n.op == "aten.native_batch_norm.default")
        assert [(x.shape, x.dtype) for x in node.outputs[1:]] == [((C,), "float32")] * 2
        assert "native batch norm" in step.lowering
        assert step.unknown == []
    assert ops(convolved(layer=partial(nn.BatchNorm2d, affine=False)), "batch_norm")[0] == "native_batch_norm"
    flat = sa.trace(sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))), "B D", **CUDA)
    assert ops(flat, "batch_norm") == ["native_batch_norm", "native_batch_norm_backward"]


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float16"), ("cuda", "float32")])
def test_layer_norm_of_two_bytes_has_statistics_of_four(device, dtype):
    """Mean and rstd of a float16 layer norm are float32 on CUDA; the gradients of its weights stay float16."""
    net = sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D)).half())
    step = sa.trace(net, "f16[B, D]", device=device)
    forward, backward = (n for n in step.nodes if "layer_norm" in n.op)
    assert [x.dtype for x in forward.outputs] == ["float16", dtype, dtype]
    assert [x.dtype for x in backward.outputs] == ["float16"] * 3


def test_rms_norm_is_one_kernel():
    """Forward and backward are one operator each, keep a float32 for each row, and pin no size; mixed dtypes do not."""
    B, L = symbols("B L")
    make = lambda D: nn.Sequential(nn.Linear(D, D), nn.RMSNorm(D), nn.Linear(D, D)).bfloat16()  # noqa: E731
    step = sa.trace(sa.build(make), "bf16[B, L, D]", **CUDA)
    assert ops(step, "norm") == ["_fused_rms_norm", "_fused_rms_norm_backward"]
    assert step.lowering == "cuda: fused RMS norm"
    assert step.checked
    assert relations(sa.trace(sa.build(make), "bf16[B, L, D]", check=False, **CUDA)) == set()
    assert step.unknown == []
    node = next(n for n in step.nodes if n.op == "aten._fused_rms_norm.default")
    assert (node.outputs[1].shape, node.outputs[1].dtype) == ((B, L, 1), "float32")
    mixed = sa.trace(lambda x, w: F.rms_norm(x, (w.shape[0],), w), "bf16[B, D]", "D", grad=True, **CUDA)
    assert ops(mixed, "rms_norm") == []


@pytest.mark.parametrize(("dtype", "copies"), [("f16", 0), ("bf16", 1)])
def test_softmax_from_float16_to_float32_makes_no_copy(dtype, copies):
    """CUDA's kernel reads float16 and writes float32; other dtypes are cast first, as on a CPU."""
    for function in (F.softmax, F.log_softmax):
        step = sa.trace(lambda x, f=function: f(x, -1, dtype=torch.float32), f"{dtype}[B, D]", grad=True, **CUDA)
        (node,) = [n for n in step.nodes if n.op.endswith("softmax.default")]
        assert (node.inputs[0].dtype, node.outputs[0].dtype) == ("float32" if copies else "float16", "float32")
        assert len(ops(step, "_to_copy", phase="forward")) == copies
        assert step.unknown == []


def test_grid_sampler_is_cudnns_where_it_serves():
    """Bilinear with aligned corners and zeros around: one operator, its gradients like image and grid; else ATen's."""
    specs = ("B C 8 9", "B H W 2")
    for options, expected in (
        ({}, "cudnn_grid_sampler"),
        ({"mode": "nearest"}, "grid_sampler_2d"),
    ):
        step = sa.trace(partial(F.grid_sample, align_corners=True, **options), *specs, grad=True, **CUDA)
        assert ops(step, "grid_sampler") == [expected, f"{expected}_backward"]
        forward, backward = (n for n in step.nodes if "grid_sampler" in n.op)
        assert [x.shape for x in backward.outputs] == [x.shape for x in forward.inputs]
        assert step.unknown == []


# -- recurrent layers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_one_kernel(kind):
    """All steps and layers are one operator, of any length; FLOPs are those of the CPU's matrix products."""
    layer = getattr(nn, kind)
    make = sa.build(lambda D, H: layer(D, H, num_layers=2, bidirectional=True))
    step = sa.trace(make, "T B D", **CUDA)
    assert ops(step, "rnn") == ["_cudnn_rnn", "_cudnn_rnn_backward"]
    assert step.unknown == []
    assert relations(step) == set()
    assert step.checked
    assert "as 0 bytes" in step.lowering
    here = sa.trace(make, "3 B D")
    at = {"B": 2, "D": 16, "H": 104}  # the trial size, to which the CPU's account of a GRU pins H
    assert step.at(T=3, **at).forward.flops == here.at(**at).forward.flops
    assert same(step.grad_bytes, step.param_bytes)


def test_recurrent_layers_that_are_not_described():
    """In bfloat16 and under autocast they stay matrix products, and the account says so."""
    step = sa.trace(sa.build(lambda D, H: nn.LSTM(D, H)), "3 B D", autocast="f16", **CUDA)
    assert "lstm by matrix products (cuDNN's is not described for bfloat16 and under autocast)" in step.lowering
    assert ops(step, "_cudnn_rnn") == []


# -- optimizers --------------------------------------------------------------------------


def optimized(optimizer, **options):
    """An account of two layers and an optimizer's step."""
    return sa.trace(sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))), "B D",
                    optimizer=optimizer, **{**CUDA, **options})  # fmt: skip


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta"])
def test_optimizers_take_lists_by_default(name):
    """What is not asked for otherwise runs by lists, with what these hold at once; what is asked for is heeded."""
    make = getattr(torch.optim, name)
    step = optimized(make)
    asked = optimized(partial(make, foreach=True), device="cpu")
    assert ops(step, phase="optimizer") == ops(asked, phase="optimizer")
    assert any(op.startswith("_foreach_") for op in ops(step, phase="optimizer"))
    assert same(step.optimizer_bytes, asked.optimizer_bytes)
    assert "foreach optimizer" in step.lowering
    loops = optimized(partial(make, foreach=False))
    assert ops(loops, "foreach") == []
    assert "foreach" not in loops.lowering


def test_fused_optimizers_and_clipping():
    """A fused optimizer stays fused; norms for clipping are taken by lists, as with real tensors."""
    fused = optimized(partial(torch.optim.AdamW, fused=True), clip=1.0)
    assert "_fused_adamw_" in ops(fused, phase="optimizer")
    assert "_foreach_norm" in ops(fused, phase="optimizer")
    assert fused.unknown == []


# -- models ------------------------------------------------------------------------------


def gpt2(H, Dh, V, P):
    """GPT-2 with its dropout, one layer."""
    return GPT2LMHeadModel(GPT2Config(n_embd=H * Dh, n_head=H, n_layer=1, vocab_size=V, n_positions=P))


def llama(H, G, Dh, F, V):
    """Llama in bfloat16 with grouped queries, one layer."""
    config = LlamaConfig(hidden_size=H * G * Dh, num_attention_heads=H * G, num_key_value_heads=G, head_dim=Dh,
                         intermediate_size=F, vocab_size=V, num_hidden_layers=1)  # fmt: skip
    return LlamaForCausalLM(config).bfloat16()


def bert(H, Dh, F, V, P):
    """BERT with its dropout, one layer."""
    return BertForMaskedLM(BertConfig(hidden_size=H * Dh, num_attention_heads=H, num_hidden_layers=1,
                                      intermediate_size=F, vocab_size=V, max_position_embeddings=P))  # fmt: skip


def t5(H, Dh, F, V):
    """T5, an encoder and a decoder layer."""
    return T5ForConditionalGeneration(T5Config(d_model=H * Dh, num_heads=H, d_kv=Dh, d_ff=F, vocab_size=V, num_layers=1,
                                               num_decoder_layers=1, decoder_start_token_id=0))  # fmt: skip


def vit(H, Dh, F):
    """A vision transformer of 16 patches, one layer."""
    return ViTForImageClassification(ViTConfig(hidden_size=H * Dh, num_attention_heads=H, num_hidden_layers=1,
                                               intermediate_size=F, image_size=32, patch_size=8))  # fmt: skip


def resnet(C):
    """A small residual network."""
    return ResNetForImageClassification(ResNetConfig(embedding_size=C, hidden_sizes=[C, 2 * C], depths=[1, 1],
                                                     layer_type="basic"))  # fmt: skip


TOKENS = {"input_ids": "i64[B, L]", "labels": "i64[B, L]"}
IMAGES = {"pixel_values": "B 3 32 32", "labels": "i64[B]"}


@pytest.mark.parametrize(
    ("make", "inputs", "autocast", "kernel", "asked"),
    [
        (gpt2, TOKENS, "bf16", "flash attention", {"Dh % 8 == 0", "Dh <= 256"}),
        (gpt2, TOKENS, None, "efficient attention", {"Dh % 4 == 0"}),
        (llama, TOKENS, None, "flash attention", {"(Dh/2) % 4 == 0"}),  # Dh is even, for its rotation
        (bert, TOKENS, "bf16", "flash attention", {"Dh % 8 == 0", "Dh <= 256"}),
        (
            t5,
            {**TOKENS, "sizes": {"L": 176}},
            "bf16",
            "efficient attention",
            {"Dh % 8 == 0", "L % 8 == 0", "(L/8) % 2 == 0"},
        ),
        (vit, IMAGES, "bf16", "flash attention", {"Dh % 8 == 0", "Dh <= 256"}),
        (resnet, IMAGES, "f16", "cudnn batch norm", set()),
    ],
)
def test_models(make, inputs, autocast, kernel, asked):
    """A training step is traced and checked, without unknown operators; sizes are asked about as torch asks, no more.

    FLOPs are those of the CPU's account. A fused backward, which has a fifth product, is the CPU's where there is no
    dropout and no mask.
    """
    options = {"optimizer": torch.optim.AdamW, "autocast": autocast, **inputs}
    there = sa.trace(sa.build(make), **options, **CUDA)
    here = sa.trace(sa.build(make), **options)
    assert there.unknown == []
    assert there.checked
    assert relations(there) - relations(here) <= asked
    assert asked <= relations(there)
    assert f"cuda: {kernel}" in there.lowering or f", {kernel}" in there.lowering
    assert same(there.forward.flops, here.forward.flops)
    four = [
        step.backward.flops - sum(n.flops / 5 for n in step.nodes if n.op.startswith(SDPA) and n.phase == "backward")
        for step in (there, here)
    ]
    assert same(*four)


# -- from a shell ------------------------------------------------------------------------

CLI_MODELS = str(Path(__file__).parent / "data" / "cli_models.py")


def test_command_line():
    """`--device` and `--attention` say what is described; unknown ones are wrong commands."""
    run = partial(CliRunner().invoke, app)
    done = run(["trace", f"{CLI_MODELS}:Net", "--build", "B D", "--device", "cuda", "--optimizer", "AdamW", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["convention"].endswith("; kernels: cuda: foreach optimizer")
    for options, message in (
        (["--device", "tpu"], "device: 'tpu' is none of cpu, cuda"),
        (["--device", "cuda", "--attention", "fast"], "attention: 'fast' is none of flash, efficient, cudnn, math"),
        (["--attention", "flash"], "attention: 'flash' is for device='cuda'"),
    ):
        failed = run(["trace", f"{CLI_MODELS}:matmul", "B D", "D K", *options])
        assert failed.exit_code == 2
        assert message in failed.stderr
