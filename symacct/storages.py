"""The storages of a step: how large each is, in symbols or numbers, what it is, and where it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from symacct.algebra import evaluate, total_of
from symacct.capture import Step
from symacct.cost import Size
from symacct.errors import MissingSizeError

KINDS = (
    "parameters", "buffers", "optimizer state", "gradients", "inputs", "activations", "outputs", "temporaries",
)  # fmt: skip
ALLOCATORS = ("logical", "cuda")
BLOCK = 512  # bytes: what CUDA's caching allocator rounds small and large requests up to


@dataclass(frozen=True)
class Live:
    """A piece of memory that is alive at some moment: its size, what it is, and where it came from."""

    nbytes: Size
    kind: str
    name: str
    shape: tuple[Size, ...]
    dtype: str
    path: str = ""
    op: str = ""
    phase: str = ""
    source: str = ""


class Storages:
    """Sizes and roles of a step's storages, by number.

    ``exact`` resolves roundings that assumptions make exact. Without ``sizes`` everything is in symbols.
    """

    def __init__(
        self,
        step: Step,
        trial_sizes: Mapping[str, int],
        sizes: Mapping[str, int] | None,
        exact: Callable[[Size], Size],
        allocator: str,
    ) -> None:
        self.step = step
        self.record = step.record
        self.sizes = sizes
        self.allocator = allocator
        self.trial_sizes = trial_sizes
        self.exact = exact
        self.kinds, self._names, self._places = _roles(step)

    # -- sizes -----------------------------------------------------------------------------

    @cached_property
    def formulas(self) -> list[Size]:
        """The size of each storage, in bytes, as the allocator counts."""
        known: dict[Any, Any] = {}
        for storage in self.record.storages:
            if storage.nbytes not in known:
                known[storage.nbytes] = self._rounded(self.exact(storage.nbytes))
        found = [known[s.nbytes] for s in self.record.storages]
        if self.allocator == "cuda":  # random states stay on the host
            for value in self.record.values:
                if value.origin == "random state":
                    found[value.storage] = 0
        return found

    def _rounded(self, size: Size) -> Size:
        if self.allocator != "cuda":
            return size
        return BLOCK * (-(-size // BLOCK) if isinstance(size, int) else sympy.ceiling(size / BLOCK))

    @cached_property
    def numbers(self) -> list[Any]:
        """The size of each storage at the account's sizes."""
        if self.sizes is None and any(isinstance(f, sympy.Basic) and f.free_symbols for f in self.formulas):
            raise MissingSizeError(
                "the winning moment depends on the sizes: give them with account.at(...), or look at memory.candidates"
            )
        return self._at(self.sizes or {})

    @cached_property
    def parts(self) -> list[dict[Any, Any]]:
        """The size of each storage as monomials with coefficients (of 1 alone in an account at sizes)."""
        if self.sizes is not None:
            return [{1: n} for n in self.numbers]
        known = {f: sympy.expand(f).as_coefficients_dict() for f in dict.fromkeys(self.formulas)}
        return [known[f] for f in self.formulas]

    @cached_property
    def trial_numbers(self) -> list[Any]:
        """The size of each storage at the account's sizes, or the trial sizes where it has none."""
        return self._at(self.sizes if self.sizes is not None else self.trial_sizes)

    def _at(self, sizes: Mapping[str, int]) -> list[Any]:
        values = {f: evaluate(f, sizes) for f in dict.fromkeys(self.formulas)}
        return [values[f] for f in self.formulas]

    def sum(self, storages: Iterable[int]) -> Size:
        """The sizes of storages added up."""
        if self.sizes is not None:
            return sum(self.numbers[s] for s in storages)
        return total_of(Counter(self.formulas[s] for s in storages))

    # -- what is alive ---------------------------------------------------------------------

    def place(self, storage: int) -> str:
        """The module path that holds or made a storage."""
        known = self._places.get(storage)
        node = self.record.storages[storage].node
        return known if known is not None else node.path if node is not None else ""

    def live(self, storage: int, kind: str) -> Live:
        """A storage, described."""
        made = self.record.storages[storage]
        shape, _, _, dtype, _ = self.record.layouts[self.record.values[made.value].layout]
        if self.sizes is not None:
            shape = tuple(evaluate(n, self.sizes) for n in shape)
        node = made.node
        return Live(
            self.sum([storage]),
            kind,
            self._names.get(storage, ""),
            shape,
            str(dtype).removeprefix("torch."),
            self.place(storage),
            *((node.op, node.phase, node.source) if node is not None else ("", "", "")),
        )


# -- helpers -----------------------------------------------------------------------


def _roles(step: Step) -> tuple[dict[int, str], dict[int, str], dict[int, str]]:
    """Kind, name and module path of the storages that have a role of their own."""
    kinds: dict[int, str] = {}
    names: dict[int, str] = {}
    places: dict[int, str] = {}
    origins = {"param": "parameters", "buffer": "buffers", "input": "inputs", "constant": "buffers"}
    for value in step.record.values:
        outside = step.record.storages[value.storage].outside
        if value.origin in origins and outside and value.storage not in kinds:
            kinds[value.storage] = origins[value.origin]
            names[value.storage] = value.name
            places[value.storage] = value.name.rpartition(".")[0] if value.origin in ("param", "buffer") else ""
    for kind, held in (("gradients", step.gradients), ("optimizer state", step.state)):
        for each in held:
            kinds.setdefault(each.storage, kind)
            names.setdefault(each.storage, each.name)
            places.setdefault(each.storage, each.name.partition(":")[0].rpartition(".")[0])
    if not step.trained:
        for storage in step.outputs:
            kinds.setdefault(storage, "outputs")
    return kinds, names, places
