"""A step as a picture: boxes with costs, joined by the tensors that flow between them.

`draw` finds the boxes of a step and adds up what runs in each, `to_dot` writes them for Graphviz, and `render` makes
the picture.
"""

from symacct.drawing.dot import to_dot
from symacct.drawing.live import to_live_dot
from symacct.drawing.making import LIMIT, Drawings, draw
from symacct.drawing.model import Box, Cluster, Drawing, Edge, Part
from symacct.drawing.rendering import render
from symacct.drawing.shares import COSTS, Amounts

__all__ = [
    "COSTS", "LIMIT", "Amounts", "Box", "Cluster", "Drawing", "Drawings", "Edge", "Part", "draw", "render", "to_dot",
    "to_live_dot",
]  # fmt: skip
