"""The symbolic ints behind ``torch.SymInt``.

torch lets any Python object stand behind a SymInt as long as it answers a fixed set
of methods (those of ``torch.fx.experimental.sym_node.SymNode``). Ours answers from a
`Dim`, so symbolic sizes cost a dictionary lookup, and every question that torch asks
of a size is seen where it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from symacct import dim as sym
from symacct.algebra import RELATIONS
from symacct.dim import Dim


class _Node:
    """What all our nodes answer alike: no node of ours is ever unknown."""

    __slots__ = ()

    def is_int(self) -> bool:
        return False

    is_float = is_bool = is_nested_int = is_symbolic = is_int

    def is_constant(self) -> bool:
        return True

    has_hint = is_constant

    def nested_int(self) -> Any:
        return None

    constant_int = constant_bool = maybe_as_int = maybe_as_float = maybe_as_bool = nested_int

    def clone(self) -> _Node:
        return self

    def wrap_int(self, value: int) -> SymNode:
        return node_of(value)

    def wrap_bool(self, value: bool) -> _BoolNode:
        return _BoolNode(value)

    def wrap_float(self, value: float) -> _FloatNode:
        return _FloatNode(value)


class _BoolNode(_Node):
    """The answer to a comparison. It is decided, and recorded, when it is made."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def is_bool(self) -> bool:
        return True

    def guard_bool(self, file: str, line: int) -> bool:
        return self.value

    expect_true = guard_size_oblivious = guard_or_false = guard_or_true = statically_known_true = guard_bool

    def bool_(self) -> bool:
        return self.value

    constant_bool = maybe_as_bool = bool_

    def sym_and(self, other: _BoolNode) -> _BoolNode:
        return _BoolNode(self.value and other.value)

    def sym_or(self, other: _BoolNode) -> _BoolNode:
        return _BoolNode(self.value or other.value)

    def sym_not(self) -> _BoolNode:
        return _BoolNode(not self.value)

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return then if self.value else otherwise

    def str(self) -> str:
        return repr(self.value)

    _graph_repr = str


class _FloatNode(_Node):
    """A float that came from a size. Floats are values, never costs, so no symbol is kept."""

    __slots__ = ("hint",)

    def __init__(self, value: float) -> None:
        self.hint = value

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False  # torch's Python side knows constant ints and bools only

    def guard_float(self, file: str, line: int) -> float:
        return self.hint

    def neg(self) -> _FloatNode:
        return _FloatNode(-self.hint)

    def abs(self) -> _FloatNode:
        return _FloatNode(abs(self.hint))

    def floor(self) -> SymNode:
        return node_of(math.floor(self.hint))

    def ceil(self) -> SymNode:
        return node_of(math.ceil(self.hint))

    def trunc(self) -> SymNode:
        return node_of(math.trunc(self.hint))

    def maybe_as_float(self) -> Any:
        return self.hint

    def str(self) -> str:
        return repr(self.hint)

    _graph_repr = str


def _float_binary(name: str, function: Callable[..., Any]) -> None:
    def method(self: _FloatNode, other: Any) -> Any:
        result = function(self.hint, other.hint)
        return _BoolNode(result) if isinstance(result, bool) else _FloatNode(result)

    setattr(_FloatNode, name, method)


_FLOATS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "float_truediv": lambda a, b: a / b,
    "float_pow": lambda a, b: a**b,
    "pow": lambda a, b: a**b,
    "sym_max": max,
    "sym_min": min,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
for _name, _function in _FLOATS.items():
    _float_binary(_name, _function)


class SymNode(_Node):
    """The node behind a ``torch.SymInt``: an int or a `Dim`."""

    __slots__ = ("dim",)

    def __init__(self, dim: int) -> None:
        self.dim = dim

    @property
    def expr(self) -> Any:
        """The SymPy expression."""
        return sym.expr_of(self.dim)

    @property
    def hint(self) -> int:
        """The trial size."""
        return sym.plain(self.dim)

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return type(self.dim) is int

    def is_symbolic(self) -> bool:
        return type(self.dim) is not int

    def maybe_as_int(self) -> Any:
        return self.dim if type(self.dim) is int else None

    constant_int = maybe_as_int

    def guard_int(self, file: str, line: int) -> int:
        """A kernel takes the number itself: from here on the symbol is fixed to its trial size."""
        if isinstance(self.dim, Dim) and file:
            sym.specialize(self.dim)
        return sym.plain(self.dim)

    def int_(self) -> int:
        """Python takes the number: for a float (a scale, a gain), or for a size, which other sizes will show."""
        return sym.plain(self.dim)

    def guard_float(self, file: str, line: int) -> float:
        return float(sym.plain(self.dim))

    def expect_size(self, file: str, line: int) -> bool:
        return True

    def sym_float(self) -> _FloatNode:
        return _FloatNode(float(sym.plain(self.dim)))

    def truediv(self, other: Any) -> _FloatNode:
        return _FloatNode(sym.plain(self.dim) / other.hint)

    int_truediv = float_truediv = truediv

    def neg(self) -> SymNode:
        return node_of(-self.dim)

    def sym_sum(self, nodes: Any) -> SymNode:
        total: int = 0
        for node in nodes:
            total = total + node.dim
        return node_of(total)

    def floor(self) -> SymNode:
        return self

    ceil = round = trunc = floor

    def str(self) -> str:
        return repr(self.dim)

    _graph_repr = __repr__ = str


def _int_binary(name: str, op: str) -> None:
    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = self.dim, other.dim
        if type(a) is int and type(b) is int:
            return node_of(sym.VALUE[op](a, b))
        return node_of(sym.arithmetic(op, a, b))

    setattr(SymNode, name, method)


def _int_comparison(name: str, relation: str) -> None:
    def method(self: SymNode, other: SymNode) -> _BoolNode:
        a, b = self.dim, other.dim
        if type(a) is int and type(b) is int:
            return _YES if RELATIONS[relation](a, b) else _NO
        return _YES if sym.compare(relation, a, b, by_user=False) else _NO

    setattr(SymNode, name, method)


_YES, _NO = _BoolNode(True), _BoolNode(False)
_nodes: dict[int, SymNode] = {}  # of small plain ints


def node_of(value: int) -> SymNode:
    """The one node of a dim, or one of a plain int."""
    if type(value) is Dim:
        node = value.__dict__.get("node")
        if node is None:
            node = value.__dict__["node"] = SymNode(value)
        return node
    node = _nodes.get(value)
    if node is None:
        node = SymNode(value)
        if -8 <= value < 4096:
            _nodes[value] = node
    return node


for _name, _op in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "pow": "pow",
    "pow_by_natural": "pow",
    "floordiv": "floordiv",
    "int_floordiv": "floordiv",
    "mod": "mod",
    "sym_max": "max",
    "sym_min": "min",
}.items():
    _int_binary(_name, _op)
for _name, _op in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    _int_comparison(_name, _op)


def to_symint(dim: Dim) -> torch.SymInt:
    """The ``torch.SymInt`` of a dim; one per dim."""
    made = dim.__dict__.get("symint")
    if made is None:
        made = torch.SymInt(node_of(dim))  # type: ignore[no-untyped-call]
        dim.__dict__["symint"] = made
    return made


def from_symint(value: Any) -> Any:
    """The dim (or int) behind a ``torch.SymInt``; floats and bools that came from sizes likewise."""
    if isinstance(value, torch.SymInt):
        return value.node.dim
    if isinstance(value, torch.SymFloat):
        return value.node.hint
    if isinstance(value, torch.SymBool):
        return value.node.value
    return value
