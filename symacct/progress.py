"""Says what is going on, to whoever listens. The command line shows it on a terminal; nobody else needs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[str], None]] = []


def say(doing: str) -> None:
    """Tell the listeners what begins now."""
    for listener in _listeners:
        listener(doing)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Have ``listener`` called with each thing that begins."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
