"""Bounds on the time of inference against published napkin math, the batch that turns compute-bound, guessed tokens.

A test with "N.." or "X.." in its name has its numbers from the published result, or the known slip, of that name.
"""

import math

import pytest
import sympy
from conftest import TESTS
from torch import nn

import symacct as sa
from symacct.dim import symbol
from symacct.errors import DeviceError, QuestionError, UnitError
from symacct.hardware import Device
from symacct.inference import inference, speculate
from symacct.inference.bounds import (
    compute_bound_batch,
    compute_seconds,
    exchange_latency,
    exchange_seconds,
    read_seconds,
    step_seconds,
)

LLAMA = TESTS / "data" / "configs" / "llama-3-8b.json"
B, P = symbol("B"), symbol("P")


def rates(bytes_per_s, flops_per_s=1e12):
    """A device by the rates that a book has for it."""
    return Device("a book's", "", 2**34, bytes_per_s, {"bfloat16": flops_per_s}, "a book")


V5E = rates(8.1e11, 1.97e14)
A100 = rates(1.5e12, 3.12e14)


def ms(seconds):
    """Milliseconds, with six digits."""
    return pytest.approx(1000 * float(seconds), rel=5e-6)


@pytest.fixture(scope="module")
def llama():
    """Llama 3 of any depth and width, in 16 bits."""
    return inference(LLAMA, check=False)


@pytest.fixture(scope="module")
def alike():
    """A Llama each of whose query heads has keys of its own, as Llama 2."""
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "num_hidden_layers": 32, "vocab_size": 32000,
    }  # fmt: skip
    return inference(config, check=False, prefill=False)


# -- published times -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "batch", "cache", "weights", "devices", "device"),
    [
        (2.56759, 4, 819e6, 30e9, 16, V5E),
        (4.98476, 1, 6.7e9, 26e9, 8, rates(8.2e11, 1.97e14)),
        (249.085, 240, 6.7e9, 26e9, 8, rates(8.2e11, 1.97e14)),
        (17.2752, 32, 8192 * 160000, 70e9, 8, V5E),
    ],
)
def test_steps_that_read_N102(milliseconds, batch, cache, weights, devices, device):
    """Cache and weights are read once per step, by all devices together."""
    assert milliseconds == ms(step_seconds(weights, batch * cache, 0, device, "bf16", devices))
    assert milliseconds == ms(step_seconds(weights, batch * cache, 0, device, "bf16", devices, in_turn=True))


def test_a_step_of_256_sequences_computes_N102():
    """Reading 8-bit weights takes less than computing with them, and the cache is read before or after."""
    found = step_seconds(30e9, 256 * 819e6, 2 * 256 * 30e9, V5E, "bf16", 16, in_turn=True)
    assert ms(found) == 21.0509
    overlapped = step_seconds(30e9, 256 * 819e6, 2 * 256 * 30e9, V5E, "bf16", 16)
    assert overlapped == read_seconds(30e9 + 256 * 819e6, V5E, 16) < found


def test_reading_the_weights_of_200B_N102():
    """In 16 bits, by 32 devices."""
    assert ms(read_seconds("400 GB", rates(1.23e12), 32)) == 10.1626


def test_reading_the_weights_of_a_llama_N103(alike, llama):
    """Traced weights, at the sizes of Llama-2-7B and of Llama-3-70B, by the bandwidths of data sheets."""
    small = alike.at(B=1, P=1)
    assert small.weight_bytes == 2 * 6738415616
    assert ms(read_seconds(small.weight_bytes, sa.hardware.device("A100-80GB-SXM"))) == 6.60953
    assert ms(read_seconds(small.weight_bytes, sa.hardware.device("h100"))) == 4.02293
    large = llama.at(B=1, P=2, G=8, H=8, Dh=128, F=28672, V=128256, N=80)
    assert large.weight_bytes == 2 * 70553706496
    assert ms(read_seconds(large.weight_bytes, sa.hardware.device("h100"), 8)) == 5.2652


