"""The dataflow graph with its costs in networkx, and as GraphML or JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx

import symacct
from symacct.account import Account
from symacct.algebra import evaluate
from symacct.cost import COST_FIELDS, Size, TensorMeta
from symacct.dataflow.flows import Flow, flows
from symacct.dataflow.times import node_seconds
from symacct.device_file import device_or_file
from symacct.errors import SpecError
from symacct.files import must_be_writable, replacing
from symacct.hardware import Device
from symacct.printing import text
from symacct.record import Node, Value, values_in
from symacct.specs import SHORT

SUFFIXES = (".graphml", ".json")
_KINDS = {
    "parameters": "parameter", "buffers": "buffer", "gradients": "gradient", "optimizer state": "optimizer state",
    "inputs": "input",
}  # fmt: skip
_LONG = 2**63  # integers in GraphML have 64 bits


def to_networkx(account: Account, device: str | Device | None = None) -> nx.DiGraph:
    """The graph of a step as data flows through it, from what comes from outside to what runs last.

    Nodes "n0", "n1", ... are those of the account in graph order, with ``kind`` "op", ``op``, ``phase``, ``module``
    (path), ``source``, ``shape`` (of the results, "f32[B, L, D]"), ``known`` (whether there is a rule), ``flops``,
    ``pointwise``, ``bytes_read``, ``bytes_written``, and ``kept_bytes`` where a node made what the forward pass keeps
    for the backward pass. Nodes "t0", "t1", ... are the tensors from outside that are used, with ``kind``
    ("parameter", "buffer", "input", "optimizer state", "gradient", ...), ``name``, ``module``, ``shape``, ``nbytes``.
    An edge goes from a node to one that reads what it made or last wrote: ``tensors`` says how many of them,
    ``shape`` which, ``nbytes`` how much that is.

    Each amount stands as formula in an attribute with "_formula" behind its name, and as a number where the account
    has sizes. ``device`` adds ``seconds``, the least time of a node at the level "eager" of the roofline. A node
    without a rule has no amounts. Edges lead from earlier nodes to later ones: there are no cycles. All attributes are
    str, int, float or bool.

    Raises `StructuralError` where the graph changes with a dim that has no size, and `DeviceError` as
    `Account.roofline` does.
    """
    return _Network(account, device).graph()


def laid_out(account: Account) -> Account:
    """The account that has nodes, in numbers where it has sizes or needs none."""
    plain = account.laid_out
    return plain.at() if plain.sizes is None and not plain.dims else plain


def meta_of(account: Account, value: Value) -> TensorMeta:
    """A tensor of the record: shape, strides and dtype, with what the account's assumptions make exact."""
    shape, stride, offset, dtype, _ = account.step.record.layouts[value.layout]
    exact = account._exact
    return TensorMeta(
        tuple(map(exact, shape)), tuple(map(exact, stride)), str(dtype).removeprefix("torch."), offset=offset
    )


def shape_text(meta: TensorMeta) -> str:
    """A tensor's dtype and shape as specs have them: "f32[B, L, D]"."""
    return f"{SHORT.get(meta.dtype, meta.dtype)}[{', '.join(map(text, meta.shape))}]"


