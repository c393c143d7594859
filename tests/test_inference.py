"""Prefill and decode of real models with their caches: sizes of caches, FLOP, memory, and what is refused.

A test with "N.." or "X.." in its name has its numbers from the published result, or the known slip, of that name.
"""

import pytest
import sympy
import torch
from conftest import TESTS
from torch import nn
from torch.nn import functional as F

import symacct as sa
from symacct.dim import symbol
from symacct.errors import (
    AssumptionError,
    DimError,
    MissingSizeError,
    QuestionError,
    SpecError,
    TargetError,
    UnknownDimError,
)
from symacct.inference import attention_intensity, inference, of_accounts
from symacct.inference.cached import CachedStep

CONFIGS = TESTS / "data" / "configs"
TINY = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 50,
}  # fmt: skip
B, P, L, G, H, Dh, D, V, N = map(symbol, ("B", "P", "L", "G", "H", "Dh", "D", "V", "N"))
EXACT = sa.Convention(causal="exact", causal_in=("",))


@pytest.fixture(scope="module")
def llama():
    """Llama 3 8B of any depth and width, in 16 bits."""
    return inference(CONFIGS / "llama-3-8b.json")


@pytest.fixture(scope="module")
def gpt2():
    """GPT-2 of any depth and width, in 16 bits; its past is T, since P are its positions."""
    return inference(CONFIGS / "gpt2.json", check=False)


@pytest.fixture(scope="module")
def two_layers():
    """A small Llama of two layers in float32, as the CPU that verifies it runs it best."""
    return inference(TINY, depth=2, dtype="f32", check=False)


def deepseek_v3():
    """A layer of DeepSeek-V3 without experts, with latents of c and rotated keys of R in its cache."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    def builder(D, A, Dn, R, Dv, c, q, F, V):
        config = DeepseekV3Config(
            hidden_size=D, num_attention_heads=A, num_key_value_heads=A, qk_nope_head_dim=Dn, qk_rope_head_dim=R,
            v_head_dim=Dv, kv_lora_rank=c, q_lora_rank=q, intermediate_size=F, moe_intermediate_size=16,
            first_k_dense_replace=1, num_hidden_layers=1, vocab_size=V, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        return DeepseekV3ForCausalLM(config)

    return sa.build(builder, R=8)


class Attention(nn.Module):
    """Attention of one's own that lengthens keys and values which it is given."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width * heads, 3 * width * heads, bias=False)
        self.out = nn.Linear(width * heads, width * heads, bias=False)

    def forward(self, x, past):
        """``x``: (batch, tokens, width); ``past``: keys and values, each (batch, heads, tokens, width of a head)."""
        batch = x.shape[0]
        q, k, v = (t.view(batch, 1, self.heads, -1).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        keys, values = torch.cat([past["k"], k], 2), torch.cat([past["v"], v], 2)
        mixed = F.scaled_dot_product_attention(q, keys, values)
        return self.out(mixed.transpose(1, 2).flatten(2)), keys, values


@pytest.fixture(scope="module")
def own_step():
    """The account of a step of it."""
    model = sa.build(lambda W, A: Attention(W, A))
    past = {"k": "B A P W", "v": "B A P W"}
    return sa.trace(model, "B 1 (A W)", past, train=False)


# -- caches --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_per_token", "layers", "heads", "size"),
    [
        (524288, 32, 32, 128),  # Llama-2-7B
        (327680, 80, 8, 128),  # Llama-2-70B, Llama-3-70B, Qwen2.5-72B
        (516096, 126, 8, 128),  # Llama-3.1-405B
        (120832, 118, 1, 256),  # PaLM 540B
    ],
)
def test_cache_bytes_per_token_of_shared_heads_N101(llama, bytes_per_token, layers, heads, size):
    """Keys and values, in 16 bits, of each layer and each head of keys: 2*2*N*G*Dh, traced from Llama's real cache."""
    assert sympy.expand(llama.cache_bytes_per_token - 4 * N * G * Dh) == 0
    assert sympy.expand(llama.cache_bytes - 4 * N * G * Dh * B * P) == 0
    assert llama.cache_bytes_per_token.subs({N: layers, G: heads, Dh: size}) == bytes_per_token


