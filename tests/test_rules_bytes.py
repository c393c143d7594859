"""Bytes where they differ from reading every operand once and writing every result once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harvest import record
from samples import call, t

from symacct.rules import default_rules

RULES = default_rules()
F32, I64 = 4, 8


def moved(function: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """(bytes read, bytes written) by the last call that a function makes."""
    cost = RULES.cost(record(function, *args, **kwargs)[-1])
    assert cost is not None
    return cost.bytes_read, cost.bytes_written


def m(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A meta tensor."""
    return torch.empty(shape, dtype=dtype, device="meta")


def i(*shape: int) -> torch.Tensor:
    """A meta tensor of indices."""
    return m(*shape, dtype=torch.int64)


X = (10, 6)
CASES: dict[str, tuple[Any, int, int]] = {  # name: (what runs, bytes read, bytes written)
    "add": (lambda: m(*X) + m(*X), 2 * 60 * F32, 60 * F32),
    "add in place": (lambda: m(*X).add_(m(*X)), 2 * 60 * F32, 60 * F32),
    "add to itself": (lambda x: x + x, 60 * F32, 60 * F32),
    "add expanded": (lambda: m(*X) + m(6).expand(10, 6), 66 * F32, 60 * F32),
    "out=": (lambda: torch.add(m(*X), m(*X), out=m(*X)), 2 * 60 * F32, 60 * F32),
    "view": (lambda: m(*X).view(60), 0, 0),
    "transpose": (lambda: m(*X).t(), 0, 0),
    "clone": (lambda: m(*X).clone(), 60 * F32, 60 * F32),
    "cast": (lambda: m(*X).to(torch.bfloat16), 60 * F32, 60 * 2),
    "copy_": (lambda: m(*X).copy_(m(6)), 6 * F32, 60 * F32),
    "fill_": (lambda: m(*X).fill_(1.0), 0, 60 * F32),
    "zero_": (lambda: m(*X).zero_(), 0, 60 * F32),
    "uniform_": (lambda: m(*X).uniform_(), 0, 60 * F32),
    "empty": (lambda: m(*X), 0, 0),
    "empty_like": (lambda x: torch.empty_like(x), 0, 0),
    "zeros": (lambda: torch.zeros(X, device="meta"), 0, 60 * F32),
    "zeros_like": (lambda x: torch.zeros_like(x), 0, 60 * F32),
    "full_like": (lambda x: torch.full_like(x, 2.0), 0, 60 * F32),
    "rand_like": (lambda x: torch.rand_like(x), 0, 60 * F32),
    "gather": (lambda: m(*X).gather(0, i(2, 6)), 12 * F32 + 12 * I64, 12 * F32),
    "index": (lambda: m(*X)[i(3)], 18 * F32 + 3 * I64, 18 * F32),
    "index_select": (lambda: m(*X).index_select(0, i(3)), 18 * F32 + 3 * I64, 18 * F32),
    "embedding": (lambda: torch.embedding(m(*X), i(3)), 18 * F32 + 3 * I64, 18 * F32),
    "scatter_": (lambda: m(*X).scatter_(0, i(2, 6), m(5, 6)), 12 * F32 + 12 * I64, 12 * F32),
    "scatter": (lambda: m(*X).scatter(0, i(2, 6), m(5, 6)), 72 * F32 + 12 * I64, 60 * F32),
    "scatter_add_": (lambda: m(*X).scatter_add_(0, i(2, 6), m(2, 6)), 24 * F32 + 12 * I64, 12 * F32),
    "index_add_": (lambda: m(*X).index_add_(0, i(3), m(3, 6)), 36 * F32 + 3 * I64, 18 * F32),
    "index_copy_": (lambda: m(*X).index_copy_(0, i(3), m(3, 6)), 18 * F32 + 3 * I64, 18 * F32),
    "index_fill_": (lambda: m(*X).index_fill_(1, i(3), 0.0), 3 * I64, 30 * F32),
    "index_put_": (lambda: m(*X).index_put_((i(3),), m(3, 6)), 18 * F32 + 3 * I64, 18 * F32),
    "index_put_ adds": (lambda: m(*X).index_put_((i(3),), m(3, 6), True), 36 * F32 + 3 * I64, 18 * F32),
    "index_put_ one value": (lambda: m(*X).index_put_((i(3),), m()), F32 + 3 * I64, 18 * F32),
    "slice backward": (
        lambda: torch.ops.aten.slice_backward(m(2, 6), [10, 6], 0, 0, 2, 1), 12 * F32, 60 * F32 + 12 * F32,
    ),
    "addmm": (lambda: torch.addmm(m(4), m(*X), m(6, 4)), (4 + 60 + 24) * F32, 40 * F32),
    "addmm, beta 0": (lambda: torch.addmm(m(4), m(*X), m(6, 4), beta=0), (60 + 24) * F32, 40 * F32),
    "nll": (
        lambda: torch.ops.aten.nll_loss_forward(m(*X), i(10), None, 1, -100), 10 * F32 + 10 * I64, 2 * F32,
    ),
    "item": (lambda: torch.ones(1).item(), F32, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bytes(name: str) -> None:
    """An op moves the bytes that it has to."""
    function, read, written = CASES[name]
    args = (m(*X),) if "x" in function.__code__.co_varnames else ()
    assert moved(function, *args) == (read, written)


@pytest.mark.parametrize(
    ("mask", "read", "written"),
    [
        ((True, True, True), 108 + 200 + 216, 200 + 216 + 6),
        ((True, False, False), 108 + 216, 200),
        ((False, True, False), 108 + 200, 216),
        ((False, False, True), 108, 6),
    ],
)
def test_convolution_backward(mask: tuple[bool, ...], read: int, written: int) -> None:
    """A gradient that is not asked for reads and writes nothing."""
    grad, x, w, b = t(2, 6, 3, 3), t(2, 4, 5, 5, storage=1), t(6, 4, 3, 3, storage=2), t(6, storage=3)
    outputs = [o for o, wanted in zip((x, w, b), mask, strict=True) if wanted]
    cost = RULES.cost(
        call(
            "aten.convolution_backward", *outputs, grad_output=grad, input=x, weight=w, output_mask=mask,
            transposed=False, groups=1,
        )
    )  # fmt: skip
    assert cost is not None
    assert (cost.bytes_read, cost.bytes_written) == (F32 * read, F32 * written)
    assert cost.flops == (mask[0] + mask[1]) * 2 * 2 * 9 * 216
    assert cost.pointwise == mask[2] * 108


def test_attention_never_writes_its_scores() -> None:
    """A fused attention moves operands and results, with scores of any size."""
    q, k = t(1, 2, 1000, 4), t(1, 2, 1000, 4, storage=1)
    lse = t(1, 2, 1000, storage=2)
    cost = RULES.cost(call("aten._scaled_dot_product_flash_attention", q, lse, query=q, key=k, value=k))
    assert cost is not None
    assert cost.bytes == F32 * (2 * 8000 + 8000 + 2000)


def test_fused_step_writes_no_gradient() -> None:
    """A fused step reads parameters, gradients and state, and writes parameters and state."""
    p = torch.nn.Parameter(torch.ones(100))
    p.grad = torch.ones_like(p)
    step = torch.optim.AdamW([p], fused=True)
    (found,) = [RULES.cost(c) for c in record(step.step) if "_fused_adamw_" in c.op]
    assert found is not None
    assert (found.bytes_read, found.bytes_written) == (F32 * (4 * 100 + 1), F32 * 3 * 100)
