"""Boxes and edges from nodes that are sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy

from symacct.algebra import evaluate, total_of
from symacct.cost import Size, product
from symacct.depth.fitting import Offset
from symacct.drawing.clustering import below, clusters_of
from symacct.drawing.fits import Fits
from symacct.drawing.model import Box, Cluster, Edge
from symacct.drawing.naming import input_names
from symacct.drawing.places import Key, parts_of
from symacct.drawing.sorting import INPUT, OUTPUT, Link, Sorted
from symacct.printing import text
from symacct.record import Node, Value, values_in
from symacct.specs import SHORT

GRADIENTS = "gradients"
_MOST_SOURCES = 4
_MOST_OPS = 3  # named in the label of a module's own ops


class _Seen:
    """What the nodes of a box have that are shown: ops, source lines, phases, modules, the last result."""

    def __init__(self) -> None:
        self.ops: dict[str, None] = {}
        self.telling: dict[str, int] = {}  # ops that cost something, those with contractions first
        self.sources: dict[str, None] = {}
        self.phases: dict[str, None] = {}
        self.modules: dict[str, None] = {}
        self.nodes = 0
        self.result: Value | None = None

    def add(self, node: Node, module: str, cost: Any) -> None:
        """One more node."""
        self.ops[node.op] = None
        if cost is None or cost.bytes != 0 or cost.flops != 0 or cost.pointwise != 0:
            self.telling.setdefault(node.op, int(cost is not None and cost.flops == 0))
        if node.source:
            self.sources[node.source] = None
        self.phases[node.phase] = None
        self.modules[module] = None
        self.nodes += 1
        self.result = next(values_in(node.outputs), self.result)

    @property
    def words(self) -> str:
        """The ops in short."""
        ops = sorted(self.telling or dict.fromkeys(self.ops, 0), key=(self.telling or {}).get)  # type: ignore[arg-type]
        names = list(dict.fromkeys(short(op) for op in ops))
        return ", ".join(names[:_MOST_OPS]) + (", ..." if len(names) > _MOST_OPS else "")


def short(op: str) -> str:
    """An operator's name without its library and its overload."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


