"""The memory of a step whose graph grows with the depth: the moments that can be the peak, at any depth.

From one depth to the next a step's nodes are the same but for stretches that repeat: the layers going forward, the
layers going backward, the optimizer's parameters. A moment between stretches is one moment at any depth. Within a
stretch a moment comes once for each layer; memory there runs in a line from the first layer to the last, or below
it, so the first and the last are the ones that can win. Each of these is a polynomial in the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy

from symacct.algebra import evaluate
from symacct.cost import Call, Size
from symacct.depth.fitting import Lattice, Offset
from symacct.depth.skeleton import Skeleton
from symacct.dim import check_size
from symacct.errors import StructuralError, UnknownDimError
from symacct.memory import Memory
from symacct.peak import Space, Vector
from symacct.printing import text
from symacct.shown import Shown
from symacct.timeline import Moment, Timeline, rising


class DeepMemory(Shown):
    """What `Memory` says, at any depth; timelines are those of ``at_sizes()``."""

    def __init__(
        self,
        members: Mapping[Offset, Memory],
        lattice: Lattice,
        figure: Callable[[str], Size],
        sizes: Mapping[str, int] | None,
        least: Mapping[str, int],
        at_sizes: Callable[[], Memory],
    ) -> None:
        self.members = members
        self.lattice = lattice
        self.sizes = sizes
        self.least = dict(least)
        self._figure = figure
        self._at_sizes = at_sizes

    @property
    def activation_bytes(self) -> Size:
        """As `Memory.activation_bytes`."""
        return self._figure("activation_bytes")

    def of_kind(self, kind: str) -> Size:
        """As `Memory.of_kind`."""
        return self._figure(kind)

    @property
    def rest_bytes(self) -> Size:
        """As `Memory.rest_bytes`."""
        return self._figure("rest_bytes")

    @property
    def first(self) -> Timeline:
        """The first step, at the account's sizes."""
        return self._at_sizes().first

    @property
    def later(self) -> Timeline:
        """Any later step, at the account's sizes."""
        return self._at_sizes().later

    @property
    def peak(self) -> Moment:
        """The moment with most bytes alive, at the account's sizes."""
        return self._at_sizes().peak

    @property
    def peak_bytes(self) -> Size:
        """The most bytes alive at once: ``Max(...)`` over the candidates, or a number at given sizes."""
        if self.sizes is not None and self.refusal:
            return self._at_sizes().peak_bytes
        found = [moment.nbytes for moment in self.candidates]
        if self.sizes is not None:
            return max(evaluate(sympy.sympify(nbytes), self.sizes) for nbytes in found)
        return found[0] if len(found) == 1 else sympy.Max(*found, evaluate=False)

    def where(self, **least: int) -> DeepMemory:
        """As `Memory.where`."""
        names = {s.name for s in self.lattice.base} | set(next(iter(self.members.values())).storages.trial_sizes)
        for name, size in least.items():
            if name not in names:
                raise UnknownDimError(f"where(): there is no dim {name!r}; they are {', '.join(sorted(names))}")
            check_size(name, size)
        bounds = {n: max(s, self.least.get(n, 1)) for n, s in least.items()}
        return DeepMemory(
            self.members, self.lattice, self._figure, self.sizes, {**self.least, **bounds}, self._at_sizes
        )

    # -- the peak --------------------------------------------------------------------------

    @cached_property
    def refusal(self) -> str:
        """Why the peak has no closed form; "" where it has one."""
        try:
            _ = self.candidates
        except StructuralError as error:
            return str(error)
        return ""

    @cached_property
    def candidates(self) -> list[DeepMoment]:
        """The few moments that can be the peak, whatever the sizes and the depth; the peak is the largest of them.

        Raises `StructuralError` where there is no saying which they are.
        """
        formulas = dict.fromkeys(f for memory in self.members.values() for f in memory.storages.formulas)
        space = Space(formulas, self.least)
        moments: list[DeepMoment] = []
        vectors: list[Vector] = []
        for name in ("later", "first"):
            timelines = {offset: getattr(memory, name) for offset, memory in self.members.items()}
            if name == "first" and all(m.first is m.later for m in self.members.values()):
                break
            for moment, vector in _ends(self.lattice, timelines, space):
                moments.append(moment)
                vectors.append(vector)
        deeper = Space.spanned(_monomials(self.lattice, space))
        return [moments[i] for i in deeper.candidates(vectors)]


@dataclass(frozen=True)
class DeepMoment(Shown):
    """A moment that is there at any depth: the same one in each member."""

    members: Mapping[Offset, Moment] = field(repr=False)
    lattice: Lattice = field(repr=False)

    @property
    def _one(self) -> Moment:
        return next(iter(self.members.values()))

    @property
    def timeline(self) -> Timeline:
        """The timeline at the least depth."""
        return self._one.timeline

    @property
    def op(self) -> str:
        """The operator that had just run."""
        return self._one.op

    @property
    def phase(self) -> str:
        """The phase that it belongs to."""
        return self._one.phase

    @property
    def source(self) -> str:
        """The line of the model that ran."""
        return self._one.source

    @cached_property
    def path(self) -> str:
        """The module path of the node, with the layer's number in terms of the depth."""
        return _path(self.lattice, {offset: moment.path for offset, moment in self.members.items()})

    @cached_property
    def nbytes(self) -> Size:
        """Bytes alive at this moment."""
        return self._fit({offset: moment.nbytes for offset, moment in self.members.items()})

    def by_kind(self) -> dict[str, Size]:
        """Bytes by kind, kinds of which nothing is alive left out."""
        parts = {offset: moment.by_kind() for offset, moment in self.members.items()}
        kinds = dict.fromkeys(kind for part in parts.values() for kind in part)
        return {kind: self._fit({offset: part.get(kind, 0) for offset, part in parts.items()}) for kind in kinds}

    def _fit(self, values: Mapping[Offset, Any]) -> Size:
        found = self.lattice.polynomial(values)
        if found is None:
            raise StructuralError(f"memory {self} is no polynomial in {self.lattice.names}")
        return found

    def __str__(self) -> str:
        where = f"{self.op} in {self.path or 'the top level'}" if self.op else "before the first op"
        return f"{where} ({self.phase}, {self.timeline.name} step)"


