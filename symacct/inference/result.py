"""What serving a model costs: `Inference`, a prefill and a decode step with the cache between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.conventions import Convention
from symacct.cost import Size
from symacct.device_file import device_or_file
from symacct.dim import check_size, symbol
from symacct.errors import QuestionError, UnknownDimError
from symacct.hardware import Device
from symacct.inference import bounds
from symacct.inference.attention import attention_intensity
from symacct.inference.cache import Named, cache_bytes, cache_elements, grown_bytes, in_place, read_weights, room_for
from symacct.inference.fit import largest_size
from symacct.printing import formula
from symacct.roofline import roofline
from symacct.shown import Shown
from symacct.units import show

_LEAST = Convention("least", causal="exact", causal_in=("",))  # attention that skips what its mask closes


@dataclass(frozen=True)
class Inference(Shown):
    """A prefill and a decode step of a model, and what follows for memory and time.

    ``decode`` is the account of one step: every sequence of a batch reads one token after a past of so many tokens (the
    dim that ``past`` names). ``prefill`` is that of reading a prompt, or None where it was not traced. Figures are
    expressions in base units, and numbers in what ``at`` gives. ``notes`` say what was not taken as it is.
    """

    title: str
    decode: Account
    prefill: Account | None
    is_cache: Named = field(repr=False)
    past: str = "P"
    batch: str = "B"
    length: str = "L"
    known: Mapping[str, int] = field(default_factory=dict)  # the config's own sizes
    sizes: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    _figures: dict[str, Any] = field(default_factory=dict, repr=False)

    # -- sizes -----------------------------------------------------------------------------

    def at(self, **sizes: int) -> Inference:
        """The same in numbers. Dims that are not given have the config's own sizes, a prompt that of the past.

        Raises what `Account.at` raises.
        """
        accounts = [account for account in (self.decode, self.prefill) if account is not None]
        names = dict.fromkeys(name for account in accounts for name in account.trial_sizes)
        for name in sizes:
            if name not in names:
                raise UnknownDimError(f"at(): there is no dim {name!r}; the dims are {', '.join(names)}")
        given = {**self.known, **sizes}
        if self.length in names and self.past in given:
            given.setdefault(self.length, given[self.past])
        parts = [account.symbolic.at(**{n: s for n, s in given.items() if n in account.dims}) for account in accounts]
        used = {name: size for name, size in given.items() if name in names}
        return replace(self, decode=parts[0], prefill=parts[1] if len(parts) > 1 else None, sizes=used)

    def _figure(self, name: str, make: Callable[[], Size]) -> Size:
        """A formula, made once, at the sizes if there are any."""
        if name not in self._figures:
            self._figures[name] = make()
        found = self._figures[name]
        return found if self.sizes is None else evaluate(found, self.sizes)

    @property
    def symbolic(self) -> Inference:
        """The same in formulas, also where this is in numbers."""
        first = self.prefill and self.prefill.symbolic
        return self if self.sizes is None else replace(self, decode=self._step, prefill=first, sizes=None)

    @property
    def _step(self) -> Account:
        return self.decode.symbolic

    # -- memory ----------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> Size:
        """Bytes of the parameters."""
        return self.decode.param_bytes

    @property
    def cache_bytes(self) -> Size:
        """Bytes of the cache after the past, for the whole batch."""
        return self._figure("cache", lambda: cache_bytes(self._step, self.is_cache))

    @property
    def cache_bytes_per_token(self) -> Size:
        """By how many bytes the cache of one sequence grows for one token more."""
        return self._figure("per token", lambda: self._per_token(cache_bytes(self._step, self.is_cache)))

    @property
    def cache_elements_per_token(self) -> Size:
        """The same in elements: bytes where the cache is stored in 8 bits."""
        return self._figure("elements", lambda: self._per_token(cache_elements(self._step, self.is_cache)))

    def _per_token(self, total: Size) -> Size:
        past = symbol(self.past)
        of_one = sympy.sympify(total).xreplace({symbol(self.batch): sympy.Integer(1)})
        return sympy.expand(of_one.xreplace({past: past + 1}) - of_one)

    @property
    def memory_bytes(self) -> Size:
        """The most bytes alive at once in a decode step: weights, the cache with the new token, and what it works with.

        The cache is taken to have room for the new token. ``decode.peak_bytes`` is the peak of the program as it
        was traced, which copies each layer's cache to make it longer while the caller holds the old one.
        """
        if self.sizes is not None and in_place(self._step, self.is_cache).refusal:  # known at fixed depths alone
            laid_out = self.decode.laid_out
            return laid_out._value(room_for(laid_out.symbolic, self.is_cache))
        return self._figure("room", lambda: room_for(self._step, self.is_cache))

    @property
    def working_bytes(self) -> Size:
        """What `memory_bytes` has beside weights and cache: activations, tokens, tables of positions."""
        return self.memory_bytes - self.weight_bytes - self._figure("grown", lambda: grown_bytes(self._step))

    def largest(self, dim: str, device: str | Device, devices: int = 1, **sizes: int) -> int:
        """The largest size of a dim (the batch, the past, the width, ...) at which a decode step fits in memory.

        ``sizes``: of the other dims; those that are not given have the config's own. ``devices``: weights, cache and
        activations are taken to be spread evenly over so many. Exact for memory that does not fall as the dim
        grows. Raises `QuestionError` where even the least size does not fit, saying which part is too large.
        """
        return largest_size(self, dim, device_or_file(device), devices, sizes)

    # -- time ------------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        """The dtype of the weights."""
        held = self.decode.step.parameters
        return held[0].meta.dtype if held else "float32"

    @property
    def read_weight_bytes(self) -> Size:
        """Bytes of the parameters that a step reads in full: a table of tokens is not, unless it is the head's too."""
        return self._figure("read", lambda: read_weights(self._step))

    def step_seconds(self, device: str | Device, devices: int = 1, *, in_turn: bool = False) -> Size:
        """The napkin bound: the least time of a decode step, by weights and cache that are read and by its FLOP.

        ``in_turn``: reading the cache does not overlap with the products with weights
        (`symacct.inference.bounds.step_seconds`).
        """
        flops = self.decode.forward.flops
        if in_turn:
            flops = flops - self._value(self._attention_flops())
        return bounds.step_seconds(
            self.read_weight_bytes, self.cache_bytes, flops, device_or_file(device), self.dtype, devices,
            in_turn=in_turn,
        )  # fmt: skip

    def traced_step_seconds(self, device: str | Device, level: str = "eager") -> Size:
        """The least time of a decode step, kernel by kernel, as it was traced (`symacct.roofline.roofline`).

        ``level``: whose bytes, "eager", "fused" or "minimal".
        """
        return roofline(self.decode, device, level=level).total.seconds

    def tokens_per_second(self, device: str | Device, devices: int = 1) -> Size:
        """At most so many tokens per second, of the whole batch."""
        batch = symbol(self.batch) if self.sizes is None else self.sizes[self.batch]
        return batch / self.step_seconds(device, devices)

    def time_to_first_token(self, device: str | Device, devices: int = 1) -> Size:
        """The least time of the prefill: weights are read, what the cache keeps is written, and its FLOP.

        Of causal attention only the pairs that the mask leaves are taken, which is what the best kernels do.
        Raises `QuestionError` where no prefill was traced.
        """
        if self.prefill is None:
            raise QuestionError("time_to_first_token(): no prefill was traced; give its account to of_accounts")
        symbolic = self.prefill.symbolic
        written = self._figure("prefilled", lambda: grown_bytes(symbolic))
        flops = self._figure("causal", lambda: symbolic.under(_LEAST).forward.flops)
        return bounds.step_seconds(self.read_weight_bytes, written, flops, device_or_file(device), self.dtype, devices)

    @property
    def attention_intensity(self) -> Size:
        """FLOP per byte of the decode step's fused attention (`symacct.inference.attention`)."""
        return self._figure("intensity", lambda: attention_intensity(self._step))

    def compute_bound_batches(self, device: str | Device, **sizes: int) -> dict[str, Size | None]:
        """The batch from which on each product with weights is compute-bound, by module, and the step ("all").

        Exact. A product by itself moves its weights, its operands and its results; the step the weights and the cache.
        None: memory-bound at every batch, and so it is where a formula in other dims is negative. ``sizes``: of dims
        other than the batch.
        """
        given = {**self.known, **(self.sizes or {}), **sizes}
        at = {symbol(n): sympy.Integer(check_size(n, s)) for n, s in given.items() if n != self.batch}
        chosen, batch = device_or_file(device), symbol(self.batch)

        def solved(flops: Size, nbytes: Size) -> Size | None:
            flops, nbytes = (sympy.sympify(each).xreplace(at) for each in (flops, nbytes))
            return bounds.compute_bound_batch(flops, nbytes, chosen, self.dtype, self.batch)

        found: dict[str, Size | None] = {}
        for name, part in self._step._group(lambda node: f"{node.path} {node.op}", "forward").items():
            # Of products only those with weights move bytes that do not grow with the batch.
            if part.flops != 0 and sympy.expand(part.bytes).as_independent(batch, as_Add=True)[0] != 0:
                found[name.partition(" ")[0]] = solved(part.flops, part.bytes)
        whole = self.symbolic
        found["all"] = solved(self._step.forward.flops, whole.read_weight_bytes + whole.cache_bytes)
        return found

    def _attention_flops(self) -> Size:
        """FLOP of the step that grow with the past."""
        total = sympy.expand(self._step.forward.flops)
        past = symbol(self.past)
        return sympy.expand(total - total.xreplace({past: sympy.Integer(0)}))

    def _value(self, expr: Size) -> Size:
        return expr if self.sizes is None else evaluate(expr, self.sizes)

    # -- words -----------------------------------------------------------------------------

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on, in words."""
        held = [f"holds when: {a}" for a in self.decode.assumptions]
        counted = (
            f"FLOP and bytes as the account counts them ({self.decode.convention})",
            "memory: the cache grows where it lies; weights, cache and activations in the dtypes of the trace",
            *bounds.ASSUMPTIONS,
        )
        return (*counted, *self.notes, *held)

    def rows(self) -> list[tuple[str, Size, str]]:
        """Name, amount and unit of each figure that needs no device."""
        found = [
            ("weights", self.weight_bytes, "B"),
            ("cache", self.cache_bytes, "B"),
            ("cache per token", self.cache_bytes_per_token, "B"),
            ("memory of a decode step", self.memory_bytes, "B"),
            ("decode step", self.decode.forward.flops, "FLOP"),
        ]
        if self.prefill is not None:
            found.append(("prefill", self.prefill.forward.flops, "FLOP"))
        return found

    def __str__(self) -> str:
        rows = [
            (name, formula(value) if self.sizes is None else show(value, unit)) for name, value, unit in self.rows()
        ]
        at = "" if self.sizes is None else " at " + ", ".join(f"{n}={s:,}" for n, s in self.sizes.items())
        lines = [f"Inference with {self.title}{at}", *aligned(rows)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def aligned(rows: list[tuple[str, str]]) -> list[str]:
    """Lines of a name and a value each, the values below each other."""
    width = max(len(name) for name, _ in rows)
    return [f"  {name:{width}}  {value}" for name, value in rows]
