"""The account: what each node costs, summed by phase, by module and by op.

Equal calls are costed once and multiplied by how often they occur, so a sum over
thousands of nodes is a sum over the few distinct ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, overload

import sympy

from symacct.algebra import evaluate, simplify
from symacct.asking import Asked
from symacct.assumptions import Assumption, require
from symacct.capture import Held, Step
from symacct.cost import COST_FIELDS, Cost, Size, TensorMeta
from symacct.dim import check_size, point
from symacct.errors import MissingSizeError, SpecError, UnknownDimError
from symacct.lowering import Lowering
from symacct.memory import Memory
from symacct.parts import Group, NodeCost, Phase, Unknown
from symacct.program import Program
from symacct.record import PHASES, Node, Value
from symacct.repeats import Repeats
from symacct.rule import Rules
from symacct.storages import ALLOCATORS, Storages

if TYPE_CHECKING:
    import torch.fx

    from symacct.conventions import Explanation
    from symacct.conventions.presets import Convention
    from symacct.formulas.compiled import Compiled
    from symacct.verify import Verification

CONVENTION = (
    "flops: contractions only (matrix products, convolutions, attention products), 2 per multiply-add, "
    "causal attention in full; pointwise: all other arithmetic by the weights of symacct.rules.weights; "
    "bytes: as eager runs it, each kernel reads its operands and writes its results once"
)


KEPT = ("parameters", "gradients", "optimizer state", "buffers", "inputs")  # kinds of memory with a formula of its own


@dataclass
class Account(Asked):
    """What a step costs, in closed form.

    ``forward``, ``backward``, ``recompute`` and ``optimizer`` are phases, ``total`` all of them.
    ``params`` counts parameters (a shared one once); ``param_bytes``, ``grad_bytes`` and
    ``optimizer_bytes`` are what they, their gradients and the optimizer's state take.
    ``at(B=8, ...)`` is the same account in numbers.
    """

    step: Step
    rules: Rules
    title: str = ""
    inputs: str = ""
    assumptions: tuple[Assumption, ...] = ()
    trial_sizes: Mapping[str, int] = field(default_factory=dict)
    checked: tuple[Mapping[str, int], ...] = ()
    sizes: Mapping[str, int] | None = None
    program: Program | None = field(default=None, repr=False)
    allocator: str = "logical"
    _costs: list[Cost | None] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if not self._costs:
            self._costs = [self._resolved(self.rules.cost(call)) for call in self.step.record.calls]

    def _resolved(self, cost: Cost | None) -> Cost | None:
        """A cost without the floors that the assumptions make exact."""
        return cost and Cost(**{f: self._exact(getattr(cost, f)) for f in COST_FIELDS})

    def _exact(self, expr: Size) -> Size:
        return simplify(expr, self._divisible) if isinstance(expr, sympy.Basic) else expr

    @cached_property
    def _divisible(self) -> list[Any]:
        return [a.left.args for a in self.assumptions if a.relation == "==" and isinstance(a.left, sympy.Mod)]

    # -- sums --------------------------------------------------------------------------

    @property
    def forward(self) -> Phase:
        """The forward pass, with the loss."""
        return self.phases["forward"]

    @property
    def backward(self) -> Phase:
        """What autograd ran, without what checkpoints computed again."""
        return self.phases["backward"]

    @property
    def recompute(self) -> Phase:
        """What ``torch.utils.checkpoint`` computed again during the backward pass."""
        return self.phases["recompute"]

    @property
    def optimizer(self) -> Phase:
        """One later optimizer step (its state exists already)."""
        return self.phases["optimizer"]

    @cached_property
    def phases(self) -> dict[str, Phase]:
        """The phases by name."""
        groups = self._group(lambda node: node.phase)
        return {name: groups.get(name, Phase(self, name, Counter())) for name in PHASES}

    @cached_property
    def total(self) -> Phase:
        """All phases together."""
        return next(iter(self._group(lambda node: "total").values()), Phase(self, "total", Counter()))

    def by_module(self, depth: int | None = 1, phase: str | None = None, repeats: bool = False) -> dict[str, Phase]:
        """Sums by module path, cut to ``depth`` parts (None: not cut), in graph order. "" is the top level.

        The groups are disjoint and add up to the total (or to ``phase``). With ``repeats`` equal modules in a row are
        one group ("h.0-11"), whose ``times`` says how many they are.
        """

        def path(node: Node | Group) -> str:
            cut = node.path if depth is None else ".".join(node.path.split(".")[:depth])
            if not repeats:
                return cut
            name, number = self._repeats.of(cut)
            times[name] = number
            return name

        times: dict[str, int] = {}
        groups = self._group(path, phase)
        for name, number in times.items():
            groups[name].times = number
        return groups

    @cached_property
    def _repeats(self) -> Repeats:
        return Repeats((node.path, (node.phase, node.op, self._costs[node.call])) for node, _ in self._uses())

    def by_op(self, phase: str | None = None) -> dict[str, Phase]:
        """Sums by operator, in order of first use."""
        return self._group(lambda node: node.op, phase)

    def _group(self, key: Any, phase: str | None = None) -> dict[str, Phase]:
        groups: dict[str, Counter[int]] = {}
        for node, times in self._uses():
            if phase is None or node.phase == phase:
                groups.setdefault(key(node), Counter())[node.call] += times
        return {name: Phase(self, name, calls) for name, calls in groups.items()}

    def _uses(self) -> Iterator[tuple[Node | Group, Any]]:
        """What ran, in order, and how often each."""
        return ((node, 1) for node in self.step.record.nodes)

    # -- tensors that stay ---------------------------------------------------------------

    @property
    def params(self) -> Size:
        """Number of parameters, a shared one counted once."""
        return self._figure("params")

    @property
    def param_bytes(self) -> Size:
        """Bytes of the parameters."""
        return self._figure("param_bytes")

    @property
    def buffer_bytes(self) -> Size:
        """Bytes of the buffers (running statistics, tables)."""
        return self._figure("buffer_bytes")

    @property
    def grad_bytes(self) -> Size:
        """Bytes of the parameters' gradients after the backward pass."""
        return self._figure("grad_bytes")

    @property
    def optimizer_bytes(self) -> Size:
        """Bytes of the optimizer's state, read from the optimizer that ran."""
        return self._figure("optimizer_bytes")

    @property
    def checkpoint_bytes(self) -> Size:
        """Bytes of tensors in the state_dicts of model and optimizer, shared ones once; the file's own format not."""
        return self._figure("checkpoint_bytes")

    def _figure(self, name: str) -> Size:
        """One of `FIGURES`."""
        return FIGURES[name](self)

    # -- memory --------------------------------------------------------------------------

    @cached_property
    def memory(self) -> Memory:
        """What is alive when: timelines of the first and of later steps, the peak, and what it is made of."""
        return Memory(Storages(self.step, self.trial_sizes, self.sizes, self._exact, self.allocator), self._least)

    @property
    def activation_bytes(self) -> Size:
        """Bytes alive between forward and backward beyond parameters, buffers, state, gradients and inputs."""
        return self._figure("activation_bytes")

    @property
    def peak_bytes(self) -> Size:
        """The most bytes alive at once: ``Max(...)`` of the few moments that can win, or a number at given sizes."""
        return self.memory.peak_bytes

    @property
    def input_bytes(self) -> Size:
        """Bytes of the inputs."""
        return self._figure("inputs")

    def with_allocator(self, allocator: str) -> Account:
        """The account with memory as an allocator hands it out: "logical" bytes, or "cuda" in blocks of 512.

        What the CUDA caching allocator loses to fragmentation and what libraries take as workspace is not in it.
        """
        if allocator not in ALLOCATORS:
            raise SpecError(f"allocator: {allocator!r} is none of {', '.join(ALLOCATORS)}")
        return replace(self, allocator=allocator)

    @cached_property
    def _least(self) -> dict[str, int]:
        """The least size of each dim that the assumptions allow."""
        least = {}
        for a in self.assumptions:
            if a.left.is_Symbol and a.right.is_Integer and a.relation in (">", ">="):
                least[a.left.name] = max(int(a.right) + (a.relation == ">"), 1)
        return least

    def _held(self, held: list[Held], measure: Any) -> Size:
        return self._value(self._exact(sympy.expand(sympy.Add(*(measure(h.meta) for h in held)))))

    # -- nodes ---------------------------------------------------------------------------

    @property
    def laid_out(self) -> Account:
        """The account that has nodes and timelines at these sizes: itself, but where the graph changes with a dim."""
        return self

    @property
    def lowering(self) -> str:
        """Whose kernels the account describes, in words: the device, and what it runs otherwise than the CPU."""
        described = self.program.lowering if self.program is not None else Lowering()
        return described.text(self.step.kernels)

    @property
    def convention(self) -> str:
        """What is counted, and for which kernels."""
        return f"{CONVENTION}; kernels: {self.lowering}"

    def under(self, convention: str | Convention) -> Account:
        """The account counted by a convention, itself or a preset's name ("palm", "fvcore", ...).

        ``flops`` and ``params`` are what the convention says; bytes, memory and checks stay as traced.
        """
        from symacct.conventions import under

        return under(self, convention)

    def explain(self, first: str | Convention, second: str | Convention) -> Explanation:
        """Why two conventions count this account differently: a table, term by term, that adds up exactly."""
        from symacct.conventions import explain

        return explain(self, first, second)

    @cached_property
    def nodes(self) -> list[NodeCost]:
        """Every node with its cost, in the order in which they ran."""
        record = self.step.record
        made = []
        for node in record.nodes:
            call, cost = record.calls[node.call], self._costs[node.call]
            if cost is not None and self.sizes is not None:
                cost = Cost(**{f: self._value(getattr(cost, f)) for f in COST_FIELDS})
            storages = tuple(v.storage for v in node.outputs if isinstance(v, Value))
            made.append(
                NodeCost(
                    node.index, node.op, node.phase, node.path, node.source, call.inputs, call.outputs,
                    storages, node.forward, cost,
                )
            )  # fmt: skip
        return made

    def __iter__(self) -> Iterator[NodeCost]:
        return iter(self.nodes)

    @cached_property
    def unknown(self) -> list[Unknown]:
        """Ops without a rule. While there are any, the sums are incomplete."""
        found: dict[str, dict[str, int]] = {}
        for node, times in self._uses():
            if self._costs[node.call] is None:
                places = found.setdefault(node.op, {})
                place = node.path or "the top level"
                places[place] = places.get(place, 0) + times
        return [Unknown(op, sum(places.values()), tuple(places)) for op, places in found.items()]

    @cached_property
    def graph(self) -> torch.fx.Graph:
        """The ``torch.fx.Graph`` of ATen nodes; ``node.meta`` holds cost, phase, module path, source, shapes."""
        from symacct.graph import to_fx

        return to_fx(self)

    # -- numbers -------------------------------------------------------------------------

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims in the account, in the order in which they were given."""
        symbols = {
            s.name for call in self.step.record.calls for t in (*call.inputs, *call.outputs) for s in _symbols(t)
        }
        symbols |= {s.name for h in self.step.parameters for s in _symbols(h.meta)}
        return tuple(n for n in self.trial_sizes if n in symbols)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The dims that the check at other sizes could not vary, so that formulas are unproven in them."""
        return tuple(
            n
            for n in self.dims
            if all(sizes[n] == self.trial_sizes[n] for sizes in self.checked) and not self._pinned(n)
        )

    def _pinned(self, name: str) -> bool:
        """Whether an assumption fixes a dim to a number, which `at` enforces."""
        return any(a.relation == "==" and str(a.left) == name and a.right.is_Integer for a in self.assumptions)

    @overload
    def at(self, **sizes: int) -> Account: ...

    @overload
    def at(self, **sizes: Any) -> Any: ...

    def at(self, **sizes: Any) -> Any:
        """The account at given sizes: every expression becomes a number.

        With NumPy arrays (or lists) among the sizes, every figure becomes an array over all of their combinations that
        broadcasting gives, through one compiled function (`symacct.formulas.grid.AccountGrid`).

        Raises `UnknownDimError` for a name that is not a dim of the account, `MissingSizeError`
        when a dim has no size, `DimError` for sizes that are not whole numbers >= 1, and
        `AssumptionError` when they break a relation that the trace relied on.
        """
        if any(isinstance(size, (list, tuple, range)) or getattr(size, "ndim", 0) for size in sizes.values()):
            from symacct.formulas.grid import grid

            return grid(self, self._compiled, **sizes)
        for name in sizes:
            if name not in self.trial_sizes:
                known = ", ".join(self.trial_sizes) or "none"
                raise UnknownDimError(f"at(): there is no dim {name!r}; the account's dims are {known}")
        given = {name: check_size(name, size) for name, size in sizes.items()}
        missing = [name for name in self.dims if name not in given]
        if missing:
            raise MissingSizeError(
                f"at(): no size for {', '.join(missing)}; give one for each of {', '.join(self.dims)} "
                "(or fill in only some of a formula with sa.express(formula, B=8))"
            )
        require(self.assumptions, point(given))
        made = replace(self, sizes=given)
        made.__dict__["symbolic"] = self.symbolic  # which knows its peaks already
        return made

    @cached_property
    def _compiled(self) -> Compiled:
        from symacct.formulas.grid import compile_account

        return compile_account(self)

    @property
    def evidence(self) -> list[str]:
        """At which other sizes the formulas were checked, in words."""
        if not self.checked:
            return []
        shown = "; ".join(", ".join(f"{n}={s}" for n, s in sizes.items()) for sizes in self.checked)
        return [f"checked, node by node, at {shown}"]

    @cached_property
    def symbolic(self) -> Account:
        """The account in formulas, also when this one is in numbers."""
        return self if self.sizes is None else replace(self, sizes=None)

    def check(self, **sizes: int) -> tuple[Mapping[str, int], ...]:
        """Run the program again at the given (or some other) sizes and compare every node with its formulas.

        Returns the sizes used; none when no others satisfy the assumptions. Raises `CheckError`.
        """
        from symacct.check import check

        if self.program is None:
            return ()
        return check(self, self.program, sizes or None).sizes

    def verify(
        self, device: str = "cpu", at: Mapping[str, int] | None = None, *, steps: int = 20, seed: int = 0
    ) -> Verification:
        """Run the real model, with real tensors, on a device, and lay the account beside what is seen there.

        ``device``: "cpu" or "cuda". ``at``: sizes (default: the account's, else its trial sizes). ``steps``: how many
        are timed, 0 for none. ``seed``: of parameters, inputs and dropout. Compared are the operators in order with
        the shapes and dtypes of their operands, FLOPs (with torch's ``FlopCounterMode``), bytes, memory (the births
        and deaths of all storages), the time, and hardware counters where there are any. The result `holds` or not;
        where not, its ``residuals`` say at which node. Raises `VerifyError` where the run cannot be made here.
        """
        from symacct.verify import verify

        return verify(self, device, at, steps=steps, seed=seed)

    def _value(self, expr: Size) -> Size:
        return expr if self.sizes is None else evaluate(expr, self.sizes)

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return f"<Account of {self.title}: {self.total.count} nodes, dims {', '.join(self.dims) or 'none'}>"


