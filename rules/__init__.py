"""The rules that symacct ships: one file per family of operators."""

from __future__ import annotations

from symacct.rule import Rules
from symacct.rules import (
    attention,
    bookkeeping,
    convolution,
    copies,
    creation,
    indexing,
    linalg,
    losses,
    matmul,
    normalization,
    optimizers,
    pointwise,
    pooling,
    quantization,
    random,
    recurrent,
    reductions,
    resampling,
    softmax,
    transformer,
)

FAMILIES = (
    matmul.rules,
    convolution.rules,
    attention.rules,
    pointwise.rules,
    reductions.rules,
    softmax.rules,
    normalization.rules,
    losses.rules,
    indexing.rules,
    pooling.rules,
    resampling.rules,
    copies.rules,
    creation.rules,
    random.rules,
    recurrent.rules,
    linalg.rules,
    transformer.rules,
    optimizers.rules,
    quantization.rules,
    bookkeeping.rules,
)


def default_rules() -> Rules:
    """All rules that symacct ships, as one value that can be added to."""
    table = {key: dict(aspects) for family in FAMILIES for key, aspects in family.table.items()}
    return Rules("default", table)
