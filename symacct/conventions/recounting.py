"""An account counted by a convention.

`under` gives an `Account` of the same graph in which every node's ``flops`` are what the convention says; bytes,
memory and the checks stay those of the account that was traced. What a convention counts and no node did (twice the
forward pass, a forward pass again, a product per parameter) is a node of its own, on the path of the forward node that
it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import quotient, total_of
from symacct.conventions.presets import Convention, pairs, preset
from symacct.conventions.roles import Attention, Part, Roles, roles_of
from symacct.cost import Call, Cost, Size
from symacct.dim import symbol
from symacct.errors import SpecError, UnknownDimError
from symacct.memory import Memory
from symacct.record import Node

Terms = tuple[tuple[str, Size], ...]  # (role, FLOP)
_ENDS = ("embedding", "position", "head", "loss")  # what no recomputation takes in


@dataclass
class Recounted(Account):
    """An account counted by a convention: ``flops`` and ``params`` are what it says, all else is as it was traced.

    ``counted`` is the convention, ``plain`` the account that was traced, ``terms`` what each node adds by role.
    ``pointwise`` holds the account's own count of what the convention does not take into ``flops``.
    """

    counted: Convention = field(default_factory=Convention)
    plain: Account | None = field(default=None, repr=False)
    terms: tuple[Terms, ...] = field(default=(), repr=False)

    def _figure(self, name: str) -> Size:
        """As of the traced account, but for the parameters: those of the kinds that the convention has in N."""
        if name != "params":
            return super()._figure(name)
        kinds = self.counted.params
        counted = (p.numel for p in roles_of(self._traced).parameters if p.kind in kinds)
        return self._value(self._exact(sympy.expand(sympy.Add(*counted))))

    @property
    def convention(self) -> str:
        """The convention in one line."""
        return f"convention {self.counted}; bytes and kernels as traced: {self.lowering}"

    def by_role(self, phase: str | None = None) -> dict[str, Size]:
        """FLOP by what they are for ("weights", "scores", "head", ...). They add up to the total, or to the phase."""
        found: dict[str, Counter[Any]] = {}
        for node, terms in zip(self.step.record.nodes, self.terms, strict=True):
            if phase is None or node.phase == phase:
                for role, flops in terms:
                    found.setdefault(role, Counter())[flops] += 1
        sums = {role: self._value(self._exact(total_of(counter))) for role, counter in found.items()}
        return {role: flops for role, flops in sums.items() if flops != 0}

    @cached_property
    def memory(self) -> Memory:
        """Memory is that of the traced account, at the same sizes."""
        return replace(self._traced, sizes=self.sizes, allocator=self.allocator).memory

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The dims of the traced account, and the window's where it is one."""
        wanted = {*self._traced.dims, self.counted.window}
        return tuple(name for name in self.trial_sizes if name in wanted)

    def check(self, **sizes: int) -> Any:
        """Check the traced account at other sizes."""
        return self._traced.check(**sizes)

    def verify(self, *args: Any, **options: Any) -> Any:
        """Lay the traced account beside a real run."""
        return replace(self._traced, sizes=self.sizes).verify(*args, **options)

    @property
    def _traced(self) -> Account:
        if self.plain is None:
            raise SpecError("a recounted account is made by under(account, convention)")
        return self.plain


def under(account: Account, convention: str | Convention) -> Recounted:
    """The account counted by a convention, given itself or by the name of a preset.

    Raises `SpecError` for a name that is no preset, and where the convention counts by tokens and nothing tells how
    many there are, and `UnknownDimError` where its window or tokens are dims that the account does not have.
    """
    wanted = preset(convention) if isinstance(convention, str) else convention
    plain = replace(account._traced, sizes=account.sizes) if isinstance(account, Recounted) else account
    for name in (*(wanted.tokens or ()), *([wanted.window] if isinstance(wanted.window, str) else [])):
        if name not in plain.trial_sizes:
            known = ", ".join(plain.trial_sizes) or "none"
            raise UnknownDimError(f"under(): there is no dim {name!r}; the account's dims are {known}")
    counting = _Counting(plain, wanted)
    counting.run()
    record = replace(plain.step.record, nodes=counting.nodes, calls=counting.calls)
    values = {f.name: getattr(plain, f.name) for f in fields(Account)}
    values |= {"step": replace(plain.step, record=record), "_costs": counting.costs}
    return Recounted(**values, counted=wanted, plain=plain.symbolic, terms=tuple(counting.terms))


