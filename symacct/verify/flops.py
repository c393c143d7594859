"""FLOPs node by node beside torch's own ``FlopCounterMode`` on a real run, its gaps by name.

Where FlopCounterMode has no formula for an operator, or a wrong one, `GAPS` says so, and gives a second
opinion: torch's formula on calls that amount to the same. An operator that has neither is listed as not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.flop_counter import FlopCounterMode, flop_registry

from symacct.account import Account
from symacct.record import Node
from symacct.verify.findings import ABSENT, DIFFERENT, EQUAL, GAP, Figure, Part, Residual, residual_at
from symacct.verify.operators import Expected, opcodes
from symacct.verify.profiled import Operand

Counted = tuple[str, int]  # "aten.mm", FLOP
_FORMULAS = {str(packet): formula for packet, formula in flop_registry.items()}


# -- the oracle --------------------------------------------------------------------------


def counted(run: Callable[[], Any]) -> list[Counted]:
    """Run something under FlopCounterMode; (operator, FLOP) of each call that it has a formula for, in order."""
    calls: list[Counted] = []

    def noting(packet: Any, formula: Callable[..., int]) -> Callable[..., int]:
        def noted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            flops = formula(*args, out_val=out_val, **kwargs)
            calls.append((str(packet), int(flops)))
            return flops

        noted._get_raw = True  # type: ignore[attr-defined]  # torch's mark of a formula that takes tensors
        return noted

    with FlopCounterMode(display=False, custom_mapping={p: noting(p, f) for p, f in flop_registry.items()}):
        run()
    return calls


def _by_torch(op: str, *args: Any, out: Any = ()) -> int:
    """torch's formula for an operator, on shapes in place of tensors."""
    return int(_FORMULAS[op](*args, out_val=out))


# -- its gaps ----------------------------------------------------------------------------

Instead = Callable[[Node, list[Operand]], int]


@dataclass(frozen=True)
class Gap:
    """A case that FlopCounterMode does not count, or counts wrongly, and how torch's formulas count it all the same."""

    name: str
    ops: tuple[str, ...]
    instead: Instead
    applies: Callable[[Node, list[Operand]], bool] = lambda node, operands: True


def _attention(node: Node, operands: list[Operand]) -> int:
    return _by_torch("aten._scaled_dot_product_flash_attention", *(o.shape for o in operands[:3]))


def _attention_backward(node: Node, operands: list[Operand]) -> int:
    return _by_torch("aten._scaled_dot_product_flash_attention_backward", *(o.shape for o in operands[:4]))


def _lengths_first(backward: bool) -> Instead:
    """The kernels beneath take (batch, length, heads, size) where the formula wants heads before lengths."""
    op = "aten._scaled_dot_product_flash_attention" + ("_backward" if backward else "")

    def instead(node: Node, operands: list[Operand]) -> int:
        """The same formula, with heads before lengths."""
        shapes = [o.shape for o in operands[: 4 if backward else 3]]
        return _by_torch(op, *((b, h, n, d) for b, n, h, d in shapes))

    return instead


def _vector(node: Node, operands: list[Operand]) -> int:
    """A product with a vector is one with a matrix of one column; one of two vectors has one row too."""
    *_, first, second = (o.shape for o in operands)
    return _by_torch("aten.mm", first if len(first) == 2 else (1, *first), (*second, 1))


def _summed_products(node: Node, operands: list[Operand]) -> int:
    """A sum of products is a batch of them."""
    return _by_torch("aten.bmm", operands[-2].shape, operands[-1].shape)


