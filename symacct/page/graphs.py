"""The graphs of a page: drawings of a step and its phases, fine and coarse, each as DOT with what its boxes cost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from symacct.account import Account
from symacct.algebra import total_of
from symacct.drawing import Amounts, Box, Drawing, Drawings, to_live_dot
from symacct.drawing.places import OPS
from symacct.errors import StructuralError
from symacct.page.parts import Json, Kernels, setting

_MEASURES = ("flops", "pointwise", "bytes", "activation_bytes")
_MOST = 120  # boxes of a graph that a page lays out while someone waits


class Texts:
    """Texts that are said often, each once; what says them has their number."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self.known.setdefault(text, len(self.known))


def graphs(account: Account, kernels: Kernels, texts: Texts) -> list[Json]:
    """The whole step at each depth of modules and op by op, then each phase; equal drawings once.

    ``dot``: as `to_live_dot` writes it. ``edges``: the bytes of each. ``boxes``: by id, what runs in each (kernels with
    how often), the bytes that it keeps for the backward pass, and its formulas and source lines, by their numbers in
    ``texts``. ``chosen``: whether it is the one that is readable at once.
    """
    return [_graph(drawing, kernels, texts, chosen) for drawing, chosen in _drawings(account)]


def _drawings(account: Account) -> Iterator[tuple[Drawing, bool]]:
    phases = [name for name in ("forward", "backward", "optimizer") if account.phases[name].count != 0]
    deepest = max(node.path.count(".") + 1 for node, _ in account._uses())
    for phase in (None, *phases):
        drawings = Drawings(account, phase)
        readable = drawings.at(limit=_MOST)
        depths = [*range(1, deepest + 1), OPS] if phase is None else [readable.depth, OPS]
        seen: set[Any] = set()
        for depth in depths:
            try:
                drawing = readable if depth == readable.depth else drawings.at(depth, _MOST)
            except StructuralError:  # too fine for a polynomial in the depth
                continue
            key = tuple((box.path, box.kind, box.label) for box in drawing.boxes)
            if key not in seen:
                seen.add(key)
                yield drawing, drawing.depth == readable.depth


def _graph(drawing: Drawing, kernels: Kernels, texts: Texts, chosen: bool) -> Json:
    amounts = {measure: Amounts(drawing, measure).formulas for measure in _MEASURES}
    boxes = {}
    for box in drawing.boxes:
        times = box.times if isinstance(box.times, int) else 1
        costs = {measure: setting(each[box.id], times) for measure, each in amounts.items() if each[box.id] != 0}
        boxes[box.id] = {
            **_box(box, kernels),
            "sources": [texts.number(_short(source)) for source in box.sources],
            "formulas": {measure: texts.number(formula) for measure, formula in costs.items()},
        }
    return {
        "phase": drawing.phase,
        "depth": str(drawing.depth),
        "chosen": chosen,
        "notes": list(drawing.notes),
        "dot": to_live_dot(drawing),
        "edges": [kernels.formulas.place(edge.nbytes) for edge in drawing.edges],
        "boxes": boxes,
    }


def _box(box: Box, kernels: Kernels) -> Json:
    runs: Counter[int] = Counter()
    for part in box.parts:
        if part.cost is not None and not part.free:
            cost = part.cost
            number = kernels.number({part.dtype: cost.flops}, cost.pointwise, total_of({cost.bytes: 1}))
            runs[number] += part.times
    return {
        "label": box.label,
        "path": box.path,
        "kind": box.kind,
        "ops": [op.removesuffix(".default") for op in box.ops],
        "shape": box.shape,
        "times": str(box.times),
        "incomplete": box.unknown,
        "runs": kernels.parts(runs),
        "kept": kernels.formulas.place(box.kept),
    }


def _short(source: str) -> str:
    """A source line without what is only true of this machine: the folder of packages, or of the work."""
    _, packages, rest = source.rpartition("/site-packages/")
    return rest if packages else source.removeprefix(f"{os.getcwd()}/")
