"""Vision: convolutions, ResNet-50, ViT, DiT and the U-Net."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.language import Attention, FeedForward, Form, Sizes
from published.linear import backward, forward, params, total
from symacct.conventions.presets import Convention

B, C, F, L, T, c, d, n, p = symbols("B C F L T c d n p")
MULTIPLY_ADDS = Convention(multiply_add=1)

# -- convolutions ----------------------------------------------------------------------------


def convolutions() -> Proof:
    """Plain, grouped, depthwise and transposed."""
    Ho, Wo, Hi, Wi, Ci, Co, g, k = symbols("Ho Wo Hi Wi Ci Co g k")
    shape = {"Ho": "Hi - k + 1", "Wo": "Wi - k + 1"}
    sizes = {"B": 2, "Hi": 34, "Wi": 34, "k": 3}
    published = 2 * B * Ho * Wo * Co * (Ci / g) * k * k
    plain = sa.trace(sa.build(lambda Ci, Co, k: nn.Conv2d(Ci, Co, k)), "B Ci Hi Wi", grad=True)
    grouped = sa.trace(
        sa.build(lambda i, o, g, k: nn.Conv2d(g * i, g * o, k, groups=g)), "B (g i) Hi Wi", grad=True
    )  # fmt: skip
    depthwise = sa.trace(sa.build(lambda Ci, k: nn.Conv2d(Ci, Ci, k, groups=Ci)), "B Ci Hi Wi", grad=True)
    transposed = sa.trace(
        sa.build(lambda Ci, Co, k: nn.ConvTranspose2d(Ci, Co, k, stride=2)), "B Ci Hi Wi", grad=True
    )  # fmt: skip
    small = sizes | {"Ci": 8, "Co": 16}
    in_groups = shape | {"Ci": "g*i", "Co": "g*o"}
    figures = (
        Figure("forward FLOP", plain, forward, published.subs(g, 1), (), (Number("8 to 16", small, 4718592),)),
        Figure("backward FLOP, input and weights", plain, backward, 2 * published.subs(g, 1), (),
               (Number("8 to 16", small, 9437184),)),
        Figure("forward FLOP in g groups", grouped, forward, published, (),
               (Number("8 to 16, g=4", sizes | {"i": 2, "o": 4, "g": 4}, 1179648),), names=in_groups),
        Figure("backward FLOP in g groups (FlopCounterMode counts more, X12)", grouped, backward, 2 * published,
               names=in_groups),
        Figure("depthwise, forward FLOP", depthwise, forward, 2 * B * Ho * Wo * Ci * k * k, (),
               (Number("8 channels", sizes | {"Ci": 8}, 294912),)),
        Figure("transposed, forward FLOP", transposed, forward, 2 * B * Hi * Wi * Ci * Co * k * k, (),
               (Number("8 to 16", small | {"Hi": 32, "Wi": 32, "k": 2}, 2097152),), names={}),
    )  # fmt: skip
    return Proof("`nn.Conv2d` and `nn.ConvTranspose2d`, no padding, the input wants a gradient", figures, shape)


# -- ResNet-50 -------------------------------------------------------------------------------


@cache
def resnet50(original: bool = False) -> sa.Account:
    """ResNet-50 of torchvision; the original has the stride of a bottleneck on its first convolution."""
    from torchvision.models import resnet50 as make

    def builder() -> nn.Module:
        model = make()
        for block in model.modules():
            if original and hasattr(block, "conv3"):
                block.conv1.stride, block.conv2.stride = block.conv2.stride, (1, 1)
        return model

    return sa.trace(sa.build(builder), "B 3 224 224", train=not original)


def resnet() -> Proof:
    """ResNet-50: both variants, and a bottleneck in closed form."""
    from torchvision.models.resnet import Bottleneck

    H, W, N = symbols("H W N")
    stage = sa.build(lambda C, N: nn.Sequential(*(Bottleneck(4 * C, C) for _ in range(N))), depth="N")
    blocks = sa.trace(stage, "B (4 C) H W", train=False)
    one = {"B": 1}
    figures = (
        Figure("N bottlenecks of 4*C channels, multiply-adds", blocks.under(MULTIPLY_ADDS), forward,
               N * B * H * W * 17 * C**2),
        Figure("N bottlenecks, parameters", blocks, params, N * (17 * C**2 + 12 * C)),
        Figure("forward multiply-adds, torchvision", resnet50().under(MULTIPLY_ADDS), forward, 4089184256 * B,
               numbers=(Number("one image", one, 4089184256), Number("as printed", one, "4.089e9"))),
        Figure("forward FLOP", resnet50(), forward, 8178368512 * B, numbers=(Number("one image", one, 8178368512),)),
        Figure("forward and backward FLOP", resnet50(), total, 3 * 8178368512 * B,
               ((-236027904 * B, "the gradient of the image, the forward FLOP of the first convolution"),)),
        Figure("... as the reference has it", resnet50(), total, (3 * 8178368512 - 236027904) * B,
               numbers=(Number("one image", one, 24299077632),)),
        Figure("forward multiply-adds, stride on the first convolution of a bottleneck (He et al.)",
               resnet50(True).under(MULTIPLY_ADDS), forward, 3857973248 * B,
               numbers=(Number("one image", one, 3857973248),)),
        Figure("parameters", resnet50(), params, 25557032, numbers=(Number("torchvision", one, 25557032),)),
    )  # fmt: skip
    return Proof('torchvision\'s `resnet50` at `"B 3 224 224"`, and `Bottleneck`, `depth="N"`', figures)


# -- ViT -------------------------------------------------------------------------------------


@cache
def vit_model() -> sa.Account:
    """VisionTransformer of torchvision: m*m patches of p*p pixels, one class token."""
    from torchvision.models import VisionTransformer

    model = sa.build(
        lambda p, m, H, hd, F, c, L: VisionTransformer(m * p, p, L, H, H * hd, F, num_classes=c), depth="L", p=4
    )
    return sa.trace(model, "B 3 (m p) (m p)", train=False)


VITS = (  # name, patch, patches to a side, heads, head size, layers, inner width, multiply-adds, as printed
    ("B/16", 16, 14, 12, 64, 12, 3072, 17563828224, "17.564e9"),
    ("B/32", 32, 7, 12, 64, 12, 3072, 4409186304, "4.409e9"),
    ("L/16", 16, 14, 16, 64, 24, 4096, 61554712576, "61.555e9"),
    ("H/14", 14, 16, 16, 80, 32, 5120, 167295109120, "167.295e9"),
)  # fmt: skip


def vit_sizes(p: int, m: int, H: int, hd: int, L: int, F: int) -> dict[str, int]:
    """A row of the table: 1000 classes."""
    return {"B": 2, "p": p, "m": m, "H": H, "hd": hd, "L": L, "F": F, "c": 1000}


def vit() -> Proof:
    """Parameters and multiply-adds."""
    weights = (
        3 * p * p * d + d + d + (n + 1) * d + L * (4 * d * d + 4 * d + 2 * d * F + F + d + 4 * d) + 2 * d + d * c + c
    )
    work = n * d * 3 * p * p + L * ((n + 1) * 4 * d * d + 2 * (n + 1) ** 2 * d + 2 * (n + 1) * d * F) + d * c
    numbers = []
    for name, *sizes, count, printed in VITS:
        numbers += [Number(name, vit_sizes(*sizes), count), Number(f"{name}, as printed", vit_sizes(*sizes), printed)]
    figures = (
        Figure("parameters", vit_model(), params, weights,
               numbers=(Number("B/16", vit_sizes(16, 14, 12, 64, 12, 3072), 86567656),)),
        Figure("forward multiply-adds of an image", vit_model().under(MULTIPLY_ADDS), forward, work, (), tuple(numbers),
               "B"),
    )  # fmt: skip
    how = 'torchvision\'s `VisionTransformer`, n = m*m patches of p*p pixels, d = H*hd, `depth="L"`'
    return Proof(how, figures, {"d": "H*hd", "n": "m**2"})


# -- DiT -------------------------------------------------------------------------------------


class ConditionedBlock(nn.Module):
    """A block whose norms are scaled and shifted, and whose results are gated, by a condition (adaLN-Zero)."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        width = sizes.width
        self.attention, self.inner = Attention(sizes, form), FeedForward(width, sizes.inner, form)
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.condition = nn.Linear(width, 6 * width)

    def forward(self, x: Any, condition: Any) -> Any:
        shift, scale, gate, shift2, scale2, gate2 = self.condition(nn.functional.silu(condition))[:, None].chunk(6, -1)
        x = x + gate * self.attention(self.norms[0](x) * (1 + scale) + shift)
        return x + gate2 * self.inner(self.norms[1](x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """A diffusion transformer on latents of 4 channels, in patches of 2 x 2; its output has a variance too."""

    def __init__(self, sizes: Sizes, form: Form) -> None:
        super().__init__()
        width = sizes.width
        self.patches = nn.Conv2d(4, width, 2, stride=2)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(ConditionedBlock(sizes, form) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.condition, self.out = nn.Linear(width, 2 * width), nn.Linear(width, 2 * 2 * 8)

    def forward(self, latents: Any, time: Any) -> Any:
        """latents: (batch, 4, height, width); time: (batch, 256), waves of the time step."""
        x, condition = self.patches(latents).flatten(2).transpose(1, 2), self.time(time)
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.condition(nn.functional.silu(condition))[:, None].chunk(2, -1)
        return self.out(self.norm(x) * (1 + scale) + shift)


def dit() -> Proof:
    """DiT-XL/2: the closed form, what lies beside it, and what the paper prints."""
    model = sa.build(
        lambda H, hd, L: DiT(Sizes(H * hd, H, H, hd, 4 * H * hd, 1, 0, L), Form()), depth="L"
    )  # fmt: skip
    account = sa.trace(model, "B 4 (2 m) (2 m)", "B 256", train=False)
    blocks = L * (12 * T * d * d + 2 * T * T * d + 6 * d * d)
    beside = (
        (16 * T * d, "patches, 2*2*4 values each"), (256 * d + d * d, "the time step's two layers"),
        (2 * d * d, "the last condition"), (32 * T * d, "the last layer, 2*2*8 values for each patch"),
    )  # fmt: skip
    sizes = {name: {"B": 1, "H": 16, "hd": 72, "L": 28, "m": m} for name, m in (("256 px", 16), ("512 px", 32))}
    exact = tuple(Number(name, sizes[name], text) for name, text in (("256 px", "118.603e9"), ("512 px", "524.477e9")))
    printed = tuple(Number(f"{name}, as printed", sizes[name], text)
                    for name, text in (("256 px", "118.64e9"), ("512 px", "524.60e9")))  # fmt: skip
    with_norms = account.under(Convention(multiply_add=1, pointwise={"normalisation": 1}))
    whole = blocks + sum(term for term, _ in beside)
    figures = (
        Figure("forward multiply-adds of an image", account.under(MULTIPLY_ADDS), forward, blocks, beside, exact, "B"),
        Figure("and one FLOP for each element of a block's norms: a reading that meets the printed digits, of which "
               "the paper does not speak", with_norms, forward, whole + 2 * L * T * d,
               ((T * d, "the last norm"),), printed, "B"),
    )  # fmt: skip
    how = 'DiT with adaLN-Zero on latents of 4 channels, patches of 2 x 2, T = m*m, `depth="L"`'
    return Proof(how, figures, {"d": "H*hd", "T": "m**2"})


# -- U-Net -----------------------------------------------------------------------------------


def twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions of 3 x 3 without padding."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU())


class UNet(nn.Module):
    """The U-Net of 2015 with valid convolutions."""

    def __init__(self, channels: int, classes: int = 2, width: int = 64) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(5)]
        self.down = nn.ModuleList(twice(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(o, o // 2, 2, stride=2) for o in reversed(widths[1:]))
        self.join = nn.ModuleList(twice(o, o // 2) for o in reversed(widths[1:]))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, join, old in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = up(x)
            side, low = x.shape[-1], (old.shape[-1] - x.shape[-1]) // 2
            x = join(torch.cat((old[:, :, low : low + side, low : low + side], x), 1))
        return self.out(x)


UNETS = ((1, 31030658, 300856848896, 601339412992), (3, 31031810, 301605418496, 602087982592))


def u_net() -> Proof:
    """Parameters, forward and backward, of images of 572 x 572."""
    figures = []
    for channels, count, ahead, back in UNETS:
        account = sa.trace(sa.build(lambda channels=channels: UNet(channels)), f"B {channels} 572 572")
        label, first = f"{channels} channels", 2 * 570 * 570 * 64 * 9 * channels
        figures += [
            Figure(f"parameters, {label}", account, params, count, numbers=(Number(label, {"B": 1}, count),)),
            Figure(f"forward FLOP, {label}", account, forward, ahead * B, numbers=(Number(label, {"B": 1}, ahead),)),
            Figure(f"backward FLOP, {label}", account, backward, back * B, numbers=(Number(label, {"B": 1}, back),)),
            Figure(f"backward FLOP, {label}, beside twice the forward pass", account, backward, 2 * ahead * B,
                   ((-first * B, "the gradient of the image, the forward FLOP of the first convolution"),)),
        ]  # fmt: skip
    return Proof('the U-Net of 2015, valid convolutions, `"B c 572 572"`', tuple(figures))


ENTRIES = (
    Entry("N116", "Convolutions", "torch.utils.flop_counter", "2*B*Ho*Wo*Co*(Ci/g)*k*k", convolutions),
    Entry("N117", "ResNet-50", "torchvision's weight metadata; He et al. 2015 Table 1", "4,089,184,256 multiply-adds",
          resnet),
    Entry("N059, N118", "ViT", "torchvision's weight metadata; Dosovitskiy et al. 2020",
          "n*d*3*p*p + L*((n + 1)*4*d*d + 2*(n + 1)**2*d + 2*(n + 1)*d*F) + d*c multiply-adds", vit),
    Entry("N119", "DiT-XL/2", "Peebles and Xie 2022 Table 4", "L*(12*T*d*d + 2*T*T*d + 6*d*d) multiply-adds", dit),
    Entry("N120", "The U-Net of 2015", "Ronneberger et al. 2015", "31,030,658 parameters, 300,856,848,896 FLOP forward",
          u_net),
)  # fmt: skip
