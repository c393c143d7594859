"""Collectives, what devices hold and send, and the limits at which the wire is as slow as the products."""

from functools import cache, partial

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.errors import DeviceError, SpecError, UnitError, UnknownDimError
from symacct.hardware import device
from symacct.napkin import collective, parallel
from symacct.napkin.collectives import factor, one_way, ring
from symacct.napkin.parallel import (
    best_data_ranks,
    bubble,
    data_limit,
    mixed_limit,
    split_limit,
    tensor_elements,
    tensor_limit,
    zero_collectives,
)

close = partial(pytest.approx, rel=5e-6)  # the reference prints six digits


@cache
def linear():
    """Two layers with AdamW."""
    layers = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, K), nn.GELU(), nn.Linear(K, D)))
    return sa.trace(layers, "B L D", optimizer=partial(torch.optim.AdamW, fused=True), check=False)


def test_n093_elements_that_zero_sends():
    """N093: with many ranks stages 0 to 2 send twice the parameters, stage 3 three times."""
    n, size = sympy.Symbol("n", positive=True), sympy.Symbol("P", positive=True)
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        sent = sum(factor(kind, n) * array for _, kind, array in zero_collectives(size, size, stage))
        assert sympy.limit(sent, n, sympy.oo) == times * size


def test_n107_collectives():
    """N107: factors of 1.75, 0.875 and 1 for 8 ranks; all-reduce of 70B bf16 gradients takes 0.544444 s at 450 GB/s."""
    assert factor("all-reduce", 8) == 1.75
    assert {factor(kind, 8) for kind in ("reduce-scatter", "all-gather", "all-to-all")} == {0.875}
    assert {factor(kind, 8) for kind in ("broadcast", "reduce")} == {1}
    assert collective("all-reduce", "140 GB", 8, "450 GB/s").seconds == close(0.544444)
    assert collective("all-reduce", 2 * 70e9, 8, "h100").seconds == close(0.544444)


def test_n108_rings():
    """N108: an all-gather of bf16 (2048, 8192) takes 372.827 us at 9e10; all-reduce twice, all-to-all a quarter."""
    nbytes = 2 * 2048 * 8192
    gather = ring("all-gather", nbytes, "90 GB/s")
    assert 1e6 * gather == close(372.827)
    assert ring("all-reduce", nbytes, 9e10) == close(2 * gather)
    assert ring("all-to-all", nbytes, 9e10) == close(gather / 4)
    assert ring("all-gather", nbytes, 9e10, axes=3) == close(gather / 3)
    with pytest.raises(SpecError, match="all-gather"):
        ring("broadcast", nbytes, 9e10)


def test_n109_data_parallel_limit():
    """N109: 2550 tokens per v5p chip on one axis, 850 on three."""
    peak = device("TPU-v5p").peak("bf16")
    assert data_limit(peak, 180e9) == 2550
    assert data_limit(peak, 180e9, axes=3) == 850


def test_n110_tensor_parallel_limit():
    """N110: 22.4878 ranks for F=28672 on two axes; 453.578 tokens per chip where mixed; 1618.26 data ranks."""
    assert tensor_limit(28672, 2550, axes=2) == close(22.4878)
    assert mixed_limit(28672, 2550) == close(453.578)
    assert best_data_ranks(4190000, 8960, 28672) == close(1618.26)


def test_n110_is_where_sending_takes_as_long():
    """The limits are where the times are equal: data, tensor and the best mix, worked out from the times themselves."""
    X, B, D, F, N, C, W = sympy.symbols("X B D F N C W", positive=True)
    products = 4 * B * D * F / (N * C)
    weights, activations = 4 * D * F * X / (N * 2 * W), 4 * B * D / (X * W)  # over 2 data axes and 1 tensor axis
    best = sympy.solve(sympy.diff(weights + activations, X), X)
    assert best_data_ranks(B, N, F) - best[0] == 0
    slowest = sympy.solve(sympy.Eq(products, (weights + activations).subs(X, best[0])), B)
    assert sympy.cancel(slowest[0] / N - mixed_limit(F, C / W)) in (0, sympy.cancel(mixed_limit(F, C / W)))


