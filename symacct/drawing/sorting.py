"""Every node of a plain account in one box: also free nodes that are not shown, and nodes of phases that are folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from symacct.account import Account
from symacct.cost import Cost
from symacct.dataflow.flows import Flow
from symacct.drawing.places import Key, Stretch, above
from symacct.record import Node, Value, values_in
from symacct.roofline.kernels import dtype_of

INPUT, OUTPUT = "input", "output"


@dataclass
class Link:
    """The tensors that flow between two boxes, by which of the equal modules they flow from and to.

    ``tensors``: for each such pair, of each storage the layouts that are read. ``back``: from a block to the next.
    """

    tensors: dict[tuple[str, str], dict[int, dict[int, Value]]] = field(default_factory=dict)
    back: bool = False


class Sorted:
    """The nodes of a plain account by the box that they are in.

    ``keys``: of the drawn nodes. ``visible``: those of boxes; nodes with other keys are free, and edges go through
    them.
    """

    def __init__(self, stretch: Stretch, shown: Mapping[str, str], keys: list[Key], visible: Collection[Key]) -> None:
        self.account: Account = stretch.account
        self.record = stretch.account.step.record
        self._shown = shown
        self.owner: dict[int, Key] = {}  # by index of node
        self.links: dict[tuple[Key, Key], Link] = {}
        self.leaving: dict[Key, Value] = {}  # the last tensor that goes from a box to another
        self._drawn = {node.index: key for node, key in zip(stretch.drawn, keys, strict=True)}
        self._visible = visible
        self._follow(stretch.flows, stretch.drawn)
        self._give_out(stretch.drawn)
        self._fold(stretch.folded)
        self.parts, self.kept = self._parts(), self._kept(stretch.kept)

    # -- flows ---------------------------------------------------------------------------

    def _follow(self, read: list[Flow], drawn: list[Node]) -> None:
        """Find the edges, and for each hidden node the box that first needs what it made, else that it needs."""
        drawn_keys, visible = self._drawn, self._visible
        through: dict[int, list[Flow]] = {}  # of hidden nodes: what they hand on
        readers: dict[int, int] = {}
        for flow in read:
            key = drawn_keys[flow.reader]
            made = through.get(flow.maker, [])
            if flow.maker in drawn_keys and drawn_keys[flow.maker] not in visible:
                readers.setdefault(flow.maker, flow.reader)
            elif flow.maker in drawn_keys or (flow.maker < 0 and flow.value.origin == INPUT):
                made = [flow]
            if key not in visible:
                if self._hands_on(flow):
                    through.setdefault(flow.reader, []).extend(made)
                continue
            for each in made:
                self._link(each, flow)
        before: Key | None = None
        hidden: list[tuple[int, Key | None]] = []
        for node in drawn:
            key = drawn_keys[node.index]
            if key in visible:
                before = self.owner[node.index] = key
            else:
                hidden.append((node.index, before))
        first = next(iter(self.owner.values()))
        for index, last in reversed(hidden):
            reader = self.owner.get(readers.get(index, -1))
            makers = (self.owner.get(flow.maker) for flow in through.get(index, []))
            self.owner[index] = reader or next((m for m in makers if m), None) or last or first

    def _hands_on(self, flow: Flow) -> bool:
        """Whether a free node's result is what it reads, in the same memory."""
        made = {value.storage for value in values_in(self.record.nodes[flow.reader].outputs)}
        return flow.value.storage in made

    def _link(self, source: Flow, flow: Flow) -> None:
        """Note the tensor that a node reads, made by ``source``'s maker or an input."""
        head, reader = self._drawn[flow.reader], self.record.nodes[flow.reader].path
        if source.maker >= 0:
            tail, maker = self._drawn[source.maker], self.record.nodes[source.maker].path
        else:
            tail, maker = Key(INPUT, source.value.name), ""
        if "optimizer" in (head.phase, tail.phase):
            maker = reader = ""
        back = maker != reader and self._steps(maker, reader)
        if tail == head and not back:
            return
        link = self.links.setdefault((tail, head), Link(back=back))
        link.back = link.back and back
        storages = link.tensors.setdefault((maker, reader), {})
        storages.setdefault(flow.value.storage, {})[flow.value.layout] = flow.value
        if source.maker >= 0:
            self.leaving[tail] = source.value if source is not flow else flow.value

    def _steps(self, maker: str, reader: str) -> bool:
        """Whether two paths are in different ones of equal modules that are drawn as one."""
        if not maker or not reader:
            return False
        shown = self._shown[maker].split("."), self._shown[reader].split(".")
        for real, other, name, same in zip(maker.split("."), reader.split("."), *shown, strict=False):
            if name != same:
                return False
            if real != other:
                return True
        return False

    def _give_out(self, drawn: list[Node]) -> None:
        """What a model returns that is not trained goes to a box of its own."""
        step = self.account.step
        last: dict[int, tuple[Node, Value]] = {}
        for node in drawn:
            if node.phase == "forward" and not step.trained:
                for value in values_in(node.outputs):
                    last[value.storage] = node, value
        for storage in step.outputs:
            if storage in last:
                node, value = last[storage]
                tail = self.owner[node.index]
                link = self.links.setdefault((tail, Key(OUTPUT, "")), Link())
                link.tensors.setdefault((node.path, ""), {}).setdefault(storage, {})[value.layout] = value
                self.leaving[tail] = value

    # -- what is folded ------------------------------------------------------------------

    def _fold(self, folded: list[Node]) -> None:
        """Backward nodes belong where the forward nodes are that they are of; others where their module is."""
        near: dict[str, Key] = {}
        by_op: dict[tuple[str, str], Key] = {}
        last = next(iter(self.owner.values()))
        for index, key in sorted(self.owner.items()):
            node = self.record.nodes[index]
            if node.phase != "forward":
                continue
            path, last = self._shown[node.path], key
            by_op.setdefault((path, node.op), key)
            near[path] = key
            for outer in above(path):
                near[outer] = key
        near.setdefault("", last)
        for node in folded:
            found = self.owner.get(node.forward) if node.forward >= 0 else None
            path = self._shown.get(node.path, node.path)
            if found is None and path.startswith("(") and path not in near:
                found = last  # the start of the backward pass
            if found is None:
                found = by_op.get((path, node.op))
            if found is None:
                found = next(near[each] for each in (path, *above(path)) if each in near)
            self.owner[node.index] = found

    # -- sums ------------------------------------------------------------------------------

    def _parts(self) -> dict[Key, Counter[tuple[Cost | None, str]]]:
        """How often each cost occurs in each box, with the dtype of what is multiplied."""
        calls: dict[Key, Counter[int]] = {}
        for index, key in sorted(self.owner.items()):
            calls.setdefault(key, Counter())[self.record.nodes[index].call] += 1
        costs = self.account._costs
        known = {c: (costs[c], dtype_of(self.record.calls[c])) for each in calls.values() for c in each}
        found: dict[Key, Counter[tuple[Cost | None, str]]] = {}
        for key, counter in calls.items():
            parts = found[key] = Counter()
            for call, times in counter.items():
                parts[known[call]] += times
        return found

    def _kept(self, storages: list[int]) -> dict[Key, Counter[int]]:
        """The storages that are kept for the backward pass, by the box that made them."""
        found: dict[Key, Counter[int]] = {}
        first = next(iter(self.owner.values()))
        for storage in storages:
            node = self.record.storages[storage].node
            here = node is not None and node.index in self.owner and self.record.nodes[node.index].op == node.op
            key = self.owner[node.index] if node is not None and here else first
            found.setdefault(key, Counter())[storage] += 1
        return found

    # -- words -----------------------------------------------------------------------------

    def nodes(self) -> Iterator[tuple[Key, Node]]:
        """The nodes that are shown, in order, each with its box."""
        for index, key in self._drawn.items():
            if key in self._visible:
                yield key, self.record.nodes[index]