def _of_kind(kind: str, account: Account) -> Size:
    return account.memory.of_kind(kind)


def _saved(account: Account) -> list[Held]:
    step = account.step
    return list({h.storage: h for h in (*step.parameters, *step.buffers, *step.state) if h.saved}.values())


# What an account says beside the sums over its nodes: of tensors that stay, and of memory.
FIGURES: dict[str, Callable[[Account], Size]] = {
    "params": lambda a: a._held(a.step.parameters, lambda t: t.numel),
    "param_bytes": lambda a: a._held(a.step.parameters, lambda t: t.numel * t.itemsize),
    "buffer_bytes": lambda a: a._held(a.step.buffers, lambda t: t.nbytes),
    "grad_bytes": lambda a: a._held(a.step.gradients, lambda t: t.nbytes),
    "optimizer_bytes": lambda a: a._held(list({h.storage: h for h in a.step.state}.values()), lambda t: t.nbytes),
    "checkpoint_bytes": lambda a: a._held(_saved(a), lambda t: t.nbytes),
    "scalar_bytes": lambda a: a._held([h for h in a.step.state if not h.meta.shape], lambda t: t.nbytes),
    **{kind: partial(_of_kind, kind) for kind in KEPT},
    "activation_bytes": lambda a: a.memory.activation_bytes,
    "rest_bytes": lambda a: a.memory.rest_bytes,
}


def _symbols(tensor: TensorMeta) -> set[sympy.Symbol]:
    return {s for n in tensor.shape if isinstance(n, sympy.Basic) for s in n.free_symbols}
