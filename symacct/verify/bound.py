"""The least time that a step of an account can take under a device's ceilings, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.cost import ITEMSIZE
from symacct.parts import NodeCost
from symacct.verify.ceilings import DTYPES, Ceilings


@dataclass(frozen=True)
class Least:
    """The least seconds that a node can take, and what sets them: "FLOP", "memory", "cache" or "" for nothing."""

    node: NodeCost
    seconds: float
    limit: str = ""


@dataclass(frozen=True)
class Bound:
    """The least time of a step, node by node. ``ideal_seconds``: its contractions at their peaks, by phase.

    ``unrated``: FLOP of dtypes whose peak is not known.
    """

    nodes: tuple[Least, ...]
    ideal_seconds: dict[str, float]
    unrated: int = 0

    @cached_property
    def seconds(self) -> float:
        """The least seconds of the step."""
        return sum(least.seconds for least in self.nodes)

    def by_op(self) -> list[tuple[str, float]]:
        """The seconds of each op, largest first."""
        found: dict[str, float] = {}
        for least in self.nodes:
            found[least.node.op] = found.get(least.node.op, 0.0) + least.seconds
        return sorted(((op, s) for op, s in found.items() if s), key=lambda pair: -pair[1])

    def largest(self, op: str) -> NodeCost:
        """The node of an op that takes longest."""
        return max((least for least in self.nodes if least.node.op == op), key=lambda least: least.seconds).node


def bound(account: Account, ceilings: Ceilings) -> Bound:
    """The least time of a step of an account at sizes: the sum over its nodes of the least that each can take.

    Kernels run one after another, so the times of nodes add up. A node takes at least the largest of

    - its contractions at the fastest rate of its operands' dtype, or of a wider one that they may be converted to,
    - its bytes at the fastest that bytes were seen to move anywhere, as every operand is loaded and every result
      stored at least once, be it within a cache,
    - its bytes beyond the caches at the speed of memory. When a kernel begins, caches may hold as much of its
      operands as they are large. When it ends, they may hold as much of its results, not yet written back. So of
      what is read and of what is written, each less the size of all caches, memory has to move the rest.

    Left out, because what they cost at least is not known: pointwise arithmetic (its weights count evaluations, not
    instructions); elements that data choose (gathers and scatters, products in groups, packed sequences);
    contractions of convolutions on CUDA and in NNPACK, which may run by fewer multiplications (Winograd, FFT).
    Of causal attention, only the half that a kernel cannot skip counts.
    """
    least = []
    ideal: dict[str, float] = {}
    unrated = 0
    for node in account.nodes:
        if not node.known:
            least.append(Least(node, 0.0))
            continue
        least.append(_least(account, node, ceilings))
        if node.flops:
            rate = _judged(node, ceilings)
            unrated += 0 if rate else int(node.flops)
            ideal[node.phase] = ideal.get(node.phase, 0.0) + (float(node.flops) / rate if rate else 0.0)
    return Bound(tuple(least), ideal, unrated)


def _least(account: Account, node: NodeCost, ceilings: Ceilings) -> Least:
    if _chosen_by_data(account, node):
        return Least(node, 0.0)
    read, wrote = float(node.bytes_read), float(node.bytes_written)
    beyond = max(read - ceilings.cache_bytes, 0.0) + max(wrote - ceilings.cache_bytes, 0.0)
    rate = _fastest(node, ceilings)
    parts = {
        "FLOP": _unavoidable(account, node, ceilings) / rate if rate else 0.0,
        "memory": beyond / ceilings.bytes_per_s,
        "cache": (read + wrote) / ceilings.cache_bytes_per_s,
    }
    limit = max(parts, key=lambda name: parts[name])
    return Least(node, parts[limit], limit if parts[limit] else "")


_GROUPED = ("aten._grouped_mm", "aten._scaled_grouped_mm", "aten._flash_attention_", "aten._efficient_attention_")


def _chosen_by_data(account: Account, node: NodeCost) -> bool:
    """Whether data choose which elements a node touches, so that the account counts the most."""
    found = account.rules.find(node.op) or {}
    return any(rule.family == "indexing" for rule in found.values()) or node.op.startswith(_GROUPED)


def _unavoidable(account: Account, node: NodeCost, ceilings: Ceilings) -> float:
    """The contractions of a node, in FLOP, that no kernel for it can do without."""
    name = node.op.split(".")[1]
    if "nnpack" in name or ("conv" in name and ceilings.kind != "cpu"):
        return 0.0
    flops = float(node.flops)
    return flops * _unmasked(account, node) if flops and "attention" in name else flops


def _unmasked(account: Account, node: NodeCost) -> float:
    """The share of the scores that a causal mask leaves; 1 without one.

    Query i meets keys 0 to i. Of s queries and t keys that leaves s*(s + 1)/2 pairs, or fewer where keys run out.
    """
    call = account.step.record.calls[account.step.record.nodes[node.index].call]
    if not call.args.get("is_causal"):
        return 1.0
    query, key = call.args["query"], call.args["key"]
    s, t = (int(evaluate(meta.shape[-2], account.sizes or {})) for meta in (query, key))
    square = min(s, t)
    return (square * (square + 1) / 2 + (s - square) * t) / (s * t)


def _factors(node: NodeCost) -> list[str]:
    """The dtypes of the floating operands."""
    return list(dict.fromkeys(t.dtype for t in node.inputs if "float" in t.dtype))


def _fastest(node: NodeCost, ceilings: Ceilings) -> float:
    """The highest rate, FLOP/s, at which a node's operands may be multiplied; 0 where none is known."""
    factors = _factors(node)
    if not factors or any(dtype not in ceilings.flops_per_s for dtype in factors):
        return 0.0
    narrowest = min(ITEMSIZE[dtype] for dtype in factors)
    return max(rate for dtype, rate in ceilings.flops_per_s.items() if ITEMSIZE.get(dtype, 0) >= narrowest)


def _judged(node: NodeCost, ceilings: Ceilings) -> float:
    """The peak that a node's FLOP/s are judged by, that of its narrowest operand; 0 where none is known."""
    factors = sorted(_factors(node), key=lambda dtype: ITEMSIZE[dtype])
    return ceilings.peak(factors[0]) if factors else 0.0


def contraction_dtypes(account: Account) -> list[torch.dtype]:
    """The dtypes of the operands of an account's contractions, of those that ceilings can be measured for."""
    found = {dtype for node in account.nodes if node.flops for dtype in _factors(node)}
    return [dtype for dtype in DTYPES if str(dtype).removeprefix("torch.") in found]
