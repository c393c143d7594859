"""A Llama from transformers, unmodified: G groups of H query heads of size Dh, F hidden units, V tokens, two blocks."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, logging

import symacct as sa

logging.set_verbosity_error()  # small trial sizes make transformers warn about its default token ids

LAYERS = 2


def llama(G, H, Dh, F, V):
    """Queries have G*H heads; each group of H shares one head of keys and values."""
    config = LlamaConfig(
        hidden_size=G * H * Dh,
        num_attention_heads=G * H,
        num_key_value_heads=G,
        head_dim=Dh,
        intermediate_size=F,
        vocab_size=V,
        num_hidden_layers=LAYERS,
    )
    return LlamaForCausalLM(config)


model = sa.build(llama)


def account():
    """One training step with AdamW; given labels, the model computes its own loss."""
    return sa.trace(model, input_ids="i64[B, L]", labels="i64[B, L]", optimizer=torch.optim.AdamW)


if __name__ == "__main__":
    step = account()
    print("forward   ", step.forward)
    print("backward  ", step.backward)
    print("parameters", sa.formula(step.params))
    large = step.at(B=1, L=8192, G=8, H=4, Dh=128, F=14336, V=128256)
    print("as wide as Llama 3 8B:", sa.formula(large.params), "parameters,", large.forward, "FLOP forward")
