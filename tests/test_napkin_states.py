"""What training keeps per parameter, what of it fits, activations by formula, checkpoints, data and transfers."""

from functools import cache, partial

import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.errors import QuestionError, SpecError, UnitError, UnknownDimError
from symacct.hardware import device
from symacct.napkin import (
    POLICIES,
    checkpoint,
    devices_needed,
    largest_model,
    loading,
    solve,
    states,
    transfer,
)
from symacct.napkin.activations import (
    first_stage,
    layer_activations,
    listed_activations,
    saved_tensors,
    share_of_scores,
)
from symacct.napkin.moving import PCIE, host_limit
from symacct.napkin.optimizers import muon_overhead, newton_schulz

GIB = 2**30
close = partial(pytest.approx, rel=5e-6)  # the reference prints six digits


class Gated(nn.Module):
    """A Llama's parameters in the order of its layers: attention without a mask, a gated feed-forward layer."""

    def __init__(self, D, F):
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.q, self.k, self.v, self.o = (linear(D, D) for _ in range(4))
        self.gate, self.up, self.down = linear(D, F), linear(D, F), linear(F, D)
        self.before, self.after = nn.RMSNorm(D), nn.RMSNorm(D)

    def forward(self, x):
        y = self.before(x)
        x = x + self.o(torch.softmax(self.q(y) @ self.k(y).mT, -1) @ self.v(y))
        y = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """N of them between an embedding, a norm and a head."""

    def __init__(self, N, D, F, V):
        super().__init__()
        self.embed, self.norm = nn.Embedding(V, D), nn.RMSNorm(D)
        self.layers = nn.ModuleList(Gated(D, F) for _ in range(N))
        self.head = nn.Linear(D, V, bias=False)
        self.to(torch.bfloat16)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@pytest.fixture(scope="module")
def mixed(example):
    """The example whose optimizers keep states by a policy."""
    return example("mixed_precision")


ADAMW = partial(torch.optim.AdamW, fused=True)


@cache
def linear(optimizer=ADAMW):
    """A layer of D*K parameters in float32."""
    return sa.trace(sa.build(lambda D, K: nn.Linear(D, K, bias=False)), "B D", optimizer=optimizer, check=False)


def per_param(step):
    """Bytes per parameter of weights, gradients and state, as the sizes grow."""
    grown = {"B": 8, "D": 2**20, "K": 2**20}
    found = states(step.at(**grown))
    return [round(each / found.params, 6) for each in (found.weights, found.gradients, found.optimizer)]


def test_n010_largest_model_on_8_devices():
    """N010: 40e9 parameters at 16 bytes in 8 times 80e9 bytes; one more does not fit."""
    found = largest_model("80 GB", "fp32", devices=8)
    assert found.params == 40_000_000_000
    assert found.policy.total == 16
    sold = largest_model("h100", "fp32", devices=8)
    assert sold.params == 8 * 80 * GIB // 16
    assert "as it is sold" in str(sold)
    assert solve(linear(), "D", params=found.params, K="D").size == 200_000


def test_n025_fp32_adamw():
    """N025: 16 bytes per parameter, 4 + 4 + 8, by the policy and as torch.optim.AdamW was traced."""
    assert per_param(linear()) == [4, 4, 8]
    policy = POLICIES["fp32"]
    assert [policy.weights, policy.gradients, policy.optimizer, policy.total] == [4, 4, 8, 16]
    assert [POLICIES["bf16"].total] == [8]


@pytest.mark.parametrize(
    ("traced", "policy", "total"),
    [
        ("bfloat16, float32 moments", "mixed12", 12),
        ("... and float32 master", "mixed16", 16),
        ("... beside bfloat16 ones", "mixed18", 20),
        ("... and float32 gradients", "mixed18", 18),
        ("bfloat16, all of it", "bf16", 8),
    ],
)
def test_n026_mixed_policies(mixed, traced, policy, total):
    """N026: 12, 16 and 18 bytes per parameter as traced and by the policies (20 where both gradients are kept)."""
    step = mixed.account(traced).at(B=8, D=2**12, K=2**12)
    assert states(step).per_param == pytest.approx(total, rel=1e-5)
    kept_beside = traced == "... beside bfloat16 ones"
    assert states(step, policy).per_param == POLICIES[policy].total == total - 2 * kept_beside


def test_n027_llama_2_7b(mixed):
    """N027: 16 bytes for each of the 6738415616 traced parameters are 107814649856; of 7e9 they are 112 GB."""
    step = sa.trace(sa.build(Llama, depth="N"), "i64[B, L]", optimizer=mixed.mixed(), check=False)
    at = step.at(B=1, L=128, N=32, D=4096, F=11008, V=32000)
    assert at.params == 6738415616
    assert states(at).total == 107814649856
    assert states(at, "mixed16").total == 107814649856
    assert states("7B", "mixed16").total == 112 * 10**9
    assert sympy.expand(states(step).total - 16 * step.params) == 0


