"""FLOPs of contractions against loop nests that count multiply-adds one by one."""

from __future__ import annotations

import pytest
import torch
from harvest import record
from oracles import attention, attention_backward, convolution, matmul

from symacct.rules import default_rules

RULES = default_rules()


def flops(calls: list, name: str) -> list[int]:
    """FLOPs of the calls to one operator."""
    return [RULES.cost(call).flops for call in calls if call.op.startswith(f"aten.{name}.")]


@pytest.mark.parametrize(("m", "k", "n", "b"), [(1, 1, 1, 1), (2, 3, 4, 1), (5, 1, 2, 3), (3, 7, 2, 2)])
def test_matrix_products(m: int, k: int, n: int, b: int) -> None:
    """Every spelling of a matrix product is two FLOP per multiply-add."""
    x, y = torch.empty(m, k, device="meta"), torch.empty(k, n, device="meta")
    bx, by = torch.empty(b, m, k, device="meta"), torch.empty(b, k, n, device="meta")
    bias = torch.empty(n, device="meta")
    assert flops(record(torch.mm, x, y), "mm") == [2 * matmul(m, k, n)]
    assert flops(record(torch.addmm, bias, x, y), "addmm") == [2 * matmul(m, k, n)]
    assert flops(record(torch.bmm, bx, by), "bmm") == [2 * matmul(m, k, n, b)]
    assert flops(record(torch.baddbmm, bias, bx, by), "baddbmm") == [2 * matmul(m, k, n, b)]
    assert flops(record(torch.addbmm, bias, bx, by), "addbmm") == [2 * matmul(m, k, n, b)]
    assert flops(record(torch.mv, x, y[:, 0]), "mv") == [2 * matmul(m, k, 1)]
    assert flops(record(torch.dot, x[0], y[:, 0]), "dot") == [2 * matmul(1, k, 1)]


def test_bilinear() -> None:
    """A bilinear layer contracts its first input with the weight, then the result with the second."""
    n, d1, d2, o = 3, 4, 5, 2
    args = (torch.empty(n, d1, device="meta"), torch.empty(n, d2, device="meta"), torch.empty(o, d1, d2, device="meta"))
    calls = record(torch.nn.functional.bilinear, *args)
    assert flops(calls, "_trilinear") == [2 * matmul(n, d1, o * d2) + 2 * n * matmul(1, d2, o)]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("spatial", "kernel", "stride", "padding", "dilation", "groups"),
    [
        ((5,), (3,), 1, 0, 1, 1),
        ((6,), (2,), 2, 1, 1, 2),
        ((5, 4), (3, 2), 1, 1, 1, 1),
        ((6, 5), (2, 2), 2, 0, 2, 2),
        ((4, 4), (3, 3), 1, 1, 1, 4),
        ((3, 3, 3), (2, 1, 2), 1, 0, 1, 2),
    ],
)
def test_convolutions(
    spatial: tuple, kernel: tuple, stride: int, padding: int, dilation: int, groups: int, transposed: bool
) -> None:
    """Forward and both product gradients of a convolution match its loop nest, transposed or not."""
    x = (2, 4, *spatial)
    w = (4, 8 // groups, *kernel) if transposed else (8, 4 // groups, *kernel)
    expected = convolution(x, w, stride, padding, dilation, groups, transposed)
    rank = len(spatial)
    calls = record(
        torch.ops.aten.convolution.default,
        torch.empty(x, device="meta", requires_grad=True),
        torch.empty(w, device="meta", requires_grad=True),
        torch.empty(8, device="meta", requires_grad=True),
        [stride] * rank,
        [padding] * rank,
        [dilation] * rank,
        transposed,
        [0] * rank,
        groups,
    )
    assert flops(calls, "convolution") == [2 * expected["forward"]]
    assert flops(calls, "convolution_backward") == [2 * (expected["input"] + expected["weight"])]


@pytest.mark.parametrize(("b", "s", "t", "d", "e"), [(1, 1, 1, 1, 1), (2, 3, 5, 4, 2), (4, 2, 2, 3, 8)])
def test_attention(b: int, s: int, t: int, d: int, e: int) -> None:
    """A fused attention is two products, and its backward five."""
    q, k, v = (torch.empty(1, b, n, m, device="meta") for n, m in ((s, d), (t, d), (t, e)))
    calls = record(torch.ops.aten._scaled_dot_product_efficient_attention.default, q, k, v, None, True)
    assert flops(calls, "_scaled_dot_product_efficient_attention") == [2 * attention(b, s, t, d, e)]
    backward = calls[0].with_op(
        "aten._scaled_dot_product_efficient_attention_backward.default",
        args={"grad_out_": calls[0].outputs[0], **calls[0].args},
    )
    assert RULES.cost(backward).flops == 2 * attention_backward(b, s, t, d, e, recompute=True)


def test_attention_unfused() -> None:
    """Attention spelled out in tensors has a backward of four products."""
    b, s, t, d, e = 2, 3, 5, 4, 2
    q, k, v = (torch.empty(b, n, m, device="meta", requires_grad=True) for n, m in ((s, d), (t, d), (t, e)))
    calls = record(lambda: torch.softmax(q @ k.mT, -1) @ v)
    forward, backward = flops(calls, "bmm")[:2], flops(calls, "bmm")[2:]
    assert sum(forward) == 2 * attention(b, s, t, d, e)
    assert sum(backward) == 2 * attention_backward(b, s, t, d, e, recompute=False)


def test_varlen_is_padded() -> None:
    """Packed sequences are counted at the longest one's length."""
    t = torch.empty(192, 8, 64, device="meta", dtype=torch.bfloat16)
    lengths = torch.empty(3, device="meta", dtype=torch.int32)
    calls = record(
        torch.ops.aten._flash_attention_forward.default, t, t, t, lengths, lengths, 128, 128, 0.0, True, False
    )
    assert flops(calls, "_flash_attention_forward") == [4 * 2 * 8 * 64 * 128 * 128]
