"""Specs: how an input is described, and the tensor without data that it becomes.

``"B L D"`` is a float32 tensor of three dims; ``"i64[B, L]"`` names the dtype as
torch.fx prints it; ``"bf16[B, (H Dh)]"`` has an axis of size H*Dh; numbers are
fixed axes; ``"f32[]"`` is a scalar. Tensors (real, fake or meta) and jaxtyping
annotations describe themselves, and any pytree of all these is an input too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from symacct.dim import Dim
from symacct.errors import SpecError

DTYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "b8": torch.bool, "bool": torch.bool, "c64": torch.complex64, "c128": torch.complex128,
    "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}  # fmt: skip

# The other way round, by torch's names without "torch."; of two short names the first.
SHORT: Mapping[str, str] = {str(dtype).removeprefix("torch."): short for short, dtype in reversed(list(DTYPES.items()))}

_TYPED = re.compile(r"\s*([A-Za-z]\w*)\s*\[(.*)\]\s*")
_TOKEN = re.compile(r"\(|\)|\d+|[^\W\d]\w*|\S")


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor to be: axes (each a product of dim names and numbers), dtype, and whether it wants a gradient."""

    axes: tuple[tuple[str | int, ...], ...]
    dtype: torch.dtype = torch.float32
    grad: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The dims that occur, in order."""
        return tuple(dict.fromkeys(f for axis in self.axes for f in axis if isinstance(f, str)))

    def sizes(self, size_of: Callable[[str], int]) -> tuple[int, ...]:
        """The size of each axis, given the size of each dim."""
        out = []
        for axis in self.axes:
            size: int = 1
            for factor in axis:
                size = size * (size_of(factor) if isinstance(factor, str) else factor)
            out.append(size)
        return tuple(out)

    def __str__(self) -> str:
        short = next(k for k, v in DTYPES.items() if v is self.dtype)
        axes = ", ".join(" ".join(map(str, a)) if len(a) == 1 else "(" + " ".join(map(str, a)) + ")" for a in self.axes)
        return f"{short}[{axes}]"


def spec(text: str, *, grad: bool = False) -> Spec:
    """Parse a spec; ``grad=True`` says that the input itself wants a gradient.

    Raises `SpecError` with the text and what cannot be read in it.
    """
    body, dtype = text, torch.float32
    typed = _TYPED.fullmatch(text)
    if typed:
        short, body = typed.groups()
        if short not in DTYPES:
            raise SpecError(f"spec {text!r}: unknown dtype {short!r}; known are {', '.join(DTYPES)}")
        dtype = DTYPES[short]
    axes: list[tuple[str | int, ...]] = []
    group: list[str | int] | None = None
    for token in _TOKEN.findall(body.replace(",", " ")):
        if token == "(" and group is None:
            group = []
        elif token == ")" and group is not None:
            axes.append(tuple(group))
            group = None
        elif token.isdigit() or token.isidentifier():
            factor = int(token) if token.isdigit() else token
            if group is None:
                axes.append((factor,))
            else:
                group.append(factor)
        else:
            raise SpecError(
                f"spec {text!r}: cannot read {token!r}; write dims and numbers, as in 'B L D', 'i64[B, L]' "
                "or 'bf16[B, (H Dh)]'"
            )
    if group is not None:
        raise SpecError(f"spec {text!r}: '(' without ')'")
    return Spec(tuple(axes), dtype, grad)


def read_specs(tree: Any) -> Any:
    """A pytree of specs in their parsed form: strings and annotations become `Spec`, the rest stays."""
    if isinstance(tree, str):
        return spec(tree)
    if isinstance(tree, type) and hasattr(tree, "dim_str") and hasattr(tree, "dtypes"):
        return from_jaxtyping(tree)
    if isinstance(tree, (list, tuple)):
        return _like(tree, [read_specs(v) for v in tree])
    if isinstance(tree, dict):
        return type(tree)((k, read_specs(v)) for k, v in tree.items())
    if dataclasses.is_dataclass(tree) and not isinstance(tree, (type, Spec)):
        changes = {f.name: read_specs(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **changes)
    return tree


def _like(tree: Any, items: list[Any]) -> Any:
    """Items in a list or tuple of the same type; a named tuple takes them one by one."""
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def from_jaxtyping(annotation: Any) -> Spec:
    """The spec of a jaxtyping annotation such as ``Float32[Tensor, "B L D"]``."""
    by_name = {str(d).removeprefix("torch."): d for d in DTYPES.values()}
    names = [d for d in annotation.dtypes if d in by_name] if isinstance(annotation.dtypes, (list, tuple)) else []
    dtype = torch.float32 if not names or "float32" in names else by_name[names[0]]
    if names and "int64" in names and "float32" not in names:
        dtype = torch.int64
    return Spec(spec(annotation.dim_str).axes, dtype)


def make_inputs(
    tree: Any, size_of: Callable[[str], int], make: Callable[[tuple[int, ...], Spec], Any], adopt: Callable[[Any], Any]
) -> Any:
    """Tensors for a pytree of specs; real tensors go through ``adopt``, other values stay."""
    if isinstance(tree, Spec):
        return make(tree.sizes(size_of), tree)
    if isinstance(tree, torch.Tensor):
        return adopt(tree)
    if isinstance(tree, (list, tuple)):
        return _like(tree, [make_inputs(v, size_of, make, adopt) for v in tree])
    if isinstance(tree, dict):
        return type(tree)((k, make_inputs(v, size_of, make, adopt)) for k, v in tree.items())
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        changes = {f.name: make_inputs(getattr(tree, f.name), size_of, make, adopt) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **changes)
    if isinstance(tree, Dim):
        return tree
    leaves, form = pytree.tree_flatten(tree)
    if len(leaves) == 1 and leaves[0] is tree:
        return tree
    return pytree.tree_unflatten([make_inputs(v, size_of, make, adopt) for v in leaves], form)


def names_in(tree: Any) -> tuple[str, ...]:
    """All dims that a pytree of parsed specs names, in order."""
    found: dict[str, None] = {}

    def visit(sizes: tuple[int, ...], s: Spec) -> None:
        found.update(dict.fromkeys(s.names))

    make_inputs(tree, lambda _: 1, visit, lambda t: t)
    return tuple(found)
