"""Per operator, the same FLOPs as torch.utils.flop_counter, and a named list of where it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harvest import Recorder, harvest, record
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import BY_HAND, run_samples
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from symacct.cost import Call, TensorMeta, tensors
from symacct.rules import default_rules

RULES = default_rules()
SIZE = st.integers(1, 12)


def resolve(op: str) -> Any:
    """The overload of a call."""
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def revive(value: Any) -> Any:
    """Meta tensors for descriptions."""
    if isinstance(value, TensorMeta):
        return torch.empty_strided(value.shape, value.stride, dtype=getattr(torch, value.dtype), device="meta")
    if isinstance(value, tuple):
        return [revive(v) for v in value]
    return value


def torch_flops(call: Call) -> int:
    """What torch's formula says of a call."""
    func = resolve(call.op)
    arguments = [(a.kwarg_only, a.name) for a in func._schema.arguments]
    args = [revive(call.args[name]) for keyword, name in arguments if not keyword]
    kwargs = {name: revive(call.args[name]) for keyword, name in arguments if keyword}
    out = [revive(o) for o in call.outputs]
    return int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=out[0] if len(out) == 1 else tuple(out)))


def known_to_torch(call: Call) -> bool:
    """Whether torch has a formula for a call."""
    return call.op.startswith("aten.") and resolve(call.op)._overloadpacket in flop_registry


def gap(call: Call) -> str | None:
    """Why torch's formula is wrong about a call, by the name of a gap."""
    if "convolution_backward" in call.op and call.args["groups"] != 1:
        return "grouped weight gradient"
    if any(o.is_complex for o in call.outputs):
        return "complex"
    if call.op.startswith(("aten._flash_attention", "aten._efficient_attention")):
        return "layout of lengths before heads"
    if call.op.startswith("aten._slow_conv2d_forward"):
        return "formula with another op's arguments"
    return None


def all_calls() -> list[Call]:
    """Every sample that torch has a formula for, and that no named gap excludes."""
    real = [call for calls in harvest().values() for call, _ in calls]
    ran = [call for call, _ in run_samples()]
    return [c for c in (*real, *ran) if known_to_torch(c) and gap(c) is None]


def test_samples_agree() -> None:
    """Every sample of every operator that torch has a formula for has the same FLOPs."""
    calls = all_calls()
    assert len({c.op for c in calls}) >= 8
    for call in calls:
        cost = RULES.cost(call)
        assert cost is not None
        assert cost.flops == torch_flops(call), call


def agree(calls: list[Call]) -> None:
    """Both counts are equal for every call that torch has a formula for, of which there is at least one."""
    known = [c for c in calls if known_to_torch(c) and gap(c) is None]
    assert known
    for call in known:
        assert RULES.cost(call).flops == torch_flops(call), call