@pytest.mark.parametrize(
    ("bytes_per_token", "layers", "heads"), [(2097152, 64, 64), (4718592, 96, 96)], ids=["kipply's 52B", "GPT-3"]
)
def test_cache_bytes_per_token_of_all_heads_N101(gpt2, bytes_per_token, layers, heads):
    """The same where each query head has its own keys, traced from GPT-2."""
    assert gpt2.past == "T"
    assert gpt2.cache_bytes_per_token.subs({N: layers, H: heads, Dh: 128}) == bytes_per_token


def test_caches_in_8_bits_N101(llama, gpt2):
    """An element a byte: Llama-3-70B 163,840 per token, and two models of 64 layers."""
    assert llama.cache_elements_per_token.subs({N: 80, G: 8, Dh: 128}) == 163840
    assert gpt2.cache_elements_per_token.subs({N: 64, H: 32, Dh: 128}) == 524288
    assert 8192 * gpt2.cache_elements_per_token.subs({N: 64, H: 64, Dh: 128}) == 8589934592


def test_a_cache_of_8192_tokens_N101(llama):
    """Llama-2-13B: 6.7 GB for one sequence."""
    assert llama.cache_bytes.subs({B: 1, P: 8192, N: 40, G: 40, Dh: 128}) == 6710886400


def test_a_cache_of_latents_N101():
    """DeepSeek-V3 keeps latents and one rotated key per token; the real model caches them before they are expanded."""
    made = inference(deepseek_v3(), prefill=False, check=False)
    latent, rotated = symbol("c"), symbol("R")
    assert sympy.expand(made.cache_bytes_per_token - 2 * (latent + rotated)) == 0
    layer = made.cache_bytes_per_token.subs({latent: 512, rotated: 64})
    assert (61 * layer, 60 * layer) == (70272, 69120)  # DeepSeek-V3, DeepSeek-V2
    flops = sympy.expand(made.decode.forward.flops)
    anew = 2 * B * symbol("A") * (symbol("Dn") + symbol("Dv"))  # keys and values of the past are expanded in each step
    assert sympy.expand(flops.coeff(latent * P, 1) - anew) == 0


def test_keys_and_values_both_count_and_so_do_shared_heads_X01(llama):
    """A script's cache of one tensor as wide as the model is another number, 4 times ours for Llama-3-70B."""
    ours = llama.cache_bytes_per_token.subs({N: 80, G: 8, Dh: 128})
    without_both = 2 * 80 * 8192
    assert (ours, without_both) == (327680, 1310720)


def test_a_window_ends_the_growth_of_a_cache():
    """Beyond a window of W tokens a layer keeps W - 1, and attends to W."""
    config = {**TINY, "model_type": "mistral", "sliding_window": 8}
    long = inference(config, depth=1, prefill=False, check=False, P=40)
    assert long.cache_bytes_per_token == 0
    assert sympy.expand(long.cache_bytes - 2 * 2 * 7 * G * Dh * B) == 0
    assert P not in long.decode.forward.flops.free_symbols
    short = inference(config, depth=1, prefill=False, check=False, P=4)
    assert sympy.expand(short.cache_bytes_per_token - 2 * 2 * G * Dh) == 0
    with pytest.raises(AssumptionError):
        short.at(B=1, P=40)


# -- FLOP ----------------------------------------------------------------------------------


def test_a_step_costs_its_weights_and_its_past(llama):
    """2 FLOP per weight of a product and sequence, and attention to all of the past and to the token itself."""
    width, hidden = G * H * Dh, symbol("F")
    weights = N * (2 * width**2 + 2 * width * G * Dh + 3 * width * hidden) + width * V
    by_hand = 2 * B * weights + 4 * B * G * H * Dh * (P + 1) * N
    assert sympy.expand(llama.decode.forward.flops - by_hand) == 0
    assert llama.decode.unknown == []
    assert all(any(at[n] != llama.decode.trial_sizes[n] for at in llama.decode.checked) for n in ("P", "N", "Dh"))


