"""Memory for people and machines: closed forms, the moments that can be the peak, and what is alive then."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sympy

from symacct.account import KEPT, Account
from symacct.algebra import evaluate
from symacct.capture import Held
from symacct.cost import Size
from symacct.errors import DimError
from symacct.printing import common_part, formula, quantity, text
from symacct.program import Program
from symacct.report import WIDTH, Column, Section, as_markdown, as_renderables, as_text, basis, grounds, header
from symacct.storages import Live
from symacct.timeline import Moment, Timeline

if TYPE_CHECKING:
    from rich.console import RenderableType

CONVENTION = {
    "logical": (
        "memory: the bytes of the tensors that are alive, as eager PyTorch runs a step written as a function; what an "
        "allocator adds, and what kernels take for themselves while they run, is not in it"
    ),
    "cuda": (
        "memory: each tensor in blocks of 512 bytes, as CUDA's caching allocator hands them out; its fragmentation, "
        "and what libraries take as workspace, is not in it"
    ),
}
_TERMS = (
    "activations: alive between forward and backward, the output with them; at rest: alive between steps; checkpoint: "
    "the state_dicts of model and optimizer"
)
_SHORT = 4  # moments of which the closed form is still read at a glance
_NAME, _VALUE, _FORMULA = Column("", "name"), Column("bytes", "value"), Column("formula", "formula")


# -- what is in it -----------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A moment that can be the peak: its bytes, what of them the other candidates do not have, its value."""

    moment: Moment
    nbytes: Size
    beyond: Size
    value: Any  # at the account's sizes, or at the trial sizes where it has none


@dataclass(frozen=True)
class Group:
    """Equal tensors of equal layers: one of them, in formulas, how many there are, and the bytes of all."""

    kind: str
    dtype: str
    shape: tuple[Size, ...]
    origin: str
    count: int
    nbytes: int


