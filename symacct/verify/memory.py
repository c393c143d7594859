"""The memory of an account beside a real run's: figures to the byte, and every storage's birth and death.

Claimed are equality of all figures and of all lifetimes. A total alone never passes: where lifetimes differ there is
a residual at the node that made the storage, also if no figure differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from symacct.account import Account
from symacct.calls import bind_arguments
from symacct.errors import VerifyError
from symacct.record import Node, Record
from symacct.torch_private import tensor_arguments
from symacct.verify.allocations import courses
from symacct.verify.course import Course, host_storages, predicted
from symacct.verify.findings import BOUND, DIFFERENT, EQUAL, Figure, Part, Residual
from symacct.verify.pairing import Places, Step
from symacct.verify.profiled import Seen
from symacct.verify.scratch import NUMBER, SCRATCH, Use

_STEPS = ("first step", "later step")
_CUDA = (
    "on CUDA the profiler tells of blocks, which can be larger than what was asked for: this part informs, "
    "and what is claimed is claimed of the allocator's own statistics"
)


def memory_part(
    account_at: Account,
    seen: Seen,
    matched: Mapping[int, Node],
    alive: int,
    state: int = 0,
    device: str = "cpu",
    spare: int = 0,
) -> Part:
    """Lay the first two steps of a profiled run beside an account at sizes.

    ``matched``: the recorded node that each call (by its index) is, where it is one. ``alive``: bytes on the device
    before the run (on CUDA in blocks of 512), ``state``: of the optimizer's state after it. ``spare``: bytes of
    scratch that an operator in the table may take beyond its bound. Raises `VerifyError` if the profiler saw no step.
    """
    account = account_at.with_allocator("logical" if device == "cpu" else "cuda")
    steps = list(_steps(account, courses(seen, matched, alive, device), Places(matched, seen.calls), device))
    if not steps:
        raise VerifyError("the profiler saw no step: the run has to name the points of its steps")
    figures = [_equal("optimizer's state", _state_bytes(account_at, device), state)]
    numbers = NUMBER * numbers_in(account.step.record)
    before: Step | None = None
    for step in steps:
        step.compare_births()
        step.compare_deaths(step.compare_start(before))
        figures += _figures(step)
        if device == "cpu":
            figures.append(_bounded(step, numbers, spare))
        before = step
    residuals = _merged(steps) or tuple(_unexplained(figures))
    notes = () if device == "cpu" else (_CUDA,)
    return Part("memory", "B", tuple(figures), residuals, notes, claims=device == "cpu")


def _steps(account: Account, real: Sequence[Course], places: Places, device: str) -> Iterator[Step]:
    memory = account.memory
    for name, course, timeline in zip(_STEPS, real, (memory.first, memory.later), strict=False):
        single = len(real) == 1 and memory.first is memory.later
        yield Step("" if single else name, course, predicted(timeline, device), timeline, places)


# -- figures -----------------------------------------------------------------------------


def _state_bytes(account: Account, device: str) -> int:
    """Bytes of the optimizer's state; on another device than the host without counters that stay on the host."""
    host = host_storages(account.step) if device != "cpu" else set()
    sizes = account.with_allocator("logical").memory.storages.numbers
    kept = {held.storage for held in account.step.state} & host
    return int(account.optimizer_bytes - sum(sizes[n] for n in kept))


def _equal(name: str, ours: int, real: int) -> Figure:
    return Figure(name, int(ours), int(real), "B", EQUAL if ours == real else DIFFERENT)


def _figures(step: Step) -> Iterator[Figure]:
    real, ours = step.real, step.ours
    yield _equal(_named("at the start", step), ours.start, real.start)
    if real.forward is not None and ours.forward is not None:
        yield _equal(_named("end of forward", step), ours.forward, real.forward)
    yield _equal(_named("peak", step), ours.peak, real.peak)
    yield _equal(_named("at rest", step), ours.rest, real.rest)


def _named(what: str, step: Step) -> str:
    return f"{what}, {step.name}" if step.name else what


def _unexplained(figures: Sequence[Figure]) -> Iterator[Residual]:
    """For figures that differ where all lifetimes are equal: it is what was there before the run that differs."""
    for figure in figures:
        if figure.verdict == DIFFERENT:
            more = figure.measured - figure.predicted
            text = f"{figure.name}: {abs(more):,} bytes {'more' if more > 0 else 'less'} than predicted, though every "
            yield Residual(text + "storage that the run makes lives as predicted", abs(more))


def _merged(steps: Sequence[Step]) -> tuple[Residual, ...]:
    """The residuals of all steps. Equal ones stand once, and say in which step and how often."""
    places: dict[Residual, Counter[str]] = {}
    for step in steps:
        for residual in step.residuals:
            places.setdefault(residual, Counter())[step.name] += 1
    found: list[Residual] = []
    for residual, counts in places.items():
        times = max(counts.values())
        where = [" and ".join(name for name in counts if name), f"{times} times" if times > 1 else ""]
        added = ", ".join(part for part in where if part)
        text = f"{residual.text} ({added})" if added else residual.text
        found.append(replace(residual, text=text, amount=residual.amount * times))
    return tuple(found)


# -- scratch and numbers -----------------------------------------------------------------


def _bounded(step: Step, numbers: int, spare: int) -> Figure:
    """The allocator's own peak; scratch and numbers (``numbers`` bytes) beyond their bounds become residuals."""
    most = max((use.bound(spare) for use in step.real.uses.values() if use.scratch), default=0)
    for call, use in step.real.uses.items():
        if use.scratch > use.bound(spare):
            step.residuals.append(_scratch(step, call, use, spare))
    if step.real.numbers > numbers:
        text = f"numbers that became tensors took {step.real.numbers:,} bytes, allowed {numbers:,}"
        step.residuals.append(Residual(text, step.real.numbers - numbers))
    peak = step.ours.peak
    within = peak <= step.real.raw_peak <= peak + most + numbers
    return Figure(
        _named("allocator's own peak", step), peak, step.real.raw_peak, "B", BOUND if within else DIFFERENT,
        f"scratch of operators may add {most:,}, numbers {numbers:,}",
    )  # fmt: skip


def _scratch(step: Step, call: int, use: Use, spare: int) -> Residual:
    operands = ", ".join(map(str, use.operands)) or "no tensors"
    allowed = f"{use.bound(spare):,} allowed" if use.packet in SCRATCH else "not in the table of operators with scratch"
    text = f"{use.scratch:,} bytes of scratch on {operands}, {allowed}"
    return step.places.at_call(call, text, use.scratch - use.bound(spare))


def numbers_in(record: Record) -> int:
    """How many recorded calls have a number where the operator has a tensor, or write one into a tensor."""
    return sum(_takes_number(node) for node in (*record.nodes, *record.aside))


def _takes_number(node: Node) -> bool:
    if node.op in ("aten.lift_fresh.default", "aten.fill_.Scalar", "aten.where.self"):
        return True
    types = tensor_arguments(node.func)
    bound = bind_arguments(node.func, node.args, node.kwargs)
    return any(isinstance(value, (int, float)) for name, value in bound.items() if types.get(name) == "Tensor")
