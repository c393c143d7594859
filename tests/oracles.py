"""Loop nests that do what an operator's definition says and count its multiply-adds one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product


def grid(*sizes: int) -> Iterator[tuple[int, ...]]:
    """All index tuples of a shape."""
    return product(*(range(n) for n in sizes))


def matmul(m: int, k: int, n: int, b: int = 1) -> int:
    """Multiply-adds of a batched matrix product."""
    count = 0
    for _ in grid(b, m, n):
        for _ in range(k):
            count += 1
    return count


def taps(
    x: Sequence[int], w: Sequence[int], stride: int, padding: int, dilation: int, groups: int, transposed: bool
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """(input, weight, output) indices of each multiply-add of a convolution, padded taps included.

    A padded tap has an input (transposed: output) index outside the tensor.
    """
    batch, channels, *inputs = x
    kernel = w[2:]
    per_group = channels // groups
    out_channels = w[1] * groups if transposed else w[0]
    if transposed:
        for n, c in grid(batch, channels):
            group = c // per_group
            for o in range(w[1]):
                for at in grid(*inputs):
                    for k in grid(*kernel):
                        y = tuple(a * stride - padding + d * dilation for a, d in zip(at, k, strict=True))
                        yield (n, c, *at), (c, o, *k), (n, group * w[1] + o, *y)
        return
    outputs = [(i + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for i, k in zip(inputs, kernel, strict=True)]
    for n, o in grid(batch, out_channels):
        group = o // (out_channels // groups)
        for c in range(per_group):
            for at in grid(*outputs):
                for k in grid(*kernel):
                    i = tuple(a * stride - padding + d * dilation for a, d in zip(at, k, strict=True))
                    yield (n, group * per_group + c, *i), (o, c, *k), (n, o, *at)


def convolution(
    x: Sequence[int],
    w: Sequence[int],
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    transposed: bool = False,
) -> dict[str, int]:
    """Multiply-adds of a convolution, and of its two product gradients; adds of the bias' gradient.

    Each gradient accumulates over the same taps into another operand: y += x*w, x' += y'*w, w' += y'*x.
    """
    counts = {"forward": 0, "input": 0, "weight": 0}
    touched: dict[str, set[tuple[int, ...]]] = {name: set() for name in counts}
    for i, k, o in taps(x, w, stride, padding, dilation, groups, transposed):
        for name, target in zip(counts, (o, i, k), strict=True):
            counts[name] += 1
            touched[name].add(target)
    assert len(touched["weight"]) == len(set(grid(*w))), "every weight is used"
    return counts


def attention(b: int, s: int, t: int, d: int, e: int) -> int:
    """Multiply-adds of Q K^T, then P V."""
    count = 0
    for _ in grid(b, s, t):
        for _ in range(d):
            count += 1
        for _ in range(e):
            count += 1
    return count


def attention_backward(b: int, s: int, t: int, d: int, e: int, recompute: bool) -> int:
    """Multiply-adds of dV, dP, dQ, dK for each pair of query and key, and of the score once more."""
    count = 0
    for _ in grid(b, s, t):
        for _ in range(e):
            count += 2
        for _ in range(d):
            count += 2 + recompute
    return count