def test_the_steps_of_all_positions_are_the_prefill(llama):
    """Decoding L tokens from nothing is a prefill of L by the pairs its mask leaves, and logits for all tokens."""
    past = sympy.Symbol("past")
    steps = sympy.summation(sympy.expand(llama.decode.forward.flops).subs(P, past), (past, 0, L - 1))
    prefill = llama.prefill.under(EXACT).forward.flops
    assert sympy.expand(steps - prefill - 2 * B * G * H * Dh * V * (L - 1)) == 0


def test_kipply_counts_the_same_N077(gpt2):
    """A token through all blocks is 24*L*d**2, of which keys and values are 4*L*d**2."""
    at = {N: 64, H: 64, Dh: 128, B: 1}
    modules = gpt2.decode.by_module(None)
    attends = modules["model.transformer.h.*.attn.c_attn"].flops
    assert (sympy.Rational(2, 3) * attends).subs(at) == 17179869184
    blocks = gpt2.decode.forward.flops - modules["model.lm_head"].flops
    past = symbol("T")
    attention = 4 * B * N * H * Dh * (past + 1)
    assert sympy.expand(blocks - attention).subs(at) == 103079215104


@pytest.mark.parametrize("part", ["decode", "prefill"])
def test_a_real_run_is_what_was_predicted(two_layers, part):
    """Operators, FLOP, bytes and memory of the real model with a real cache, on this CPU."""
    sizes = {"B": 2, "P": 7, "L": 7, "G": 2, "H": 2, "Dh": 16, "F": 96, "V": 50}
    account = getattr(two_layers, part)
    found = account.verify("cpu", at={n: s for n, s in sizes.items() if n in account.dims}, steps=0)
    assert found.holds, found.report()


