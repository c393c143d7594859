"""GPT-2 of any depth: one trace for the whole family, at the sizes of its four members, and as arrays of sizes."""

from functools import partial

import torch
from transformers import GPT2Config, GPT2LMHeadModel, logging

import symacct as sa

logging.set_verbosity_error()  # small trial sizes make transformers warn about its default token ids

FAMILY = {"small": (12, 12), "medium": (24, 16), "large": (36, 20), "xl": (48, 25)}  # blocks, heads


def gpt2(N, H, Dh, V, P):
    """N blocks with H heads of size Dh, V tokens, P positions; the head is tied to the embedding."""
    return GPT2LMHeadModel(GPT2Config(n_layer=N, n_head=H, n_embd=H * Dh, vocab_size=V, n_positions=P))


model = sa.build(gpt2, depth="N")


def account():
    """One training step with AdamW; given labels, the model computes its own loss."""
    adamw = partial(torch.optim.AdamW, fused=True)
    return sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=adamw)


if __name__ == "__main__":
    step = account()
    named = step.express(D="H*Dh")
    print("forward    ", sa.collected(named.forward.flops, "B", "L"))
    print("parameters ", sa.collected(named.params, "N"))
    print("activations", sa.collected(named.activation_bytes, "B", "L"))
    for name, (blocks, heads) in FAMILY.items():
        one = step.at(B=1, L=1024, N=blocks, H=heads, Dh=64, V=50257, P=1024)
        print(
            f"{name:7}{one.params:>14,} parameters {one.total.flops:>20,} FLOP {one.peak_bytes:>15,} bytes at the peak"
        )
