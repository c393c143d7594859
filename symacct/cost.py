"""Costs, and the calls that they are costs of.

A `Cost` is a frozen value, and costs add. A `Call` is one operator applied to
tensors whose sizes are known as expressions; it is all that a rule may look at.
Nothing in this file needs torch: sizes are ints or SymPy expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Size = Any  # an int or a SymPy expression that stands for one

ITEMSIZE: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip


def product(sizes: Any) -> Size:
    """Multiply sizes; the product of none is 1."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


@dataclass(frozen=True, slots=True)
class Cost:
    """What one node, or many together, costs.

    ``flops``: contractions (matrix products, convolutions, attention products),
    2 per multiply-add. ``pointwise``: all other arithmetic, in FLOP, by the
    weights of `symacct.rules.weights`. ``bytes_read`` and ``bytes_written``:
    logical tensor bytes, each kernel's operands read once and results written once.
    """

    flops: Size = 0
    pointwise: Size = 0
    bytes_read: Size = 0
    bytes_written: Size = 0

    @property
    def bytes(self) -> Size:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> Size:
        """FLOP (contractions and pointwise) per byte; None where no byte moves."""
        if self.bytes == 0:
            return None
        return (self.flops + self.pointwise) / self.bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.pointwise + other.pointwise,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: Size) -> Cost:
        return Cost(
            self.flops * times,
            self.pointwise * times,
            self.bytes_read * times,
            self.bytes_written * times,
        )

    __rmul__ = __mul__


COST_FIELDS = ("flops", "pointwise", "bytes_read", "bytes_written")


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A tensor as a rule sees it: sizes, strides, dtype, and which storage it is in.

    ``storage`` numbers the storages of one call by first appearance, so two
    operands with equal metas are the same region, read once.
    """

    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: str
    storage: int = 0
    offset: Size = 0
    device: str = "cpu"

    @property
    def numel(self) -> Size:
        """Number of elements, an expanded axis counted in full."""
        return product(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return ITEMSIZE[self.dtype]

    @property
    def stored(self) -> Size:
        """Number of elements in memory: an expanded axis (stride 0) holds one."""
        return product(n for n, s in zip(self.shape, self.stride, strict=True) if s != 0)

    @property
    def nbytes(self) -> Size:
        """Bytes of the region in memory that this tensor covers."""
        return self.stored * self.itemsize

    @property
    def is_complex(self) -> bool:
        """Whether an element has a real and an imaginary part."""
        return self.dtype.startswith("complex")


@dataclass(frozen=True, slots=True)
class Call:
    """One operator applied to tensors of known sizes.

    ``op`` is the operator's full name ("aten.add.Tensor"). ``args`` maps the
    schema's argument names, in schema order, to values: a `TensorMeta` (or a
    list of them, or None) for tensors, plain values and sizes for the rest.
    ``mutated`` names the arguments that are written in place. ``outputs`` are
    the results, or for an op that returns nothing what it wrote. ``is_view``
    says that the op moves nothing and its results share the inputs' storage.
    """

    op: str
    args: Mapping[str, Any]
    outputs: tuple[TensorMeta, ...]
    mutated: tuple[str, ...] = ()
    is_view: bool = False

    @property
    def tensor_args(self) -> Iterator[Any]:
        """The tensor-valued arguments in schema order (None where one is absent)."""
        return (v for v in self.args.values() if v is None or _is_tensor(v))

    @property
    def inputs(self) -> tuple[TensorMeta, ...]:
        """All tensors among the arguments, lists flattened, in schema order."""
        return tuple(t for v in self.args.values() for t in tensors(v))

    @property
    def written(self) -> tuple[TensorMeta, ...]:
        """The tensors that are written in place."""
        return tuple(t for name in self.mutated for t in tensors(self.args[name]))

    def with_op(self, op: str, **changes: Any) -> Call:
        """The same call under another name, with changes."""
        return replace(self, op=op, **changes)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorMeta) or (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(v is None or isinstance(v, TensorMeta) for v in value)
    )


def tensors(value: Any) -> tuple[TensorMeta, ...]:
    """The tensors in an argument's value: itself, those of a list, or none."""
    if isinstance(value, TensorMeta):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(v for v in value if isinstance(v, TensorMeta))
    return ()
