"""Training time and money, budgets, the rule of six: the numbers of the reference by their ids."""

from functools import cache, partial

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.errors import DeviceError, SpecError, UnitError, UnknownDimError
from symacct.napkin import MARKERS, budget, rule_of_six, training

A100, H100, V5P = "A100-SXM4-80GB", "H100-SXM5-80GB", "TPU-v5p"
close = partial(pytest.approx, rel=5e-6)  # the reference prints six digits


class Tied(nn.Module):
    """An embedding, a layer and a head that is the embedding again."""

    def __init__(self, D, V):
        super().__init__()
        self.embed, self.layer = nn.Embedding(V, D), nn.Linear(D, D, bias=False)

    def forward(self, ids):
        return self.layer(self.embed(ids)) @ self.embed.weight.T


@cache
def tied():
    """A step of it with SGD."""
    return sa.trace(sa.build(Tied), "i64[B, L]", optimizer=torch.optim.SGD, check=False)


@cache
def linear():
    """Two layers without biases, whose input wants no gradient."""
    layers = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    return sa.trace(layers, "B D", check=False)


def test_n009_70b_on_1024_h100():
    """N009: 6.3e24 FLOP take 143.927 days at an MFU of 0.5, 4.3772e22 FLOP a day."""
    found = training("70B", tokens="15T", device=H100, devices=1024, mfu=0.5)
    assert found.flops == 63 * 10**23
    assert found.days == close(143.927)
    day = budget(H100, devices=1024, time="1 day", mfu=0.5)
    assert day.flops == close(4.37723136e22)
    assert found.mfu == close(0.5)
    rounded = [training("70B", tokens="15T", rate=rate * 0.5, devices=1024).days for rate in (990e12, 989.4e12)]
    assert rounded == [pytest.approx(143.85, abs=0.005), pytest.approx(143.94, abs=0.005)]


def test_n011_gpt3_from_its_trace(account):
    """N011: 6*P*D of the traced GPT-3 is 3.1428e23 FLOP or 3637.5 PF-days; with 175e9 parameters 3.15e23."""
    gpt3 = account("any_depth").at(B=1, L=2048, N=96, H=96, Dh=128, V=50257, P=2048)
    assert gpt3.params == 174_604_259_328
    found = training(gpt3.params, tokens="300B", rate=1e15)
    assert found.flops == 6 * gpt3.params * 300 * 10**9
    assert found.flops == pytest.approx(3.1428e23, rel=1e-4)
    assert training(174_600_000_000, tokens="300B tokens", rate=1e15).pf_days == close(3637.5)
    assert training("175B params", tokens="300B", rate=1e15).flops == 315 * 10**21


def test_n012_markers():
    """N012: what trainings are compared with: GPT-4 at 2e25, thresholds of 1e26 and 1e25."""
    found = training("70B", tokens="15T", rate=1e15).compared()
    assert sorted(flops for flops, _ in MARKERS.values()) == [3.14e23, 1e25, 2e25, 1e26]
    assert found["US executive order 14110"] == close(0.063)
    assert found["EU AI Act, systemic risk"] == close(0.63)


@pytest.mark.parametrize(
    ("flops", "seconds", "years"), [("3.1e23 FLOP", 7.75e8, 24.5583), ("3.15e23 FLOP", 7.875e8, 24.9544)]
)
def test_n013_one_h100(flops, seconds, years):
    """N013: at 400 TFLOP/s one H100 takes about 25 years; that is an MFU of 0.404245."""
    found = training(flops=flops, rate="400 TFLOP/s", device=H100)
    assert found.seconds == close(seconds)
    assert found.years == close(years)
    assert found.mfu == close(0.404245)


def test_n014_a_week_of_8_h100():
    """N014: 4.7876e21 FLOP at the dense peak in a week, twice that in two."""
    assert budget(H100, devices=8, time="7 days").flops == 4787596800000000000000
    assert budget(H100, devices=8, time="2 weeks").flops == 9575193600000000000000


