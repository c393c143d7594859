"""Which line of the model is running, and whether a checkpoint is recomputing: read off the stack."""

from __future__ import annotations

import sys
import sysconfig
from types import FrameType

import torch

_TORCH = torch.__file__.rsplit("/", 1)[0]
_OURS = __file__.rsplit("/", 1)[0]
_STDLIB = sysconfig.get_paths()["stdlib"]
_PACKAGES = sysconfig.get_paths()["purelib"]
_CHECKPOINT = f"{_TORCH}/utils/checkpoint.py"
_ENGINE = f"{_TORCH}/autograd/graph.py"  # _engine_run_backward
_LOOP = f"{_OURS}/program.py"  # whoever calls it is no part of the step
_kinds: dict[str, str] = {}


def source() -> str:
    """The line that is running now in code that is neither torch's nor ours; "" where the step's own loop is."""
    return _model_line(sys._getframe(2), "loop")


def caller() -> str:
    """The line of whoever called us."""
    return _model_line(sys._getframe(2), "")


def _model_line(frame: FrameType | None, end: str) -> str:
    """The innermost line of a stack that is the model's, up to a kind of file."""
    while frame is not None:
        kind = source_kind(frame.f_code.co_filename)
        if kind == "model":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if kind == end:
            break
        frame = frame.f_back
    return ""


def recomputing() -> bool:
    """Whether checkpoint code runs inside of autograd's innermost engine."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        kind = source_kind(frame.f_code.co_filename)
        if kind in ("checkpoint", "engine"):
            return kind == "checkpoint"
        frame = frame.f_back
    return False


def source_kind(filename: str) -> str:
    """Whose code a file is: "model", "library" (torch, symacct), "checkpoint", "engine" or "loop" (runs the step)."""
    found = _kinds.get(filename)
    if found is None:
        if filename == _CHECKPOINT:
            found = "checkpoint"
        elif filename == _ENGINE:
            found = "engine"
        elif filename == _LOOP:
            found = "loop"
        else:
            ours = filename.startswith((_TORCH, _OURS, "<frozen"))
            stdlib = filename.startswith(_STDLIB) and not filename.startswith(_PACKAGES)
            found = "library" if ours or stdlib else "model"
        _kinds[filename] = found
    return found
