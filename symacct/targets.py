"""Finding what the user points at: ``FILE.py:NAME`` or ``package.module:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from symacct.errors import TargetError

_loaded: dict[Path, ModuleType] = {}


def load(where: str) -> Any:
    """The object that ``FILE.py:NAME`` or ``package.module:NAME`` names.

    Raises `TargetError` when the file, the module or the name does not exist, or when importing it fails.
    """
    place, colon, name = where.rpartition(":")
    if not colon or not place or not name:
        raise TargetError(f"{where!r}: expected FILE.py:NAME or package.module:NAME, for example model.py:net")
    module = _from_file(Path(place)) if place.endswith(".py") or "/" in place else _from_name(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(module) if not n.startswith("_")]
            close = get_close_matches(part, names, n=3)
            listed = ", ".join(sorted(names)[:12]) or "no names"
            hint = f"did you mean {', '.join(close)}?" if close else f"it has {listed}"
            raise TargetError(f"{place} has no {part!r}; {hint}")
        found = getattr(found, part)
    return found


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    path = path.resolve()
    if path in _loaded:  # a target and its rules may share a file, which must not run twice
        return _loaded[path]
    name = f"symacct_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as `python FILE.py` would
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TargetError(_failure(str(path), error)) from error
    finally:
        sys.path.pop(0)
    _loaded[path] = module
    return module


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, "")  # as `python -m NAME` would
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise TargetError(f"there is no module {name!r} on the import path") from None
        raise TargetError(_failure(name, error)) from error
    except Exception as error:
        raise TargetError(_failure(name, error)) from error
    finally:
        sys.path.pop(0)


def _failure(what: str, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"importing {what} failed at {last.filename}:{last.lineno}: {type(error).__name__}: {first}"