def test_kipply_reads_52B_N077_X06():
    """The matrices of all blocks, 12*L*d**2, in 16 bits: 68.7 ms of an A100, and 104 GB, not 52e12 * 2 bytes."""
    assert ms(read_seconds(2 * 12 * 64 * 8192**2, A100)) == 68.7195
    assert sa.units.show(2 * 12 * 64 * 8192**2, "B") == "103 GB"


def test_kipply_serves_260B_on_16_N078_X06():
    """Small batches read, large ones compute (53 ms, which the text later calls 62), and messages take a time."""
    assert ms(step_seconds(520e9, 0, 2 * 260e9, A100, "bf16", 16)) == 21.6667
    assert ms(step_seconds(520e9, 0, 512 * 2 * 260e9, A100, "bf16", 16)) == 53.3333
    assert ms(exchange_seconds(80, 16384, 512, "300 GB/s")) == 17.8957
    assert ms(exchange_latency(80, "8 us")) == 2.56


def test_int4_weights_of_70B_X07(llama):
    """Half a byte each: 35 GB, where a book's table has 45."""
    parameters = llama.at(B=1, P=2, G=8, H=8, Dh=128, F=28672, V=128256, N=80).decode.params
    assert sa.units.show(parameters / 2, "B") == "35.3 GB"


# -- bounds of a traced model ------------------------------------------------------------------


def test_a_bound_is_below_every_longer_one(llama):
    """Napkin <= minimal <= fused <= eager, and none is above the time of what is read or computed alone."""
    at = llama.at(B=8, P=8192)
    bounds = [
        at.step_seconds("h100"),
        *(at.traced_step_seconds("h100", level) for level in ("minimal", "fused", "eager")),
    ]
    assert [float(b) for b in bounds] == sorted(float(b) for b in bounds)
    assert at.step_seconds("h100", in_turn=True) >= at.step_seconds("h100")
    assert at.step_seconds("h100", 4) == pytest.approx(at.step_seconds("h100") / 4)
    assert at.tokens_per_second("h100") == pytest.approx(8 / at.step_seconds("h100"))
    assert at.step_seconds("h100") == read_seconds(at.read_weight_bytes + at.cache_bytes, sa.hardware.device("h100"))


def test_bounds_are_formulas_too(llama):
    """Without sizes, times are formulas in them, which give the same numbers."""
    sizes = {**llama.known, "B": 8, "P": 8192, "L": 8192}
    for ask in ("step_seconds", "tokens_per_second", "time_to_first_token"):
        symbolic, number = getattr(llama, ask)("h100"), getattr(llama.at(B=8, P=8192), ask)("h100")
        assert float(symbolic.subs({symbol(n): s for n, s in sizes.items()})) == pytest.approx(float(number))


def test_the_first_token_comes_after_the_prefill(llama):
    """A long prompt computes: attention to the pairs of its mask, weights once per token, logits of the last."""
    at = llama.at(B=1, P=8192)
    width, n = 4096, 32
    per_token = 2 * n * (2 * width**2 + 2 * width * 1024 + 3 * width * 14336)
    pairs = 8192 * 8193 // 2
    flops = 8192 * per_token + 4 * n * width * pairs + 2 * width * 128256
    device = sa.hardware.device("h100")
    assert at.time_to_first_token("h100") == compute_seconds(flops, device, "bf16")
    assert llama.at(B=1, P=8192, L=2).time_to_first_token("h100") == read_seconds(
        at.read_weight_bytes + 2 * at.cache_bytes_per_token, device
    )


def test_a_dtype_without_a_peak_is_refused(llama):
    """A device that does not multiply in 16 bits says what it has; and bytes are no FLOP."""
    device = Device("old", "", 2**34, 1e12, {"float32": 1e13}, "")
    with pytest.raises(DeviceError, match=r"^old has no peak rate for bfloat16.*; it has float32$"):
        llama.step_seconds(device)
    with pytest.raises(UnitError, match=r"^flops: '80 GB' is bytes"):
        compute_seconds("80 GB", V5E, "bf16")


