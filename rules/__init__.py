"""The rules that symacct ships: one file per family of operators."""

from __future__ import annotations

from symacct.rule import Rules
from symacct.rules import matmul

FAMILIES = (matmul.rules,)


def default_rules() -> Rules:
    """All rules that symacct ships, as one value that can be added to."""
    total = Rules()
    for family in FAMILIES:
        total = total + family
    return Rules("default", total.table)
