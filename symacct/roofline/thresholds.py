"""From which size of a dim on a part of a step is compute-bound, solved exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from symacct.account import Account
from symacct.dim import check_size, point, symbol
from symacct.errors import QuestionError, SpecError, UnknownDimError
from symacct.formulas.crossing import Crossover, Region, crossover
from symacct.hardware import Device
from symacct.printing import formula, text
from symacct.roofline.bounds import Bound, largest
from symacct.roofline.rooflines import Roofline, roofline
from symacct.shown import Shown


@dataclass(frozen=True)
class Threshold(Shown):
    """Where a part of a step turns compute-bound, by one dim.

    ``roots`` are the exact sizes at which its arithmetic at the peaks takes as long as its bytes at the bandwidth:
    rational, radicals or roots of a polynomial, and formulas where other dims have no sizes. ``regions`` lie between:
    ``larger`` is "compute", "memory" or "equal", or "" where that depends on the other sizes.
    """

    part: str
    device: str
    dim: str
    roots: tuple[sympy.Expr, ...]
    regions: tuple[Region, ...]
    notes: tuple[str, ...] = ()

    @property
    def always(self) -> bool:
        """Whether it is compute-bound at every size."""
        return all(region.larger == "compute" for region in self._reached)

    @property
    def never(self) -> bool:
        """Whether it is compute-bound at no size."""
        return all(region.larger in ("memory", "equal") for region in self._reached)

    @property
    def _reached(self) -> list[Region]:
        """The regions that have a size of 1 or more in them."""
        return [region for region in self.regions if region.high.free_symbols or region.high > 1]

    @property
    def root(self) -> sympy.Expr:
        """The last size at which it changes. Raises `QuestionError` where nothing changes."""
        if not self.roots:
            raise QuestionError(str(self))
        return self.roots[-1]

    @property
    def first(self) -> int | None:
        """The least whole size from which on it is compute-bound for good; None where there is none."""
        last = self.regions[-1]
        if last.larger != "compute" or last.low.free_symbols:
            return None
        return int(sympy.floor(last.low)) + 1

    def __str__(self) -> str:
        opening = f"{self.part} on {self.device}: "
        if self.always or self.never:
            dim = f"of {self.dim}" if self.dim else ""
            return f"{opening}compute-bound at {'every' if self.always else 'no'} size {dim}".rstrip()
        said = [_where(region, self.dim) for region in self.regions if region.larger == "compute"]
        unclear = [region for region in self.regions if region.larger == ""]
        if unclear and not said:
            roots = ", ".join(formula(root) for root in self.roots)
            return f"{opening}changes at {self.dim} = {roots}; on which side depends on the other sizes"
        return "; ".join([f"{opening}compute-bound when {' or '.join(said)}", *self.notes])


def compute_bound_when(
    what: Roofline | Account,
    dim: str,
    /,
    *,
    device: str | Device | None = None,
    phase: str | None = None,
    module: str | None = None,
    op: str | None = None,
    **sizes: int,
) -> Threshold:
    """The sizes of a dim at which a part of a step is compute-bound: solved, not sampled.

    Compute-bound is where its arithmetic at the peaks (matrix or vector, the slower) takes longer than its bytes at the
    bandwidth, each summed over the part: its intensity is beyond the ridge. ``what``: a roofline, or an account with a
    ``device``. The part is the step, or a ``phase``, a ``module`` (path), an ``op``. ``sizes``: of other dims; without
    them the roots are formulas in these where the equation is linear or quadratic.

    Raises `SpecError` for a part that is not there or an equation that needs sizes, `UnknownDimError` for a
    dim that the account does not have.
    """
    if isinstance(what, Account):
        if device is None:
            raise SpecError("compute_bound_when(): an account needs a device, such as device='h100'")
        what = roofline(what, device)
    account = what.account
    names = tuple(account.trial_sizes)
    for name in (dim, *sizes):
        if name not in names:
            raise UnknownDimError(
                f"compute_bound_when(): there is no dim {name!r}; the account's dims are {', '.join(names) or 'none'}"
            )
    part, bound = _part(what.symbolic, phase, module, op)
    held = sizes or account.sizes or {}
    given = {name: check_size(name, size) for name, size in held.items() if name != dim}
    at = dict(point(given))
    arithmetic = largest(sympy.sympify(bound.seconds_at[k]).xreplace(at) for k in ("compute", "vector"))
    memory = sympy.sympify(bound.seconds_at["memory"]).xreplace(at)
    found = _crossing(arithmetic, memory, dim)
    said = {"a": "compute", "b": "memory"}
    regions = tuple(Region(r.low, r.high, said.get(r.larger, r.larger)) for r in found.regions)
    return Threshold(part, what.device.name, dim, found.roots, regions, found.notes)


def _part(what: Roofline, phase: str | None, module: str | None, op: str | None) -> tuple[str, Bound]:
    if module is not None and op is not None:
        raise SpecError("compute_bound_when(): give a module or an op, not both")
    if module is not None:
        depth = len(module.split("."))
        groups, name = what.by_module(depth, phase), module
    elif op is not None:
        groups, name = what.by_op(phase), op
    elif phase is not None:
        groups, name = what.phases, phase
    else:
        return "the step", what.total
    found = groups.get(name) or groups.get(f"{name}.default")
    if found is None:
        known = ", ".join(group or "(top level)" for group in groups)
        raise SpecError(f"compute_bound_when(): there is no {name!r}; there are {known}")
    return (name if phase in (None, name) else f"{name} ({phase})"), found


def _crossing(arithmetic: sympy.Expr, memory: sympy.Expr, dim: str) -> Crossover:
    """Where the two are equal; one region where their difference does not depend on the dim."""
    difference = sympy.expand(arithmetic - memory)
    if dim in {s.name for s in difference.free_symbols}:
        return _sided(crossover(arithmetic, memory, dim), difference.xreplace({symbol(dim): sympy.Integer(0)}))
    if difference.free_symbols:
        raise SpecError(
            f"compute_bound_when(): {text(difference)} does not depend on {dim}; give sizes for "
            f"{', '.join(sorted(s.name for s in difference.free_symbols))}"
        )
    larger = "a" if difference > 0 else "b" if difference < 0 else "equal"
    return Crossover(dim, (), (Region(sympy.Integer(0), sympy.oo, larger),))


def _sided(found: Crossover, at_zero: sympy.Expr) -> Crossover:
    """A crossing that is there for some sizes of the other dims: which side of it is which tells the size of 0."""
    coefficients = at_zero.as_coefficients_dict().values() if at_zero != 0 else ()
    if len(found.roots) != 1 or any(region.larger for region in found.regions) or not coefficients:
        return found
    if all(c < 0 for c in coefficients):
        sides = ("b", "a")
    elif all(c > 0 for c in coefficients):
        sides = ("a", "b")
    else:
        return found
    always = "memory-bound" if sides[0] == "b" else "compute-bound"
    notes = (f"where that is above 0; else {always} at every size of {found.dim}",)
    regions = (replace(region, larger=side) for region, side in zip(found.regions, sides, strict=True))
    return replace(found, regions=tuple(regions), notes=notes)


def _where(region: Region, dim: str) -> str:
    """A range of whole sizes, with the exact ends behind it."""
    low, high = region.low, region.high
    if low.free_symbols or high.free_symbols:
        above = "" if low == 0 else f"{dim} > {formula(low)}"
        below = "" if high == sympy.oo else f"{dim} < {formula(high)}"
        return " and ".join(filter(None, (above, below)))
    above = "" if low == 0 else f"{dim} > {int(sympy.floor(low)):,}"
    below = "" if high == sympy.oo else f"{dim} < {int(sympy.ceiling(high)):,}"
    ends = [f"{float(end):.7g}" for end in (low, high) if end not in (0, sympy.oo) and not end.is_Integer]
    return " and ".join(filter(None, (above, below))) + (f" (exactly {', '.join(ends)})" if ends else "")
