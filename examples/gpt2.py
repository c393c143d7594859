"""GPT-2 from transformers, unmodified: H heads of size Dh, V tokens, P positions, and 12 blocks."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, logging

import symacct as sa

logging.set_verbosity_error()  # small trial sizes make transformers warn about its default token ids


def gpt2(H, Dh, V, P):
    """The language model with its head tied to the embedding."""
    return GPT2LMHeadModel(GPT2Config(n_head=H, n_embd=H * Dh, vocab_size=V, n_positions=P, n_layer=12))


model = sa.build(gpt2)


def account():
    """One training step with AdamW; given labels, the model computes its own loss."""
    return sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW)


if __name__ == "__main__":
    step = account()
    print("forward   ", step.forward)
    print("backward  ", step.backward)
    print("parameters", sa.formula(step.params))
    small = step.at(B=1, L=1024, H=12, Dh=64, V=50257, P=1024)
    print("GPT-2 small:", sa.formula(small.params), "parameters,", small.forward, "FLOP forward for 1024 tokens")
