"""Equal modules in a row, as layers of a model are: recognised by the costs of all that runs in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

_NUMBERED = re.compile(r"(\D*)(\d+)(\D*)")


class Repeats:
    """Which modules of an account are equal to the ones before them.

    ``uses`` has for each node its module path and whatever else must be equal (phase, operator, cost). Equal modules
    stand in one container under consecutive numbers, and all that runs in them is equal, in the same places below
    them and as often. With ``numeric`` only modules whose whole name is a number are taken together, as those of lists
    are: ``ln_1`` and ``ln_2`` are equal, but stand in different places.
    """

    def __init__(self, uses: Iterable[tuple[str, Hashable]], numeric: bool = False) -> None:
        inside: dict[str, Counter[tuple[str, Hashable]]] = {}  # of each module what runs in it, by relative path
        below: dict[str, list[tuple[str, str]]] = {}  # of each path the modules around it, and the rest of it in each
        for (path, what), times in Counter(uses).items():
            if path not in below:
                parts = path.split(".")
                below[path] = [(".".join(parts[:i]), ".".join(parts[i:])) for i in range(1, len(parts) + 1)]
            for module, rest in below[path]:
                inside.setdefault(module, Counter())[rest, what] += times
        self._run: dict[str, tuple[str, str, int]] = {}  # module: the first of its run, the run's name, its length
        for run in _runs(inside, numeric):
            self._run |= {module: (run[0], _joined(run[0], run[-1]), len(run)) for module in run}
        self._known: dict[str, tuple[str, int]] = {}

    def of(self, path: str) -> tuple[str, int]:
        """A module path with runs of equal modules for their members (``h.0-11.attn``), and how many it stands for."""
        known = self._known.get(path)
        if known is None:
            shown: list[str] = []
            real: list[str] = []  # the path in the first module of each run
            times = 1
            for part in path.split("."):
                module = ".".join((*real, part))
                first, name, length = self._run.get(module, (module, part, 1))
                times *= length
                shown.append(name)
                real.append(first.rpartition(".")[2])
            known = self._known[path] = ".".join(shown), times
        return known


def _runs(inside: dict[str, Counter[tuple[str, Hashable]]], numeric: bool) -> Iterator[list[str]]:
    """Modules that follow each other by number in one container and are equal."""
    siblings: dict[tuple[str, str, str], dict[int, str]] = {}
    for module in inside:
        container, _, name = module.rpartition(".")
        match = _NUMBERED.fullmatch(name)
        if match and not (numeric and (match[1] or match[3])):
            siblings.setdefault((container, match[1], match[3]), {})[int(match[2])] = module
    for numbered in siblings.values():
        run: list[str] = []
        before = None
        for number in sorted(numbered):
            module = numbered[number]
            if run and before == number - 1 and inside[run[-1]] == inside[module]:
                run.append(module)
            else:
                if len(run) > 1:
                    yield run
                run = [module]
            before = number
        if len(run) > 1:
            yield run


def _joined(first: str, last: str) -> str:
    """The names of a run in short: ``0-11``, ``block0-11``."""
    name, end = first.rpartition(".")[2], _NUMBERED.fullmatch(last.rpartition(".")[2])
    start = _NUMBERED.fullmatch(name)
    return f"{start[1]}{start[2]}-{end[2]}{start[3]}" if start and end else name