def test_n111_two_chips():
    """N111: a contracted width of 8755.56 until two v5e chips that split it are bound by their products."""
    assert split_limit(197e12, 45e9) == close(8755.56)


def test_n112_tensor_parallel_elements():
    """N112: 8*b*s*h*(t - 1)/t elements per rank, 1.7616e8, are four all-reduces of b*s*h."""
    assert tensor_elements(1, 2048, 12288, 8) == 176160768
    assert tensor_elements(1, 2048, 12288, 8) == 4 * factor("all-reduce", 8) * 2048 * 12288


def test_n113_bubble():
    """N113: 0.109375 of the time for 8 stages and 64 micro-batches, half of it with two chunks."""
    assert bubble(8, 64) == 0.109375
    assert bubble(8, 64, 2) == 0.0546875


# -- accounts ------------------------------------------------------------------------------


def test_one_device_is_the_account():
    """On one device nothing is shared out and nothing is sent."""
    at = linear().at(B=2, L=8, D=16, K=64)
    found = parallel(at)
    assert found.bytes == (
        at.param_bytes + at.grad_bytes + at.optimizer_bytes + at.activation_bytes + at.input_bytes
    )  # fmt: skip
    assert (found.sent_bytes, found.seconds, found.devices) == (0, 0, 1)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(("data", "tensor"), [(8, 1), (4, 2)])
def test_shares_add_up(zero, data, tensor):
    """Each part times the ranks that share it is the account's, in formulas as in numbers, and times follow bytes."""
    sizes = {"B": 2, "L": 8, "D": 16, "K": 64}
    at, link = linear().at(**sizes), 1e9
    options = {"data": data, "tensor": tensor, "zero": zero, "link": link, "hidden": "4*B*L*D", "layers": 2}
    found, formulas = (parallel(account, **options) for account in (at, linear()))
    ranks = (tensor * (data if zero >= 3 else 1), tensor * (data if zero >= 2 else 1), tensor * (data if zero else 1))
    parts = (found.states.weights, found.states.gradients, found.states.optimizer)
    assert [part * n for part, n in zip(parts, ranks, strict=True)] == [
        at.param_bytes, at.grad_bytes, at.optimizer_bytes
    ]  # fmt: skip
    assert found.activations * tensor == at.activation_bytes
    sent = (3 if zero == 3 else 2) * (data - 1) / data * at.param_bytes / tensor
    sent += 2 * 4 * 2 * (tensor - 1) / tensor * 4 * 2 * 8 * 16
    assert found.sent_bytes == close(sent)
    assert found.seconds == close(sent / link)
    at_sizes = {sa.dim.symbol(name): size for name, size in sizes.items()}
    for name in ("bytes", "sent_bytes", "seconds"):
        assert float(getattr(formulas, name).subs(at_sizes)) == close(float(getattr(found, name)))
    assert "ZeRO stage" in str(found)
    assert str(formulas)


def test_half_of_the_interconnect():
    """A device's interconnect is both directions together: one way is half, and a note says so."""
    card = device("h100")
    rate, notes = one_way(card)
    assert rate == card.interconnect_bytes_per_s / 2
    assert "half of it one way" in notes[0]
    assert parallel(linear().at(B=2, L=8, D=16, K=64), data=8, link=card).seconds > 0


def test_what_is_left_out_is_said():
    """Without the reduced tensor, what tensor parallelism sends is left out, and a note says so."""
    assert any("left out" in note for note in parallel(linear(), tensor=2).notes)
    assert parallel(linear(), tensor=2).sent_bytes == 0


def test_errors_name_what_is_wrong():
    """Unknown collectives, dims, stages, links and units."""
    with pytest.raises(SpecError, match="all-reduce"):
        collective("gossip", 1, 8)
    with pytest.raises(UnitError, match="nbytes"):
        collective("reduce", "3 s", 8)
    with pytest.raises(UnknownDimError, match="hidden=Q"):
        parallel(linear(), tensor=2, hidden="Q", layers=1)
    with pytest.raises(SpecError, match="zero"):
        parallel(linear(), zero=5)
    with pytest.raises(DeviceError, match="interconnect"):
        collective("reduce", 1, 8, "TPU-v3")
    assert collective("reduce", "1 GB", 8).seconds is None
