"""Activation memory by the formulas of papers, for models that nobody traced; a traced account has its own.

s: sequence length, b: micro-batch, h: width, a: heads, t: tensor-parallel ranks, L: layers, V: vocabulary. All of them
may be numbers or expressions.
"""

from __future__ import annotations

from typing import Any

from symacct.errors import SpecError
from symacct.napkin.amounts import over, reduced, times

_RECOMPUTE = ("none", "selective", "full")


def layer_activations(
    s: Any, b: Any, h: Any, a: Any, t: Any = 1, *, sequence_parallel: bool = False, recompute: str = "none"
) -> Any:
    """Bytes that one transformer layer saves, 16-bit, with dropout and attention that is not fused.

    Source: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equations 1 to 6:
    s*b*h*(34 + 5*a*s/h); over t ranks 10 of the 34 are on all of them, unless the sequence is shared out too;
    "selective" recomputes the attention's scores (the 5*a*s/h), "full" keeps 2*s*b*h, the input of the layer.
    A traced layer has 16*s*b more, the statistics of its two norms.
    """
    if recompute not in _RECOMPUTE:
        raise SpecError(f"recompute: {recompute!r} is none of {', '.join(_RECOMPUTE)}")
    if recompute == "full":
        return times(2, s, b, h)
    scores = 0 if recompute == "selective" else over(times(5, a, s), times(h, t))
    plain = over(34, t) if sequence_parallel else 10 + over(24, t)
    return times(s, b, h, plain + scores)


def share_of_scores(s: Any, h: Any, a: Any) -> Any:
    """The share of a layer's activations that "selective" recomputation does without; source as above."""
    scores = over(times(5, a, s), h)
    return over(scores, 34 + scores)


def first_stage(p: Any, v: Any = 1) -> Any:
    """By how much an interleaved pipeline's first stage holds more activations than L layers: 1 + (p - 1)/(p*v).

    p: stages, v: chunks of layers on each. With v=1, the plain schedule, it is 1: p micro-batches of L/p layers.
    Source: Korthikanti et al. 2022, section 4.2.3.
    """
    return 1 if v == 1 else reduced(1 + over(p - 1, times(p, v)))


def saved_tensors(tensors: Any, tokens: Any, width: Any, layers: Any, itemsize: Any = 2) -> Any:
    """Bytes of so many tensors of (tokens, width) that each layer saves; 1 is a checkpoint of every layer.

    Source: Austin et al. 2025, "How to Scale Your Model", chapters 4 and 6.
    """
    return times(tensors, tokens, width, layers, itemsize)


def listed_activations(T: Any, d: Any, H: Any, V: Any, L: Any, itemsize: Any = 4) -> Any:
    """Bytes per sequence of the tensors that Stanford's CS336 lists in its first assignment (AdamW accounting).

    Per layer 16*T*d (norms, projections, a feed-forward layer of 4*d) and 2*H*T**2 (scores and their softmax), then
    T*d for the last norm and 2*T*V for the logits and the loss.
    """
    return times(itemsize, times(L, times(16, T, d) + times(2, H, T, T)) + times(T, d) + times(2, T, V))