def _group_by_group(node: Node, operands: list[Operand]) -> int:
    """The gradients of a grouped convolution are those of as many small dense ones."""
    transposed, groups, mask = node.args[7], int(node.args[9]), node.args[10]
    gradient, x, weight = (o.shape for o in operands[:3])
    small = [(n, c // groups, *rest) for n, c, *rest in (gradient, x)]
    kernel = (weight[0] // groups, *weight[1:])
    args = (*small, kernel, (), (), (), (), transposed, (), 1, mask)
    return groups * _by_torch("aten.convolution_backward", *args, out=(small[1], kernel, ()))


def _four_real(node: Node, operands: list[Operand]) -> int:
    """A complex multiply-add is four real ones."""
    return 4 * _by_torch(packet_of(node.op), *(o.shape for o in operands))


GAPS = (
    Gap(
        "the CPU's fused attention has no formula",
        ("aten._scaled_dot_product_flash_attention_for_cpu",), _attention,
    ),
    Gap(
        "the backward of the CPU's fused attention has no formula",
        ("aten._scaled_dot_product_flash_attention_for_cpu_backward",), _attention_backward,
    ),
    Gap(
        "the formula takes lengths for heads",
        ("aten._flash_attention_forward", "aten._efficient_attention_forward"), _lengths_first(backward=False),
    ),
    Gap(
        "the formula takes lengths for heads",
        ("aten._flash_attention_backward", "aten._efficient_attention_backward"), _lengths_first(backward=True),
    ),
    Gap("products with a vector have no formula", ("aten.mv", "aten.addmv", "aten.dot", "aten.vdot"), _vector),
    Gap("sums of products have no formula", ("aten.addbmm",), _summed_products),
    Gap(
        "the weight gradient of a grouped convolution is too large by the number of groups",
        ("aten.convolution_backward",), _group_by_group, lambda node, operands: node.args[9] != 1,
    ),
    Gap(
        "a complex product counts as a real one",
        ("aten.mm", "aten.bmm"), _four_real, lambda node, operands: operands[0].dtype.is_complex,
    ),
)  # fmt: skip


def gap_of(node: Node, operands: list[Operand]) -> Gap | None:
    """The gap that a node falls into."""
    found = (g for g in GAPS if packet_of(node.op) in g.ops and g.applies(node, operands))
    return next(found, None)


def packet_of(op: str) -> str:
    """An operator's name without its overload."""
    return op.rpartition(".")[0]


# -- the comparison ------------------------------------------------------------------------


@dataclass
class _Tally:
    """What is known of one operator."""

    calls: int = 0
    ours: int = 0
    theirs: int = 0  # the second opinion where FlopCounterMode has a gap
    counter: int = 0  # FlopCounterMode itself
    gap: str = ""
    compared: bool = True
    wrong: bool = False


def flops_part(account: Account, expected: Expected, calls: Sequence[Counted]) -> Part:
    """Compare each node's FLOPs with FlopCounterMode's; ``account`` is one at sizes, ``calls`` a later step's."""
    nodes = [n for n in expected.record.nodes if account.nodes[n.index].flops or packet_of(n.op) in _FORMULAS]
    theirs, residuals = _aligned([n for n in nodes if packet_of(n.op) in _FORMULAS], calls)
    tallies: dict[str, _Tally] = {}
    for node in nodes:
        tally = tallies.setdefault(packet_of(node.op), _Tally())
        ours, other, gap = _opinions(node, account, expected, theirs)
        tally.calls += 1
        tally.ours += ours
        tally.counter += theirs.get(node.index, 0)
        tally.gap = gap or tally.gap
        if other is None:
            tally.compared = False
            continue
        tally.theirs += other
        if ours != other:
            tally.wrong = True
            whose = "torch's formula on calls that amount to the same" if gap else "FlopCounterMode"
            residuals.append(residual_at(node, f"{ours:,} FLOP by our rule, {other:,} by {whose}", abs(ours - other)))
    return Part("FLOPs", "FLOP", tuple(_figures(tallies)), tuple(residuals), tuple(_notes(tallies)))


def _aligned(nodes: list[Node], calls: Sequence[Counted]) -> tuple[dict[int, int], list[Residual]]:
    """FlopCounterMode's count by node; what it counted that has no node, and nodes that it did not see."""
    theirs: dict[int, int] = {}
    residuals = []
    for kind, i0, i1, j0, j1 in opcodes([op for op, _ in calls], [packet_of(n.op) for n in nodes]):
        if kind == "equal":
            theirs |= {n.index: flops for (_, flops), n in zip(calls[i0:i1], nodes[j0:j1], strict=True)}
            continue
        residuals += [residual_at(n, "FlopCounterMode did not see it", 1) for n in nodes[j0:j1]]
        residuals += [Residual(f"FlopCounterMode saw {op} of {flops:,} FLOP", flops) for op, flops in calls[i0:i1]]
    return theirs, residuals


def _opinions(node: Node, account: Account, expected: Expected, theirs: dict[int, int]) -> tuple[int, int | None, str]:
    """Our FLOPs of a node, another's (None: nobody's), and the gap in whose place the other stands."""
    operands = expected.operands(node)
    gap = gap_of(node, operands)
    other = gap.instead(node, operands) if gap is not None else theirs.get(node.index)
    return int(account.nodes[node.index].flops), other, gap.name if gap is not None else ""


def _figures(tallies: dict[str, _Tally]) -> Iterator[Figure]:
    for op, tally in tallies.items():
        name = f"{op} x{tally.calls}"
        if not tally.compared:
            yield Figure(name, tally.ours, None, "FLOP", ABSENT, "nothing else counts it")
        else:
            verdict = DIFFERENT if tally.wrong else GAP if tally.gap else EQUAL
            note = f"FlopCounterMode counts {tally.counter:,}: {tally.gap}" if tally.gap else ""
            yield Figure(name, tally.ours, tally.theirs, "FLOP", verdict, note)


def _notes(tallies: dict[str, _Tally]) -> Iterator[str]:
    if any(tally.gap for tally in tallies.values()):
        yield "where FlopCounterMode has a gap, torch's own formula on calls that amount to the same stands for it"
    yield "pointwise FLOP follow the weights of symacct.rules.weights, a convention that no other counter shares"
