"""Serving Llama 3 8B: a prefill and a decode step of the real model with its cache, memory, and the least time."""

from transformers import LlamaConfig, LlamaForCausalLM

import symacct as sa
from symacct.inference import inference


def llama(G, H, Dh, F, V, N):
    """N blocks; queries have G*H heads, and each group of H shares one head of keys and values of size Dh."""
    config = LlamaConfig(
        hidden_size=G * H * Dh,
        num_attention_heads=G * H,
        num_key_value_heads=G,
        head_dim=Dh,
        intermediate_size=F,
        vocab_size=V,
        num_hidden_layers=N,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


SIZES = {"G": 8, "H": 4, "Dh": 128, "F": 14336, "V": 128256, "N": 32}
model = sa.build(llama, depth="N")


def serving():
    """A prefill of L tokens, and a step after a past of P tokens, in bfloat16."""
    return inference(model)


def account():
    """One decode step: each of B sequences reads a token and extends its cache of P."""
    return serving().decode


if __name__ == "__main__":
    made = serving()
    print("decode step    ", made.decode.forward)
    print("prefill        ", made.prefill.forward)
    print("cache per token", sa.formula(made.cache_bytes_per_token), "bytes")
    at = made.at(B=8, P=8192, **SIZES)
    print(at)
    for device in ("H100-SXM5-80GB", "H200-SXM-141GB"):
        most = made.largest("B", device, P=8192, **SIZES)
        print(
            f"{device}: {1000 * float(at.step_seconds(device)):.3g} ms a step at the least, at most "
            f"{float(at.tokens_per_second(device)):,.0f} tokens/s, {float(at.time_to_first_token(device)):.3g} s "
            f"to the first token at the least, {most} sequences of 8,192 fit"
        )
    for P in (64, 256, 1024):
        batches = made.compute_bound_batches("H100-SXM5-80GB", P=P, **SIZES)
        found = batches["all"]
        print(
            f"past of {P:,}:",
            "memory-bound at every batch" if found is None else f"compute-bound above {float(found):.1f}",
        )
