"""Autocast as CUDA has it, on tensors that are on a CPU: the lists, the dtypes, the casts that are kept."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symacct as sa
from symacct import autocast
from symacct.errors import TraceError
from symacct.torch_private import operator_named, operators_with_kernel

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
CUDA = {"device": "cuda"}
NAMES = {"bf16": "bfloat16", "f16": "float16"}


def listed(macro):
    """The operators of a list in torch's header."""
    body = re.search(rf"#define AT_FORALL_{macro}\(_\)(.*?)\n\n", HEADER.read_text(), re.S)[1]
    return [".".join(part.strip() for part in each.split(",")) for each in re.findall(r"_\(([^)]*)\)", body)]


@pytest.mark.parametrize(
    ("macro", "ours"),
    [
        ("LOWER_PRECISION_FP", autocast.LOWER),
        ("FP32", autocast.FLOAT32),
        ("FP32_SET_OPT_DTYPE", autocast.FLOAT32_RESULT),
        ("PROMOTE", autocast.WIDEST),
    ],
)
def test_lists_are_those_of_torch(macro, ours):
    """Each list is that of the header that comes with this PyTorch, in its order, and names real operators."""
    assert list(ours) == listed(macro)
    for name in ours:
        assert operator_named(autocast.full_name(name)) is not None


def test_norm_is_in_the_header_too():
    """The operators that take another variant are the two of the header."""
    body = HEADER.read_text().split("AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(_)")[1].split("AT_FORALL_PROMOTE")[0]
    assert re.findall(r'"(norm[.]\w+)"', body) == list(autocast.FLOAT32_APPENDED)
    for name in (*autocast.FLOAT32_APPENDED, *autocast.FLOAT32_APPENDED.values()):
        assert operator_named(autocast.full_name(name)) is not None


def test_every_operator_of_the_cpu_is_left_replaced_or_dropped():
    """The CPU's kernel stays where CUDA's list has the same cast, is replaced for the other lists, else is gone."""
    own = operators_with_kernel("AutocastCPU")
    made = {op: kernel for (op, key), kernel in autocast.kernels(own, autocast.Casts(), lambda: None).items()}
    lower = {autocast.full_name(n) for n in autocast.LOWER}
    assert own - set(made) == own & lower
    dropped = {op for op, kernel in made.items() if kernel is None}
    assert dropped < own
    assert {"aten.cat.default", "aten.stack.default", "aten.avg_pool3d.default"} <= dropped


def test_kernels_of_other_libraries_are_left_alone():
    """An operator of another namespace may have a kernel for autocast too: torchvision's have."""
    with torch.library._scoped_library("symacct_autocast", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        library.impl("twice", torch.library.fallthrough_kernel, "AutocastCPU")
        assert {op.split(".")[0] for op in operators_with_kernel("AutocastCPU")} == {"aten"}
        step = sa.trace(torch.ops.symacct_autocast.twice, "B", autocast="bf16", train=False, **CUDA)
        assert [n.op for n in step.nodes] == ["aten.add.Tensor"]


# -- dtypes ------------------------------------------------------------------------------


def result(function, spec="B D", dtype="bf16", **options):
    """The dtype of a function's last result, of an operand that a product under autocast made."""
    net = sa.build(lambda D: Applied(D, function))
    step = sa.trace(net, spec, autocast=dtype, train=False, check=False, **{**CUDA, **options})
    return step.nodes[-1].outputs[0].dtype


class Applied(nn.Module):
    """A function of what a linear layer gives, of its weight, and of the input."""

    def __init__(self, D, function):
        super().__init__()
        self.layer, self.function = nn.Linear(D, D), function

    def forward(self, x):
        return self.function(self.layer(x), self.layer.weight, x)


CASES = {
    "exp": (lambda h, w, x: h.exp(), "bfloat16", "float32"),
    "pow": (lambda h, w, x: h**2, "bfloat16", "float32"),
    "pow of a number": (lambda h, w, x: 2**h, "bfloat16", "float32"),
    "rsqrt": (lambda h, w, x: h.rsqrt(), "bfloat16", "float32"),
    "softmax": (lambda h, w, x: h.softmax(-1), "bfloat16", "float32"),
    "log_softmax": (lambda h, w, x: F.log_softmax(h, -1), "bfloat16", "float32"),
    "sum": (lambda h, w, x: h.sum(), "bfloat16", "float32"),
    "sum of rows": (lambda h, w, x: h.sum(1), "bfloat16", "float32"),
    "sum asked for": (lambda h, w, x: h.sum(1, dtype=torch.bfloat16), "bfloat16", "bfloat16"),
    "cumsum": (lambda h, w, x: h.cumsum(0), "bfloat16", "float32"),
    "prod": (lambda h, w, x: h.prod(1), "float32", "float32"),
    "norm": (lambda h, w, x: torch.ops.aten.norm.Scalar(h), "bfloat16", "float32"),
    "norm of rows": (lambda h, w, x: torch.ops.aten.norm.ScalarOpt_dim(h, 2, [1]), "bfloat16", "float32"),
    "layer_norm": (lambda h, w, x: F.layer_norm(h, (h.shape[1],)), "bfloat16", "float32"),
    "mse_loss": (lambda h, w, x: F.mse_loss(h, h), "float32", "float32"),
    "stack": (lambda h, w, x: torch.stack([h, h]), "bfloat16", "bfloat16"),
    "avg_pool3d": (lambda h, w, x: F.avg_pool3d(h[None, None, None], 1), "float32", "bfloat16"),
    "addcmul": (lambda h, w, x: torch.addcmul(h, h, x), "float32", "float32"),
    "addcmul of halves": (lambda h, w, x: torch.addcmul(h, h, h), "bfloat16", "bfloat16"),
    "gelu": (lambda h, w, x: F.gelu(h), "bfloat16", "bfloat16"),
    "mean": (lambda h, w, x: h.mean(), "bfloat16", "bfloat16"),
    "einsum": (lambda h, w, x: torch.einsum("bd,ed->be", x, w), "bfloat16", "bfloat16"),
    "mv": (lambda h, w, x: torch.mv(w, w[0]), "float32", "bfloat16"),
    "matmul": (lambda h, w, x: x @ w, "bfloat16", "bfloat16"),
    "whole numbers": (lambda h, w, x: h.argmax(1).sum(), "int64", "int64"),
    "eight bytes": (lambda h, w, x: h.double().exp(), "float64", "float64"),
}


@pytest.mark.parametrize("name", CASES)
def test_dtypes(name):
    """An operator's result has the dtype that CUDA's lists give it, and on the CPU that of the CPU's."""
    function, here, there = CASES[name]
    assert result(function, device="cpu") == here
    assert result(function) == there


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_net_in_the_dtypes_of_the_lists(dtype):
    """Products in two bytes; layer norm, softmax and the loss in four; activation functions in what they get."""
    short = NAMES[dtype]

    def make(D, K):
        return nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, K), nn.GELU(), nn.Softmax(-1))

    step = sa.trace(sa.build(make), "B D", autocast=dtype, loss=lambda y: y.sum(), **CUDA)
    made = [(n.op.split(".")[1], n.inputs[0].dtype, n.outputs[0].dtype) for n in step.nodes if n.phase == "forward"]
    assert [m for m in made if m[0] not in ("_to_copy", "t", "detach")] == [
        ("addmm", short, short),
        ("native_layer_norm", "float32", "float32"),
        ("addmm", short, short),
        ("gelu", short, short),
        ("_softmax", "float32" if dtype == "bf16" else "float16", "float32"),  # from float16 in one kernel
        ("sum", "float32", "float32"),
    ]
    back = {n.op.split(".")[1]: n.outputs[0].dtype for n in step.nodes if n.phase == "backward"}
    assert (back["native_layer_norm_backward"], back["gelu_backward"], back["mm"]) == ("float32", short, short)
    assert "autocast lists of CUDA" in step.lowering
    assert step.unknown == []
    assert step.checked
    assert step.assumptions == ()


