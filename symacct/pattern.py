"""The little language of rules: ``"m k, k n -> m n"``.

Left of the arrow stand the operator's tensor arguments in schema order, right of
it its results. A part is a list of axes: a name binds the axis' size, ``*name``
binds all remaining axes as a tuple, ``...`` skips them, a number demands a size.
``_`` as a whole part skips a tensor; ``name[]`` binds nothing and stands for a
list of tensors. Parts at the end may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from symacct.cost import Call, TensorMeta
from symacct.errors import RuleError

_AXIS = re.compile(r"\*?[A-Za-z]\w*|\d+|\.\.\.")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern; `bind` turns a call's tensors into named sizes."""

    text: str
    inputs: tuple[tuple[str, ...] | None, ...]
    outputs: tuple[tuple[str, ...] | None, ...]

    @property
    def axes(self) -> frozenset[str]:
        """The names that the pattern binds."""
        parts = [part for part in (*self.inputs, *self.outputs) if part]
        return frozenset(a.lstrip("*") for part in parts for a in part if a[0] in "*" or a[0].isalpha())

    def bind(self, call: Call) -> dict[str, Any]:
        """Sizes by axis name. A tensor that is None leaves its axes unbound."""
        found: dict[str, Any] = {}
        for part, value in zip(self.inputs, call.tensor_args, strict=False):
            if part is not None and value is not None:
                self._bind_tensor(part, value, found, call)
        for part, value in zip(self.outputs, call.outputs, strict=False):
            if part is not None:
                self._bind_tensor(part, value, found, call)
        return found

    def _bind_tensor(self, part: tuple[str, ...], value: Any, found: dict[str, Any], call: Call) -> None:
        if not isinstance(value, TensorMeta):
            raise RuleError(f"{call.op}: pattern {self.text!r} expects one tensor where the op has a list")
        names: Sequence[str] = part
        many = [i for i, a in enumerate(part) if a[0] in "*."]
        sizes: list[Any] = list(value.shape)
        if many:
            spare = len(sizes) - (len(part) - 1)
            i = many[0]
            if spare >= 0:
                sizes[i : i + spare] = [tuple(sizes[i : i + spare])]
        if len(sizes) != len(names):
            raise RuleError(
                f"{call.op}: pattern {self.text!r} expects {len(names)} axes ({' '.join(part)}), "
                f"the tensor has shape {tuple(value.shape)}"
            )
        for name, size in zip(names, sizes, strict=True):
            if name[0].isalpha() or name[0] == "*":
                # The first tensor names the size: axes that torch broadcasts (1 against n)
                # or proves equal by an assumption may differ as expressions.
                key = name.lstrip("*")
                if key not in found or found[key] == 1:
                    found[key] = size
            elif name[0].isdigit() and size != int(name):
                raise RuleError(f"{call.op}: pattern {self.text!r} demands {name}, got {size}")


@cache
def parse(text: str) -> Pattern:
    """Parse a pattern.

    Raises `RuleError` for a part that cannot be read or two ``*`` in one part.
    """
    left, arrow, right = text.partition("->")
    if arrow and "->" in right:
        raise RuleError(f"pattern {text!r}: one arrow only")
    return Pattern(text, _parts(left, text), _parts(right, text) if arrow else ())


def _parts(side: str, text: str) -> tuple[tuple[str, ...] | None, ...]:
    return tuple(_part(part.strip(), text) for part in side.split(",")) if side.strip() else ()


def _part(part: str, text: str) -> tuple[str, ...] | None:
    if part == "_":
        return None
    if part == "()":
        return ()
    axes = tuple(part.split())
    bad = [a for a in axes if not _AXIS.fullmatch(a)]
    if bad or not axes:
        raise RuleError(f"pattern {text!r}: cannot read {bad[0] if bad else 'an empty part'!r}")
    if sum(a[0] in "*." for a in axes) > 1:
        raise RuleError(f"pattern {text!r}: more than one of '*axes' and '...' in {part!r}")
    return axes