def test_n047_checkpoint_of_weights_and_moments():
    """N047: 12 bytes for each of 124337664 parameters, float32 weights and two moments."""
    assert checkpoint(124337664, policy="fp32").bytes == 1492051968


def test_n091_policies_of_tools():
    """N091: EleutherAI's AdamW keeps 12, 8-bit 6, momentum 8; the JAX book's 10 bytes put 9.6e9 on 96 GB."""
    assert [POLICIES[name].optimizer for name in ("mixed16", "adam8bit", "sgd-momentum")] == [12, 6, 8]
    assert largest_model("96 GB", "jax-book").params == 9_600_000_000
    assert all(policy.source and str(policy.total) in str(policy) for policy in POLICIES.values())


def test_n092_muon():
    """N092: overheads of 0.00732422 and 0.00512; 3.3398e13 for a step on GPT-3's matrix, five of them in a trace."""
    assert muon_overhead(5, 768, 524288) == close(0.00732422)
    assert muon_overhead(5, 16384, 16_000_000) == close(0.00512)
    assert newton_schulz(49152, 12288) == 33397665693696
    step = linear(torch.optim.Muon)  # traced with D < K
    D, K = map(sa.dim.symbol, "DK")
    assert sympy.expand(step.optimizer.flops - 5 * newton_schulz(K, D)) == 0
    at = {D: 64, K: 65}
    tokens = sa.dim.symbol("B")
    share = (step.optimizer.flops / (3 * step.forward.flops)).subs(at)
    assert float(share * tokens) == pytest.approx(float(muon_overhead(5, 64, tokens) * tokens), rel=0.03)


def test_n093_zero_stages():
    """N093: 7.5B parameters on 64 ranks take 120, 31.4, 16.6 and 1.875 GB on each; GPT-2 of 1.5B takes 24."""
    for stage, size in ((0, 120), (1, 31.40625), (2, 16.640625), (3, 1.875)):
        assert states("7.5B", "mixed16", zero=stage, ranks=64).total == size * 1e9
    assert states("1.5B", "mixed16").total == 24 * 10**9
    by_hand = linear().at(B=8, D=64, K=128)
    for stage in (1, 2, 3):
        shared = states(by_hand, zero=stage, ranks=4)
        assert shared.optimizer == by_hand.optimizer_bytes / 4
        assert shared.gradients == by_hand.grad_bytes / (4 if stage >= 2 else 1)
        assert shared.weights == by_hand.param_bytes / (4 if stage == 3 else 1)


def test_n094_n096_layer_activations():
    """N094, N096: bytes of a transformer layer, plain and under tensor and sequence parallelism and recomputation."""
    s, b, h, a = 2048, 1, 12288, 96
    layer = partial(layer_activations, s, b, h, a)
    assert layer() == 2868903936
    assert layer(t=8) == 578813952
    assert layer(t=8, sequence_parallel=True) == 358612992
    assert layer(t=8, recompute="selective") == 327155712
    assert layer(t=8, sequence_parallel=True, recompute="selective") == 106954752
    assert layer(recompute="full") == 50331648
    assert share_of_scores(s, h, a) == close(0.701754)
    assert share_of_scores(2048, 20480, 128) == close(0.653061)
    with pytest.raises(SpecError, match="recompute"):
        layer(recompute="some")


def test_n097_interleaved_pipeline():
    """N097: the first of 8 stages with 2 chunks each holds 1.4375 times L layers; without interleaving, L layers."""
    assert first_stage(8, 2) == 1.4375
    assert first_stage(8) == 1


def test_n099_saved_tensors():
    """N099: 20, 1, 3 and 4 tensors per layer; what the book prints for 3, 20.9 TB, is 4 (X07)."""
    assert saved_tensors(20, 4_000_000, 8192, 64) == 83886080000000
    assert saved_tensors(1, 4_000_000, 8192, 64) == 4194304000000
    assert saved_tensors(3, 4_000_000, 8192, 80) == 15728640000000
    assert saved_tensors(4, 4_000_000, 8192, 80) == 20971520000000


