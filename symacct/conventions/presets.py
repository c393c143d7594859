"""Conventions: what is counted, as one object, and those of the papers and tools that people compare with, by name.

A `Convention` says nothing of a model. `symacct.conventions.under` counts an account by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from symacct.conventions.roles import PARAMETERS, POINTWISE, PRODUCTS
from symacct.cost import Size
from symacct.dim import symbol
from symacct.errors import SpecError

_CHOICES: dict[str, tuple[Any, ...]] = {
    "multiply_add": (1, 2),
    "bias": (False, True, "convolutions"),
    "causal": ("full", "half", "exact"),
    "alignment": ("top-left", "bottom-right"),
    "attention": (False, True),
    "fused_backward": (4, 5),
    "backward": ("exact", "2x", "1x", "none"),
    "recompute": ("recorded", "none", "full", "selective"),
    "embedding": ("lookup", "one-hot", "one-hot, positions too", "4d"),
    "weights": ("products", "parameters"),
    "optimizer": (False, True),
}


@dataclass(frozen=True)
class Convention:
    """What is counted as FLOP, and which parameters N has. The default is what symacct itself counts.

    - ``multiply_add``: 2 FLOP, or 1. It holds for products, not for bias and pointwise work.
    - ``bias``: whether ``flops`` has one add per output for the bias of a product or convolution (or "convolutions").
    - ``causal``: attention that a mask makes causal in "full", "half" of queries*keys, or the "exact" pairs that the
      mask leaves, ``alignment`` where lengths differ: "top-left" (as torch's ``is_causal``) or "bottom-right".
      ``causal_in``: module paths whose attention is causal, ("",) for all, () for none. By default that is attention
      which says so, and, where the operator cannot tell (eager attention, a mask given as a tensor), attention with as
      many queries as keys. An encoder that attends in both directions by products wants ``causal_in=()``.
      ``window``: how many keys a query sees at most, itself one of them: a number or the name of a dim; it is part of
      "exact" alone. A window that a fused operator names needs no mention.
    - ``attention``: whether the products of attention are in.
    - ``backward``: "exact" (what autograd ran), "2x" the forward pass (the first layer's input gradient is in that),
      "1x", or "none". ``forward_only``: roles that are counted in the forward pass alone.
      ``fused_backward``: the products of a fused attention's backward, 5, or 4 without the scores that it repeats.
    - ``recompute``: "recorded" (what checkpoints computed again: hardware FLOP, HFU), "none" (model FLOP, MFU),
      "full" (a second forward pass of all but lookups and head, whatever was recorded) or "selective" (attention
      alone). True and False mean the first two. The last two are added ``recompute_times`` times.
    - ``embedding``: a token's lookup as 0 ("lookup"), as a "one-hot" product of 2*V*d, with or without those of
      positions, or "4d". ``head``: whether the logits are in, or the share of them that is.
    - ``weights``: "products" as they are, or "parameters": 2 FLOP per parameter of N and token, whatever is done with
      it, in place of all products but those of attention. ``tokens``: the dims whose product is the number of tokens,
      by default the indices of the token embedding, else the leading axes of the first input.
    - ``params``: the kinds of parameters in N, from `PARAMETERS`: "matrix", "vector" (biases and gains), "embedding",
      "position", "tied" (embedding and head in one), "head".
    - ``pointwise``: all other arithmetic "out" of ``flops``, "in" by the account's own weights, or FLOP per element of
      the result by role, such as ``{"softmax": 3}``.
    - ``optimizer``: whether the optimizer's products are in.

    Raises `SpecError` for a value that a switch does not have.
    """

    name: str = ""
    source: str = ""
    multiply_add: int = 2
    weights: str = "products"
    tokens: tuple[str, ...] | None = None
    params: tuple[str, ...] = PARAMETERS
    embedding: str = "lookup"
    head: bool | sympy.Rational = True
    attention: bool = True
    causal: str = "full"
    alignment: str = "top-left"
    causal_in: tuple[str, ...] | None = None
    window: str | int | None = None
    bias: bool | str = False
    pointwise: str | tuple[tuple[str, int], ...] | Mapping[str, int] = "out"
    backward: str = "exact"
    fused_backward: int = 5
    forward_only: tuple[str, ...] = ()
    recompute: str | bool = "recorded"
    recompute_times: int = 1
    optimizer: bool = True
    note: str = field(default="", compare=False)  # what the tool or paper does beside this

    def __post_init__(self) -> None:
        if isinstance(self.recompute, bool):
            object.__setattr__(self, "recompute", "recorded" if self.recompute else "none")
        if isinstance(self.pointwise, Mapping):
            object.__setattr__(self, "pointwise", tuple(self.pointwise.items()))
        for name in ("tokens", "causal_in", "params", "forward_only"):
            if isinstance(getattr(self, name), str):
                raise SpecError(f"Convention: {name} is a tuple of names, such as ({getattr(self, name)!r},)")
        for name, choices in _CHOICES.items():
            _one_of(name, getattr(self, name), choices)
        if isinstance(self.pointwise, str):
            _one_of("pointwise", self.pointwise, ("out", "in"))
        for role in self.own_weights:
            _one_of("pointwise", role, POINTWISE)
        for role in self.forward_only:
            _one_of("forward_only", role, (*PRODUCTS, *POINTWISE))
        for kind in self.params:
            _one_of("params", kind, PARAMETERS)
        if not 0 <= self.head <= 1:
            raise SpecError(f"Convention: head={self.head!r} is no share; give True, False or a fraction between")
        if isinstance(self.window, int) and self.window < 1:
            raise SpecError(f"Convention: window={self.window} lets a query see nothing; give 1 or more, or None")

    @property
    def own_weights(self) -> dict[str, int]:
        """FLOP per element by role, where the convention has weights of its own."""
        return {} if isinstance(self.pointwise, str) else dict(self.pointwise)

    @property
    def multiple(self) -> int | None:
        """How many forward passes the backward pass is counted as; None where it is what autograd ran."""
        return {"exact": None, "2x": 2, "1x": 1, "none": 0}[self.backward]

    def __str__(self) -> str:
        """One line: the name, every switch in words, the source."""
        said = "; ".join(words for _, words in self.switches())
        return (f"{self.name}: " if self.name else "") + said + (f" ({self.source})" if self.source else "")

    def switches(self) -> Iterator[tuple[str, str]]:
        """What is counted, (field, words) for each switch that says something."""
        yield "multiply_add", f"{self.multiply_add} per multiply-add"
        rule = {"products": "products as they are", "parameters": "2 per parameter and token in place of products"}
        yield "weights", rule[self.weights]
        if self.tokens is not None:
            yield "tokens", f"tokens {'*'.join(self.tokens)}"
        absent = [kind for kind in PARAMETERS if kind not in self.params]
        yield "params", "N of all parameters" if not absent else f"N of {', '.join(self.params)} parameters"
        if self.weights == "products" or self.embedding != "lookup":
            yield "embedding", f"embedding as {'0' if self.embedding == 'lookup' else self.embedding}"
        if self.weights == "products":
            share = {True: "in", False: "out"}.get(self.head, f"{self.head} in")
            yield "head", f"head {share}"
        yield "attention", f"attention {'in' if self.attention else 'out'}"
        if self.attention:
            seen = f"causal attention in {self.causal}" if self.causal == "full" else f"causal attention {self.causal}"
            yield "causal", seen
            if self.causal == "exact":
                yield "alignment", f"aligned {self.alignment}"
            if self.causal == "exact" and self.window is not None:
                yield "window", f"window {self.window}"
            if self.causal != "full" and self.causal_in is not None:
                yield "causal_in", f"causal in {', '.join(self.causal_in) or 'nothing'}"
        yield "bias", f"bias {_in(self.bias)}" if isinstance(self.bias, bool) else f"bias of {self.bias} in"
        own = ", ".join(f"{role} {weight}" for role, weight in self.own_weights.items())
        yield "pointwise", f"pointwise {self.pointwise}" if not own else f"{own} per element"
        yield (
            "backward",
            {"exact": "backward as run", "none": "no backward"}.get(self.backward, f"backward {self.backward}"),
        )
        if self.forward_only:
            yield "forward_only", f"{', '.join(self.forward_only)} in the forward pass alone"
        if self.multiple is None:
            yield "fused_backward", f"fused attention's backward {self.fused_backward} products"
        again = {"recorded": "recompute as run", "none": "recompute out"}
        times = f" x{self.recompute_times}" if self.recompute_times != 1 else ""
        yield "recompute", again.get(str(self.recompute), f"recompute {self.recompute}{times}")
        yield "optimizer", f"optimizer {_in(self.optimizer)}"


def _in(value: bool) -> str:
    return "in" if value else "out"


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not any(value is choice or (value == choice and type(value) is type(choice)) for choice in choices):
        raise SpecError(f"Convention: {name}={value!r} is none of {', '.join(map(str, choices))}")


SWITCHES = (  # in the order in which `explain` sets them
    "recompute", "recompute_times", "backward", "fused_backward", "forward_only", "optimizer", "multiply_add", "causal",
    "alignment", "causal_in", "window", "attention", "embedding", "head", "bias", "pointwise", "weights", "tokens",
    "params",
)  # fmt: skip


# -- pairs of query and key ------------------------------------------------------------


def pairs(queries: Size, keys: Size, alignment: str = "top-left", window: str | int | None = None) -> Size:
    """How many pairs a causal mask leaves.

    Query i of ``queries`` sees the keys up to i ("top-left") or up to i + keys - queries ("bottom-right"), and of
    those no more than ``window``. Source: sums of 1 + 2 + ... cut off at both ends.
    """
    offset = 0 if alignment == "top-left" else sympy.sympify(keys) - queries
    if window is None:
        return sympy.expand(_seen(queries, keys, offset))
    width = symbol(window) if isinstance(window, str) else window
    return sympy.expand(_seen(queries, keys, offset) - _seen(queries, keys, offset - width))


def _seen(queries: Size, keys: Size, offset: Size) -> Size:
    """The sum over queries i of i + offset + 1, cut to what lies between 0 and ``keys``."""
    last = queries + offset
    return _triangle(last) - _triangle(offset) - _triangle(last - keys) + _triangle(offset - keys)


def _triangle(size: Size) -> Size:
    """1 + 2 + ... + size, 0 where size is negative."""
    size = sympy.Max(0, sympy.expand(size))
    return size * (size + 1) / 2


# -- presets -----------------------------------------------------------------------------

_PAPER = Convention(backward="2x", recompute="none", optimizer=False)  # what model FLOPs of papers have in common
_ALL_BUT_POSITIONS = tuple(kind for kind in PARAMETERS if kind != "position")
_PALM = replace(_PAPER, weights="parameters")
_TOOL = Convention(backward="none", recompute="none", optimizer=False)

_PRESETS = (
    Convention(
        name="torch",
        source="torch.utils.flop_counter.FlopCounterMode, torch 2.13",
        note="The cases that it does not count, or counts wrongly, are GAPS in symacct/verify/flops.py.",
    ),
    replace(
        _TOOL, name="fvcore", source="fvcore.nn.FlopCountAnalysis 0.1.5", multiply_add=1,
        pointwise={"normalisation": 5, "fixed normalisation": 2},
        note="Fused attention has no handle there and is left out; a normalisation without weights is 4, or 1 with "
        "given statistics; interpolation and adaptive pooling are counted too.",
    ),
    replace(
        _TOOL, name="ptflops", source="ptflops 0.7.5, its backend aten (aten_ops.py)", multiply_add=1, bias=True,
        note="Fused attention has no entry there and is left out. The older backend counts by module, and activations, "
        "normalisations and pooling too.",
    ),
    replace(
        _TOOL, name="deepspeed", source="DeepSpeed 0.19.8, flops_profiler/profiler.py", bias="convolutions",
        backward="2x", pointwise={
            "normalisation": 5, "fixed normalisation": 2, "activation": 1, "softmax": 1,
        },
        note="The bias of a linear layer is left out there and that of addmm counted; pooling and functions such as "
        "torch.add are counted too.",
    ),
    replace(
        _PALM, name="6nd", source="Kaplan et al. 2020 section 2.1, with all parameters as N: 6*N per token",
        attention=False,
    ),
    replace(_PALM, name="palm", source="Chowdhery et al. 2022 Appendix B: 6*N + 12*L*H*Q*T per token"),
    replace(
        _PALM, name="nanogpt", source="nanoGPT model.py estimate_mfu: PaLM's formula, N without position embeddings",
        params=_ALL_BUT_POSITIONS,
    ),
    replace(_PALM, name="llm-foundry", source="llm-foundry benchmarking README: 6*P + 12*L*d*T per token"),
    replace(
        _PAPER, name="kaplan", source="Kaplan et al. 2020 Table 1: 2*N + 2*n_layer*n_ctx*d_attn per token, times 3",
        params=("matrix",), causal="half", head=False,
    ),
    replace(
        _PAPER, name="chinchilla", source="Hoffmann et al. 2022 Appendix F", embedding="one-hot",
        pointwise={"softmax": 3},
    ),
    replace(
        _PAPER, name="chinchilla-a4", source="Hoffmann et al. 2022 Table A4, whose ratios leave embedding and head out",
        head=False, pointwise={"softmax": 3},
    ),
    replace(_PAPER, name="megatron", source="Korthikanti et al. 2022 Appendix A, model FLOPs"),
    replace(
        _PAPER, name="megatron-selective", source="Korthikanti et al. 2022 Appendix A, hardware FLOPs",
        recompute="selective", recompute_times=3,
        note="The paper takes the repeated forward pass of attention three times, as if it had a backward pass too.",
    ),
    replace(_PAPER, name="megatron-full", source="Narayanan et al. 2021 eq. 3, with full recompute", recompute="full"),
    replace(
        _PAPER, name="megatron-core", source="Megatron-LM training.py num_floating_point_operations (2025)",
        causal="half",
    ),
    replace(
        _PAPER, name="apertus", source="Apertus technical report 2025 Appendix E",
        pointwise={"softmax": 3, "rms normalisation": 4},
        note="The report leaves the last normalisation out.",
    ),
    replace(
        _PAPER, name="electra", source="Clark et al. 2020, flops_computation.py", backward="1x", bias=True,
        embedding="one-hot, positions too", head=sympy.Rational(5, 32), pointwise={
            "softmax": 5, "normalisation": 5, "activation": 8, "dropout": 4, "residual": 1,
        },
        note="The script leaves the hidden size out of one layer norm (X09), adds the scale of scores, the add of "
        "positions, the head's softmax and 2*V for the target word, takes its share of the head's hidden layer too, "
        "and has no bias of the logits; positions are one-hot for every token there.",
    ),
    replace(
        _PAPER, name="eleuther", source="EleutherAI cookbook calc_transformer_flops.py, with its full recompute",
        recompute="full", embedding="4d", forward_only=("embedding", "head"),
        note="The script counts embedding and logits once, in training too (X04).",
    ),
)  # fmt: skip

PRESETS: Mapping[str, Convention] = {convention.name: convention for convention in _PRESETS}


def preset(name: str) -> Convention:
    """The convention of a paper or tool by name. Raises `SpecError` for a name that is not in `PRESETS`."""
    if name not in PRESETS:
        raise SpecError(f"there is no convention {name!r}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def page() -> str:
    """The presets and their switches as a page of Markdown."""
    lines = [
        "# Conventions",
        "",
        "`account.under(name)` counts an account by the convention of a paper or a tool, and `account.explain(a, b)`",
        "says term by term why two of them differ. This page is what",
        "`python -c \"from symacct.conventions.presets import page; print(page(), end='')\"` prints.",
        "",
        'A preset is a `Convention`; `dataclasses.replace(preset("palm"), attention=False)` is another one.',
        "",
        "| preset | source |",
        "| --- | --- |",
        *(f"| `{name}` | {convention.source} |" for name, convention in PRESETS.items()),
        "",
        "## What each counts",
        "",
        "Only what differs from `Convention()`, which is what an account counts without any of this:",
        f"{Convention()}.",
        "",
        "| preset | differs in |",
        "| --- | --- |",
    ]
    for name, convention in PRESETS.items():
        default = dict(Convention().switches())
        said = [words for switch, words in convention.switches() if default.get(switch) != words]
        lines.append(f"| `{name}` | {'; '.join(said) or 'nothing'} |")
    lines += ["", "What a convention cannot say, because the tool or paper does it in one place only:", ""]
    lines += [f"- `{name}`: {convention.note}" for name, convention in PRESETS.items() if convention.note]
    lines += ["", "## Switches", ""]
    doc = (Convention.__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    lines += [line.removeprefix("    ").replace("``", "`") for line in doc.splitlines()]
    return "\n".join([*lines, ""])
