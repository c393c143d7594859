"""Kernels: what a step runs one after another, each with its FLOP by dtype, its pointwise arithmetic and its bytes.

Equal kernels stand once, with how many there are. At the level "eager" every node is a kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from symacct.account import Account
from symacct.conventions.recounting import Recounted
from symacct.cost import ITEMSIZE, Call, Size

Terms = frozenset[tuple[Any, Any]]  # expressions, each with how often it is added


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one kernel does, as sums that nothing has added up yet.

    ``flops``: of contractions, ((dtype, expression), times). ``pointwise`` and ``bytes``: (expression, times).
    """

    flops: Terms
    pointwise: Terms
    bytes: Terms


@dataclass(frozen=True, slots=True)
class Use:
    """A kernel in a phase, a module and an op, and how often it runs there."""

    phase: str
    path: str
    op: str
    kernel: Kernel
    times: Size = 1


def kernel(flops: Counter[Any], pointwise: Counter[Any], nbytes: Counter[Any]) -> Kernel:
    """A kernel of sums in which what adds nothing is left out."""
    return Kernel(
        frozenset((key, n) for key, n in flops.items() if key[1] != 0),
        frozenset((expr, n) for expr, n in pointwise.items() if expr != 0),
        frozenset((expr, n) for expr, n in nbytes.items() if expr != 0),
    )


def eager(account: Account) -> list[Use]:
    """The kernels of a plain account as eager PyTorch runs them: every node that costs anything."""
    record = account.step.record
    known: dict[int, Kernel | None] = {}
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for node in record.nodes:
        if node.call not in known:
            known[node.call] = of_call(account, node.call)
        if known[node.call] is not None:
            counts[node.phase, node.path, node.op, node.call] += 1
    return [Use(*key[:3], known[key[3]], n) for key, n in counts.items()]  # type: ignore[arg-type]


def of_call(account: Account, call: int) -> Kernel | None:
    """The kernel of one distinct call of a plain account; None for what costs nothing or has no rule."""
    cost = account._costs[call]
    if cost is None:
        return None
    flops = Counter({(dtype_of(account.step.record.calls[call]), cost.flops): 1})
    made = kernel(flops, Counter({cost.pointwise: 1}), Counter([cost.bytes_read, cost.bytes_written]))
    return made if made.flops or made.pointwise or made.bytes else None


def dtype_of(call: Call) -> str:
    """The dtype whose rate a contraction runs at: that of its narrowest floating operand, else of its narrowest.

    Scales, sums of exponentials and the like are wider than what is multiplied. Weights that are stored as integers
    beside floating operands are converted. The product of complex numbers is made of real ones.
    """
    dtypes = [_real(t.dtype) for t in call.inputs]
    floats = [dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))]
    return min(floats or dtypes or ["float32"], key=lambda dtype: ITEMSIZE[dtype])


def _real(dtype: str) -> str:
    return {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def merged(kernels: Iterable[tuple[Kernel, int]], nbytes: Counter[Any] | None = None) -> Kernel:
    """All that some kernels do, each so many times, as one; ``nbytes`` are bytes beside theirs."""
    sums: tuple[Counter[Any], Counter[Any], Counter[Any]] = (Counter(), Counter(), Counter(nbytes))
    for each, times in kernels:
        for total, terms in zip(sums, (each.flops, each.pointwise, each.bytes), strict=True):
            for term, n in terms:
                total[term] += n * times
    return kernel(*sums)


def as_traced(account: Account) -> Account:
    """What runs: of an account that a convention counts, the one that was traced."""
    if isinstance(account, Recounted) and account.plain is not None:
        return replace(account.plain, sizes=account.sizes)
    return account


def kept(account: Account) -> dict[str, Any]:
    """What was found out about an account in symbols, which it shares with itself at sizes."""
    store: dict[str, Any] = vars(account.symbolic).setdefault("_kernels", {})
    return store