class _Counting:
    """One count of an account: the nodes anew, one call for each old call with what is counted of it."""

    def __init__(self, plain: Account, convention: Convention) -> None:
        self.plain = plain
        self.convention = convention
        self.roles: Roles = roles_of(plain)
        self.own = convention.own_weights
        self.trained = plain.step.trained
        self.scale = sympy.Rational(convention.multiply_add, 2)
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.costs: list[Cost | None] = []
        self.terms: list[Terms] = []
        self._made: dict[Any, int] = {}
        self._flops: dict[Any, Size] = {}

    def run(self) -> None:
        """Count every node, then what the convention counts beside them."""
        nodes = self.plain.step.record.nodes
        for node, parts in zip(nodes, self.roles.parts, strict=True):
            terms = self._terms(node, parts) if self._counted(node.phase) else ()
            self._add(node, terms, self._rest(node, parts), node.call)
        standing = list(self._parameters())
        for node, parts in zip(nodes, self.roles.parts, strict=True):
            if node.phase == "forward":
                standing.append((node, self._terms(node, parts), self._again(node, parts)))
        for node, terms, again in standing:
            self._stand_in(node, terms, again)

    def _counted(self, phase: str) -> bool:
        """Whether the nodes of a phase are counted as they ran."""
        convention = self.convention
        if phase == "backward":
            return convention.multiple is None
        if phase == "recompute":
            return convention.recompute == "recorded"
        return phase == "forward" or convention.optimizer

    # -- what a node counts --------------------------------------------------------------

    def _terms(self, node: Node, parts: tuple[Part, ...]) -> Terms:
        found = []
        for part in parts:
            if node.phase == "backward" and part.role in self.convention.forward_only:
                continue
            flops = self._part(part, self._causal(part.attention, node.path))
            if flops != 0:
                found.append((part.role, flops))
        return tuple(found)

    def _part(self, part: Part, causal: bool) -> Size:
        key = (part, causal)
        if key not in self._flops:
            flops = self._product(part) + self._pointwise(part)
            self._flops[key] = self._visible(flops, part.attention) if causal and flops != 0 else flops
        return self._flops[key]

    def _product(self, part: Part) -> Size:
        convention, role = self.convention, part.role
        by_parameter = convention.weights == "parameters"
        if role in ("embedding", "position"):
            return self._lookup(part)
        if part.flops == 0 or (part.again and convention.fused_backward == 4):
            return 0
        if role in ("scores", "values"):
            return self._scaled(part.flops) if convention.attention else 0
        if by_parameter and role != "optimizer":
            return 0
        share = convention.head if role == "head" else True
        return self._scaled(part.flops) * sympy.sympify(int(share) if isinstance(share, bool) else share)

    def _lookup(self, part: Part) -> Size:
        kind = self.convention.embedding
        if kind == "one-hot, positions too" or (kind == "one-hot" and part.role == "embedding"):
            return self._scaled(2 * part.rows * part.elements)
        return self._scaled(4 * part.elements) if kind == "4d" and part.role == "embedding" else 0

    def _scaled(self, flops: Size) -> Size:
        return flops if self.scale == 1 else flops * self.scale

    def _pointwise(self, part: Part) -> Size:
        if self._counts_bias(part):
            return part.elements
        if part.role in self.own:
            return self.own[part.role] * part.elements
        return part.pointwise if self.convention.pointwise == "in" else 0

    def _counts_bias(self, part: Part) -> bool:
        if part.role not in ("bias", "convolution bias"):
            return False
        wanted = self.convention.bias
        return wanted is True or (wanted == "convolutions" and part.role == "convolution bias")

    def _rest(self, node: Node, parts: tuple[Part, ...]) -> Size:
        """The account's own pointwise of a node, without what the convention has taken into ``flops``."""
        taken: Size = 0
        for part in parts:
            own = part.role in self.own or self._counts_bias(part)
            if self.convention.pointwise == "in" or own:
                taken = taken + part.pointwise
        cost = self.plain._costs[node.call]
        return cost.pointwise - taken if cost is not None else 0

    # -- masks ---------------------------------------------------------------------------

    def _causal(self, attention: Attention | None, path: str) -> bool:
        """Whether a mask is counted: what the program tells, or the user; else as many queries as keys."""
        convention = self.convention
        if attention is None or convention.causal == "full":
            return False
        if convention.causal_in is not None:
            return any(path == p or path.startswith(f"{p}.") or p == "" for p in convention.causal_in)
        if attention.causal is not None:
            return attention.causal
        return bool(sympy.expand(sympy.sympify(attention.queries) - attention.keys) == 0)

    def _visible(self, flops: Size, attention: Attention | None) -> Size:
        """The share of work on scores that a causal mask leaves."""
        if attention is None:
            return flops
        if self.convention.causal == "half":
            return flops / sympy.Integer(2)
        window = self.convention.window if attention.window is None else attention.window
        queries, keys = attention.queries, attention.keys
        each = quotient(sympy.sympify(flops), sympy.sympify(queries) * keys)[0]
        return each * pairs(queries, keys, self.convention.alignment, window)

    # -- what stands beside the nodes ------------------------------------------------------

    def _parameters(self) -> Iterator[tuple[Node, Terms, Terms]]:
        """A product per parameter and token, on the path of the parameter."""
        nodes = self.plain.step.record.nodes
        if self.convention.weights != "parameters" or not nodes:
            return
        tokens = self._tokens()
        for parameter in self.roles.parameters:
            if parameter.kind in self.convention.params:
                flops = self._scaled(2 * parameter.numel * tokens)
                path, _, _ = parameter.name.rpartition(".")
                stands = replace(nodes[max(parameter.node, 0)], path=path)
                terms = ((_STANDS[parameter.kind], flops),)
                self._add(_extra(stands, "forward"), terms, 0, None)
                ends = parameter.kind in ("embedding", "position", "tied", "head")
                yield stands, terms, terms if self.convention.recompute == "full" and not ends else ()

    def _tokens(self) -> Size:
        if self.convention.tokens is not None:
            return sympy.Mul(*map(symbol, self.convention.tokens))
        if self.roles.tokens is None:
            raise SpecError(
                "the convention counts by tokens, and nothing tells how many there are (no token embedding, and a "
                "first input that is not (tokens, features)); name the dims, such as Convention(..., tokens=('B', 'L'))"
            )
        return self.roles.tokens

    def _again(self, node: Node, parts: tuple[Part, ...]) -> Terms:
        """What the convention counts once more of a forward node, as if it were computed again."""
        recompute = self.convention.recompute
        if recompute == "full":
            again = tuple(p for p in parts if p.role not in _ENDS)
        elif recompute == "selective":
            again = tuple(p for p in parts if p.attention is not None)
        else:
            return ()
        if any(p.role == "head" for p in parts):
            again = ()
        return self._terms(node, again)

    def _stand_in(self, node: Node, terms: Terms, again: Terms) -> None:
        """Nodes for a backward pass that is counted by the forward pass, and for a forward pass again."""
        if not self.trained:
            return
        if multiple := self.convention.multiple:
            backward = [(role, multiple * f) for role, f in terms if role not in self.convention.forward_only]
            if backward:
                self._add(_extra(node, "backward"), tuple(backward), 0, None)
        if again:
            times = self.convention.recompute_times
            self._add(_extra(node, "recompute"), tuple((role, times * f) for role, f in again), 0, None)

    # -- nodes and calls -------------------------------------------------------------------

    def _add(self, node: Node, terms: Terms, pointwise: Size, call: int | None) -> None:
        key = (node.op if call is None else call, terms, pointwise)
        if key not in self._made:
            self._made[key] = len(self.calls)
            old = None if call is None else self.plain._costs[call]
            flops = sympy.Add(*(f for _, f in terms)) if terms else 0
            if call is not None and old is None:
                self.costs.append(None)
            else:
                moved = old or Cost()
                cost = Cost(flops, pointwise, moved.bytes_read, moved.bytes_written)
                self.costs.append(self.plain._resolved(cost))
            self.calls.append(Call(node.op, {}, ()) if call is None else self.plain.step.record.calls[call])
        self.nodes.append(replace(node, index=len(self.nodes), call=self._made[key]))
        self.terms.append(terms)


_STANDS = {  # the role of what stands for a parameter
    "matrix": "weights", "vector": "vectors", "embedding": "embedding", "position": "position", "tied": "head",
    "head": "head",
}  # fmt: skip


def _extra(node: Node, phase: str) -> Node:
    """A node without tensors that stands for something counted on a forward node's place."""
    return replace(node, phase=phase, args=(), kwargs={}, outputs=(), forward=node.index)
