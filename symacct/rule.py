"""Rules: which function gives the cost of which operator.

A `Rules` value holds functions by operator name and adds to another with ``+``
(the right side wins). A family of operators is one file that makes one value::

    rules = Rules("matrix products")

    @rules.flops("aten.mm", "m k, k n -> m n")
    def matmul(m, k, n):
        return 2 * m * k * n

A rule's parameters are axes of its pattern, arguments of the operator by their
schema name, or ``call`` for the whole `Call`. An operator is known once it has a
rule of any kind; what no rule speaks of then defaults as follows. FLOPs and
pointwise are 0. Bytes: each distinct input region is read once and each output
written once. Views are free by their nature and need no rule. An operator without any rule
is unknown, which is never the same as free.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from symacct.cost import Call, Cost, Size, TensorMeta, tensors
from symacct.errors import RuleError
from symacct.pattern import Pattern, parse

RuleFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One function for one aspect of one operator."""

    key: str
    aspect: str  # "flops", "pointwise" or "bytes"
    function: RuleFunction
    pattern: Pattern | None = None
    family: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that the function asks for."""
        return tuple(inspect.signature(self.function).parameters)

    def __call__(self, call: Call) -> Any:
        bound = self.pattern.bind(call) if self.pattern else {}
        kwargs = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name == "call":
                kwargs[name] = call
            elif name in bound:
                kwargs[name] = bound[name]
            elif name in call.args:
                kwargs[name] = call.args[name]
            elif parameter.default is inspect.Parameter.empty:
                raise RuleError(
                    f"rule {self.function.__name__!r} for {call.op} asks for {name!r}, which is neither an axis of "
                    f"{self.pattern.text if self.pattern else 'its (absent) pattern'!r} nor an argument of the op "
                    f"({', '.join(call.args)})"
                )
        return self.function(**kwargs)


def default_bytes(call: Call) -> tuple[Size, Size]:
    """Each distinct input region read once, each output written once; an ``out=`` argument is only written."""
    return _overwrite(call) if call.op.endswith("out") else (read(*call.inputs), written(call))


def read(*inputs: TensorMeta | None) -> Size:
    """Bytes of the distinct regions among these tensors."""
    total: Size = 0
    for meta in dict.fromkeys(t for t in inputs if t is not None):
        total = total + meta.nbytes
    return total


def written(call: Call) -> Size:
    """Bytes of the distinct results of a call."""
    return read(*call.outputs)


@dataclass
class Rules:
    """Rules by operator name; ``in``, iteration, ``len`` and ``+`` work as expected."""

    family: str = ""
    table: dict[str, dict[str, Rule]] = field(default_factory=dict)

    # -- writing rules ---------------------------------------------------------

    def flops(self, key: str, pattern: str | None = None) -> Callable[[RuleFunction], RuleFunction]:
        """Decorate the function that counts contractions (2 per multiply-add)."""
        return self._decorate("flops", (key,), pattern)

    def pointwise(self, key: str, pattern: str | None = None) -> Callable[[RuleFunction], RuleFunction]:
        """Decorate the function that counts all other arithmetic, in FLOP."""
        return self._decorate("pointwise", (key,), pattern)

    def bytes(self, key: str, pattern: str | None = None) -> Callable[[RuleFunction], RuleFunction]:
        """Decorate the function that returns (bytes read, bytes written)."""
        return self._decorate("bytes", (key,), pattern)

    def no_arithmetic(self, *keys: str) -> None:
        """Declare ops that move bytes by the default and compute nothing."""
        self._decorate("pointwise", keys, None)(_nothing)

    def overwrites(self, *keys: str) -> None:
        """Declare that these ops write their in-place argument without reading it."""
        self._decorate("bytes", keys, None)(_overwrite)

    def free(self, *keys: str) -> None:
        """Declare ops that cost nothing at all: no arithmetic, no bytes."""
        self._decorate("pointwise", keys, None)(_nothing)
        self._decorate("bytes", keys, None)(_no_bytes)

    def elementwise(self, weight: int, *keys: str, complex_weight: int | None = None) -> None:
        """Declare ops that do ``weight`` FLOP for each output element.

        ``complex_weight`` (default: twice the weight) is for complex elements.
        """
        heavy = 2 * weight if complex_weight is None else complex_weight

        def elementwise(call: Call) -> Size:
            out = call.outputs[0]
            return (heavy if out.is_complex else weight) * out.numel

        self._decorate("pointwise", keys, None)(elementwise)

    def _decorate(
        self, aspect: str, keys: tuple[str, ...], pattern: str | None
    ) -> Callable[[RuleFunction], RuleFunction]:
        parsed = parse(pattern) if pattern is not None else None

        def decorate(function: RuleFunction) -> RuleFunction:
            for key in keys:
                if key.count(".") < 1:
                    raise RuleError(f"rule key {key!r}: expected 'namespace.op' or 'namespace.op.overload'")
                self.table.setdefault(key, {})[aspect] = Rule(key, aspect, function, parsed, self.family)
            return function

        return decorate

    # -- reading rules ---------------------------------------------------------

    def find(self, op: str) -> dict[str, Rule] | None:
        """The rules of an operator, by its overload, then its name, then its functional form."""
        for key in candidates(op):
            if key in self.table:
                return self.table[key]
        return None

    def cost(self, call: Call) -> Cost | None:
        """The cost of a call, or None when no rule knows its operator."""
        if call.is_view:
            return Cost()
        found = self.find(call.op)
        if found is None:
            return self._foreach(call)
        read_bytes, written_bytes = found["bytes"](call) if "bytes" in found else default_bytes(call)
        flops = found["flops"](call) if "flops" in found else 0
        if flops != 0 and any(t.is_complex for t in call.outputs):
            flops = 4 * flops  # a complex multiply-add is four real ones
        return Cost(flops, found["pointwise"](call) if "pointwise" in found else 0, read_bytes, written_bytes)

    def _foreach(self, call: Call) -> Cost | None:
        """``aten._foreach_add_`` over lists is ``aten.add`` over each of their tensors."""
        namespace, _, rest = call.op.partition(".")
        name, _, overload = rest.partition(".")
        if not name.startswith("_foreach_"):
            return None
        op = f"{namespace}.{name.removeprefix('_foreach_')}"
        total: Cost | None = None
        for each in _each(call):
            cost = self.cost(each.with_op(f"{op}.{overload}" if overload else op))
            if cost is None:
                return None
            total = cost if total is None else total + cost
        return total if total is not None else Cost()

    def __contains__(self, op: str) -> bool:
        return self.find(op) is not None

    def __iter__(self) -> Iterator[Rule]:
        return (rule for aspects in self.table.values() for rule in aspects.values())

    def __len__(self) -> int:
        return len(self.table)

    def __add__(self, other: Rules) -> Rules:
        table = {key: dict(aspects) for key, aspects in self.table.items()}
        for key, aspects in other.table.items():
            table[key] = dict(aspects)
        name = " + ".join(n for n in (self.family, other.family) if n)
        return Rules(name, table)

    def __repr__(self) -> str:
        return f"<Rules {self.family!r}: {len(self.table)} ops>"


def candidates(op: str) -> Iterator[str]:
    """The keys under which an operator may stand: most special first."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    names = [name]
    if name.endswith("_") and not name.endswith("__"):
        names.append(name[:-1])
    for each in names:
        if overload:
            yield f"{namespace}.{each}.{overload}"
        yield f"{namespace}.{each}"


def _each(call: Call) -> Iterator[Call]:
    lists = {n: v for n, v in call.args.items() if isinstance(v, (list, tuple)) and tensors(v)}
    count = max((len(v) for v in lists.values()), default=0)
    for i in range(count):
        args = {n: v[i] if isinstance(v, (list, tuple)) and len(v) == count else v for n, v in call.args.items()}
        outputs = call.outputs[i : i + 1]
        yield Call(call.op, args, outputs, call.mutated)


def _nothing() -> int:
    return 0


def _no_bytes() -> tuple[int, int]:
    return 0, 0


def _overwrite(call: Call) -> tuple[Size, Size]:
    return read(*(t for name, v in call.args.items() if name not in call.mutated for t in tensors(v))), written(call)
