"""What each node of an account is for: product with a parameter, attention, head, lookup, softmax, and so on.

Found by following tensors from the parameters and the inputs through the graph, never by the names of modules:

- *weights*: a product (or convolution) with an operand that comes from parameters and from no data.
- *head*: a product with the table of a token embedding, or with a parameter that has as many outputs as that
  table has rows where no later product depends on the result.
- *scores*, *values*: two products of data with a softmax between them, or the products of a fused attention.
- *embedding*, *position*: a lookup in a table, by an input as it came, and by anything else.
- *contraction*: any other product, such as that of a state-space scan or of rotary frequencies.

A node of the backward pass has the role of its forward node. What a softmax written out by hand surrounds is a
plain contraction. Stands beside `graph`: it reads an `Account` and makes nothing but this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sympy

from symacct.calls import operator_of
from symacct.cost import Call, Cost, Size, product, tensors
from symacct.record import Node, Value, values_in
from symacct.rules.attention import PACKED, SDPA, padded
from symacct.rules.matmul import ADDED, matmul

if TYPE_CHECKING:
    from symacct.account import Account

PRODUCTS = ("weights", "head", "scores", "values", "contraction")
POINTWISE = (
    "bias", "convolution bias", "embedding", "position", "softmax", "normalisation", "fixed normalisation",
    "rms normalisation", "activation", "dropout", "residual", "pooling", "loss", "pointwise",
)  # fmt: skip
PARAMETERS = ("matrix", "vector", "embedding", "position", "tied", "head")

_ACTIVATIONS = frozenset((
    "relu", "relu6", "gelu", "silu", "mish", "elu", "celu", "selu", "leaky_relu", "_prelu_kernel", "hardtanh",
    "hardsigmoid", "hardswish", "softplus", "glu", "sigmoid", "tanh", "threshold",
))  # fmt: skip
_FAMILIES = {"softmax": "softmax", "losses": "loss", "pooling": "pooling", "normalisation": "normalisation"}
_CASTS = frozenset(("_to_copy", "clone", "detach", "contiguous", "alias"))
_DRAWS = frozenset(("bernoulli", "rand", "rand_like", "uniform"))
_ADDED = frozenset(name.split(".")[1] for name in ADDED)


@dataclass(frozen=True, slots=True)
class Attention:
    """Whose scores: how many queries and keys, and what the program tells of its mask.

    ``causal`` is None where the operator cannot tell: in eager attention, and where a mask is given as a tensor.
    """

    queries: Size
    keys: Size
    causal: bool | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a node's arithmetic.

    ``flops``: contractions, 2 per multiply-add. ``pointwise``: other FLOP as the account counts them. ``elements``:
    of the result. ``rows``: of the table, for a lookup. ``again``: products that fused attention repeats in backward.
    """

    role: str
    flops: Size = 0
    pointwise: Size = 0
    elements: Size = 0
    rows: Size = 0
    attention: Attention | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its kind (one of `PARAMETERS`), its size, and the forward node that uses it first (-1: none)."""

    name: str
    kind: str
    numel: Size
    node: int = -1


@dataclass(frozen=True)
class Roles:
    """The parts of each node, the parameters by kind, and the number of tokens (None where nothing tells it)."""

    parts: tuple[tuple[Part, ...], ...]
    parameters: tuple[Parameter, ...]
    tokens: Size | None


def roles_of(account: Account) -> Roles:
    """The roles of an account's nodes, found once per account."""
    kept = account.symbolic.__dict__
    if "_roles" not in kept:
        kept["_roles"] = _Flow(account.symbolic).roles()
    found: Roles = kept["_roles"]
    return found


@dataclass(frozen=True, slots=True)
class _Trait:
    """What is known of a tensor: whether data went into it, which parameters, which products and softmaxes."""

    data: bool = True
    weights: frozenset[str] = frozenset()
    index: bool = False  # an input as it came
    scores: frozenset[int] = frozenset()  # products of data that it is a pointwise image of
    softmax: frozenset[int] = frozenset()
    mark: str = ""  # "random", or how far it is on the way to the root of a mean square


@dataclass(frozen=True, slots=True)
class _Used:
    """A product with parameters: which, the size of its last axis, and the tensors that it makes."""

    node: int
    weights: frozenset[str]
    outputs: Size
    made: frozenset[int]