def test_cross_entropy_keeps_the_dtype_of_its_logits():
    """Its log-softmax asks for the dtype of its input, which the lists respect; only what follows is widened.

    On a CPU cross entropy is itself in the list, and all of it is float32. Source: LossNLL.cpp in ATen/native.
    """

    def dtypes(device):
        net = sa.build(lambda D: nn.Linear(D, D))
        step = sa.trace(net, "B D", loss=lambda h: F.cross_entropy(h, h.argmax(1)), autocast="bf16", device=device)
        return [n.outputs[0].dtype for n in step.nodes if n.op.split(".")[1] in ("_log_softmax", "nll_loss_forward")]

    assert dtypes("cpu") == ["float32", "float32"]
    assert dtypes("cuda") == ["bfloat16", "float32"]


def test_binary_cross_entropy_is_refused():
    """CUDA's autocast forbids it; the error says what to take."""
    net = sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.Sigmoid()))
    with pytest.raises(TraceError, match=r"unsafe under autocast, .* use binary_cross_entropy_with_logits"):
        sa.trace(net, "B D", loss=lambda y: F.binary_cross_entropy(y, y.detach()), autocast="bf16", **CUDA)


# -- regions and casts -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_regions_of_the_model_are_heeded(name):
    """A region that the model opens for its device, by either name, turns autocast off, or on with CUDA's dtype."""

    def off(h, w, x):
        with torch.autocast(name, enabled=False):
            return x @ w

    def on(h, w, x):
        with torch.autocast(name):
            return x @ w

    assert result(off) == "float32"
    assert result(on, dtype=None) == {"cpu": "bfloat16", "cuda": "float16"}[name]


def casts_of_weights(step):
    """The casts of square matrices in the forward pass."""
    made = [n for n in step.nodes if n.op == "aten._to_copy.default" and n.phase == "forward"]
    return [n for n in made if len(n.inputs[0].shape) == 2 and len(set(n.inputs[0].shape)) == 1]


class Twice(nn.Module):
    """One weight, which is used twice by an operator."""

    def __init__(self, D, product, trained=True):
        super().__init__()
        self.weight, self.product = nn.Parameter(torch.empty(D, D), requires_grad=trained), product

    def forward(self, x):
        return self.product(self.weight, self.product(self.weight, x))


@pytest.mark.parametrize(("trained", "casts"), [(True, 1), (False, 2)])
@pytest.mark.parametrize(("product", "spec"), [(torch.matmul, "D B"), (torch.mv, "D")])
def test_cast_weights_are_kept_as_torch_keeps_them(product, spec, trained, casts):
    """A weight that wants a gradient is cast once for all its uses, others each time.

    The kernel for `matmul` is torch's, that for `mv`, for which the CPU has none, is ours.
    """
    net = sa.build(lambda D: Twice(D, product, trained))
    step = sa.trace(net, spec, autocast="bf16", grad=True, **CUDA)
    assert len(casts_of_weights(step)) == casts


def test_casts_are_forgotten_with_the_region():
    """What is kept goes when the outermost region ends, so that each micro-batch casts again, and none is left."""
    net = sa.build(lambda D: Twice(D, torch.mv))
    step = sa.trace(net, "D", autocast="bf16", accumulate=3, **CUDA)
    assert len(casts_of_weights(step)) == 3
