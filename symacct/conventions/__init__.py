"""Conventions: what is counted, presets by name, an account under one, and why two of them disagree.

`roles` says what each node of an account is, `presets` has `Convention` and those with a name, `recounting` counts an
account by one, `explaining` turns the switches of one convention into those of another, one after the other.
"""

from symacct.conventions.explaining import Differences, Explanation, Row, differences, explain, explained
from symacct.conventions.presets import PRESETS, Convention, pairs, preset
from symacct.conventions.recounting import Recounted, under

__all__ = [
    "PRESETS",
    "Convention",
    "Differences",
    "Explanation",
    "Recounted",
    "Row",
    "differences",
    "explain",
    "explained",
    "pairs",
    "preset",
    "under",
]