def test_n100_listed_activations():
    """N100: 15517753344 bytes per sequence, 34032921600 of states; batches of 2 in 80 GB and 3 in 80 GiB."""
    each = listed_activations(T=1024, d=1600, H=25, V=50257, L=48)
    kept = states(2127057600, "fp32").total
    assert (each, kept) == (15517753344, 34032921600)
    assert [(memory - kept) // each for memory in (80 * 10**9, 80 * GIB)] == [2, 3]


def test_n106_eleuther_20b():
    """N106: 20.58B parameters: weights 38.32, gradients 76.65, AdamW 229.95, activations 17.53, in all 362.45 GiB."""
    V, h, s, L = 51200, 6144, 2048, 44
    params = 2 * V * h + h * s + 8 * h * L + 2 * h + 4 * L * h**2 + 8 * L * h**2
    assert params == 20575236096
    kept = states(params, "mixed18")
    activations = L * layer_activations(s, 1, h, 64, recompute="selective")
    found = [
        size / GIB for size in (kept.weights, kept.gradients, kept.optimizer, activations, kept.total + activations)
    ]
    assert found == [pytest.approx(size, abs=0.006) for size in (38.32, 76.65, 229.95, 17.5312, 362.45)]


def test_n114_pcie():
    """N114: 61333.3 rows until a product on a v6e outlasts its weights' way over 15 GB/s."""
    assert host_limit(920e12, "15 GB/s") == close(61333.3)
    assert transfer("15 GB", "15 GB/s").seconds == 1
    for link, rate in PCIE.items():
        assert transfer(2 * rate, link).seconds == 2
    with pytest.raises(UnitError, match=r"PCIe 4\.0"):
        transfer("1 GB", "PCIe 9")


# -- accounts ------------------------------------------------------------------------------


def test_devices_needed():
    """States are shared out, activations are not: n devices are enough, and n - 1 are not."""
    at = linear().at(B=1024, D=4096, K=4096)
    found = devices_needed(at, "60 MB")
    own = at.activation_bytes + at.input_bytes
    kept = at.param_bytes + at.grad_bytes + at.optimizer_bytes
    assert kept / found.devices + own <= 60e6 < kept / (found.devices - 1) + own
    assert devices_needed("70B", "80 GB", "mixed16").devices == 14
    assert devices_needed("70B", device("h100"), "mixed16").devices == 14
    with pytest.raises(QuestionError, match="activations and inputs of one alone"):
        devices_needed(at, "1 MB")
    with pytest.raises(QuestionError, match="sizes"):
        devices_needed(linear(), "1 GB")


def test_checkpoints_of_accounts():
    """The bytes of the account, the time at a bandwidth, and the share of the time between two of them."""
    at = linear().at(B=8, D=1024, K=1024)
    found = checkpoint(at, "1 GB/s", every="10 s", writers=2)
    assert found.bytes == at.checkpoint_bytes
    assert found.seconds == at.checkpoint_bytes / 2e9
    assert found.share == close(found.seconds / 10)
    assert checkpoint(linear()).bytes == linear().checkpoint_bytes
    assert checkpoint(linear()).seconds is None
    with pytest.raises(UnitError, match="bandwidth"):
        checkpoint(at, "1 GB")


def test_loading():
    """Bytes of the inputs, or of tokens as they are stored, in a second of steps."""
    step = sa.trace(sa.build(lambda D, V: nn.Embedding(V, D)), "i64[B, L]", check=False)
    at = step.at(B=8, L=128, D=16, V=100)
    found = loading(at, "250 ms", replicas=4)
    assert found.tokens_per_s == 4 * 4 * 8 * 128
    assert found.bytes_per_s == 8 * found.tokens_per_s
    assert loading(at, 0.25, replicas=4, bytes_per_token=2).bytes_per_s == 2 * found.tokens_per_s
    assert loading(step, 1).tokens == sa.dim.symbol("B") * sa.dim.symbol("L")
    with pytest.raises(UnknownDimError, match="'Q'"):
        loading(at, 1, tokens="Q")
    with pytest.raises(UnitError, match="step_seconds"):
        loading(at, "3 GB")


def test_what_there_is_none_of():
    """Stages, policies and ranks that do not exist are named, with those that do."""
    for wrong in ({"zero": 4}, {"ranks": 0}, {"policy": "mixed17"}, {"tensor": 1.5}):
        with pytest.raises(SpecError, match=next(iter(wrong))):
            states("7B", **wrong)
    with pytest.raises(UnitError, match="memory"):
        largest_model("80 GB/s")


def test_tables():
    """Results as text name the policy and what is not in them."""
    for result in (
        states("7B"),
        states(linear()),
        largest_model("80 GB"),
        checkpoint("7B", "1 GB/s"),
        transfer("1 GB"),
    ):
        assert "\n- " in str(result)
    assert "ZeRO stage 3 over 8 ranks" in str(states("7B", zero=3, ranks=8))
    assert "master copy 4" in str(states("7B"))
    assert "14 devices are needed" in str(devices_needed("70B", "80 GB"))