def m(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A meta tensor that wants a gradient."""
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=dtype.is_floating_point)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(SIZE, SIZE, SIZE, SIZE)
def test_matrix_products_agree(b: int, k: int, n: int, p: int) -> None:
    """Matrix products and their backward, at any size."""
    agree(record(torch.mm, m(b, k), m(k, n)))
    agree(record(torch.addmm, m(n), m(b, k), m(k, n)))
    agree(record(torch.bmm, m(p, b, k), m(p, k, n)))
    agree(record(torch.baddbmm, m(n), m(p, b, k), m(p, k, n)))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 3), SIZE, SIZE, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.data())
def test_convolutions_agree(
    rank: int, cin: int, cout: int, kernel: int, stride: int, padding: int, transposed: bool, data: st.DataObject
) -> None:
    """Convolutions of any rank, forward and backward, at any size."""
    side = data.draw(st.integers(kernel + padding, 8))
    weight = m(*((cin, cout) if transposed else (cout, cin)), *[kernel] * rank)
    args = (m(cout), [stride] * rank, [padding] * rank, [1] * rank, transposed, [0] * rank, 1)
    agree(record(torch.ops.aten.convolution.default, m(2, cin, *[side] * rank), weight, *args))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(SIZE, SIZE, SIZE, SIZE, st.integers(1, 4))
def test_attention_agrees(b: int, h: int, s: int, t: int, d: int) -> None:
    """Fused attention, at any size."""
    q, k = m(b, h, s, 8 * d, dtype=torch.bfloat16), m(b, h, t, 8 * d, dtype=torch.bfloat16)
    op = torch.ops.aten._scaled_dot_product_flash_attention.default
    with torch.no_grad():
        agree(record(op, q, k, k))


def test_attention_backward_agrees() -> None:
    """Fused backwards, five products each."""
    calls = [
        c
        for c in BY_HAND
        if known_to_torch(c) and "backward" in c.op and "attention" in c.op and not tensors(c.args.get("cu_seqlens_q"))
    ]
    assert len(calls) >= 4
    agree([c for c in calls if "_scaled" in c.op])


def counted(function: Any, *args: Any) -> int:
    """What torch's counter says of a function."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function(*args)
    return counter.get_total_flops()


def ours(function: Any, *args: Any) -> int:
    """What the rules say of a function."""
    with Recorder() as recorder, torch.no_grad():
        function(*args)
    return sum(RULES.cost(call).flops for call, _ in recorder.calls)


X, V = torch.ones(4, 4), torch.ones(4)
LSTM = torch.nn.LSTM(4, 6)
ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
GAPS: dict[str, tuple[Any, tuple[Any, ...], int, int]] = {  # name: (function, arguments, torch's count, the right one)
    "dot": (torch.dot, (V, V), 0, 8),
    "vector product": (torch.mv, (X, V), 0, 32),
    "addmv": (torch.addmv, (V, X, V), 0, 32),
    "addbmm": (torch.addbmm, (X, X[None], X[None]), 0, 128),
    "CPU attention": (torch.nn.functional.scaled_dot_product_attention, (X[None, None],) * 3, 0, 256),
    "CPU LSTM": (LSTM, (torch.ones(5, 3, 4),), 0, 2 * 15 * 24 * 10),
    "bilinear": (torch.nn.functional.bilinear, (X, X, torch.ones(2, 4, 4)), 0, 2 * 4 * 2 * 16 + 2 * 4 * 2 * 4),
    "encoder fast path": (
        ENCODER, (torch.ones(1, 3, 8),), 0, 8 * 3 * 64 + 4 * 9 * 8 + 4 * 3 * 8 * 16,
    ),
    "complex": (torch.mm, (torch.ones(2, 3, dtype=torch.complex64), torch.ones(3, 5, dtype=torch.complex64)), 60, 240),
}  # fmt: skip


@pytest.mark.parametrize("name", GAPS)
def test_gap(name: str) -> None:
    """A known gap of torch's counter is still one, and the rules have the right answer."""
    function, args, theirs, right = GAPS[name]
    assert ours(function, *args) == right
    assert counted(function, *args) == theirs, f"torch now counts {name}: remove it from the gaps"


def test_gap_layout() -> None:
    """torch's counter takes (batch, length, heads, size) for (batch, heads, length, size)."""
    q = torch.empty(2, 8, 4, 16, dtype=torch.bfloat16, device="meta")
    (call,) = record(torch.ops.aten._flash_attention_forward.default, q, q, q, None, None, 8, 8, 0.0, False, False)
    assert RULES.cost(call).flops == 4 * 2 * 4 * 8 * 8 * 16
    wrong = 4 * 2 * 8 * 4 * 4 * 16
    fixed = torch.__version__ >= "2.14"  # where torch has mended it
    assert torch_flops(call) == (4 * 2 * 4 * 8 * 8 * 16 if fixed else wrong)


def test_gap_slow_conv() -> None:
    """torch's counter gives `_slow_conv2d_forward` the formula of `convolution`, which cannot be called on it."""
    args = (torch.ones(2, 4, 5, 5), torch.ones(6, 4, 3, 3), [3, 3], None, [1, 1], [0, 0])
    (call,) = record(torch.ops.aten._slow_conv2d_forward.default, *args)
    assert RULES.cost(call).flops == 2 * 2 * 9 * 6 * 4 * 9
    with pytest.raises(TypeError, match="transposed"):
        torch_flops(call)


def test_gap_grouped_mm() -> None:
    """Grouped matrix products have no formula in torch's counter."""
    args = (
        m(8, 16, dtype=torch.bfloat16),
        m(2, 16, 32, dtype=torch.bfloat16),
        torch.empty(2, dtype=torch.int32, device="meta"),
    )
    assert ours(torch.ops.aten._grouped_mm.default, *args) == 2 * 8 * 16 * 32
    assert torch.ops.aten._grouped_mm not in flop_registry


def test_gap_grouped_weight_gradient() -> None:
    """torch's counter takes the weight gradient of a grouped convolution for a dense one."""
    x, w = m(1, 4, 5), m(8, 2, 3)
    calls = record(torch.nn.functional.conv1d, x, w, None, 1, 0, 1, 2)
    backward = next(c for c in calls if "convolution_backward" in c.op)
    one = 2 * 3 * 8 * 2 * 3
    assert RULES.cost(backward).flops == 2 * one
    assert torch_flops(backward) == one + 2 * one