class _Facts:
    """What a report says, worked out once: a new ``account.symbolic`` knows nothing of what an older one worked out."""

    def __init__(self, account: Account, least: Mapping[str, int] | None = None) -> None:
        # Without dims the formulas are numbers already.
        self.account = account if account.sizes is not None or account.dims else account.at()
        self.symbolic = account.symbolic
        self.least = dict(least or {})
        for name, size in self.least.items():
            if account.sizes is not None and account.sizes.get(name, size) < size:
                raise DimError(f"least {name}={size}, but the account is at {name}={account.sizes[name]}")

    @cached_property
    def bytes(self) -> dict[str, tuple[Size, Any]]:
        """Formula and value (None without sizes) of each kind that stays, and of the sums."""
        formulas = _kept(self.symbolic)
        values = _kept(self.account) if self.numbers else dict.fromkeys(formulas)
        return {name: (expr, values[name]) for name, expr in formulas.items()}

    @property
    def numbers(self) -> bool:
        """Whether the account has sizes."""
        return self.account.sizes is not None

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The moments that can be the peak, the largest first: at the account's sizes, else at the trial sizes.

        None where the peak has no closed form.
        """
        if self.refusal:
            return []
        memory = self.symbolic.memory
        moments = (memory.where(**self.least) if self.least else memory).candidates
        sizes = self.account.sizes if self.account.sizes is not None else self.account.trial_sizes
        formulas = [sympy.sympify(moment.nbytes) for moment in moments]
        common = common_part(formulas)
        found = [
            Candidate(moment, nbytes, sympy.expand(nbytes - common), evaluate(nbytes, sizes))
            for moment, nbytes in zip(moments, formulas, strict=True)
        ]
        return sorted(found, key=lambda c: -c.value)

    @property
    def refusal(self) -> str:
        """Why the peak has no closed form; "" where it has one."""
        return self.symbolic.memory.refusal

    @cached_property
    def common(self) -> Size:
        """What all candidates have in common."""
        return sympy.expand(self.candidates[0].nbytes - self.candidates[0].beyond)

    @property
    def peak(self) -> Size:
        """The peak in closed form."""
        found = [c.nbytes for c in self.candidates]
        return found[0] if len(found) == 1 else sympy.Max(*found, evaluate=False)

    @cached_property
    def peaks(self) -> dict[str, Moment]:
        """The largest moment of each timeline at the account's sizes."""
        memory = self.account.laid_out.memory
        return {t.name: t.peak for t in dict.fromkeys((memory.first, memory.later))}

    @cached_property
    def winner(self) -> Moment:
        """The larger of these."""
        return max(reversed(self.peaks.values()), key=lambda moment: moment.nbytes)

    @cached_property
    def tensors(self) -> list[int]:
        """What is alive at the peak, largest first."""
        timeline = self.winner.timeline
        return sorted(timeline.alive_at(self.winner.position), key=lambda s: (-timeline.rank(s), s))

    @cached_property
    def formulas(self) -> Timeline:
        """The same storages as in the timelines at sizes, with sizes in dims."""
        return self.account.laid_out.symbolic.memory.later

    @cached_property
    def groups(self) -> list[Group]:
        """What is alive at the peak, equal tensors of equal layers together, the largest groups first."""
        timeline, formulas = self.winner.timeline, self.formulas
        together: dict[Any, list[int]] = {}
        for storage in self.tensors:
            live = timeline.live(storage)
            shape = formulas.live(storage).shape  # in dims: equal numbers may be different things
            key = (live.kind, live.dtype, shape, _starred(live.name or live.path), live.op, live.source)
            together.setdefault(key, []).append(storage)
        found = []
        for (kind, dtype, shape, *_), storages in together.items():
            lives = [timeline.live(s) for s in storages]
            nbytes = sum(int(live.nbytes) for live in lives)
            found.append(Group(kind, dtype, shape, _origin(lives), len(lives), nbytes))
        return sorted(found, key=lambda group: -group.nbytes)

    @cached_property
    def per_parameter(self) -> dict[str, Any] | None:
        """Bytes per parameter of parameters, gradients and state, and the bytes of state that come one per tensor.

        None where parameters differ in it: where some are frozen, or have another dtype or a state of another shape.
        """
        step = self.account.step
        if not step.parameters:
            return None
        held = {"parameters": step.parameters, "gradients": step.gradients}
        held["optimizer state"] = [h for h in step.state if h.meta.shape]
        found = {name: _rate(step.parameters, tensors) for name, tensors in held.items() if tensors}
        scalars = self.symbolic._figure("scalar_bytes")  # step counts and such
        return None if None in found.values() else {**found, "scalars": scalars}


def _kept(account: Account) -> dict[str, Size]:
    """Bytes of each kind that stays, and of the sums."""
    memory = account.memory
    by_kind = {kind: memory.of_kind(kind) for kind in KEPT}
    sums = {
        "activations": memory.activation_bytes,
        "at rest": memory.rest_bytes,
        "checkpoint": account.checkpoint_bytes,
    }
    return {**by_kind, **sums}


def _rate(parameters: list[Held], held: list[Held]) -> Any:
    """Bytes per element of a parameter that belong to it, where that is the same number for all; else None."""
    nbytes: dict[str, Size] = {}
    for each in held:
        name = each.name.partition(":")[0]
        nbytes[name] = nbytes.get(name, 0) + each.meta.nbytes
    pairs = dict.fromkeys((nbytes.get(p.name, 0), p.meta.numel) for p in parameters)
    rates = {sympy.cancel(sympy.sympify(top) / bottom) for top, bottom in pairs}
    rate = rates.pop()
    return rate if not rates and rate.is_number else None


def _called(function: Any) -> str:
    inner = getattr(function, "func", function)  # of a partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def _starred(path: str) -> str:
    """A path with its numbers left open, which is the same for equal layers: "h.11.attn" as "h.*.attn"."""
    return re.sub(r"(?<![^.])\d+(?=[.:]|$)", "*", path)


def _joined(paths: list[str]) -> str:
    """What equal layers' paths have in common: "h.0.attn" and "h.1.attn" as "h.*.attn"."""
    parts = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in parts)


def _origin(lives: list[Live]) -> str:
    """Where equal tensors come from: a name, or the op, its module and the line of the model."""
    live, place = lives[0], _joined([each.name or each.path for each in lives])
    if live.name or not live.op:
        return place or "from outside"
    file, _, line = live.source.rpartition(":")
    return f"{_short(live.op)} in {place or 'the top level'}{f' ({Path(file).name}:{line})' if line else ''}"


