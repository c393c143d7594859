"""How much fused attention computes for each byte that it moves."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from symacct.account import Account
from symacct.cost import Size
from symacct.errors import QuestionError
from symacct.inference.cache import lifted
from symacct.parts import NodeCost
from symacct.rules.attention import SDPA


def attention_intensity(account: Account) -> Size:
    """FLOP per byte of the fused attention of a forward pass: its products, by its queries, keys, values and results.

    The statistics that a kernel keeps for the backward pass (4 bytes per query and head) are left out. With S keys, T
    queries and a group of G query heads to a head of keys, it is S*T*G/(S + T*G). Raises `QuestionError` where no
    attention is fused: products write their scores, and the account's own bytes have these.
    """
    flops = lifted(account.symbolic, "attention", lambda plain: _sum(node.flops for node in _fused(plain)))
    nbytes = lifted(account.symbolic, "attention", lambda plain: _sum(_moved(node) for node in _fused(plain)))
    if nbytes == 0:
        raise QuestionError(f"{account.title or 'the account'} has no fused attention")
    return account._value(sympy.factor(sympy.cancel(flops / nbytes)))


def _fused(account: Account) -> Iterator[NodeCost]:
    names = {f"{op}.default" for op in SDPA}
    return (node for node in account.nodes if node.phase == "forward" and node.op in names)


def _moved(node: NodeCost) -> Size:
    return _sum(tensor.nbytes for tensor in (*node.inputs[:3], node.outputs[0]))


def _sum(sizes: Iterator[Size]) -> Size:
    return sympy.Add(*sizes)
