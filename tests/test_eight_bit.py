"""8-bit AdamW: what it holds, what a step holds and costs, and that it cannot be taken for one that trains."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.account import Account
from symacct.eight_bit import AdamW8bit

TABLES = 2 * 256 * 4  # bytes of the two code tables


def symbols(names: str) -> Any:
    """The SymPy symbols of dims."""
    return sympy.symbols(names, integer=True, positive=True)


def layers(D: int, K: int) -> nn.Module:
    """Two matrices, and a vector that is too small for 8 bits."""
    return nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K))


def trained(builder: Any = layers, spec: str = "B D", dtype: Any = None, **options: Any) -> Account:
    """The account of a step with the optimizer."""
    model = builder if dtype is None else (lambda D, K: builder(D, K).to(dtype))
    return sa.trace(sa.build(model), spec, optimizer=lambda p: AdamW8bit(p, **options))


def matrix(D: int, K: int) -> nn.Module:
    """One parameter of D*K elements."""
    return nn.Linear(D, K, bias=False)


@pytest.mark.parametrize(("block", "each"), [(256, sympy.Rational("2.03125")), (2048, 2 + sympy.Rational(2 * 4, 2048))])
def test_n090(block: int, each: Any) -> None:
    """N090: 2 + 2*4/block bytes for each parameter, 2.03125 and 2.00391, beside two tables; 7e9 take 14,218,750,000."""
    step = trained(matrix, block_size=block).at(B=1, D=4096, K=8192)
    assert step.optimizer_bytes - TABLES == each * 4096 * 8192
    at_7b = trained(matrix, block_size=block).at(B=1, D=70_000, K=100_000).optimizer_bytes - TABLES
    assert at_7b == 2 * 7 * 10**9 + 2 * 4 * -(-7 * 10**9 // block)  # the last block may not be full
    if block == 256:
        assert at_7b == 14_218_750_000


def blocks(count: Any, size: int = 256) -> Any:
    """Blocks for so many elements: the quotient rounded up."""
    return -sympy.floor(-count / size)


def test_closed_form() -> None:
    """Two bytes for each element, two float32 for each block begun, two for each element of a small tensor."""
    D, K = symbols("D K")
    step = trained()
    expected = 2 * (D**2 + D * K) + 2 * 4 * (blocks(D**2) + blocks(D * K)) + 2 * 4 * K + TABLES
    assert sympy.expand(step.optimizer_bytes - expected) == 0
    assert step.unknown == []
    assert step.checked


def test_numbers_are_those_of_a_step_at_these_sizes() -> None:
    """The closed form at sizes is what the optimizer makes on tensors of those sizes."""
    sizes = {"D": 100, "K": 77}
    model = layers(**sizes).to("meta")
    for p in model.parameters():
        p.grad = torch.empty_like(p)
    optimizer = AdamW8bit(model.parameters())
    optimizer.step()
    held = {id(t): t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)}
    assert trained().at(B=3, **sizes).optimizer_bytes == sum(t.nbytes for t in held.values())


def test_threshold_is_an_assumption() -> None:
    """Which parameters are large enough is decided at the trial sizes; sizes that decide otherwise are refused."""
    step = trained()
    said = {str(a) for a in step.assumptions}
    assert said == {"D**2 >= 4096", "D*K >= 4096", "K < 4096"}
    with pytest.raises(sa.SymacctError, match=re.escape("K < 4096")):
        step.at(B=1, D=256, K=4096)
    with pytest.raises(sa.SymacctError, match=re.escape("D**2 >= 4096")):
        step.at(B=1, D=63, K=100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_tensors_stay_float32(dtype: Any) -> None:
    """Below min_8bit_size a parameter of any dtype has two float32 states, and no table is made for it."""
    D, K = symbols("D K")
    spec = "f32[B, D]" if dtype is torch.float32 else "bf16[B, D]"
    step = trained(matrix, spec, dtype, min_8bit_size=10**9)
    assert step.optimizer_bytes == 8 * D * K
    assert trained(matrix, spec, dtype).at(B=1, D=64, K=64).optimizer_bytes == 2 * 4096 + 2 * 4 * 16 + TABLES


def test_states_are_named_like_those_of_bitsandbytes() -> None:
    """A state_dict has bitsandbytes' keys; the tables are one for all parameters."""
    parameters = [nn.Parameter(torch.empty(n, device="meta")) for n in (5000, 6000, 10)]
    for p in parameters:
        p.grad = torch.empty_like(p)
    optimizer = AdamW8bit(parameters)
    optimizer.step()
    large, other, small = (optimizer.state[p] for p in parameters)
    assert set(large) == {"step", "state1", "state2", "qmap1", "qmap2", "absmax1", "absmax2"}
    assert set(small) == {"step", "state1", "state2"}
    assert large["qmap1"] is other["qmap1"] is not large["qmap2"]
    assert [large[n].dtype for n in ("state1", "state2", "absmax1")] == [torch.uint8, torch.uint8, torch.float32]
    assert large["absmax1"].shape == (20,)  # 19 full blocks of 256, and one of 136
    assert small["state1"].dtype == torch.float32


