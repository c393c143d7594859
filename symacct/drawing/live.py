"""A drawing as DOT for what sets numbers and colours itself: a page in which sizes move."""

from __future__ import annotations

from collections.abc import Iterator

from symacct.drawing.dot import Writer
from symacct.drawing.model import Box, Drawing, Edge
from symacct.drawing.shares import Amounts

PLACEHOLDER = "000.0 GFLOP  00.0%"  # as wide as what is put in its place


def to_live_dot(drawing: Drawing) -> str:
    """A drawing as DOT without costs: boxes are white, and the last line of each that has parts is `PLACEHOLDER`.

    Nodes have the boxes' ids, edges "e0", "e1", ... by their place among the drawing's edges.
    """
    return _Live(drawing, Amounts(drawing), plain=False).text()


class _Live(Writer):
    margin = "0.2,0.06"  # in a browser Graphviz does not know the font, and text may be wider than it thinks

    def _caption(self) -> str:
        return '""'

    def _cost_lines(self, box: Box) -> Iterator[tuple[int, bool, str]]:
        if box.parts:
            yield 11, True, PLACEHOLDER

    def _colour(self, box: Box) -> str:
        return "#FFFFFF"

    def _told(self, box: Box) -> Iterator[str]:
        yield 'tooltip=" "'

    def _flow(self, number: int, edge: Edge) -> Iterator[str]:
        yield f'id="e{number}"'
        yield 'tooltip=" "'
