"""What an allocator really did in the steps of a profiled run: the lifetimes of storages, and what passes between.

Three kinds of memory are told apart:

- *storages*: what tensors of the program rest on, also those that autograd's engine and the optimizer make;
- *scratch*: what an operator allocates and frees before it returns (`symacct.verify.scratch`);
- *numbers*: the tensor of at most 16 bytes that torch makes of a number among an operator's tensor operands,
  before any operator runs. Autograd keeps some of them until the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symacct.record import Node
from symacct.verify.course import Course, Order, Piece
from symacct.verify.profiled import Allocated, Point, Seen
from symacct.verify.scratch import NUMBER, Use


def courses(seen: Seen, matched: Mapping[int, Node], alive: int, device: str = "cpu") -> list[Course]:
    """The steps of a run, each from its point "step..." to the next; births and deaths from its point "start" on.

    ``alive``: bytes on the device before the run. ``matched``: the recorded nodes of calls, by their index.
    """
    return _Reader(seen, matched, alive, device).courses


class _Reader:
    """Reads a run's events in order; ``total`` is what is alive, ``raw`` the same with scratch and numbers."""

    def __init__(self, seen: Seen, matched: Mapping[int, Node], alive: int, device: str) -> None:
        self.seen, self.matched = seen, matched
        self.total = self.raw = alive
        self.held = 0  # by numbers
        self.alive: dict[int, Piece] = {}  # what was born in this run, by address
        self.courses: list[Course] = []
        self.course = Course("before")
        self.order: Order | None = None  # None: the step has not passed its start
        here = [e for e in seen.events if isinstance(e, Point) or (isinstance(e, Allocated) and e.device == device)]
        scratch, numbers = _kinds(here)
        for position, event in enumerate(here):
            if isinstance(event, Point):
                self._passes(event.name)
            elif isinstance(event, Allocated):
                self._takes(event, position in scratch, position in numbers)
        self._closes()

    def _passes(self, name: str) -> None:
        if name.startswith("step"):
            self._closes()
            self.course = Course(name)
            self.courses.append(self.course)
        elif name == "start":
            self.course.start = self.course.peak = self.total
            self.course.raw_peak = self.raw
            self.order = Order()
            self.alive = {p: Piece(old.nbytes, old.node, old.call, earlier=old) for p, old in self.alive.items()}
            self.course.present = list(self.alive.values())
        elif name == "forward":
            self.course.forward = self.total

    def _closes(self) -> None:
        if self.order is not None:
            self.course.births = self.order.births
        self.course.rest = self.total
        self.order = None

    def _takes(self, event: Allocated, is_scratch: bool, is_number: bool) -> None:
        course, use = self.course, self._use(event.call)
        self.raw += event.nbytes
        course.raw_peak = max(course.raw_peak, self.raw)
        if is_number:
            self.held += event.nbytes
            course.numbers = max(course.numbers, self.held)
        elif is_scratch and use is not None:
            use.allocates(event.nbytes)
        else:
            self.total += event.nbytes
            course.peak = max(course.peak, self.total)
            if event.nbytes > 0:
                self._born(event, use)
            else:
                self._died(event)

    def _use(self, call: int) -> Use | None:
        if call < 0:
            return None
        called = self.seen.calls[call]
        return self.course.uses.setdefault(call, Use(called.op, called.operands, self.seen.threads))

    def _born(self, event: Allocated, use: Use | None) -> None:
        by_call = event.call >= 0
        piece = Piece(event.nbytes, self.matched.get(event.call), self.seen.calls[event.call] if by_call else None)
        self.alive[event.ptr] = piece
        if use is not None:
            use.results += event.nbytes
        if self.order is not None:
            self.order.born(piece, event.call if by_call else None)

    def _died(self, event: Allocated) -> None:
        piece = self.alive.pop(event.ptr, None)
        if self.order is None:
            return
        if piece is None:
            piece = Piece(-event.nbytes)
            self.course.freed.append(piece)
        self.order.died(piece)


def _kinds(events: Sequence[Allocated | Point | object]) -> tuple[set[int], set[int]]:
    """Which events are scratch, and which are numbers, by position."""
    born: dict[int, tuple[int, int]] = {}  # by address: the position of its birth, and by which call
    scratch: set[int] = set()
    numbers: set[int] = set()
    for position, event in enumerate(events):
        if not isinstance(event, Allocated):
            continue
        if event.nbytes > 0:
            born[event.ptr] = position, event.call
            if event.call < 0 and event.nbytes <= NUMBER:
                numbers.add(position)
        elif event.ptr in born:
            birth, call = born.pop(event.ptr)
            if birth in numbers:
                numbers.add(position)
            elif 0 <= event.call == call:
                scratch |= {birth, position}
    return scratch, numbers