def test_a_step_has_no_temporaries() -> None:
    """A step allocates nothing: after backward no more is held than weights, gradients, state, input and loss."""
    step = trained()
    later = step.memory.later
    held = [m for m in later if m.phase == "optimizer"]
    loss = 4
    expected = step.param_bytes + step.grad_bytes + step.optimizer_bytes + step.input_bytes + loss
    assert [m.op for m in held] == ["symacct.adamw_8bit_.default"] * 3
    for moment in held:
        assert sympy.expand(moment.nbytes - expected) == 0
        assert "temporaries" not in moment.by_kind()


def test_the_peak_is_in_backward() -> None:
    """Where AdamW's own step is the peak, this one's is not: the last gradient is, with what it is made of."""
    sizes = {"B": 1, "D": 256, "K": 32}
    eight = trained().at(**sizes)
    full = sa.trace(sa.build(layers), "B D", optimizer=torch.optim.AdamW).at(**sizes)
    assert (eight.memory.peak.phase, full.memory.peak.phase) == ("backward", "optimizer")
    assert eight.peak_bytes < full.peak_bytes
    assert eight.memory.peak.by_kind()["optimizer state"] == eight.optimizer_bytes


@pytest.mark.parametrize(("decay", "each"), [(0.0, 13), (0.1, 14)])
def test_cost(decay: float, each: int) -> None:
    """AdamW's arithmetic, 24 more for 8 bits; everything is read once, weights, states and maxima are written once."""
    D, K = symbols("D K")
    step = trained(matrix, weight_decay=decay)
    maxima = 2 * 4 * blocks(D * K)
    assert step.optimizer.pointwise == (each + 24) * D * K
    assert sympy.expand(step.optimizer.bytes_read - ((4 + 4 + 2) * D * K + maxima + TABLES)) == 0
    assert sympy.expand(step.optimizer.bytes_written - ((4 + 2) * D * K + maxima)) == 0
    small = trained(matrix, min_8bit_size=10**9, weight_decay=decay)
    assert small.optimizer.pointwise == each * D * K


def test_it_does_not_train() -> None:
    """On tensors with data a step says what the optimizer is for, and what to use instead."""
    p = nn.Parameter(torch.ones(5000))
    p.grad = torch.ones(5000)
    with pytest.raises(sa.SymacctError) as failed:
        AdamW8bit([p]).step()
    assert str(failed.value) == (
        "AdamW8bit: this optimizer accounts for memory and cannot train, it has no kernel for tensors with data; give "
        "it to symacct.trace(..., optimizer=AdamW8bit), and train with bitsandbytes.optim.AdamW8bit"
    )
    assert torch.equal(p, torch.ones(5000))


def test_options() -> None:
    """A parameter without a gradient is left alone, a closure is called, a block has at least one element."""
    p, frozen = (nn.Parameter(torch.ones(8, device="meta")) for _ in range(2))
    p.grad = torch.ones(8, device="meta")
    optimizer = AdamW8bit([p, frozen])
    assert optimizer.step(lambda: torch.is_grad_enabled()) is True
    assert frozen not in optimizer.state
    with pytest.raises(ValueError, match="block_size: expected a whole number >= 1 of elements, got 0"):
        AdamW8bit([p], block_size=0)
