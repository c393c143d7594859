"""Diffusion: the U-Net of Stable Diffusion 1.5, as diffusers has it."""

from __future__ import annotations

from typing import Any

from torch import nn

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.linear import forward, params
from symacct.conventions.presets import Convention

B, T = symbols("B T")
WORDS = 768  # features of a token of the text
LEVELS = ((320, 64, 5), (640, 32, 5), (1280, 16, 5), (1280, 8, 1))  # channels, side, cross-attentions: 2 down, 3 up


class Denoiser(nn.Module):
    """The U-Net by its config: latents, time steps and text in, noise out."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DConditionModel

        down, up = "CrossAttnDownBlock2D", "CrossAttnUpBlock2D"
        self.unet = UNet2DConditionModel(
            sample_size=64, in_channels=4, out_channels=4, block_out_channels=(320, 640, 1280, 1280),
            down_block_types=(down, down, down, "DownBlock2D"), up_block_types=("UpBlock2D", up, up, up),
            layers_per_block=2, cross_attention_dim=WORDS, attention_head_dim=8,
        )  # fmt: skip

    def forward(self, latents: Any, time: Any, words: Any) -> Any:
        return self.unet(latents, time, words, return_dict=False)[0]


def stable_diffusion() -> Proof:
    """Parameters, FLOP at 77 tokens of text, and what each token more costs."""
    # From batches of 64 on diffusers makes tensors contiguous: small trial batches stay below.
    account = sa.trace(sa.build(Denoiser), "B 4 64 64", "i64[B]", "B T 768", train=False, sizes={"B": 2})
    keys = sum(2 * 2 * WORDS * channels * count for channels, _, count in LEVELS)
    seen = sum(2 * 2 * side**2 * channels * count for channels, side, count in LEVELS)
    published, one = 803273441280, {"B": 1, "T": 77}
    more = (
        (keys * B * (T - 77), "keys and values of more tokens than 77, in 16 cross-attentions"),
        (seen * B * (T - 77), "their scores, and their values weighted"),
    )  # fmt: skip
    half = tuple((term / 2, why) for term, why in more)
    figures = (
        Figure("parameters", account, params, 859520964,
               numbers=(Number("SD 1.5", one, 859520964), Number("SD 1.5, as printed", one, "859.52e6"))),
        Figure("forward FLOP", account, forward, published * B, more, (Number("64 x 64, 77 tokens", one, published),)),
        Figure("forward multiply-adds", account.under(Convention(multiply_add=1)), forward, published // 2 * B, half,
               (Number("64 x 64, 77 tokens", one, "401.64e9"),)),
    )  # fmt: skip
    how = '`UNet2DConditionModel` of diffusers, by the config of Stable Diffusion 1.5, `"B 4 64 64"`, text `"B T 768"`'
    return Proof(how, figures)


ENTRIES = (
    Entry("N121", "The U-Net of Stable Diffusion 1.5", "diffusers, UNet2DConditionModel",
          "859,520,964 parameters, 803,273,441,280 FLOP forward for latents of 64 x 64 and 77 tokens of text",
          stable_diffusion),
)  # fmt: skip