def _short(op: str) -> str:
    return op.removesuffix(".default")


def _where(moment: Moment) -> str:
    """The phase of a moment, what had just run, and in which module."""
    if not moment.op:
        return "before the first op"
    return f"{moment.phase}: {_short(moment.op)} in {moment.path or 'the top level'}"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size:,}" for name, size in sizes.items())


def binary(nbytes: Any) -> str:
    """Bytes in powers of 1024, as devices state them: "28 GiB". Below a MiB that helps nobody: ""."""
    scaled, unit = float(nbytes) / 2**20, "MiB"
    for larger in ("GiB", "TiB", "PiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.4g} {unit}" if scaled >= 1 else ""


def both(nbytes: Any) -> str:
    """Bytes in powers of 1000, and of 1024 where that helps: "30.07 GB (28 GiB)"."""
    small = binary(nbytes)
    return quantity(nbytes, "B") + (f" ({small})" if small else "")


# -- sections ----------------------------------------------------------------------------


def heading(account: Account) -> list[str]:
    """What was traced, at which sizes, and how the step was run."""
    return [*header(account), *_step_line(account)]


def _step_line(account: Account) -> Iterator[str]:
    program = account.program
    if program is None:
        return
    if not account.step.trained:
        yield "forward only"
        return
    used = f"with {_called(program.optimizer)}" if program.optimizer is not None else "without an optimizer"
    yield ", ".join([f"training step {used}", *_habits(program)])


def _habits(program: Program) -> Iterator[str]:
    """What is out of the ordinary in how the step was run."""
    if program.accumulate > 1:
        yield f"{program.accumulate} micro-batches"
    if program.clip is not None:
        yield f"gradients clipped {f'by {_called(program.clip)}' if callable(program.clip) else f'to {program.clip}'}"
    if not program.set_to_none:
        yield "gradients zeroed between steps"
    if program.keep_outputs:
        yield "output kept until the step ends"


def _step(program: Program | None) -> dict[str, Any] | None:
    """How the step was run, for machines."""
    if program is None:
        return None
    return {
        "train": program.train,
        "optimizer": _called(program.optimizer) if program.optimizer is not None and program.train else None,
        "accumulate": program.accumulate,
        "clip": _called(program.clip) if callable(program.clip) else program.clip,
        "set_to_none": program.set_to_none,
        "keep_outputs": program.keep_outputs,
    }


def sections(
    account: Account, depth: int = 1, top: int = 10, least: Mapping[str, int] | None = None
) -> Iterator[Section]:
    """The tables of a memory report: closed forms, the peak, and at sizes what is alive then."""
    facts = _Facts(account, least)
    yield _closed_forms(facts)
    yield _peak(facts, top)
    if facts.numbers:
        yield from _at_the_peak(facts, depth, top)


def _closed_forms(facts: _Facts) -> Section:
    rows = [(name, formula(expr), _amount(value)) for name, (expr, value) in facts.bytes.items() if expr != 0]
    moments = len(facts.candidates)
    peak = f"the largest of {moments} moments, below"
    if moments <= _SHORT:
        peak = "no closed form, see below" if facts.refusal else formula(facts.peak)
    rows.append(("peak", peak, _amount(facts.winner.nbytes) if facts.numbers else ""))
    title = "memory, in bytes" if facts.account.allocator == "logical" else "memory, in blocks of 512 bytes"
    notes = tuple(_per_parameter(facts))
    return Section(title, *_with_values(facts, (_NAME, _FORMULA), rows), notes=notes)


def _with_values(
    facts: _Facts, columns: tuple[Column, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    """A table's columns and rows, the last of which, the values, are left out where there are no sizes."""
    if facts.numbers:
        return (*columns, _VALUE), tuple(rows)
    return columns, tuple(row[:-1] for row in rows)


def _amount(nbytes: Any) -> str:
    return "" if nbytes is None else quantity(int(nbytes), "B")


def _per_parameter(facts: _Facts) -> Iterator[str]:
    found = facts.per_parameter
    if found is None:
        return
    parts = {name: value for name, value in found.items() if name != "scalars"}
    named = " + ".join(f"{formula(value)} {name}" for name, value in parts.items())
    lone = f"; and {formula(found['scalars'])} bytes of scalars, such as step counts" if found["scalars"] != 0 else ""
    total = formula(sympy.Add(*parts.values()))
    yield f"{total} bytes per parameter{f': {named}' if len(parts) > 1 else ''}{lone}"


def _peak(facts: _Facts, top: int) -> Section:
    """The peak as what all candidates have in common plus the largest of what they have beyond it."""
    if facts.refusal:
        return Section("peak: no closed form", (_FORMULA,), ((facts.refusal,),))
    found, common = facts.candidates, facts.common
    where = f" where {', '.join(f'{n} >= {s:,}' for n, s in facts.least.items())}" if facts.least else ""
    rows = []
    if len(found) == 1:
        title = f"peak: the same moment at all sizes{where}"
    else:
        title = f"peak = what is common + Max of {len(found)} moments{where}"
        value = evaluate(common, facts.account.sizes) if facts.account.sizes is not None else None
        rows.append(("common to all", formula(common), _amount(value)))
    shown = found[:top]
    for c in shown:
        own = c.beyond if len(found) > 1 else c.nbytes
        step = "first step, " if c.moment.timeline.name == "first" else ""
        rows.append((step + _where(c.moment), formula(own), _amount(c.value)))
    notes = []
    if facts.numbers and len(found) > 1:
        notes.append("The bytes of a moment are the common ones and its own.")
    if len(found) > len(shown):
        sizes = "" if facts.numbers else f" at {_sizes(facts.account.trial_sizes)}"
        notes.append(
            f"The {len(shown)} largest{sizes} are shown; {len(found) - len(shown)} more can be the peak at other "
            "sizes. Fewer can where dims are known to be large: --least L=128, or memory.where(L=128)."
        )
    columns = (Column("moment", "name"), _FORMULA)
    return Section(title, *_with_values(facts, columns, rows), titled=True, notes=tuple(notes))


def _at_the_peak(facts: _Facts, depth: int, top: int) -> Iterator[Section]:
    winner = facts.winner
    total = winner.nbytes
    names = {"first": "first step", "later": "any later step", "only": "step"}
    rows = tuple((names[name], _amount(m.nbytes), binary(m.nbytes), _where(m)) for name, m in facts.peaks.items())
    when = f", in {'the first' if winner.timeline.name == 'first' else 'any later'} step" if len(rows) > 1 else ""
    columns = (_NAME, _VALUE, Column("binary", "value"), Column("moment", "formula"))
    yield Section(f"peak at these sizes: {total:,} bytes, {both(total)}{when}", columns, rows)
    kinds = ((kind, _amount(n), _share(n, total)) for kind, n in winner.by_kind().items())
    shares = (_VALUE, Column("share", "value"))
    yield Section("alive at the peak, by kind", (_NAME, *shares), tuple(kinds))
    modules = sorted(winner.by_module(depth).items(), key=lambda item: -item[1])
    cells = [(name or "(top level)", _amount(n), _share(n, total)) for name, n in modules[:top]]
    if rest := [n for _, n in modules[top:]]:
        cells.append((f"({len(rest)} more)", _amount(sum(rest)), _share(sum(rest), total)))
    yield Section(f"alive at the peak, by module to depth {depth}", (_NAME, *shares), tuple(cells))
    yield _largest(facts, top)


def _share(part: Any, total: Any) -> str:
    percent = 100 * part / total if total else 0
    return f"{percent:.1f} %" if percent >= 0.05 or not part else "<0.1 %"


def _largest(facts: _Facts, top: int) -> Section:
    """The largest tensors: bytes, kind, shape, dtype, origin. In deep models equal layers' tensors would fill it."""
    rows = []
    for group in facts.groups[:top]:
        shape = f"({', '.join(map(text, group.shape))})"
        many = f"{group.count} x " if group.count > 1 else ""
        rows.append((_amount(group.nbytes), group.kind, f"{many}{group.dtype} {shape}", group.origin))
    columns = (_VALUE, Column("kind", "word"), Column("tensor", "text"), Column("from", "formula"))
    rest = facts.groups[top:]
    count = sum(group.count for group in rest)
    notes = (f"and {count:,} more with {_amount(sum(g.nbytes for g in rest))}",) if rest else ()
    return Section(
        "largest tensors at the peak, those of equal layers together", columns, tuple(rows), titled=True, notes=notes
    )


def footer(account: Account) -> list[str]:
    """What the bytes rest on."""
    lines = grounds(account)
    if account.sizes is not None and 1 in account.sizes.values():
        lines.append(
            "at a size of 1 eager PyTorch may skip copies that other sizes need: bytes may be a little too high (trace "
            "with that axis given as 1 for the exact figure)"
        )
    return [*lines, _TERMS, CONVENTION[account.allocator]]


# -- forms -------------------------------------------------------------------------------


def to_text(
    account: Account, depth: int = 1, top: int = 10, least: Mapping[str, int] | None = None, width: int = WIDTH
) -> str:
    """The memory report as plain text of the given width."""
    return as_text(renderables(account, depth, top, least, width), width)


def renderables(
    account: Account, depth: int = 1, top: int = 10, least: Mapping[str, int] | None = None, width: int = WIDTH
) -> Iterator[RenderableType]:
    """The memory report for a rich console of the given width."""
    return as_renderables(heading(account), sections(account, depth, top, least), footer(account), width)


def to_markdown(account: Account, depth: int = 1, top: int = 10, least: Mapping[str, int] | None = None) -> str:
    """The memory report in Markdown."""
    return as_markdown(heading(account), sections(account, depth, top, least), footer(account))


def to_json(account: Account, least: Mapping[str, int] | None = None) -> str:
    """Memory for machines. Formulas are strings, values exact numbers; what needs sizes is null without them."""
    import torch

    import symacct

    facts = _Facts(account, least)
    account, numbers, per_parameter = facts.account, facts.numbers, facts.per_parameter
    document = {
        "symacct": symacct.__version__,
        "torch": torch.__version__,
        "target": account.title,
        "inputs": account.inputs,
        "step": _step(account.program),
        "allocator": account.allocator,
        "convention": CONVENTION[account.allocator],
        **basis(account),
        "bytes": {
            name.replace(" ", "_"): {"formula": text(expr), "value": value}
            for name, (expr, value) in facts.bytes.items()
        },
        "bytes_per_parameter": per_parameter and {n.replace(" ", "_"): text(v) for n, v in per_parameter.items()},
        "peak": {
            "formula": text(facts.peak) if not facts.refusal else None,
            "value": facts.winner.nbytes if numbers else None,
            "least": facts.least,
            "common": text(facts.common) if not facts.refusal else None,
            "candidates": [
                {
                    **_moment(c.moment),
                    "formula": text(c.nbytes),
                    "beyond_common": text(c.beyond),
                    "value": c.value if numbers else None,
                }
                for c in facts.candidates
            ],
            "first": _numbered(facts.peaks.get("first")) if numbers else None,
            "later": _numbered(facts.peaks.get("later", facts.peaks.get("only"))) if numbers else None,
            "by_kind": facts.winner.by_kind() if numbers else None,
            "by_module": facts.winner.by_module(None) if numbers else None,
            "tensors": [_tensor(facts, storage) for storage in facts.tensors] if numbers else None,
        },
    }
    return json.dumps(document, indent=1)


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "op": moment.op,
        "module": moment.path,
        "phase": moment.phase,
        "step": moment.timeline.name,
        "source": moment.source,
    }


def _numbered(moment: Moment | None) -> dict[str, Any] | None:
    return {**_moment(moment), "value": moment.nbytes} if moment is not None else None


def _tensor(facts: _Facts, storage: int) -> dict[str, Any]:
    live, symbolic = facts.winner.timeline.live(storage), facts.formulas.live(storage)
    return {
        "bytes": live.nbytes,
        "kind": live.kind,
        "name": live.name,
        "shape": [text(n) for n in symbolic.shape],
        "dtype": live.dtype,
        "module": live.path,
        "op": live.op,
        "phase": live.phase,
        "source": live.source,
    }
