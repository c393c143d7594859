"""The dims of a config, what they stand for, and how the config's fields follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from symacct.errors import TargetError

Factor = str | int


@dataclass(frozen=True)
class Follows:
    """How a field of the config follows from dims: a product of dims and numbers, plus a number."""

    factors: tuple[Factor, ...]
    plus: int = 0

    def at(self, sizes: Mapping[str, int]) -> int:
        """The field's value at sizes, plain ones or dims."""
        value: int = prod(sizes[f] if isinstance(f, str) else f for f in self.factors)
        return value + self.plus if self.plus else value

    def __str__(self) -> str:
        product = "*".join(map(str, self.factors))
        return f"{product} + {self.plus}" if self.plus else product


@dataclass(frozen=True)
class Meaning:
    """What a dim stands for: words, the config's field (or how it is read from fields), and the config's value."""

    words: str
    field: str
    value: int


@dataclass(frozen=True)
class Layout:
    """The dims of a config with their meanings, how its fields follow from them, and what was set aside."""

    legend: Mapping[str, Meaning]
    fields: Mapping[str, Follows]
    early: Mapping[
        str, Follows
    ]  # what a field is while the config is made, where its validation wants more than is needed
    lists: Mapping[
        str, Sequence[Any]
    ]  # fields with one entry per layer: those of the layers that repeat, then the rest
    depths: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The config's own value of each dim."""
        return {name: meaning.value for name, meaning in self.legend.items()}

    def list_at(self, name: str, length: int) -> list[Any]:
        """A field with one entry per layer, for another number of layers."""
        entries, total = self.lists[name], len(self.lists[name])
        period = period_of([entries]) or total
        return [entries[i % period] for i in range(length)]


class Reader:
    """Collects dims from a config, field by field."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.names: Mapping[str, str] = getattr(config, "attribute_map", {})
        self.legend: dict[str, Meaning] = {}
        self.fields: dict[str, Follows] = {}
        self.early: dict[str, Follows] = {}
        self.lists: dict[str, Sequence[Any]] = {}
        self.depths: list[str] = []
        self.notes: list[str] = []

    def layout(self) -> Layout:
        """What has been collected."""
        return Layout(self.legend, self.fields, self.early, self.lists, tuple(self.depths), tuple(self.notes))

    def own(self, name: str) -> str:
        """The config's own name of a common field."""
        return self.names.get(name, name)

    def value(self, name: str) -> int | None:
        """The value of a field, if it is a size."""
        found = getattr(self.config, self.own(name), None)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None

    def must(self, name: str) -> int:
        """The value of a field that has to be there."""
        if (found := self.value(name)) is not None:
            return found
        raise TargetError(
            f"a config of type {self.config.model_type!r} has no {name}, from which its dims would be read; make "
            "the model in a builder of your own, as in sa.build(lambda D, N: Model(Config(width=D, depth=N)))"
        )

    def dim(
        self, name: str, words: str, value: int, *fields: str, how: str = "", factors: tuple[Factor, ...] = ()
    ) -> None:
        """A dim, the fields that it gives (alone or in a product), and how it is read from the config."""
        own = list(dict.fromkeys(map(self.own, fields)))
        self.legend[name] = Meaning(words, how or " = ".join(own), value)
        for field in own:
            self.fields[field] = Follows(factors or (name,))


def period_of(lists: Sequence[Sequence[Any]]) -> int | None:
    """After how many layers the lists begin anew, a rest at the end left aside; None where they never do twice."""
    if not lists:
        return 1
    total = len(lists[0])
    for period in range(1, total // 2 + 1):
        if all(entries[i] == entries[i % period] for entries in lists for i in range(total)):
            return period
    return None
