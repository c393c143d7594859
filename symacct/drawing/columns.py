"""Long chains in columns: where a picture that would be a narrow tower is broken, so that it fits a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from symacct.drawing.model import Box, Drawing, Edge

_WIDE = 200.0  # points that a column of boxes takes
_ASPECT = 1.5  # width to height that is aimed at


def columns_of(drawing: Drawing, heights: Mapping[str, float]) -> list[list[Box]]:
    """The boxes in columns, in graph order. ``heights``: of each box with the gap below it, in points."""
    boxes = drawing.boxes
    places = {box.id: number for number, box in enumerate(boxes)}
    edges = [edge for edge in drawing.edges if places[edge.tail] < places[edge.head] and not edge.back]
    tops = _tops(boxes, edges, heights)
    tall = max(tops[box.id] + heights[box.id] for box in boxes)
    beside = sum(heights.values()) / tall
    number = round((tall * _ASPECT / (_WIDE * beside)) ** 0.5)
    if number < 2 or len(boxes) < 6:
        return [list(boxes)]
    outside = {cluster.id: cluster.parent for cluster in drawing.clusters}
    splits = _splits(drawing, heights, outside)
    breaks: list[int] = []
    for column in range(1, number):
        wanted = tall * column / number
        costs = {
            i: abs(tops[boxes[i].id] - wanted) / (tall / number)
            + sum(splits[c] for c in sorted(_common(boxes[i - 1].cluster, boxes[i].cluster, outside)))
            + 0.1 * sum(places[e.tail] < i <= places[e.head] for e in edges)
            for i in range((breaks[-1] if breaks else 0) + 2, len(boxes) - 1)
            if boxes[i - 1].kind != "input"
        }
        if costs:
            breaks.append(min(costs, key=costs.__getitem__))
    ends = [0, *breaks, len(boxes)]
    return [list(boxes[a:b]) for a, b in pairwise(ends)]


def _tops(boxes: Sequence[Box], edges: Sequence[Edge], heights: Mapping[str, float]) -> dict[str, float]:
    """How far down each box stands when it is below all that it needs."""
    needs: dict[str, list[str]] = {}
    for edge in edges:
        needs.setdefault(edge.head, []).append(edge.tail)
    tops: dict[str, float] = {}
    for box in boxes:
        tops[box.id] = max((tops[tail] + heights[tail] for tail in needs.get(box.id, ())), default=0.0)
    return tops


def _splits(drawing: Drawing, heights: Mapping[str, float], outside: Mapping[str, str]) -> dict[str, float]:
    """What it costs to break each cluster: little where it is nearly the whole picture, more where it repeats."""
    inside = dict.fromkeys(outside, 0.0)
    for box in drawing.boxes:
        for cluster in _around(box.cluster, outside):
            inside[cluster] += heights[box.id]
    whole = sum(heights.values())
    return {c.id: 1 - inside[c.id] / whole + 0.5 * (c.times != 1) for c in drawing.clusters}


def _common(first: str, second: str, outside: Mapping[str, str]) -> set[str]:
    """The clusters that two boxes are both in."""
    return set(_around(first, outside)) & set(_around(second, outside))


def _around(cluster: str, outside: Mapping[str, str]) -> list[str]:
    found = []
    while cluster:
        found.append(cluster)
        cluster = outside[cluster]
    return found