def test_n019_rule_of_six(account):
    """N019: 6 FLOP per parameter and token; a trace differs by lookups, shared weights, the first input's gradient."""
    found = rule_of_six(linear(), tokens="B")
    B, D, K = map(sa.dim.symbol, "BDK")
    assert sympy.expand(found.rule - 6 * B * (D * D + D * K)) == 0
    assert sympy.expand(found.traced - found.rule + 2 * B * D * D) == 0
    assert found.ratio.subs({D: 8, K: 8}) == sympy.Rational(5, 6)
    gpt2 = account("any_depth").at(B=1, L=1024, N=12, H=12, Dh=64, V=50257, P=1024)
    assert rule_of_six(gpt2).rule == 6 * 124439808 * 1024
    for each in (tied(), tied().at(B=2, L=8, D=16, V=100), gpt2):
        told = rule_of_six(each)
        assert sympy.expand(told.rule + sum(flops for _, flops in told.reasons) - told.traced) == 0
        assert "6*N*D" in str(told)
    assert rule_of_six(tied()).ratio == 1  # looked up once and multiplied once


def test_n063_nanogpt():
    """N063: MFU 0.371432 of 100 sequences in 0.755 s; 300B tokens take 3.45936 days on 8 A100 at 30%."""
    assert training(flops=100 * 874944921600, time="755 ms", device=A100).mfu == close(0.371432)
    assert training(124337664, tokens="300B", device=A100, devices=8, mfu=0.3).days == close(3.45936)


def test_n074_apertus():
    """N074: 6.7436e24 FLOP for 15e12 tokens by its own count per token."""
    L, s, d, ks, H, K, F, V = 80, 4096, 8192, 128, 64, 8, 43008, 131072
    layer = 2 * s * d * ks * (H + 2 * K) + 2 * s * ks * H * d + 4 * s * s * ks * H + 3 * H * s * s
    layer += 4 * s * (H + K) * ks + 4 * s * d * F + 8 * s * d
    found = training(tokens="15T", flops_per_token=sympy.Rational(3 * (L * layer + 2 * s * d * V), s), rate=1e15)
    assert found.flops == 6743614095360000000000000


def test_n082_llama_65b():
    """N082: 380 tokens a second on each of 2048 A100 are 20.821 days, 1.02339e6 hours, an MFU of 0.477088."""
    P, run = 65285660672, {"tokens": "1.4T", "tokens_per_s": 380, "device": A100, "devices": 2048}
    found = training(P, **run)
    assert found.days == close(20.821)
    assert found.device_hours == close(1.02339e6)
    assert found.mfu == close(0.477088)
    assert training(flops_per_token=6 * P + 12 * 80 * 8192 * 2048, **run).mfu == close(0.496704)


@pytest.mark.parametrize(
    ("params", "hours", "mfu"),
    [(68976648192, 1720320, 0.428368), (6738415616, 184320, 0.39058), (13015864320, 368640, 0.37722)],
)
def test_n083_llama_2(params, hours, mfu):
    """N083: the MFU that Llama 2's hours of A100 make."""
    assert training(params, tokens="2T", device_hours=hours, device=A100).mfu == close(mfu)
    assert training(params, tokens="2T", device_hours=f"{hours} h", device=A100).mfu == close(mfu)


def test_n084_llama_31_405b():
    """N084: 3.7908e25 FLOP; 430, 400 and 380 TFLOP/s are 43.5%, 40.4% and 38.4%; 30.84M hours average 34.6%."""
    assert training("405B", tokens="15.6T", rate=1e15).flops == 37908 * 10**21
    for rate, mfu in ((430, 0.434563), (400, 0.404245), (380, 0.384032)):
        assert training("405B", tokens="15.6T", rate=f"{rate} TFLOP/s", device=H100).mfu == close(mfu)
    assert training(405853388800, tokens="15.6T", device_hours=30_840_000, device=H100).mfu == close(0.34579)


