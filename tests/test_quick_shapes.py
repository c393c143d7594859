"""Shapes that are not asked of torch: as real tensors have them, stride for stride, in the plain case and beside it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symacct as sa

AT = {"B": 2, "L": 3, "D": 4, "H": 5}
TENSORS = {
    "view": (lambda x: x.view(x.shape[0], -1) * 2, "B L D"),
    "view of two into one": (lambda x: x.view(-1, x.shape[2]) * 2, "B L D"),
    "view of one into two": (lambda x: x.view(x.shape[0], x.shape[1] // 4, 4) * 2, "B (4 D)"),
    "view of a part": (lambda x: x[:, :, 1:].view(x.shape[0], x.shape[1], 2, -1) * 2, "B L 5"),
    "view as it is": (lambda x: x.transpose(0, 1).view(x.shape[1], x.shape[0]) * 2, "B D"),
    "view with ones": (lambda x: x[:, :1].view(1, x.shape[0], 1, x.shape[2]) * 2, "B L D"),
    "view of nothing": (lambda x: x[:, :0].view(0, x.shape[0]) + 1, "B D"),
    "transpose": (lambda x: x.transpose(-1, 0) + 1, "B L D"),
    "permute": (lambda x: x.permute(2, 0, -2) + 1, "B L D"),
    "t": (lambda x: x.t() + 1, "B D"),
    "t of one axis": (lambda x: x.t() + 1, "B"),
    "detach of a part": (lambda x: x[1:].detach() + 1, "B D"),
    "expand": (lambda x: x[:, None].expand(-1, 3, -1) + 1, "B D"),
    "expand in front": (lambda x: x.expand(3, 1, *x.shape) + 1, "B D"),
    "expand of a number": (lambda x: x.sum().expand(3, x.shape[0]) + 1, "B"),
    "expand to ones": (lambda x: x[None].expand(1, -1, -1).contiguous(), "B D"),
    "mm": (lambda x: x @ x.t(), "B D"),
    "bmm": (lambda x: x @ x.transpose(1, 2), "B L D"),
    "products of halves": (lambda x: x @ x.t(), "bf16[B, D]"),
    "tril": (lambda x: x.tril(-1), "bool[L, D]"),
    "triu of a transposed": (lambda x: x.t().triu(), "L D"),
    "clone of a transposed": (lambda x: x.t().clone(), "L D"),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous(), "B L D"),
    "like": (lambda x: torch.zeros_like(x) + torch.ones_like(x, dtype=torch.float64) + torch.empty_like(x), "B D"),
    "like a transposed": (lambda x: torch.zeros_like(x.t()) + 1, "B D"),
    "softmax": (lambda x: x.softmax(-1), "B L D"),
    "softmax of a transposed": (lambda x: x.transpose(1, 2).softmax(-1), "B L D"),
    "softmax to another dtype": (lambda x: x.softmax(-1, dtype=torch.float32), "bf16[B, D]"),
    "sum": (lambda x: x.sum((0, -1)), "B L D"),
    "sum, axes kept": (lambda x: x.sum(1, keepdim=True), "B L D"),
    "sum of a permuted": (lambda x: x.permute(2, 0, 1).sum(1), "B L D"),
    "sum of truths": (lambda x: x.sum(1), "bool[B, D]"),
    "arithmetic": (lambda x: (x * 2 + x / 3 - x).sqrt().exp() * x, "B D"),
    "arithmetic of transposed": (lambda x: x.t() * x.t() + 1, "B D"),
    "whole numbers": (lambda x: x / 2 + x * 0.5, "i64[B, D]"),
    "whole numbers to a power": (lambda x: (x**2, x**2.0), "i64[B, D]"),
    "complex factor": (lambda x: x * 2j, "B D"),
    "complex power": (lambda x: x**2j * 2, "B D"),
    "activations": (lambda x: F.silu(x).tanh() + F.gelu(x, approximate="tanh"), "B D"),
    "activations of a transposed": (lambda x: F.gelu(x.t()), "B D"),
    "creation": (lambda x: x + torch.zeros(x.shape[1]) + torch.ones(x.shape, dtype=torch.float64), "B D"),
    "random in place": (lambda x: torch.empty(x.shape).normal_() + x.clone().uniform_(), "B D"),
    "random into a transposed": (lambda x: torch.empty(x.shape).t().bernoulli_(0.5), "B D"),
}  # fmt: skip
MODULES = {
    "linear": (nn.Linear(8, 6), "B 8"),
    "linear without bias": (nn.Linear(8, 6, bias=False), "B L 8"),
    "layer norm": (nn.LayerNorm(8), "B L 8"),
    "layer norm without weights": (nn.LayerNorm(8, elementwise_affine=False), "B L 8"),
    "layer norm over two axes": (nn.LayerNorm((6, 8)), "B 6 8"),
    "layer norm of halves": (nn.LayerNorm(8).bfloat16(), "bf16[B, 8]"),
    "batch norm": (nn.BatchNorm2d(4), "B 4 L D"),
    "batch norm without weights": (nn.BatchNorm1d(4, affine=False), "B 4 L"),
    "batch norm of last channels": (nn.BatchNorm2d(4).to(memory_format=torch.channels_last), "B 4 8 6"),
    "group norm": (nn.GroupNorm(2, 4), "B 4 L D"),
    "softmax and activations": (nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Softmax(-1), nn.SiLU(), nn.Tanh()), "B 8"),
    "log softmax": (nn.LogSoftmax(-1), "B D"),
    "rectified": (nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True)), "B 4 L 8"),
}  # fmt: skip


def agrees(account: sa.Account) -> None:
    """The real run does the same operators on tensors that look the same, stride for stride."""
    sizes = {name: AT[name] for name in account.trial_sizes}
    found = account.verify(at=sizes, steps=0)
    assert found.part("operators").holds, str(found)
    assert found.figure("end of forward").verdict == "equal", str(found)


@pytest.mark.parametrize("name", TENSORS)
def test_results_look_as_real_ones_do(name: str) -> None:
    """Sizes, strides and dtypes of every result, in an inference run."""
    function, spec = TENSORS[name]
    agrees(sa.trace(function, spec, train=False))


@pytest.mark.parametrize("name", MODULES)
def test_gradients_look_as_real_ones_do(name: str) -> None:
    """The same for modules in training, the backward pass with them."""
    module, spec = MODULES[name]
    agrees(sa.trace(module, spec, grad=True))
    agrees(sa.trace(module, spec, train=False))


def test_a_wrong_call_is_torchs_error() -> None:
    """What does not fit is left to torch, whose message is kept."""
    with pytest.raises(sa.SymacctError, match=r"aten\.mm"):
        sa.trace(lambda x: x @ torch.zeros(3, 3), "B 4")
    with pytest.raises(sa.SymacctError, match="is invalid"):
        sa.trace(lambda x: x.view(3, -1), "4 5")


WRONG = {
    "too few axes to permute": (lambda x: x.permute(0), "B D"),
    "an axis twice": (lambda x: x.permute(0, 0), "B D"),
    "no such axis to permute": (lambda x: x.permute(0, 5), "B D"),
    "no such axis to transpose": (lambda x: x.transpose(0, 3), "B D"),
    "three axes to transpose": (lambda x: x.t(), "B L D"),
    "fewer axes to expand": (lambda x: x.expand(3), "B D"),
    "another size to expand": (lambda x: x.expand(3, 7), "B 5"),
    "no such axis of a log softmax": (lambda x: F.log_softmax(x, 4), "B D"),
    "no such axis to sum": (lambda x: x.sum(4), "B D"),
    "an axis to sum twice": (lambda x: x.sum((0, 0)), "B D"),
    "a triangle of one axis": (lambda x: x.tril(), "B"),
    "a norm's weight": (lambda x: F.layer_norm(x, (8,), torch.ones(7)), "B 8"),
    "a norm's axes": (lambda x: F.layer_norm(x, (7,)), "B 8"),
    "a norm of nothing": (lambda x: F.layer_norm(x, ()), "B 8"),
    "a sum of products and its bias": (lambda x: torch.addmm(torch.zeros(3), x, torch.zeros(4, 5)), "B 4"),
    "a negative size": (lambda x: x.sum() + torch.empty(-1).sum(), "B"),
    "an unknown way": (lambda x: F.gelu(x, approximate="tahn"), "B"),
    "a negative size to view": (lambda x: x.view(-2, 5), "4 5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_real_tensors_refuse_is_refused(name: str) -> None:
    """A call that fails on real tensors fails when it is traced, and is no formula."""
    function, spec = WRONG[name]
    with pytest.raises((RuntimeError, IndexError)):
        function(torch.ones(*(AT.get(axis, 0) or int(axis) for axis in spec.split())))
    with pytest.raises(sa.SymacctError, match="failed in aten"):
        sa.trace(function, spec, train=False)
