"""Module paths of a model of any depth: ``layers.0.mlp`` and ``layers.1.mlp`` are ``layers.*.mlp``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_NUMBER = re.compile(r"\d+")


class Templates:
    """Which numbers in module paths count the layers, found where models of several depths have different modules."""

    def __init__(self, paths: Sequence[Collection[str]]) -> None:
        self._deep: set[tuple[str, str]] = set()  # (path of the container, name of a child with "*" for its number)
        self._known: dict[str, str] = {}
        while True:
            found: list[set[str]] = [{self.of(path) for path in each} for each in paths]
            differing = sorted({path for each in found for path in each if not all(path in other for other in found)})
            deeper = {place for path in differing if (place := self._first_number(path))}
            if not deeper:
                break
            shortest = min(deeper, key=lambda place: (place[0].count("."), place))
            self._deep.add(shortest)
            self._known.clear()

    def of(self, path: str) -> str:
        """A path with "*" for the numbers of layers."""
        known = self._known.get(path)
        if known is None:
            done: list[str] = []
            for part in path.split("."):
                stem = _NUMBER.sub("*", part)
                done.append(stem if (".".join(done), stem) in self._deep else part)
            known = self._known[path] = ".".join(done)
        return known

    def _first_number(self, path: str) -> tuple[str, str] | None:
        """The first place in a path that has a number and does not count layers yet."""
        done: list[str] = []
        for part in path.split("."):
            stem = _NUMBER.sub("*", part)
            if stem != part:
                return ".".join(done), stem
            done.append(part)
        return None