# -- the batch from which on a step is compute-bound ---------------------------------------------


def test_a_product_is_compute_bound_above_its_batch_X07():
    """2*B*D*F against 2*(B*D + D*F + B*F) bytes at D=4096, F=16384: above 262.7, where a book has 271."""
    layer = sa.trace(sa.build(lambda D, F: nn.Linear(D, F, bias=False).bfloat16()), "bf16[B, D]", train=False)
    found = compute_bound_batch(layer.forward.flops, layer.forward.bytes, V5E, "bf16")
    batch = found.subs({symbol("D"): 4096, symbol("F"): 16384})
    assert batch.is_Rational
    assert float(batch) == pytest.approx(262.7, abs=0.05)
    for size, bound in ((math.floor(batch), False), (math.ceil(batch), True)):
        at = layer.at(B=size, D=4096, F=16384).forward
        assert bool(compute_seconds(at.flops, V5E, "bf16") >= read_seconds(at.bytes, V5E)) is bound


def test_batches_of_a_models_products(llama):
    """Each product with weights turns at a batch of its own, the whole step later, or never for a long past."""
    found = llama.compute_bound_batches("h100", P=64)
    ridge = 989.4e12 / 3.35e12
    assert [name.rpartition(".")[2] for name in found] == [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head", "all",
    ]  # fmt: skip
    assert all(batch.is_Rational and batch > ridge for batch in found.values())
    exact = max(batch for name, batch in found.items() if name != "all")
    assert found["model.model.layers.*.self_attn.k_proj"] == exact  # the narrowest
    at = llama.at(B=math.ceil(found["all"]), P=64)
    device = sa.hardware.device("h100")
    assert at.step_seconds("h100") == compute_seconds(at.decode.forward.flops, device, "bf16")
    assert llama.compute_bound_batches("h100", P=8192)["all"] is None
    assert P in llama.compute_bound_batches("h100")["all"].free_symbols


def test_what_is_not_linear_in_the_batch_is_refused():
    """There is no one batch then."""
    with pytest.raises(QuestionError, match=r"B\*\*2 is not linear in B$"):
        compute_bound_batch(B**2, B, V5E, "bf16")


# -- guessed tokens ------------------------------------------------------------------------------


def test_guessed_tokens_N115():
    """Five guesses, each right four times in five, by a model of a twentieth of the cost."""
    found = speculate(sympy.Rational(4, 5), 5, sympy.Rational(1, 20))
    assert float(found.tokens) == pytest.approx(3.68928, abs=5e-6)
    assert float(found.speed_up) == pytest.approx(2.95142, abs=5e-6)
    assert float(found.operations) == pytest.approx(1.6941, abs=5e-5)
    assert str(found) == (
        "5 guesses, each accepted with probability 0.8: 3.69 tokens per run, 2.95 times as fast, 1.69 times the FLOP"
    )
    symbolic = speculate(sympy.Symbol("alpha"), 5, sympy.Symbol("c"))
    assert symbolic.speed_up.subs({"alpha": sympy.Rational(4, 5), "c": sympy.Rational(1, 20)}) == found.speed_up


def test_guesses_of_a_traced_model(llama):
    """The cost is the quotient of two traced steps, here of 8 layers by 32."""
    target, draft = llama.at(B=1, P=2048), llama.at(B=1, P=2048, N=8)
    cost = draft.step_seconds("h100") / target.step_seconds("h100")
    assert 0.25 < cost < 0.4  # the head is as large in both
    assert 1 < speculate(0.8, 3, cost).speed_up < speculate(0.8, 3, 0).speed_up
    for acceptance, guesses in ((1, 5), (-0.1, 5), (0.5, 0)):
        with pytest.raises(QuestionError, match=r"^(acceptance|guesses): expected"):
            speculate(acceptance, guesses, cost)
