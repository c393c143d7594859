"""The critical path: the chain of dependent nodes that takes longest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import networkx as nx

from symacct.account import Account
from symacct.dataflow.flows import flows
from symacct.dataflow.networks import laid_out
from symacct.dataflow.times import node_seconds
from symacct.device_file import device_or_file
from symacct.errors import MissingSizeError
from symacct.hardware import Device
from symacct.parts import NodeCost
from symacct.report import WIDTH, Column, Section, as_renderables, as_text, header
from symacct.shown import Shown
from symacct.units import show

_COLUMNS = (
    Column("", "name"), Column("phase", "word"), Column("ops", "formula"), Column("time", "value"),
    Column("share", "value"),
)  # fmt: skip
_OPS = 3  # of a row, the slowest
Step = tuple[NodeCost, float]  # a node with its seconds


@dataclass(frozen=True)
class CriticalPath(Shown):
    """The chain of dependent nodes with the largest sum of least times: no number of streams gets below it.

    ``nodes`` are in the order in which they run, ``times`` their seconds, ``total_seconds`` those of all nodes of the
    step. ``str()`` is a table of the modules that the chain goes through.
    """

    account: Account = field(repr=False)
    device: Device
    nodes: tuple[NodeCost, ...] = field(repr=False)
    times: tuple[float, ...] = field(repr=False)
    total_seconds: float

    @property
    def seconds(self) -> float:
        """The sum of the least times of its nodes."""
        return sum(self.times)

    @property
    def share(self) -> float:
        """Its part of the times of all nodes, one after another: 1 where nothing can run beside it."""
        return self.seconds / self.total_seconds if self.total_seconds else 1.0

    def heading(self) -> list[str]:
        """What it is the path of, and how long it takes."""
        first, *rest = header(self.account)
        beside = f"critical path {show(self.seconds, 's')} of {show(self.total_seconds, 's')}: {self.share:.1%}"
        return [f"{first} on {self.device.name}", *rest, beside]

    def sections(self, depth: int = 1) -> Iterator[Section]:
        """The modules that it goes through, in order, cut to ``depth`` parts; what takes no time is left out.

        Equal modules that it goes through one after another are one row.
        """
        rows = []
        for path, phase, steps in self._parts(depth):
            by_op: dict[str, list[float]] = {}
            for node, time in steps:
                by_op.setdefault(node.op.removesuffix(".default").removeprefix("aten."), []).append(time)
            time = sum(map(sum, by_op.values()))
            share = f"{time / self.seconds:.1%}"
            rows.append((path or "(top level)", phase, _said(by_op), show(time, "s"), share))
        yield Section("through, in order", _COLUMNS, tuple(rows), titled=True)

    def _parts(self, depth: int) -> Iterator[tuple[str, str, list[Step]]]:
        """Module path, phase and the nodes there that take time, in order."""
        repeats = self.account.laid_out.symbolic._repeats
        taken = [(node, time) for node, time in zip(self.nodes, self.times, strict=True) if time]
        places = groupby(taken, key=lambda step: (".".join(step[0].path.split(".")[:depth]), step[0].phase))
        parts = [(path, phase, list(steps)) for (path, phase), steps in places]
        for (name, phase), run in groupby(parts, key=lambda part: (repeats.of(part[0])[0], part[1])):
            alike = list(run)
            if len(alike) == repeats.of(alike[0][0])[1]:
                yield name, phase, [step for _, _, steps in alike for step in steps]
            else:
                yield from alike

    def notes(self) -> list[str]:
        """What the times rest on."""
        return [
            "a node depends on what made its operands, or last wrote their memory; all else could run at the same time",
            *self.account.laid_out.roofline(self.device).notes,
        ]

    def report(self, depth: int = 1, width: int = WIDTH) -> str:
        """The table and the notes as plain text."""
        return as_text(as_renderables(self.heading(), self.sections(depth), self.notes(), width), width)

    def __str__(self) -> str:
        return self.report()


def _said(by_op: dict[str, list[float]]) -> str:
    """The slowest ops, each with how often it runs."""
    ordered = sorted(by_op.items(), key=lambda item: -sum(item[1]))
    named = [f"{op} x{len(times)}" if len(times) > 1 else op for op, times in ordered[:_OPS]]
    return ", ".join(named + ([f"{len(ordered) - _OPS} more"] if len(ordered) > _OPS else []))


def critical_path(account: Account, device: str | Device) -> CriticalPath:
    """The chain of dependent nodes whose least times on a device add up to most.

    Times are those of the roofline at the level "eager". A write in place depends on whoever wrote that memory before,
    also where another part of it was written. Raises `MissingSizeError` for an account without sizes,
    `StructuralError` and `DeviceError` as `symacct.dataflow.to_networkx` does.
    """
    plain = laid_out(account)
    if plain.sizes is None:
        raise MissingSizeError(
            f"critical_path(): which chain takes longest depends on {', '.join(plain.dims)}: give sizes with "
            "account.at(...)"
        )
    found = device_or_file(device)
    seconds = node_seconds(plain, found)
    graph = nx.DiGraph()
    for node in plain.step.record.nodes:
        graph.add_edge(-1, node.index, weight=seconds[node.index])
    for flow in flows(plain.step.record):
        graph.add_edge(flow.maker, flow.reader, weight=seconds[flow.reader])
    found_path = [index for index in nx.dag_longest_path(graph) if index >= 0]
    nodes = tuple(plain.nodes[index] for index in found_path)
    return CriticalPath(
        account, found, nodes, tuple(float(seconds[index]) for index in found_path), float(sum(seconds))
    )
