"""Memory from lifetimes: what is alive when, in closed form.

The recorder notes every storage's birth and death, so memory at any moment is the sum of
the sizes of what is alive then. A `Timeline` is one step's worth of that. A training run
has two: the first step, in which gradients and the optimizer's state appear, and any later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import sympy

from symacct.cost import Size
from symacct.dim import check_size
from symacct.errors import UnknownDimError
from symacct.peak import Space
from symacct.shown import Shown
from symacct.storages import Storages
from symacct.timeline import Moment, Timeline, alive_after


class Memory(Shown):
    """The memory of a step: timelines, the moments that can be the peak, and what is alive then.

    ``first`` is the timeline of the first step, ``later`` that of any step after it (the same
    one where there is no optimizer). Expressions, or numbers in an account at given sizes.
    """

    def __init__(self, storages: Storages, least: Mapping[str, int] | None = None) -> None:
        self.storages = storages
        self.record = storages.record
        self.least = dict(least or {})

    # -- timelines -------------------------------------------------------------------------

    @cached_property
    def first(self) -> Timeline:
        """The first step: gradients and the optimizer's state appear in it."""
        return self._timelines[0]

    @cached_property
    def later(self) -> Timeline:
        """Any later step: the optimizer's state is there from the start."""
        return self._timelines[-1]

    @cached_property
    def _timelines(self) -> list[Timeline]:
        at = {mark.name: mark for mark in self.record.marks}
        start, end = at["start"], at["end"]
        if "update" in at:  # all but the optimizer's part is common to the first and to later steps
            return [
                Timeline(self.storages, "first", [(start, at["later"])]),
                Timeline(self.storages, "later", [(start, at["update"]), (at["later"], end)]),
            ]
        if "later" in at:
            return [
                Timeline(self.storages, "first", [(start, at["later"])]),
                Timeline(self.storages, "later", [(at["later"], end)]),
            ]
        return [Timeline(self.storages, "only", [(start, end)])]

    # -- the peak --------------------------------------------------------------------------

    @property
    def peak(self) -> Moment:
        """The moment with most bytes alive, of the first or a later step, at the account's sizes."""
        return max((t.peak for t in reversed(self._timelines)), key=lambda moment: moment.nbytes)

    @property
    def refusal(self) -> str:
        """Why the peak has no closed form: it has one."""
        return ""

    @cached_property
    def candidates(self) -> list[Moment]:
        """The few moments that can be the peak, whatever the sizes; the peak is the largest of them."""
        space = Space(dict.fromkeys(self.storages.formulas), self.least)
        moments, vectors = [], []
        for timeline in self._timelines[::-1]:
            for moment, vector in timeline.rises([space.vectors[f] for f in self.storages.formulas]):
                moments.append(moment)
                vectors.append(vector)
        return [moments[i] for i in space.candidates(vectors)]

    def where(self, **least: int) -> Memory:
        """The same for dims that are at least as large as given (``L=128``), so that fewer moments can win."""
        for name, size in least.items():
            if name not in self.storages.trial_sizes:
                known = ", ".join(self.storages.trial_sizes) or "none"
                raise UnknownDimError(f"where(): there is no dim {name!r}; they are {known}")
            check_size(name, size)
        bounds = {n: max(s, self.least.get(n, 1)) for n, s in least.items()}
        return Memory(self.storages, {**self.least, **bounds})

    @property
    def peak_bytes(self) -> Size:
        """The most bytes alive at once: ``Max(...)`` over the candidates, or a number at given sizes."""
        if self.storages.sizes is not None:
            return self.peak.nbytes
        found = [moment.nbytes for moment in self.candidates]
        return found[0] if len(found) == 1 else sympy.Max(*found, evaluate=False)

    # -- other sums ------------------------------------------------------------------------

    @cached_property
    def kept(self) -> list[int]:
        """The storages that a (first) forward pass leaves to the backward pass; none of a step that is not trained."""
        marks = self.later.marks("forward")
        if not self.storages.step.trained or not marks:
            return []
        alive = sorted(self.later.alive_at(marks[0]))
        return [storage for storage in alive if self.later.kind(storage) in ("activations", "outputs")]

    @property
    def activation_bytes(self) -> Size:
        """Bytes alive between forward and backward beyond parameters, buffers, state, gradients and inputs."""
        return self.storages.sum(self.kept) if self.kept else 0

    def of_kind(self, kind: str) -> Size:
        """Bytes of what has a kind of its own, such as "parameters" (`symacct.storages.KINDS`)."""
        return self.storages.sum(s for s, k in self.storages.kinds.items() if k == kind)

    @property
    def rest_bytes(self) -> Size:
        """Bytes alive between steps: parameters, buffers, gradients, state, and what modules keep."""
        inputs = {s for s, kind in self.storages.kinds.items() if kind == "inputs"}
        (rest,) = (mark for mark in self.record.marks if mark.name == "rest")
        return self.storages.sum(sorted(alive_after(self.record, rest.events) - inputs))
