"""A drawing as DOT, the language of Graphviz."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import sympy

from symacct.algebra import evaluate
from symacct.drawing.caption import caption
from symacct.drawing.colours import (
    BOX_LINE,
    CLUSTER_FILL,
    CLUSTER_LINE,
    EDGE,
    INK,
    MUTED,
    PAPER,
    RED,
    contrast,
    fill,
    text_on,
)
from symacct.drawing.columns import columns_of
from symacct.drawing.model import Box, Cluster, Drawing, Edge
from symacct.drawing.shares import Amounts
from symacct.drawing.wording import amount, described, escaped, plain, quoted, shared, tooltip, wrapped, written
from symacct.hardware import Device
from symacct.printing import text

_FONT = "Helvetica,Arial,sans-serif"
_NAME, _SMALL, _VALUE = 13, 10, 11  # points
_THIN, _THICK, _DECADE = 0.6, 3.4, 0.8  # points: the least and the widest line, and how much a tenth is thinner
_MOST_EDGES = 150  # with right angles, which take much longer
_LINE, _MARGIN, _GAP = 13.0, 12.0, 26.0  # points: what a line of text, a box and the way to the next one take


def to_dot(drawing: Drawing, cost: str = "flops", device: str | Device | None = None, *, plain: bool = False) -> str:
    """A drawing as DOT, coloured by the share that each box has of a cost.

    ``cost``: "flops", "pointwise", "bytes", "activation_bytes", or "seconds" of a ``device``. Nodes are called
    as the boxes' ids. Each has the attributes ``formula`` and ``value``: its cost, exact, in symbols and at the sizes
    (of an account without sizes at the trial sizes). Long chains stand in columns, joined by lines with right angles;
    ``plain``: in one column, with curves, as Graphviz lays out everything. The same drawing gives the same text.

    Raises `SpecError` for another cost and for seconds without a device.
    """
    return Writer(drawing, Amounts(drawing, cost, device), plain or len(drawing.edges) > _MOST_EDGES).text()


class Writer:
    """What a drawing is in DOT; the costs are ``amounts``."""

    margin = "0.11,0.06"  # inches around the text of a box

    def __init__(self, drawing: Drawing, amounts: Amounts, plain: bool) -> None:
        self.drawing = drawing
        self.plain = plain
        self.amounts = amounts
        self.inner = {cluster.id: cluster for cluster in drawing.clusters}
        self.lines = {box.id: list(self._lines(box)) for box in drawing.boxes}
        heights = {box.id: _LINE * len(self.lines[box.id]) + _MARGIN + _GAP for box in drawing.boxes}
        self.columns = [list(drawing.boxes)] if plain else columns_of(drawing, heights)
        self.places = {box.id: number for number, box in enumerate(drawing.boxes)}
        sizes = amounts.sizes
        self.moved = {edge: evaluate(sympy.sympify(edge.nbytes), sizes) for edge in drawing.edges}
        self.most = max([1.0, *map(float, self.moved.values())])

    def text(self) -> str:
        """The whole."""
        title = f"{self.drawing.account.title}: {self.amounts.cost}"
        lines = "spline" if self.plain else "ortho"
        head = [
            f"digraph {quoted(title)} {{",
            f"  graph [rankdir=TB, splines={lines}, nodesep=0.22, ranksep=0.3, labelloc=t, labeljust=l, pad=0.25, "
            f'fontname="{_FONT}", fontsize=11, fontcolor="{INK}", bgcolor="{PAPER}", tooltip=" ", '
            f"label={self._caption()}]",
            f'  node [shape=box, style="rounded,filled", fontname="{_FONT}", fontsize={_SMALL}, '
            f'margin="{self.margin}", color="{BOX_LINE}", height=0.3, width=1.7]',
            f'  edge [color="{EDGE}", arrowsize=0.6, fontname="{_FONT}", fontsize=9, fontcolor="{MUTED}"]',
        ]
        return "\n".join([*head, *self._inside("", "  "), *self._columns(), *self._edges(), "}"]) + "\n"

    def _caption(self) -> str:
        return f"<{caption(self.drawing, self.amounts, self.moved.values())}>"

    # -- boxes and clusters --------------------------------------------------------------

    def _inside(self, cluster: str, indent: str) -> Iterator[str]:
        """What stands in a cluster ("" is the picture), in graph order."""
        done: set[str] = set()
        for box in self.drawing.boxes:
            if box.cluster == cluster:
                yield indent + self._box(box)
                continue
            child = self._child(box.cluster, cluster)
            if child is not None and child.id not in done:
                done.add(child.id)
                yield f"{indent}subgraph cluster_{child.id} {{"
                yield f"{indent}  {self._cluster(child)}"
                yield from self._inside(child.id, indent + "  ")
                yield f"{indent}}}"

    def _child(self, cluster: str, outer: str) -> Cluster | None:
        """The cluster right within ``outer`` that another one is in, or None."""
        while cluster and self.inner[cluster].parent != outer:
            cluster = self.inner[cluster].parent
        return self.inner[cluster] if cluster else None

    def _cluster(self, cluster: Cluster) -> str:
        times = _times(cluster.times, 1)
        label = f'<FONT POINT-SIZE="12"><B>{escaped(cluster.label)}</B>{escaped(times)}</FONT>'
        return (
            f'graph [label=<{label}>, id="{cluster.id}", class="cluster", tooltip={tooltip([cluster.path + times])}, '
            f'style="rounded,filled", fillcolor="{CLUSTER_FILL}", color="{CLUSTER_LINE}", fontcolor="{INK}", margin=9, '
            "labelloc=t, labeljust=l]"
        )

    def _lines(self, box: Box) -> Iterator[tuple[int, bool, str]]:
        """(points, bold, text) of each line of a box."""
        around = self.inner[box.cluster].times if box.cluster else 1
        name = wrapped(box.label or "(top level)", 30, 3)
        for number, line in enumerate(name):
            yield _NAME, True, line + (_times(box.times, around) if number == len(name) - 1 else "")
        outer = self.inner[box.cluster].path if box.cluster else ""
        if box.kind == "op" and box.path != outer:
            yield from ((_SMALL, False, line) for line in wrapped(box.path[len(outer) + 1 if outer else 0 :], 34, 1))
        if box.shape:
            yield from ((_SMALL, False, line) for line in wrapped(box.shape, 34, 2))
        if box.unknown:
            yield _VALUE, True, "no rule"
        yield from self._cost_lines(box)

    def _cost_lines(self, box: Box) -> Iterator[tuple[int, bool, str]]:
        """The lines of a box that say what it costs."""
        formula = self.amounts.formulas[box.id]
        if box.parts and formula != 0:
            if not (self.amounts.cost == "seconds" and self.amounts.given):  # long sums, which the tooltip has
                yield from ((_SMALL, False, line) for line in wrapped(written(formula, box.times)))
            share = self.amounts.share(box)
            value = f"{amount(self.amounts.values[box.id], self.amounts.unit)}  " if self.amounts.given else ""
            yield _VALUE, True, value + shared(share)

    def _box(self, box: Box) -> str:
        end = box.kind in ("input", "output")
        colour = "#FFFFFF" if end else self._colour(box)
        ink = text_on(colour)
        rows = []
        for points, bold, line in self.lines[box.id]:
            words = f"<B>{escaped(line)}</B>" if bold else escaped(line)
            tint = RED if line == "no rule" and contrast(RED, colour) >= 4.5 else ink
            rows.append(f'<FONT POINT-SIZE="{points - 2 if end and bold else points}" COLOR="{tint}">{words}</FONT>')
        style = 'style="rounded,filled,dashed", color="#C62828", penwidth=2' if box.unknown else ""
        if end:
            style = f'shape=box, style="rounded,filled", color="{MUTED}", margin="0.08,0.03", width=0.8'
        attributes = [
            f"label=<{'<BR/>'.join(rows)}>", f'fillcolor="{colour}"', *([style] if style else []), f'id="{box.id}"',
            f'class="box {box.kind}"', *self._told(box),
        ]  # fmt: skip
        return f"{box.id} [{', '.join(attributes)}]"

    def _colour(self, box: Box) -> str:
        return fill(self.amounts.share(box)) if self.amounts.values[box.id] else "#FFFFFF"

    def _told(self, box: Box) -> Iterator[str]:
        """What a box says beside what is seen at once."""
        yield f"tooltip={tooltip(described(box, self.amounts))}"
        yield f"path={quoted(box.path)}"
        if box.parts:
            yield f"formula={quoted(text(self.amounts.formulas[box.id]))}"
            yield f'value="{self.amounts.values[box.id]!r}"'

    # -- columns and edges ---------------------------------------------------------------

    def _columns(self) -> Iterator[str]:
        """What keeps columns side by side, and boxes that nothing in their column leads to below the others."""
        if len(self.columns) < 2:
            return
        heads = [column[0].id for column in self.columns]
        yield f"  {' -> '.join(heads)} [style=invis, minlen=0]"
        for column in self.columns:
            inside = {box.id for box in column}
            led = {edge.head for edge in self.drawing.edges if edge.tail in inside and self._downward(edge)}
            before = column[0]
            for box in column[1:]:
                if box.kind == "input":
                    continue
                if box.id not in led:
                    yield f"  {before.id} -> {box.id} [style=invis]"
                before = box

    def _downward(self, edge: Edge) -> bool:
        return self.places[edge.tail] < self.places[edge.head] and not edge.back

    def _edges(self) -> Iterator[str]:
        column = {box.id: number for number, boxes in enumerate(self.columns) for box in boxes}
        for number, edge in enumerate(self.drawing.edges):
            if edge.tail == edge.head or edge.back:  # how many there are says as much
                continue
            attributes = [*self._flow(number, edge)]
            if not self._downward(edge) or column[edge.tail] != column[edge.head]:
                attributes.append("constraint=false")
            if edge.words:
                attributes.append(f"{'label' if self.plain else 'xlabel'}={quoted(edge.words)}")
            yield f"  {edge.tail} -> {edge.head} [{', '.join(attributes)}]"

    def _flow(self, number: int, edge: Edge) -> Iterator[str]:
        """How wide an edge is, and what it says; ``number`` is its place among the edges of the drawing."""
        width = max(_THIN, _THICK - _DECADE * math.log10(self.most / max(1.0, float(self.moved[edge]))))
        words = [edge.words] if edge.words else []
        words += [written(edge.nbytes) + " bytes"]
        words += [amount(self.moved[edge], "B")] if self.amounts.given else []
        yield f"penwidth={width:.2f}"
        yield f"tooltip={tooltip(words)}"
        yield f"nbytes={quoted(text(edge.nbytes))}"


def _times(times: Any, around: Any) -> str:
    """How many equal modules something stands for, where that is not said around it."""
    if times in (1, around):
        return ""
    return f" ×{plain(written(times)) if isinstance(times, (int, sympy.Symbol, sympy.Integer)) else f'({text(times)})'}"  # noqa: RUF001