class _Flow:
    """One walk along the forward pass (and what checkpoints computed again), then one over the backward pass."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.record = account.step.record
        self.traits: dict[int, _Trait] = {}
        self.touched: set[int] = set()  # storages that data was written into
        self.parts: list[tuple[Part, ...]] = [()] * len(self.record.nodes)
        self.used: list[_Used] = []
        self.first: dict[str, int] = {}  # the first forward node that a parameter goes into
        self.tables: dict[str, tuple[str, Size]] = {}  # parameter: role of the lookup, rows
        self.lengths: dict[int, Attention] = {}  # by softmax
        self.asked: dict[int, frozenset[int]] = {}  # by softmax: the products that may be its scores
        self.tokens: Size | None = None

    def roles(self) -> Roles:
        """Walk, then settle what only the whole graph tells."""
        for node in self.record.nodes:
            if node.phase in ("forward", "recompute"):
                self._visit(node)
        heads = self._heads()
        for node in self.record.nodes:
            if node.phase in ("backward", "optimizer"):
                self._follow(node)
        return Roles(tuple(self.parts), tuple(self._parameters(heads)), self.tokens or self._rows())

    # -- the forward pass --------------------------------------------------------------

    def _of(self, value: Value) -> _Trait:
        found = self.traits.get(value.id)
        if found is None:
            outside = value.origin in ("param", "buffer", "constant", "random state")
            names = frozenset([value.name]) if value.origin == "param" else frozenset[str]()
            found = self.traits[value.id] = _Trait(not outside, names, value.origin == "input")
        return replace(found, data=True) if value.storage in self.touched and not found.data else found

    def _visit(self, node: Node) -> None:
        call, cost = self.record.calls[node.call], self.account._costs[node.call]
        bound = dict(zip(operator_of(node.func).arguments, node.args, strict=False)) | node.kwargs
        values = list(values_in(tuple(bound.values())))
        traits = [self._of(v) for v in values]
        name = node.op.split(".")[1]
        for weight in frozenset[str]().union(*(t.weights for t in traits if not t.data)):
            if node.phase == "forward" and not call.is_view:
                self.first.setdefault(weight, node.index)
        made = self._trait(name, call, traits)
        if cost is None:
            parts: tuple[Part, ...] = ()
        elif cost.flops != 0:
            parts, made = self._product(node, call, cost, bound, made)
        else:
            parts, made = self._pointwise(node, call, cost, bound, traits, made)
        self.parts[node.index] = parts
        for value in node.outputs:
            if isinstance(value, Value):
                self.traits[value.id] = made
                if call.mutated and made.data:
                    self.touched.add(value.storage)

    def _trait(self, name: str, call: Call, traits: list[_Trait]) -> _Trait:
        """What holds for a result where nothing special does."""
        if name.endswith("_like") or name.startswith("new_"):
            return _Trait(data=False)
        data = any(t.data for t in traits)
        weights = frozenset[str]().union(*(t.weights for t in traits)) if not data else frozenset[str]()
        same = call.is_view or name in _CASTS
        first = traits[0] if traits else _Trait()
        scores = frozenset[int]().union(*(t.scores for t in traits))
        softmax = frozenset[int]().union(*(t.softmax for t in traits))
        passing = same or name in ("add", "add_")  # in which eps is added to a mean square
        mark = "random" if not data and any(t.mark == "random" for t in traits) else first.mark if passing else ""
        return _Trait(data, weights, same and first.index, scores, softmax, mark)

    def _product(
        self, node: Node, call: Call, cost: Cost, bound: dict[str, Any], made: _Trait
    ) -> tuple[tuple[Part, ...], _Trait]:
        name, outputs = node.op.split(".")[1], call.outputs[0]
        made = replace(made, index=False, scores=frozenset(), softmax=frozenset(), mark="")
        if _in(node.op, (*SDPA, *PACKED)):
            return _fused(node.op, call, cost), made
        left_out = ("bias", "self") if name in _ADDED else ("bias",)
        factors = [v for key, arg in bound.items() if key not in left_out for v in values_in(arg)]
        traits = [self._of(v) for v in factors]
        weights = frozenset[str]().union(*(t.weights for t in traits if not t.data))
        kind = "convolution bias" if "conv" in name else "bias"
        bias = (Part(kind, pointwise=cost.pointwise, elements=outputs.numel),) if cost.pointwise != 0 else ()
        if weights:
            ids = frozenset(v.id for v in node.outputs if isinstance(v, Value))
            size = outputs.shape[-1] if outputs.shape else 1
            self.used.append(_Used(node.index, weights, size, ids))
            return (Part("weights", cost.flops), *bias), made
        attended = frozenset[int]().union(*(t.softmax for t in traits))
        self.parts[node.index] = (Part("contraction", cost.flops), *bias)
        for softmax in attended:
            self._attend(node.index, softmax)
        if all(t.data for t in traits):
            made = replace(made, scores=frozenset([node.index]))
        return self.parts[node.index], made

    def _attend(self, values: int, softmax: int) -> None:
        """A product with the result of a softmax of products: both are attention."""
        if not self.asked[softmax]:
            return
        found = self.lengths[softmax]
        for index in self.asked[softmax]:
            first, *rest = self.parts[index]
            self.parts[index] = (replace(first, role="scores", attention=found), *rest)
        first, *rest = self.parts[values]
        self.parts[values] = (replace(first, role="values", attention=found), *rest)
        self.parts[softmax] = tuple(replace(p, attention=found) for p in self.parts[softmax])

    def _pointwise(
        self, node: Node, call: Call, cost: Cost, bound: dict[str, Any], traits: list[_Trait], made: _Trait
    ) -> tuple[tuple[Part, ...], _Trait]:
        name = node.op.split(".")[1]
        plain = name.removesuffix("_") if not name.endswith("__") else name
        if plain == "embedding":
            return self._lookup(call, bound, cost), replace(made, mark="")
        if plain in _DRAWS or plain == "native_dropout":
            made = replace(made, mark="random", data=made.data and plain == "native_dropout")
        role = self._role(plain, node.op, call, traits)
        if role == "softmax":
            shape = call.outputs[0].shape
            queries, keys = shape[-2] if len(shape) > 1 else 1, shape[-1] if shape else 1
            self.lengths[node.index], self.asked[node.index] = Attention(queries, keys), made.scores
            made = replace(made, scores=frozenset(), softmax=frozenset([node.index]))
        elements = call.outputs[0].numel if call.outputs else 0
        marks = {t.mark for t in traits}
        if plain == "square" or (plain == "pow" and 2 in call.args.values()):
            made = replace(made, mark="square")
        elif plain == "mean" and "square" in marks:
            # RMS norm as models write it: its elements are those that the mean is taken of.
            role, elements, made = "rms normalisation", call.inputs[0].numel, replace(made, mark="mean square")
        elif plain == "rsqrt" and "mean square" in marks:
            role, elements, made = "rms normalisation", 0, replace(made, mark="root")
        elif plain == "mul" and "root" in marks:
            role, elements = "rms normalisation", 0
        if cost.pointwise == 0 and role == "pointwise":
            return (), made
        return (Part(role, pointwise=cost.pointwise, elements=elements),), made

    def _role(self, plain: str, op: str, call: Call, traits: list[_Trait]) -> str:
        rules = self.account.rules.find(op) or {}
        family = next((rule.family for rule in rules.values()), "")
        if "log_softmax" in plain:
            return "loss"
        if "rms_norm" in plain:
            return "rms normalisation"
        if family == "normalisation":
            given = call.args.get("training") is False or "no_training" in plain or "no_update" in plain
            return "fixed normalisation" if given else "normalisation"
        if family in _FAMILIES:
            return _FAMILIES[family]
        if plain in _ACTIVATIONS:
            return "activation"
        drawn = any(t.mark == "random" and not t.data for t in traits)
        if plain == "native_dropout" or (plain == "mul" and drawn and any(t.data for t in traits)):
            return "dropout"
        shapes = {t.shape for t in call.inputs}
        if plain == "add" and len(traits) == 2 and all(t.data for t in traits) and len(shapes) == 1:
            return "residual"
        return "pointwise"

    def _lookup(self, call: Call, bound: dict[str, Any], cost: Cost) -> tuple[Part, ...]:
        table, indices = bound["weight"], bound["indices"]
        weights, index = self._of(table).weights, self._of(indices).index
        if not weights:
            return (Part("pointwise", pointwise=cost.pointwise),)
        role = "embedding" if index else "position"
        rows = call.args["weight"].shape[0]
        for name in weights:
            if self.tables.get(name, ("position",))[0] == "position":
                self.tables[name] = (role, rows)
        if index and self.tokens is None:
            self.tokens = call.args["indices"].numel
        return (Part(role, pointwise=cost.pointwise, elements=call.outputs[0].numel, rows=rows),)

    # -- the head, the parameters ------------------------------------------------------

    def _heads(self) -> frozenset[str]:
        """Mark the products of the head; the parameters that they are with."""
        tables = {name for name, (role, _) in self.tables.items() if role == "embedding"}
        vocabularies = {rows for role, rows in self.tables.values() if role == "embedding"}
        feeds: set[int] = set()
        for node in reversed(self.record.nodes):
            made = (v.id for v in node.outputs if isinstance(v, Value))
            if node.phase == "forward" and (self._contracts(node) or not feeds.isdisjoint(made)):
                feeds.update(v.id for v in values_in((node.args, tuple(node.kwargs.values()))))
        heads: set[str] = set()
        for used in self.used:
            last = used.outputs in vocabularies and feeds.isdisjoint(used.made)
            if used.weights & tables or last:
                heads |= used.weights
                first, *rest = self.parts[used.node]
                self.parts[used.node] = (replace(first, role="head"), *rest)
        return frozenset(heads)

    def _contracts(self, node: Node) -> bool:
        cost = self.account._costs[node.call]
        return cost is not None and cost.flops != 0

    def _parameters(self, heads: frozenset[str]) -> Iterator[Parameter]:
        for held in self.account.step.parameters:
            role, _ = self.tables.get(held.name, ("", 0))
            kind = "matrix" if len(held.meta.shape) > 1 else "vector"
            if role == "embedding":
                kind = "tied" if held.name in heads else "embedding"
            elif role == "position":
                kind = "position"
            elif kind == "matrix" and held.name in heads:
                kind = "head"
            yield Parameter(held.name, kind, held.meta.numel, self.first.get(held.name, -1))

    def _rows(self) -> Size | None:
        """Where no token is looked up: the leading axes of the first input, if those are all but one."""
        for value in self.record.values:
            if value.origin == "input":
                shape = self.record.layouts[value.layout][0]
                return product(shape[:-1]) if 1 < len(shape) <= 3 else None
        return None

    # -- the backward pass -------------------------------------------------------------

    def _follow(self, node: Node) -> None:
        call, cost = self.record.calls[node.call], self.account._costs[node.call]
        if cost is None:
            return
        if node.phase == "optimizer":
            self.parts[node.index] = (Part("optimizer", cost.flops, cost.pointwise),)
            return
        forward = self.parts[node.forward] if node.forward >= 0 else ()
        factors = [p for p in forward if p.flops != 0]
        parts: list[Part] = []
        if cost.flops != 0:
            again = _fused_again(factors, cost.flops)
            first = factors[0] if factors else Part("contraction")
            parts = again or [Part(first.role, cost.flops, attention=first.attention)]
        pointwise = [p for p in forward if p.flops == 0]
        role = pointwise[0].role if pointwise else "pointwise"
        if role in ("embedding", "position") and "embedding" in node.op:
            parts.append(Part(role, 0, cost.pointwise, tensors(call.args["grad_output"])[0].numel, pointwise[0].rows))
        elif cost.pointwise != 0:
            attention = pointwise[0].attention if pointwise else None
            kept = 0 if role in ("embedding", "position") else call.outputs[0].numel
            parts.append(Part(role, 0, cost.pointwise, kept, attention=attention))
        self.parts[node.index] = tuple(parts)


def _fused(op: str, call: Call, cost: Cost) -> tuple[Part, ...]:
    """Scores, values and softmax of a fused attention, in the heads of the query."""
    args = call.args
    if _in(op, PACKED):
        heads, s, t, d, e = padded(call)
    else:
        query, key, value = args["query"], args["key"], args["value"]
        heads, s, t, d, e = query.shape[:-2], query.shape[-2], key.shape[-2], query.shape[-1], value.shape[-1]
    left = args.get("window_size_left")
    window = left + 1 if isinstance(left, int) and left >= 0 else None
    told = bool(args.get("is_causal")) or args.get("custom_mask_type") in (1, 2) or window is not None
    masked = any(args.get(name) is not None for name in ("attn_mask", "attn_bias", "bias"))
    attention = Attention(s, t, True if told else None if masked else False, window)
    count = product(heads)
    return (
        Part("scores", matmul(b=count, m=s, k=d, n=t), attention=attention),
        Part("values", matmul(b=count, m=s, k=t, n=e), attention=attention),
        Part("softmax", pointwise=cost.pointwise, elements=count * s * t, attention=attention),
    )


def _fused_again(factors: list[Part], flops: Size) -> list[Part]:
    """The five products of a fused attention's backward: the scores again, and two for each product."""
    if [p.role for p in factors] != ["scores", "values"]:
        return []
    scores, values = factors
    parts = [replace(scores, again=True), replace(scores, flops=2 * scores.flops)]
    parts.append(replace(values, flops=2 * values.flops))
    counted = sympy.Add(*(p.flops for p in parts))
    return parts if sympy.expand(counted - flops) == 0 else []


def _in(op: str, names: tuple[str, ...]) -> bool:
    return op.rpartition(".")[0] in names or op in names