# -- moments that are there at any depth -----------------------------------------------------


def _ends(lattice: Lattice, timelines: Mapping[Offset, Timeline], space: Space) -> Iterator[tuple[DeepMoment, Vector]]:
    """The moments between stretches, and the first and the last of each kind within one, with their sums.

    Left out are those after which memory never falls. The sums are in Newton's form, whose parts are not negative.
    """
    sums = {offset: _sums(timeline, space) for offset, timeline in timelines.items()}
    labels = {offset: [label for _, label, _, _ in rows] for offset, rows in sums.items()}
    skeleton = Skeleton.of(lattice, labels)
    lines = {offset: skeleton.lines(offset) for offset in lattice.offsets}
    for kind in range(len(lines[lattice.offsets[0]])):
        places = {offset: found[kind] for offset, found in lines.items()}
        if not any(sums[offset][i][3] for offset, line in places.items() for i in line):
            continue
        if not all(places.values()):
            raise StructuralError(
                f"at {', '.join(f'{s.name}={n}' for s, n in lattice.base.items())} no layer is like the others yet"
            )
        vectors = {offset: [sums[offset][i][2] for i in line] for offset, line in places.items()}
        for pick in _picks(lattice, list(vectors.values())):
            newton = _newton(lattice, {offset: line[pick] for offset, line in vectors.items()})
            if newton is None:
                raise StructuralError(f"memory in the course of a step is no polynomial in {lattice.names}")
            chosen = {offset: sums[offset][line[pick]][0] for offset, line in places.items()}
            yield DeepMoment(chosen, lattice), newton


def _sums(timeline: Timeline, space: Space) -> list[tuple[Moment, Any, Vector, bool]]:
    """Each moment, a label that is alike at any depth, the sum of what is alive, and whether memory falls after it."""
    formulas = timeline.storages.formulas
    rows = list(timeline.sums([space.vectors[f] for f in formulas]))
    peaks = {moment.position for moment, _ in rising(rows)}
    does = [_does(call) for call in timeline.storages.record.calls]
    return [
        (moment, moment.node and (moment.phase, does[moment.node.call]), vector, moment.position in peaks)
        for moment, vector, _, _ in rows
    ]


def _does(call: Call) -> Any:
    """What a call does, and the dims of its results: alike at all depths, whatever the numbers in their shapes."""
    dims = (tuple(frozenset(getattr(n, "free_symbols", ())) for n in t.shape) for t in call.outputs)
    return call.op, tuple(dict.fromkeys(dims))


def _picks(lattice: Lattice, lines: Sequence[Sequence[Vector]]) -> tuple[int, ...]:
    """Which of the sums of equal layers can be the largest, counted from the first or (negative) from the last.

    The first and the last, where those between are nowhere above the line between them; else with a layer or two at
    either end apart.
    """
    for before, after in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)):
        inner = [line[before : len(line) - after] for line in lines]
        if all(inner) and all(map(_below_a_line, inner)):
            ends = (*range(before + 1), *range(-1 - after, 0))
            return ends if any(len(line) > 1 for line in lines) else (0,)
    raise StructuralError(
        "memory within layers that are alike lies above the line from the first to the last, so that its largest "
        f"moment has no closed form in {lattice.names}"
    )


def _below_a_line(vectors: Sequence[Vector]) -> bool:
    """Whether sums at equal steps are nowhere above the line from the first to the last."""
    first, last, n = vectors[0], vectors[-1], len(vectors) - 1
    return all(
        n * value <= (n - i) * a + i * b
        for i, vector in enumerate(vectors)
        for value, a, b in zip(vector, first, last, strict=True)
    )


def _newton(lattice: Lattice, vectors: Mapping[Offset, Vector]) -> Vector | None:
    """The coefficients in Newton's form of vectors at the points of a lattice, those of one order after the other."""
    found: list[Any] = []
    for offset in lattice.offsets:
        difference = lattice.difference(vectors, offset)
        if sum(offset) < lattice.order:
            found += difference
        elif any(difference):
            return None
    return tuple(found)


def _monomials(lattice: Lattice, space: Space) -> list[Any]:
    """What the coefficients of `_newton` stand for, in what the dims are above their least values."""
    steps = [sympy.Symbol(f"{symbol.name}-{size}", nonnegative=True) for symbol, size in lattice.base.items()]
    return [
        (*monomial, *((step, n) for step, n in zip(steps, offset, strict=True) if n))
        for offset in lattice.offsets
        if sum(offset) < lattice.order
        for monomial in space.monomials
    ]


# -- words -----------------------------------------------------------------------------------


def _path(lattice: Lattice, paths: Mapping[Offset, str]) -> str:
    """Module paths as one, with numbers that change in terms of the depth: ``layers.(N - 1).mlp``."""
    parts = {offset: path.split(".") for offset, path in paths.items()}
    done: list[str] = []
    for column in zip(*parts.values(), strict=False):
        if len(set(column)) == 1:
            done.append(column[0])
        elif all(part.isdigit() for part in column):
            numbers = lattice.polynomial(dict(zip(parts, map(int, column), strict=True)))
            done.append(f"({text(numbers)})" if numbers is not None else "*")
        else:
            done.append("*")
    return ".".join(done)
