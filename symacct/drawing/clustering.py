"""The clusters of a picture: the modules that several boxes stand in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symacct.depth.fitting import Offset
from symacct.drawing.fits import Fits
from symacct.drawing.model import Cluster
from symacct.drawing.places import Key, above, parts_of
from symacct.drawing.sorting import INPUT, OUTPUT, Sorted


def clusters_of(
    keys: Sequence[Key], fits: Fits, found: Mapping[Offset, Sorted], shown: Mapping[str, str]
) -> tuple[tuple[Cluster, ...], dict[Key, Cluster]]:
    """The clusters, outer ones first, and the innermost one of each box that is in one.

    A module with a single box or a single cluster in it is none: its name stands before that of what is in it.
    """
    homes = {key: _home(key) for key in keys}
    children: dict[str, dict[Any, None]] = {}
    for key, home in homes.items():
        if home:
            children.setdefault(home, {})[key] = None
            inner = home
            for outer in above(home):
                children.setdefault(outer, {})[inner] = None
                inner = outer
    times = {offset: _times(each, shown) for offset, each in found.items()}
    clusters: dict[str, Cluster] = {}
    for path in _outer_first(homes.values()):
        if len(children[path]) > 1:
            parent = next((outer for outer in above(path) if outer in clusters), "")
            number = fits.any_of({offset: counts.get(path, 0) for offset, counts in times.items()})
            outer_id = clusters[parent].id if parent else ""
            clusters[path] = Cluster(f"m{len(clusters)}", below(path, parent), path, number, outer_id)
    inside = {
        key: next((clusters[path] for path in (home, *above(home)) if path in clusters), None)
        for key, home in homes.items()
    }
    return tuple(clusters.values()), {key: cluster for key, cluster in inside.items() if cluster is not None}


def below(path: str, outer: str) -> str:
    """A module path from within another module."""
    return path[len(outer) + 1 :] if outer and path != outer else path


def _home(key: Key) -> str:
    """The module that a box stands in: of a module the one around it."""
    if key.kind in (INPUT, OUTPUT, "group"):
        return ""
    return key.path.rpartition(".")[0] if key.kind == "module" else key.path


def _outer_first(paths: Iterable[str]) -> list[str]:
    """Modules and those around them, in order, outer ones before what is in them."""
    ordered: dict[str, None] = {}
    for path in dict.fromkeys(paths):
        for each in reversed([path, *above(path)]):
            if each:
                ordered[each] = None
    return list(ordered)


def _times(found: Sorted, shown: Mapping[str, str]) -> dict[str, int]:
    """How many real modules each drawn one stands for."""
    real: dict[str, set[str]] = {}
    for path in dict.fromkeys(node.path for _, node in found.nodes()):
        parts, names = parts_of(path), parts_of(shown[path])
        for length in range(1, len(parts) + 1):
            real.setdefault(".".join(names[:length]), set()).add(".".join(parts[:length]))
    return {name: len(modules) for name, modules in real.items()}