def test_n085_opt_and_bloom():
    """N085: with recomputation, 8*P*D: OPT 20.0013 days at a utilisation of 0.471154, BLOOM 99.5667 days."""
    opt = training(flops_per_token=8 * 175 * 10**9, tokens="180B", rate="147 TFLOP/s", devices=992, device=A100)
    assert opt.days == close(20.0013)
    assert opt.mfu == close(0.471154)
    bloom = training(flops_per_token=8 * 176 * 10**9, tokens="366B", rate="156 TFLOP/s", devices=384)
    assert bloom.days == close(99.5667)


def test_n086_deepseek_v3():
    """N086: 2.788M hours at 2 USD are 5.576M USD; 3.2856e24 FLOP, 0.216207 of 1513 TFLOP/s in fp8; 3.66211 days."""
    hours = 2664000 + 119000 + 5000
    found = training("37B", tokens="14.8T", device_hours=hours, price="$2/h")
    assert (found.device_hours, found.cost) == (2788000, 5576000)
    assert found.flops == 32856 * 10**20
    used = training("37B", tokens="14.8T", device_hours=2790000, device="H100-PCIe-80GB", dtype="fp8")
    assert used.mfu == close(0.216207)
    assert training("37B", tokens="1T", device_hours=180000, devices=2048).days == close(3.66211)


def test_n087_llama_3_70b_on_tpu():
    """N087: 6.3e24 FLOP: 44.3247 days on 8960 v5p at 40%, 16.8793 on 18823 at 50%, 434.935 years on one."""
    run = partial(training, "70B", tokens="15T", device=V5P)
    assert run(mfu=0.4, devices=8960).flops == 63 * 10**23
    assert run(mfu=0.4, devices=8960).days == close(44.3247)
    assert run(mfu=1).years == close(434.935)
    assert run(mfu=0.5, devices=18823).days == close(16.8793)
    assert training("70B", tokens=1, rate=1).flops == 420000000000


def test_n088_adamw_run():
    """N088: 5.3529e21 FLOP take 6354.36 days on one A100 in float32 at 50%."""
    found = training(
        2127057600, steps=400000, tokens_per_step=1024 * 1024, device=A100, dtype="float32", mfu=0.5
    )  # fmt: skip
    assert found.flops == 5352915719946240000000
    assert found.days == close(6354.36)


# -- accounts ------------------------------------------------------------------------------


def test_an_account_is_trained_by_its_own_work():
    """Steps times forward and backward, in formulas or numbers; tokens are those of the embedding."""
    B, L, D, V = map(sa.dim.symbol, "BLDV")
    found = training(tied(), tokens="1B", device=H100, mfu=0.5)
    step = tied().forward.flops + tied().backward.flops
    assert sympy.expand(found.flops * B * L - step * 10**9) == 0
    at = tied().at(B=8, L=1024, D=512, V=50257)
    numbers = training(at, tokens="1B", device=H100, mfu=0.5, price="2 USD/h")
    assert numbers.flops == close(float(found.flops.subs({B: 8, L: 1024, D: 512, V: 50257})))
    assert numbers.cost == close(2 * numbers.device_hours)
    assert training(at, steps=10, rate=1e15).tokens == 10 * 8 * 1024
    assert training(at, rate=1e15).flops == at.forward.flops + at.backward.flops
    assert training(at, tokens="1B", convention="palm", rate=1e15).flops == close(
        at.under("palm").total.flops * 1e9 / 8192
    )
    given = training(linear(), tokens="1B", tokens_per_step="B", rate=1e15)
    assert sympy.expand(given.flops * B - linear().total.flops * 10**9) == 0