class _Network:
    """One graph in the making: an account, and what was written of it already."""

    def __init__(self, account: Account, device: str | Device | None) -> None:
        self.asked = account
        self.account = laid_out(account)
        self.record = self.account.step.record
        self.device = device_or_file(device) if device is not None else None
        self._texts: dict[Any, str] = {}
        self._amounts: dict[Any, dict[str, Any]] = {}
        self._metas: dict[int, TensorMeta] = {}
        self._shapes: dict[int, str] = {}
        self._costs: dict[int, dict[str, Any]] = {}

    def graph(self) -> nx.DiGraph:
        graph = nx.DiGraph(**self._about())
        read: dict[tuple[str, str], list[Value]] = {}
        outside: dict[int, str] = {}
        for flow in flows(self.record):
            read.setdefault((self._tail(flow, outside), f"n{flow.reader}"), []).append(flow.value)
        for storage, name in outside.items():
            graph.add_node(name, **self._tensor(storage))
        for name, attributes in self._ops():
            graph.add_node(name, **attributes)
        for (tail, head), values in read.items():
            graph.add_edge(tail, head, **self._edge(values))
        return graph

    @staticmethod
    def _tail(flow: Flow, outside: dict[int, str]) -> str:
        return f"n{flow.maker}" if flow.maker >= 0 else outside.setdefault(flow.value.storage, f"t{len(outside)}")

    # -- attributes ------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        account = self.asked
        sizes = {name: account.sizes[name] for name in account.dims} if account.sizes is not None else {}
        found = {
            "title": plain_text(account.title),
            "inputs": plain_text(account.inputs),
            "sizes": ", ".join(f"{name}={size}" for name, size in sizes.items()),
            "convention": account.convention,
            "version": symacct.__version__,
        }
        return found if self.device is None else {**found, "device": plain_text(self.device.name)}

    def _ops(self) -> Iterator[tuple[str, dict[str, Any]]]:
        account = self.account
        kept = kept_bytes(account)
        seconds = None if self.device is None else node_seconds(account, self.device)
        formulas = seconds
        if self.device is not None and account.sizes is not None:
            formulas = node_seconds(account.symbolic, self.device)
        for node in self.record.nodes:
            attributes = {
                "kind": "op",
                "op": node.op,
                "phase": node.phase,
                "module": plain_text(node.path),
                "source": plain_text(node.source),
                "shape": "; ".join(self._shape(value) for value in values_in(node.outputs)),
                **self._cost(node),
            }
            if node.index in kept:
                attributes |= self._amount("kept_bytes", kept[node.index])
            if attributes["known"] and formulas is not None and seconds is not None:
                attributes["seconds_formula"] = self._text(formulas[node.index])
                if account.sizes is not None:
                    attributes["seconds"] = float(seconds[node.index])
            yield f"n{node.index}", attributes

    def _cost(self, node: Node) -> dict[str, Any]:
        found = self._costs.get(node.call)
        if found is None:
            cost = self.account._costs[node.call]
            found = self._costs[node.call] = {"known": cost is not None}
            for field in COST_FIELDS if cost is not None else ():
                found |= self._amount(field, getattr(cost, field))
        return found

    def _tensor(self, storage: int) -> dict[str, Any]:
        storages = self.account.memory.storages
        kind = storages.kinds.get(storage, "")
        live = storages.live(storage, kind)
        value = self.record.values[self.record.storages[storage].value]
        return {
            "kind": _KINDS.get(kind) or value.origin or "state",
            "name": plain_text(live.name),
            "module": plain_text(live.path),
            "shape": self._shape(value),
            **self._amount("nbytes", self._meta(value).nbytes),
        }

    def _edge(self, values: list[Value]) -> dict[str, Any]:
        regions = list({(value.storage, value.layout): value for value in values}.values())
        nbytes: Size = sum(self._meta(value).nbytes for value in regions)
        shape = "; ".join(map(self._shape, regions))
        return {"tensors": len(regions), "shape": shape, **self._amount("nbytes", nbytes)}

    def _amount(self, name: str, amount: Size) -> dict[str, Any]:
        key = name, amount
        if key not in self._amounts:
            found = self._amounts[key] = {f"{name}_formula": self._text(amount)}
            if self.account.sizes is not None:
                found[name] = evaluate(amount, self.account.sizes)
        return self._amounts[key]

    def _text(self, expr: Size) -> str:
        if expr not in self._texts:
            self._texts[expr] = text(expr)
        return self._texts[expr]

    def _meta(self, value: Value) -> TensorMeta:
        if value.layout not in self._metas:
            self._metas[value.layout] = meta_of(self.account, value)
        return self._metas[value.layout]

    def _shape(self, value: Value) -> str:
        if value.layout not in self._shapes:
            self._shapes[value.layout] = plain_text(shape_text(self._meta(value)))
        return self._shapes[value.layout]


def kept_bytes(account: Account) -> dict[int, Size]:
    """Formulas of the bytes that the forward pass keeps for the backward pass, by the node that made them.

    They add up to the account's ``activation_bytes``.
    """
    memory = account.memory
    found: dict[int, Size] = {}
    for storage in memory.kept:
        node = memory.record.storages[storage].node
        if node is not None:
            found[node.index] = found.get(node.index, 0) + memory.storages.formulas[storage]
    return found


def plain_text(name: str) -> str:
    """A text that XML can hold: signs that are not printed stand as Python escapes them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in name)


# -- files -----------------------------------------------------------------------------


def write_graph(account: Account, path: str | Path, device: str | Device | None = None) -> None:
    """Write the graph of `to_networkx` to a file: ".graphml", or ".json" (networkx's node-link data).

    Numbers have all their digits. In GraphML an attribute of which some number has more than 64 bits is text
    throughout. Raises `SpecError` for another suffix and where the file cannot be written, and as `to_networkx` does.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise SpecError(f"write_graph(): {path} ends in {suffix or 'nothing'}; the forms are {' and '.join(SUFFIXES)}")
    must_be_writable(path, "write_graph()")
    graph = to_networkx(account, device)
    content = _graphml(graph) if suffix == ".graphml" else _json(graph)
    with replacing(path, "write_graph()") as file:
        file.write(content)


def _json(graph: nx.DiGraph) -> bytes:
    document = nx.node_link_data(graph, edges="edges")
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _graphml(graph: nx.DiGraph) -> bytes:
    for parts in ([data for _, data in graph.nodes(data=True)], [data for _, _, data in graph.edges(data=True)]):
        long = {name for data in parts for name, value in data.items() if isinstance(value, int) and value >= _LONG}
        for data in parts:
            data.update({name: str(data[name]) for name in long if name in data})
    out = io.BytesIO()
    nx.write_graphml_xml(
        graph, out
    )  # by name: write_graphml would take lxml where it is installed, and write otherwise
    return out.getvalue()
