"""Resizing by symbolic sizes: ``F.interpolate`` calls overloads in C++ that take sizes as numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import torch

_SIMPLE = 64  # scales such as 2, 0.5 or 1.5 are exact in symbols; others stay numbers, which torch takes itself


@contextmanager
def resizing_by_symbols() -> Iterator[None]:
    """Have resizes call the operators themselves, which take sizes that are symbols.

    The sizes are those of torch's ``compute_output_size`` (ATen/native/UpSample.h): the given ones, or the input's
    times the scale, rounded down.
    """
    package: Any = torch._C._nn
    originals = {name: getattr(package, name) for name in _RESIZES}
    for name, original in originals.items():
        setattr(package, name, _by_operator(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(package, name, original)


def _by_operator(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    operator = getattr(torch.ops.aten, name).default

    def resize(input: Any, output_size: Any, *rest: Any) -> Any:
        *options, scales = rest
        size = _scaled(input.shape[2:], scales) if output_size is None else list(output_size)
        if size is None:
            return original(input, output_size, *rest)
        return operator(input, size, *options, *(scales or [None] * len(size)))

    return resize


def _scaled(shape: Any, scales: Any) -> list[Any] | None:
    """The sizes times the scales, rounded down; None where a scale is no simple fraction."""
    fractions = [Fraction(scale) for scale in scales]
    if any(f.denominator > _SIMPLE for f in fractions):
        return None
    return [size * f.numerator // f.denominator for size, f in zip(shape, fractions, strict=True)]


_RESIZES = (
    *(f"{prefix}{i}d" for prefix in ("upsample_nearest", "_upsample_nearest_exact") for i in (1, 2, 3)),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
