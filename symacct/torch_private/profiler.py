"""The profiler: its settings, and the events that it saw."""

from __future__ import annotations

from typing import Any

from torch._C._profiler import _EventType, _ExperimentalConfig


def profiler_settings(**settings: Any) -> Any:
    """Settings of ``torch.profiler.profile`` under which operators have their full names."""
    return _ExperimentalConfig(capture_overload_names=True, **settings)


def event_tree(profiler: Any) -> list[Any]:
    """What a profiler saw, as trees: calls, with what happened inside of them as children."""
    roots: list[Any] = profiler.profiler.kineto_results.experimental_event_tree()
    return roots


def is_operator(event: Any) -> bool:
    """Whether an event is a call of an operator."""
    return bool(event.tag == _EventType.TorchOp)


def is_allocation(event: Any) -> bool:
    """Whether an event is memory that was handed out or given back."""
    return bool(event.tag == _EventType.Allocation)
