"""What templates may ask beside figures: least times, what fits, a whole training, serving.

What an answer rests on goes to the foot of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from symacct import napkin
from symacct.account import Account
from symacct.errors import QuestionError, SpecError
from symacct.hardware import Device
from symacct.inference import Inference
from symacct.reports.dimensions import unit_of
from symacct.reports.figures import Given, Told
from symacct.reports.views import plain
from symacct.roofline import Roofline, compute_bound_when
from symacct.roofline import roofline as roofline_of

Notes = list[str]
_MOST, _DEEPEST = 0.6, 9  # a module that takes more of the time than this is taken apart


class Refusal(str):
    """Why a question has no answer; it is false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def questions(device: Device | None, notes: Notes) -> dict[str, Callable[..., Any]]:
    """The questions by name, about the report's device where no other is given."""

    def roofline(acct: Any, on: Any = None, **options: Any) -> RooflineView:
        chosen = plain(on) if on is not None else device
        if chosen is None:
            raise SpecError("roofline(): a time needs a device; give the report one")
        return RooflineView(roofline_of(plain(acct), chosen, **options), notes)

    def training(*args: Any, **options: Any) -> Any:
        if device is not None:
            options.setdefault("device", device)
        return _noted(napkin.training, notes, args, options)

    def solve(*args: Any, **options: Any) -> Any:
        return _noted(napkin.solve, notes, args, options)

    def attempt(question: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The answer to a question, or as a text why there is none."""
        try:
            return question(*args, **options)
        except QuestionError as error:
            return Refusal(error)

    return {each.__name__: each for each in (roofline, training, solve, attempt)}


def _noted(question: Callable[..., Any], notes: Notes, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    found = question(*map(plain, args), **{name: plain(each) for name, each in options.items()})
    notes.extend(note for note in found.notes if note not in notes)
    return found


# -- times -------------------------------------------------------------------------------


class BoundView:
    """The least time of a part of a step, with figures."""

    def __init__(self, bound: Any) -> None:
        self._bound = bound
        self.name = bound.name
        for name, unit in (("seconds", "s"), ("flops", "FLOP"), ("pointwise", "FLOP"), ("bytes", "B")):
            setattr(self, name, Given(getattr(bound, name), unit_of(unit), f"{bound.name or 'top level'}.{name}"))

    @property
    def limit(self) -> str:
        """What limits it: "compute", "vector" or "memory"."""
        return str(self._bound.limit)


class RooflineView:
    """The least times of a step: ``total``, ``phases``, ``by_module(depth)``, ``by_op()``."""

    def __init__(self, made: Roofline, notes: Notes) -> None:
        self._made = made
        notes.extend(note for note in made.notes if note not in notes)
        self.total = BoundView(made.total)
        self.level, self.notes = made.level, made.notes
        self.phases = {name: BoundView(bound) for name, bound in made.phases.items() if bound.count != 0}

    @property
    def dtype(self) -> str:
        """The dtype that most FLOP are in."""
        return self._made.main_dtype

    @property
    def multiplies(self) -> bool:
        """Whether there is a matrix product at all."""
        return bool(self._made.ridges)

    @property
    def ridge(self) -> Given:
        """The ridge point."""
        return Given(self._made.ridge, unit_of("FLOP/B"), "ridge")

    def by_module(self, depth: int | None = 1, phase: str | None = None) -> dict[str, BoundView]:
        """By module, the slowest first where sizes are known."""
        return self._views(self._made.by_module(depth, phase))

    def slowest(self, top: int = 12) -> dict[str, BoundView]:
        """The modules in which the time goes, equal ones as one: at the first depth at which none has most of it."""
        found: dict[str, BoundView] = {}
        for depth in range(1, _DEEPEST):
            before, found = found, self._views(self._made.by_module(depth, repeats=True))
            times = [bound._bound.seconds for bound in found.values()]
            if not times or times[0] <= _MOST * sum(times) or (depth > 1 and list(found) == list(before)):
                break
        return dict(list(found.items())[:top])

    def by_op(self, phase: str | None = None) -> dict[str, BoundView]:
        """By operator, the slowest first where sizes are known."""
        return self._views(self._made.by_op(phase))

    def compute_bound_when(self, dim: str, **options: Any) -> Any:
        """From which size of a dim on the step is compute-bound."""
        return compute_bound_when(self._made, dim, **options)

    def _views(self, bounds: dict[str, Any]) -> dict[str, BoundView]:
        found = {name or "(top level)": bound for name, bound in bounds.items() if bound.seconds != 0}
        if self._made.account.sizes is not None:
            found = dict(sorted(found.items(), key=lambda item: -item[1].seconds))
        return {name: BoundView(bound) for name, bound in found.items()}


# -- serving -----------------------------------------------------------------------------

_SERVED = (
    "weight_bytes", "cache_bytes", "cache_bytes_per_token", "memory_bytes", "working_bytes", "read_weight_bytes",
)  # fmt: skip


def steps_of(made: Inference) -> dict[str, Account]:
    """The accounts of a decode step and of a prefill."""
    found = {"decode": made.decode, "prefill": made.prefill}
    return {name: account for name, account in found.items() if account is not None}


class InferenceView:
    """What serving a model costs, with figures; times are on the report's device or a given one."""

    def __init__(self, made: Inference, notes: Notes) -> None:
        self._made = made
        notes.extend(note for note in made.assumptions if note not in notes)
        self.title, self.sizes, self.past, self.batch = made.title, made.sizes, made.past, made.batch
        for name in _SERVED:
            setattr(self, name, self._told(name, "B", attrgetter(name)))

    def step_seconds(self, device: Any, devices: int = 1) -> Told:
        """The least time of a decode step."""
        return self._told("step_seconds", "s", lambda m: m.step_seconds(plain(device), devices))

    def tokens_per_second(self, device: Any, devices: int = 1) -> Told:
        """The most tokens per second of the whole batch."""
        return self._told("tokens_per_second", "tokens/s", lambda m: m.tokens_per_second(plain(device), devices))

    def time_to_first_token(self, device: Any, devices: int = 1) -> Told:
        """The least time of a prefill."""
        return self._told("time_to_first_token", "s", lambda m: m.time_to_first_token(plain(device), devices))

    def compute_bound_batches(self, device: Any) -> dict[str, Given | None]:
        """The batch from which on each product with weights is compute-bound; None: never."""
        found = self._made.compute_bound_batches(plain(device))
        return {name: None if size is None else Given(size, unit_of(""), name) for name, size in found.items()}

    def largest(self, dim: str, device: Any, devices: int = 1) -> int:
        """The largest batch or past that fits."""
        return self._made.largest(dim, plain(device), devices)

    def _told(self, name: str, unit: str, get: Callable[[Inference], Any]) -> Told:
        value = get(self._made)
        return Told(name, get(self._made.symbolic), unit_of(unit), value if self.sizes is not None else None)