def test_hfu_counts_what_is_recomputed():
    """With checkpoints HFU is larger than MFU by recomputation over model FLOP, and either gives the other."""
    from torch.utils.checkpoint import checkpoint

    class Again(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(D, 4 * D), nn.ReLU(), nn.Linear(4 * D, D))

        def forward(self, x):
            return checkpoint(self.layers, x, use_reentrant=False)

    step = sa.trace(sa.build(lambda D: Again(D)), "B D", check=False).at(B=8, D=64)
    assert step.recompute.flops > 0
    model, hardware = (training(step, steps=5, device=H100, **use) for use in ({"mfu": 0.4}, {"hfu": 0.4}))
    ratio = 1 + step.recompute.flops / (step.forward.flops + step.backward.flops)
    assert model.hfu == close(0.4 * ratio)
    assert hardware.mfu == close(0.4 / ratio)


def test_budgets_answer_the_other_way_round():
    """Tokens and parameters within a budget are those whose training uses it up; money is hours at a price."""
    within = budget(H100, cost="1e6 USD", price="$2/h", mfu=0.4)
    assert within.device_hours == 500000
    tokens = within.tokens("7B")
    assert training("7B", tokens=tokens, device=H100, mfu=0.4, price=2).cost == close(1e6)
    assert training(within.params("1T"), tokens="1T", device=H100, mfu=0.4, price=2).cost == close(1e6)
    at = tied().at(B=8, L=1024, D=512, V=50257)
    assert training(at, tokens=within.tokens(at), device=H100, mfu=0.4, price=2).cost == close(1e6)
    assert budget(H100, device_hours=500000, mfu=0.4).flops == close(within.flops)
    assert "500,000" in str(within)


def test_results_say_what_they_rest_on():
    """The table has its peak, that it is dense, and what is not counted."""
    text = str(training("70B", tokens="15T", device=H100, devices=1024, mfu=0.5, price=2))
    for word in ("144 days", "dense peak", "attention's products are not in it", "device-hours"):
        assert word in " ".join(text.split())
    assert "B*L tokens in a step" in str(training(tied(), tokens="1T", device=H100, mfu=0.5))


def test_what_is_not_told_is_asked_for():
    """Errors name what is missing, doubled, or of another unit."""
    for said, options in (
        ("say how fast it is", {"what": "7B", "tokens": "1T"}),
        ("not by mfu, rate", {"what": "7B", "tokens": "1T", "mfu": 0.5, "rate": 1, "device": H100}),
        ("give device=", {"what": "7B", "tokens": "1T", "mfu": 0.5}),
        ("say how many tokens", {"what": "7B", "rate": 1}),
        ("say what is trained", {"tokens": "1T", "rate": 1}),
        ("leave parameters", {"what": "7B", "flops": 1, "rate": 1}),
        ("wants tokens", {"flops": 1, "tokens_per_s": 1}),
        ("there is none", {"what": "7B", "tokens": 1, "convention": "palm", "rate": 1}),
        ("not both", {"what": tied(), "tokens": 1, "steps": 1, "rate": 1}),
        ("leave flops", {"what": tied(), "flops": 1, "rate": 1}),
    ):
        with pytest.raises(SpecError, match=said):
            training(options.pop("what", None), **options)
    with pytest.raises(UnitError, match="tokens"):
        training("7B", tokens="80 GB", rate=1)
    with pytest.raises(UnitError, match="params"):
        training("80 GB", tokens="1T", rate=1)
    with pytest.raises(UnitError, match="rate"):
        training("7B", tokens="1T", rate="400 GB/s")
    with pytest.raises(DeviceError, match="float4"):
        training("7B", tokens="1T", device=H100, mfu=0.5, dtype="fp4")
    with pytest.raises(UnknownDimError, match="'Z'"):
        training(tied(), tokens_per_step="Z", rate=1)
    for options in ({}, {"time": 1, "cost": 1}, {"cost": 1}):
        with pytest.raises(SpecError, match=r"budget\(\)"):
            budget(H100, **options)
