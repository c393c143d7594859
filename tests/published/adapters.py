"""LoRA: frozen weights with adapters of rank r."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from published.gpts import at, gpt_sizes
from published.language import Block, Form, Language, Sizes
from published.linear import backward, forward, params


class Adapted(nn.Module):
    """A linear layer with an adapter: x @ W + x @ A @ B, of which A and B are trained."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs, bias=False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Any) -> Any:
        return self.frozen(x) + self.up(self.down(x))


def adapted(sizes: Sizes, form: Form, rank: int) -> Block:
    """A block whose queries and values have adapters."""
    block = Block(sizes, form)
    block.attention.query = Adapted(sizes.width, sizes.heads * sizes.size, rank)
    block.attention.value = Adapted(sizes.width, sizes.heads * sizes.size, rank)
    return block


@cache
def gpt3() -> sa.Account:
    """A GPT in float16 of which nothing but adapters is trained, at any depth."""

    def builder(H: int, hd: int, V: int, T: int, r: int, L: int) -> nn.Module:
        model = Language(gpt_sizes(H, hd, V, T, L), Form(), lambda s, form: adapted(s, form, r)).half()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".attention." in name and (".down." in name or ".up." in name))
        return model

    return sa.trace(sa.build(builder, depth="L"), "i64[B, T]")


def of_gpt3() -> Proof:
    """Adapters of queries and values of GPT-3."""
    L, d, r = symbols("L d r")
    numbers = []
    for rank, count in ((1, 4718592), (4, 18874368), (8, 37748736)):
        numbers.append(Number(f"r={rank}, parameters", at(12288, 128, L=96, V=50257, T=2048, r=rank), count, 2))
    numbers += [
        Number("r=1, as printed", numbers[0].sizes, "4.7e6", 2),
        Number("r=8, as printed", numbers[2].sizes, "37.7e6", 2),
        Number("r=4, bytes of a checkpoint in float16", numbers[1].sizes, 37748736),
    ]  # fmt: skip
    figure = Figure(
        "bytes of gradients, 2 for each trained parameter",
        gpt3(),
        lambda a: a.grad_bytes,
        2 * 2 * L * 2 * d * r,
        numbers=tuple(numbers),
    )
    how = "GPT in float16, adapters of rank r at the queries' and values' matrices, all else frozen, `depth=\"L\"`"
    return Proof(how, (figure,), {"d": "H*hd"})


def layer() -> Proof:
    """One layer, the gradient of its input included."""
    T, di, do, r = symbols("T di do r")

    def builder(di: int, do: int, r: int) -> nn.Module:
        model = Adapted(di, do, r)
        model.frozen.requires_grad_(False)
        return model

    account = sa.trace(sa.build(builder), "T di", grad=True)
    sizes = {"T": 1024, "di": 4096, "do": 4096, "r": 16}
    figures = (
        Figure("forward FLOP", account, forward, 2 * T * di * do + 2 * T * r * (di + do),
               numbers=(Number("4096 x 4096, r=16", sizes, 34628173824),)),
        Figure("backward FLOP", account, backward, 2 * T * di * do + 4 * T * r * (di + do),
               numbers=(Number("4096 x 4096, r=16", sizes, 34896609280),)),
        Figure("bytes of gradients, 4 for each trained parameter", account, lambda a: a.grad_bytes, 4 * r * (di + do),
               numbers=(Number("parameters of the adapter", sizes, 131072, 4),)),
        Figure("parameters", account, params, di * do + r * (di + do)),
    )  # fmt: skip
    return Proof("a frozen `nn.Linear` with an adapter, its input wants a gradient", figures)


ENTRIES = (
    Entry("N060", "LoRA on GPT-3", "Hu et al. 2021", "2*L*2*d*r trained parameters", of_gpt3),
    Entry("N105", "A layer with LoRA", "Hu et al. 2021", "2*T*di*do + 2*T*r*(di + do) forward, 2*T*di*do + "
          "4*T*r*(di + do) backward: the frozen matrix has no gradient", layer),
)  # fmt: skip