class Builder:
    """The boxes, clusters and edges of a picture, from the sorted nodes of an account's members."""

    def __init__(
        self, fits: Fits, found: Mapping[Offset, Sorted], shown: Mapping[str, str], visible: Sequence[Key], folded: bool
    ) -> None:
        self.fits = fits
        self.found = found
        self.folded = folded
        self.least = next(iter(found.values()))
        self.seen = {offset: _seen(each) for offset, each in found.items()}
        self.keys = _with_ends(visible, self.least)
        self.ids = {key: f"b{number}" for number, key in enumerate(self.keys)}
        self._names = input_names(self.least.account)
        self.clusters, self._inside = clusters_of(self.keys, fits, found, shown)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes, in graph order."""
        kept = self._kept()
        return tuple(self._box(key, kept.get(key, 0)) for key in self.keys)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges, in the order in which what they stand for is first read."""
        return (*self._flows(), *(self._gradients() if self.folded else ()))

    @property
    def count(self) -> Size:
        """How many nodes there are."""
        return self.fits.any_of({offset: len(each.owner) for offset, each in self.found.items()})

    # -- boxes -----------------------------------------------------------------------------

    def _box(self, key: Key, kept: Size) -> Box:
        cluster = self._inside.get(key)
        identity, within = self.ids[key], cluster.id if cluster else ""
        if key.kind in (INPUT, OUTPUT):
            label = self._names.get(key.path, key.path) or OUTPUT
            return Box(
                identity, label, key.path, key.kind, "forward", ops=(), shape=self._end(key), sources=(),
                cluster=within, times=1, parts=(), kept=0,
            )  # fmt: skip
        seen = self._seen_of(key)
        counts = {offset: each.parts.get(key, Counter()) for offset, each in self.found.items()}
        phases = list(seen.phases)
        alone = len(phases) == 1 and not (self.folded and phases == ["forward"] and self.least.account.step.trained)
        every_update = key.kind == "module" and phases == ["optimizer"]  # of parameters of all shapes
        return Box(
            identity, _label(key, seen, cluster), key.path, key.kind, phases[0] if alone else "", tuple(seen.ops),
            shape="" if every_update else self._shape(self.least.leaving.get(key) or seen.result),
            sources=tuple(seen.sources)[:_MOST_SOURCES], cluster=within, times=self._times(key),
            parts=self.fits.parts(key.path or seen.words, counts), kept=kept,
        )  # fmt: skip

    def _seen_of(self, key: Key) -> _Seen:
        """What the least member that has a box has in it."""
        return next(each[key] for each in self.seen.values() if key in each)

    def _times(self, key: Key) -> Size:
        if key.kind == "group":
            return 1
        counts = dict.fromkeys(self.found, 0)
        for offset, each in self.seen.items():
            if key in each:
                counts[offset] = each[key].nodes if key.phase == "optimizer" else len(each[key].modules)
        return self.fits.any_of(counts)

    def _shape(self, value: Value | None) -> str:
        """A tensor as people write it: "f32[B, L, D]"."""
        if value is None:
            return ""
        shape, _, _, dtype, _ = self.least.record.layouts[value.layout]
        exact = self.least.account._exact
        name = str(dtype).removeprefix("torch.")
        return f"{SHORT.get(name, name)}[{', '.join(text(exact(sympy.sympify(n))) for n in shape)}]"

    def _end(self, key: Key) -> str:
        """The shape of an input or a result."""
        link = next(link for ends, link in self.least.links.items() if key in ends)
        layouts = next(iter(next(iter(link.tensors.values())).values()))
        return self._shape(next(iter(layouts.values())))

    def _kept(self) -> dict[Key, Size]:
        """Bytes kept for the backward pass, by box; those without a polynomial of their own together in the first."""
        formulas = {offset: each.account.memory.storages.formulas for offset, each in self.found.items()}
        sums: dict[Key, dict[Offset, Any]] = {}
        for offset, each in self.found.items():
            for key, storages in each.kept.items():
                total = total_of(Counter(formulas[offset][s] for s in storages))
                sums.setdefault(key, dict.fromkeys(self.found, 0))[offset] = total
        fitted = {key: self.fits.maybe(values) for key, values in sums.items()}
        rest = [key for key, size in fitted.items() if size is None]
        if rest:
            together = {offset: sympy.Add(*(sums[key][offset] for key in rest)) for offset in self.found}
            fitted[rest[0]] = self.fits.of("what is kept for the backward pass", together)
        return {key: size for key, size in fitted.items() if size is not None}

    # -- edges -----------------------------------------------------------------------------

    def _flows(self) -> Iterator[Edge]:
        for ends in dict.fromkeys(ends for each in self.found.values() for ends in each.links):
            tail, head = ends
            links = {offset: each.links[ends] for offset, each in self.found.items() if ends in each.links}
            nbytes = {o: _bytes(each, links[o]) if o in links else 0 for o, each in self.found.items()}
            back = all(link.back for link in links.values())
            if tail in self.ids and head in self.ids:
                yield Edge(self.ids[tail], self.ids[head], self.fits.any_of(nbytes), back)

    def _gradients(self) -> Iterator[Edge]:
        """From the end of the forward pass to what changes the parameters."""
        phases = {key: list(self._seen_of(key).phases) for key in self.keys if key.kind not in (INPUT, OUTPUT)}
        ends = [key for key, of in phases.items() if "forward" in of]
        updates = [key for key, of in phases.items() if of == ["optimizer"] and key.path != "(zero_grad)"]
        if updates and ends:
            nbytes = {offset: each.account.symbolic.grad_bytes for offset, each in self.found.items()}
            yield Edge(self.ids[ends[-1]], self.ids[updates[0]], self.fits.any_of(nbytes), words=GRADIENTS)


# -- helpers -------------------------------------------------------------------------------


def _seen(found: Sorted) -> dict[Key, _Seen]:
    costs = found.account._costs
    seen: dict[Key, _Seen] = {}
    for key, node in found.nodes():
        module = ".".join(parts_of(node.path)[: len(parts_of(key.path))])
        seen.setdefault(key, _Seen()).add(node, module, costs[node.call])
    return seen


def _with_ends(visible: Sequence[Key], found: Sorted) -> list[Key]:
    """The boxes with inputs before the first that reads each, and results at the end."""
    readers: dict[Key, dict[Key, None]] = {}
    results: dict[Key, None] = {}
    for tail, head in found.links:
        if tail.kind == INPUT:
            readers.setdefault(head, {})[tail] = None
        if head.kind == OUTPUT:
            results[head] = None
    ordered = dict.fromkeys(each for key in visible for each in (*readers.get(key, ()), key))
    return [*ordered, *results]


def _label(key: Key, seen: _Seen, cluster: Cluster | None) -> str:
    outer = cluster.path if cluster else ""
    if key.kind == "module":
        return below(key.path, outer) or "(top level)"
    if key.kind == "group":
        return key.path or seen.words
    return seen.words


def _bytes(found: Sorted, link: Link) -> Size:
    """The bytes of the tensors that flow from one block to one, parts of one storage at most as large as that."""
    storages = next(iter(link.tensors.values()))
    sizes = found.account.trial_sizes
    total: Counter[Any] = Counter()
    for storage, layouts in storages.items():
        parts = [_nbytes(found, value) for value in layouts.values()]
        whole, joined = found.record.storages[storage].nbytes, sympy.Add(*parts)
        total[min(whole, joined, key=lambda size: evaluate(sympy.sympify(size), sizes))] += 1
    return total_of(total)


def _nbytes(found: Sorted, value: Value) -> Size:
    shape, stride, _, dtype, _ = found.record.layouts[value.layout]
    stored = product(n for n, step in zip(shape, stride, strict=True) if step != 0)
    return found.account._exact(sympy.sympify(stored * dtype.itemsize))