@pytest.mark.parametrize("window", [None, 4])
def test_the_cache_that_is_made_is_the_models_own(window):
    """With real tensors: a step after a prefill gives the logits of reading all tokens at once, in a window too."""
    from transformers import MistralConfig, MistralForCausalLM

    fields = {n: s for n, s in TINY.items() if n != "model_type"}
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**fields, sliding_window=window)).eval()
    tokens = torch.randint(50, (2, 9))
    with torch.no_grad():
        whole = CachedStep(model)(tokens)
        step = CachedStep(model, batch=2, past=8)
        for number, tensors in enumerate(zip(*[iter(CachedStep(model)(tokens[:, :8])[1:])] * 2, strict=True)):
            for name, tensor in zip(("keys", "values"), tensors, strict=True):
                step.get_buffer(f"cache_{number}_{name}").copy_(tensor)
        after = step(tokens[:, 8:])
    assert len(whole) == len(after) == 1 + 2 * 3
    for ours, theirs in zip(after, whole, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


# -- intensity -----------------------------------------------------------------------------


def attend(q, k, v):
    """Fused attention, with fewer heads of keys and values than of queries."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@pytest.mark.parametrize(("device", "attention"), [("cpu", None), ("cuda", "flash")])
def test_intensity_of_fused_attention_N041(device, attention):
    """T queries in groups of Q on S keys: S*T*Q/(S + T*Q) FLOP per byte in 16 bits, on the CPU and on CUDA."""
    keys = "bf16[B, K, S, h]"
    step = sa.trace(
        attend, "bf16[B, (K Q), T, h]", keys, keys, train=False, check=False, device=device, attention=attention
    )
    found = attention_intensity(step)
    S, T, Q = map(symbol, ("S", "T", "Q"))
    assert sympy.cancel(found - S * T * Q / (S + T * Q)) == 0
    assert found.subs({S: 2048, T: 2048, Q: 1}) == 1024
    assert float(found.subs({S: 8192, T: 1, Q: 1})) == pytest.approx(0.999878, abs=5e-7)
    assert float(found.subs({S: 2048, T: 2048, Q: 8})) == pytest.approx(1820.44, abs=5e-3)
    assert float(found.subs({S: 8192, T: 1, Q: 8})) == pytest.approx(7.9922, abs=5e-5)


def test_intensity_of_a_models_decode_nears_its_group_N041(llama):
    """Of a Llama's step it is that of one query on P + 1 keys: at most H, the queries that share a head of keys."""
    assert sympy.cancel(llama.attention_intensity - (P + 1) * H / (P + 1 + H)) == 0
    assert sympy.limit(llama.attention_intensity, P, sympy.oo) == H
    assert llama.at(B=8, P=8191).attention_intensity == pytest.approx(8192 * 4 / (8192 + 4), rel=1e-12)


def test_fused_attention_keeps_statistics_only_N098():
    """Beside queries, keys, values and results, 4 bytes per query and head wait for the backward pass: no L**2."""
    heads = "bf16[B, H, T, h]"
    step = sa.trace(attend, heads, heads, heads, grad=True, check=False, device="cuda", attention="flash")
    (node,) = [n for n in step.nodes if "flash_attention.default" in n.op]
    statistics = node.outputs[1]
    assert (statistics.dtype, statistics.nbytes) == ("float32", 4 * B * H * symbol("T"))
    assert statistics.nbytes.subs({B: 1, H: 16, symbol("T"): 2048}) == 131072
    assert sympy.degree(sympy.expand(step.activation_bytes), symbol("T")) == 1


# -- memory --------------------------------------------------------------------------------


def test_memory_of_a_step_is_weights_cache_and_what_it_works_with(llama):
    """The peak where the cache has room; what is beside weights and cache does not grow with the past."""
    at = llama.at(B=8, P=8192)
    assert at.memory_bytes == at.weight_bytes + 8 * 8193 * at.cache_bytes_per_token + at.working_bytes
    assert at.working_bytes == llama.at(B=8, P=100).working_bytes
    assert at.weight_bytes == 2 * 8030261248  # N050
    copied = at.decode.peak_bytes - at.memory_bytes
    assert copied == 8 * 8192 * at.cache_bytes_per_token  # the caller's old cache, while the new one is a copy of it


@pytest.mark.parametrize("dim", ["B", "P", "N"])
def test_the_largest_that_fits_is_the_largest(llama, dim):
    """It fits, and one more does not."""
    sizes = {"B": 4, "P": 2048}
    most = llama.largest(dim, "h100", **{n: s for n, s in sizes.items() if n != dim})
    room = sa.hardware.device("h100").memory_bytes
    assert llama.at(**{**sizes, dim: most}).memory_bytes <= room < llama.at(**{**sizes, dim: most + 1}).memory_bytes


def test_devices_share_what_does_not_fit_one(llama):
    """Four times the room for weights and cache."""
    assert llama.largest("B", "h100", 4, P=8192) > 4 * llama.largest("B", "h100", P=8192)


def test_what_is_too_large_is_said(llama):
    """Even one sequence does not fit: which part takes how much."""
    with pytest.raises(QuestionError) as caught:
        llama.largest("B", "rtx4090", P=8192, N=64)
    assert str(caught.value) == (
        "even B=1 does not fit: RTX-4090-24GB has 25.8 GB, and a decode step takes weights 30.0 GB, the cache 2.15 GB, "
        "the rest 265 kB; the largest part is weights"
    )


# -- one's own -----------------------------------------------------------------------------


def test_a_module_of_ones_own(own_step):
    """Any step whose cache is among its inputs; what it returns behind its first tensor is the new one."""
    made = of_accounts(own_step, cache="past")
    A, W = symbol("A"), symbol("W")
    assert made.cache_bytes_per_token == 8 * A * W
    assert made.cache_elements_per_token == 2 * A * W
    assert sympy.expand(made.read_weight_bytes - 16 * A**2 * W**2) == 0
    at = made.at(B=2, P=100, A=4, W=64)
    assert at.memory_bytes == at.weight_bytes + 2 * 101 * 8 * 4 * 64 + at.working_bytes
    with pytest.raises(QuestionError, match=r"^time_to_first_token\(\): no prefill was traced"):
        made.time_to_first_token("h100")


def test_a_cache_that_is_written_in_place_is_not_copied():
    """Where the step writes into its cache and returns it, the traced peak is the peak."""

    def step(x, slots, keys):
        keys.index_copy_(1, slots, x)
        return x + keys.sum(1, keepdim=True), keys

    account = sa.trace(step, "B 1 W", "i64[1]", "B P W", train=False, check=False)
    made = of_accounts(account, cache=["keys"])
    assert made.cache_bytes_per_token == 4 * symbol("W")
    assert made.memory_bytes == account.peak_bytes


def test_a_table_of_which_rows_are_looked_up_is_not_read(llama, gpt2):
    """Llama's table of tokens is none of the weights that a step reads; GPT-2's is its head too."""
    assert sympy.expand(llama.weight_bytes - llama.read_weight_bytes - 2 * V * G * H * Dh) == 0
    assert sympy.expand(gpt2.weight_bytes - gpt2.read_weight_bytes - 2 * P * H * Dh) == 0


# -- words and errors ------------------------------------------------------------------------


def test_str_has_the_figures(two_layers):
    """Formulas, or numbers with their units where there are sizes."""
    assert "  cache per token          16*Dh*G\n" in str(two_layers)
    at = two_layers.at(B=4, P=100)
    assert str(at) == (
        "Inference with LlamaForCausalLM at G=2, H=2, Dh=16, F=96, V=50, B=4, P=100, L=100\n"
        "  weights                  273 kB\n"
        "  cache                    205 kB\n"
        "  cache per token          512 B\n"
        f"  memory of a decode step  {sa.units.show(at.memory_bytes, 'B')}\n"
        f"  decode step              {sa.units.show(at.decode.forward.flops, 'FLOP')}\n"
        f"  prefill                  {sa.units.show(at.prefill.forward.flops, 'FLOP')}"
    )
    assert at.symbolic.cache_bytes == two_layers.cache_bytes
    assert any(text.startswith("lower bounds:") for text in at.assumptions)


def test_what_cannot_be_asked_is_refused(two_layers, own_step):
    """Each error says what is wrong and what there is."""
    with pytest.raises(UnknownDimError, match=r"^at\(\): there is no dim 'Q'; the dims are G, H, Dh, F, V, B, P, L$"):
        two_layers.at(Q=1)
    with pytest.raises(MissingSizeError, match=r"^at\(\): no size for P"):
        two_layers.at(B=1)
    with pytest.raises(UnknownDimError, match=r"^largest\(\): there is no dim 'Q'"):
        two_layers.largest("Q", "h100")
    with pytest.raises(MissingSizeError, match=r"^largest\(\): no size for P$"):
        two_layers.largest("B", "h100")
    with pytest.raises(SpecError, match=r"^cache: there is no input 'k'; the inputs are x, past$"):
        of_accounts(own_step, cache="k")
    with pytest.raises(SpecError, match=r"^dtype: 'i64' is none of bf16"):
        inference(TINY, dtype="i64")
    with pytest.raises(DimError, match=r"^inference\(\): Q=3, but the dims are B, L, P, G, H, Dh, F, V$"):
        inference(TINY, depth=1, Q=3)
    with pytest.raises(TargetError, match=r"Linear was not made by sa\.build; give its config"):
        inference(nn.Linear(2, 2))
    training = sa.trace(lambda x: x * 2, "B P", check=False)
    with pytest.raises(SpecError, match=r"^of_accounts\(\): an account of training; trace with train=False$"):
        of_accounts(training, cache="x")


def test_a_model_without_a_cache_is_refused():
    """A module that is no causal model of transformers."""
    with pytest.raises(TargetError, match=r"^inference\(\): Linear is no causal language model of transformers"):
        inference(sa.build(lambda W: nn.Linear(W, W)), prefill=False)
