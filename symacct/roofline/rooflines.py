"""The roofline of an account on a device: the least time of its phases, modules and ops, and what limits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate, total_of
from symacct.cost import Size
from symacct.device_file import device_or_file
from symacct.errors import DeviceError, MissingSizeError, SpecError
from symacct.hardware import Device
from symacct.printing import formula
from symacct.record import PHASES
from symacct.report import WIDTH, Column, Section, as_renderables, as_text, header
from symacct.roofline.bounds import Bound, Ceilings
from symacct.roofline.kernels import Use
from symacct.roofline.lifting import LEVELS, TOTAL, uses_of
from symacct.shown import Shown
from symacct.units import read, show

_LEVEL_NOTES = {
    "eager": "bytes as eager runs it: each kernel reads its operands and writes its results once",
    "fused": "bytes if fusing were ideal: chains of elementwise arithmetic, copies, reductions, normalisations, "
    "softmax and losses are one kernel with those that make their inputs; what is made and used within it stays on "
    "the chip, even where a reduction spans more than a chip holds; its time counts for the module of its contraction",
    "minimal": "bytes that no step does without: what was there before is read once, what is kept or used later is "
    "written once; each phase is one kernel, and the step is less than its phases",
}


def roofline(account: Account, device: str | Device, tf32: bool = False, level: str = "eager") -> Roofline:
    """The least time of an account's step on a device, kernel by kernel.

    A kernel takes at least the largest of its contractions at the dense matrix peak of their dtype, its pointwise
    arithmetic at the vector peak, and its bytes at the bandwidth. ``device``: a name of the table, "mine.toml:NAME",
    or a `Device`. ``tf32``: products of float32 may run in TF32. ``level``: whose bytes, "eager", "fused" or "minimal"
    (`step_bytes`). Times are formulas, or numbers where the account has sizes; one of a symbolic depth stays so.

    Raises `DeviceError` for an unknown device, and for a dtype that it has no peak for: which op of which module
    multiplies it, and what the device has.
    """
    return Roofline(account, device_or_file(device), tf32, level)


@dataclass(frozen=True)
class Roofline(Shown):
    """The least time of an account's step on a device: ``phases``, ``by_module(depth)``, ``by_op()``, ``total``.

    Each is a `Bound`. ``notes`` say what the times rest on.
    """

    account: Account = field(repr=False)
    device: Device
    tf32: bool = False
    level: str = "eager"

    def __post_init__(self) -> None:
        _ = self._uses  # errors come when it is made

    @cached_property
    def _found(self) -> tuple[list[Use], bool]:
        return uses_of(self.account, self.level)

    @property
    def _uses(self) -> list[Use]:
        uses, _ = self._found
        ceilings = self._ceilings
        for use in uses:
            for (dtype, _), _ in use.kernel.flops:
                ceilings.peak(dtype, use)
        return uses

    @cached_property
    def _ceilings(self) -> Ceilings:
        return Ceilings(self.device, self.tf32, self.account.sizes)

    def at(self, **sizes: int) -> Roofline:
        """The roofline at given sizes: numbers, and what limits each part."""
        return Roofline(self.account.at(**sizes), self.device, self.tf32, self.level)

    @cached_property
    def symbolic(self) -> Roofline:
        """The roofline in formulas, also when this one is in numbers."""
        return (
            self if self.account.sizes is None else Roofline(self.account.symbolic, self.device, self.tf32, self.level)
        )

    # -- bounds ------------------------------------------------------------------------

    @cached_property
    def phases(self) -> dict[str, Bound]:
        """The bounds of the phases by name."""
        groups = self._group(lambda use: use.phase)
        return {name: groups.get(name) or self._ceilings.bound(name, ()) for name in PHASES}

    @cached_property
    def total(self) -> Bound:
        """The bound of the step: its kernels one after another (at the level "minimal" one kernel)."""
        every = self._found[0]
        return self._ceilings.bound(TOTAL, [u for u in every if u.phase == TOTAL] if self.level == "minimal" else every)

    def by_module(self, depth: int | None = 1, phase: str | None = None, repeats: bool = False) -> dict[str, Bound]:
        """The bounds by module path, cut to ``depth`` parts (None: not cut). "" is the top level.

        With ``repeats`` equal modules in a row are one ("h.0-11"), as in `Account.by_module`. Raises `SpecError` at
        the level "minimal", at which phases are not parted.
        """
        self._parted("by_module")

        def path(use: Use) -> str:
            cut = use.path if depth is None else ".".join(use.path.split(".")[:depth])
            return self.account.symbolic._repeats.of(cut)[0] if repeats else cut

        return self._group(path, phase)

    def by_op(self, phase: str | None = None) -> dict[str, Bound]:
        """The bounds by operator; a group of fused ones has the name of its contraction, else of its first."""
        self._parted("by_op")
        return self._group(lambda use: use.op, phase)

    def _parted(self, verb: str) -> None:
        if self.level == "minimal":
            raise SpecError(f"{verb}(): at the level 'minimal' a phase is one kernel; take 'eager' or 'fused'")

    def _group(self, key: Callable[[Use], str], phase: str | None = None) -> dict[str, Bound]:
        if phase is not None and phase not in PHASES:
            raise SpecError(f"phase: {phase!r} is none of {', '.join(PHASES)}")
        groups: dict[str, list[Use]] = {}
        for use in self._found[0]:
            if phase in (None, use.phase):
                groups.setdefault(key(use), []).append(use)
        return {name: self._ceilings.bound(name, uses) for name, uses in groups.items()}

    # -- ceilings ----------------------------------------------------------------------

    @cached_property
    def ridges(self) -> dict[str, float]:
        """The ridge point of each dtype that is multiplied, in FLOP per byte of memory."""
        dtypes = sorted({dtype for use in self._found[0] for (dtype, _), _ in use.kernel.flops})
        return {dtype: ridge(self.device, dtype, self.tf32) for dtype in dtypes}

    @property
    def ridge(self) -> float:
        """The ridge point of the dtype that is multiplied (of several, of the one with most FLOP), in FLOP per byte.

        Raises `MissingSizeError` where that depends on the sizes, and `DeviceError` where nothing is multiplied.
        """
        return ridge(self.device, self.main_dtype, self.tf32)

    @property
    def main_dtype(self) -> str:
        """The dtype that most FLOP of contractions are in. Raises as `ridge` does."""
        flops = self.total.flops_by_dtype
        if not flops:
            raise DeviceError(f"nothing is multiplied, so that no matrix peak of {self.device.name} counts")
        if len(flops) == 1:
            return next(iter(flops))
        if self.account.sizes is None:
            raise MissingSizeError(f"which of {', '.join(flops)} has most FLOP depends on the sizes: see ridges")
        return max(flops, key=lambda dtype: flops[dtype])

    # -- words ---------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """What the times rest on, one sentence each."""
        device = self.device
        tf32 = {"float32": " (TF32)"} if self.tf32 and "tf32" in device.flops_per_s else {}
        peaks = ", ".join(
            f"{dtype} {show(device.peak(dtype, self.tf32), 'FLOP/s')}{tf32.get(dtype, '')}" for dtype in self.ridges
        )
        vector = device.vector_flops_per_s
        lines = [
            f"least times on {device.name}: {f'dense peaks {peaks}; ' if peaks else ''}memory "
            f"{show(device.bytes_per_s, 'B/s')}; kernels one after another, nothing for starting them",
            f"pointwise arithmetic in float32 at {show(vector, 'FLOP/s')}"
            if vector
            else f"{device.name} has no vector peak in the table: pointwise arithmetic takes no time here",
            _LEVEL_NOTES[self.level],
        ]
        if self._found[1]:
            lines.append("kernels that grow with the depth are taken together, so that their time may be a little low")
        if self.account.unknown:
            lines.append("INCOMPLETE, no rule for: " + "; ".join(map(str, self.account.unknown)))
        return (*lines, f"source of the peaks: {device.source}")

    def table(self, depth: int = 1) -> Iterator[Section]:
        """The tables: by phase, and but for the level "minimal" by module and by op, the slowest first."""
        phases = [bound for bound in self.phases.values() if bound.count != 0]
        yield self._section("by phase", [*phases, self.total])
        if self.level != "minimal":
            yield self._section(f"by module, to depth {depth}", _slowest(self.by_module(depth, repeats=True).values()))
            yield self._section("by op", _slowest(self.by_op().values()))

    def _section(self, title: str, bounds: Iterable[Bound]) -> Section:
        if self.account.sizes is None:
            plain = (Column("", "name"), Column("least seconds", "formula"))
            rows = [(b.name or "(top level)", formula(b.seconds)) for b in bounds]
            return Section(title, plain, tuple(rows), titled=True)
        names = ("time", "share", "limit", "FLOP", "bytes", "FLOP/B")
        columns = (Column("", "name"), *(Column(name, "value") for name in names))
        return Section(title, columns, tuple(self._row(b) for b in bounds), titled=True)

    def _row(self, bound: Bound) -> tuple[str, ...]:
        whole = self.total.seconds
        share = f"{bound.seconds / whole:.1%}" if whole and self.level != "minimal" else "-"
        return (
            (bound.name or "(top level)").removesuffix(".default"), show(bound.seconds, "s"), share, bound.limit,
            show(bound.flops, "FLOP"), show(bound.bytes, "B"),
            "-" if bound.intensity is None else show(bound.intensity),
        )  # fmt: skip

    def report(self, depth: int = 1, width: int = WIDTH) -> str:
        """The tables and the notes as plain text."""
        first, *rest = header(self.account)
        heading = [f"{first} on {self.device.name}, {self.level}", *rest]
        return as_text(as_renderables(heading, self.table(depth), self.notes, width), width)

    def __str__(self) -> str:
        return self.report()


def _slowest(bounds: Iterable[Bound]) -> list[Bound]:
    found = [bound for bound in bounds if bound.seconds != 0]
    if all(not isinstance(bound.seconds, sympy.Basic) for bound in found):
        found.sort(key=lambda bound: -bound.seconds)
    return found


# -- beside an account -------------------------------------------------------------------


def ridge(device: str | Device, dtype: str, tf32: bool = False, over: str | float = "memory") -> float:
    """The FLOP per byte from which on contractions of a dtype are compute-bound on a device.

    ``over``: the bytes are those of "memory", of the "interconnect" (the maker's total of both directions), or of a
    link with a rate of its own ("15 GB/s", or bytes per second). Raises `DeviceError` for a dtype or a link that the
    device has no number for, and `UnitError` for a rate that is none.
    """
    found = device_or_file(device)
    peak = found.peak(dtype, tf32)
    if over == "memory":
        return peak / found.bytes_per_s
    if over == "interconnect":
        if found.interconnect_bytes_per_s is None:
            raise DeviceError(f"{found.name} has no rate of an interconnect in the table; give one: over='300 GB/s'")
        return peak / found.interconnect_bytes_per_s
    return peak / float(read(over, "byte/second", "over"))


def step_bytes(account: Account) -> dict[str, dict[str, Size]]:
    """The bytes of each phase and of the step ("total") at each level: ``step_bytes(account)["fused"]["forward"]``.

    - "eager": each kernel reads each of its operands and writes each of its results once.
    - "fused": if fusing were ideal. A chain of elementwise arithmetic, copies, reductions, normalisations, softmax,
      losses and optimizer steps is one kernel together with those that make its inputs. What is made and used within
      it is neither read nor written; what it reads, saves for the backward pass or hands on counts once. Views and
      work in place are what they are. Contractions do not fuse with what makes their inputs.
    - "minimal": what no step does without. Of what was there before the phase (or step) that which is read of it
      before it changes, once: parameters, inputs, saved activations, state. Of what is used later or stays, what is
      written, once: activations that are saved, gradients, results, updated parameters and state. Rows of a table that
      data choose count as many as are chosen; parts of one storage that several kernels read count as the largest of
      them, or as the whole where they make it up.

    Always minimal <= fused <= eager, in each phase: fused leaves out some of eager's bytes, minimal some of fused's.
    Raises `StructuralError` where a level is no polynomial in a dim that changes the graph.
    """
    return {level: _sums(account, level) for level in LEVELS}


def _sums(account: Account, level: str) -> dict[str, Size]:
    uses, _ = uses_of(account, level)
    terms: dict[str, dict[Any, Any]] = {name: {} for name in (*PHASES, TOTAL)}
    for use in uses:
        for name in {use.phase, *([] if level == "minimal" else [TOTAL])}:
            for expr, n in use.kernel.bytes:
                terms[name][expr] = terms[name].get(expr, 0) + n * use.times
    return {name: _total(each, account.sizes) for name, each in terms.items()}


def _total(terms: Mapping[Any, Any], sizes: Mapping[str, int] | None) -> Size:
    if sizes is None:
        return total_of({sympy.sympify(expr): n for expr, n in terms.items()})
    return sum(evaluate(expr, sizes) * evaluate(n, sizes) for expr, n in terms.items())
