"""Bounds: the least seconds of a part of a step under the ceilings of a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy

from symacct.algebra import evaluate, total_of
from symacct.cost import Size
from symacct.errors import DeviceError, MissingSizeError
from symacct.hardware import Device
from symacct.roofline.kernels import Kernel, Use
from symacct.shown import Shown

LIMITS = ("compute", "vector", "memory")


@dataclass(frozen=True)
class Bound(Shown):
    """The least time of a part of a step: its kernels one after another, each at the ceiling that it meets first.

    ``seconds`` is a number, or a SymPy sum of ``times*Max(...)`` in an account without sizes. ``flops`` are those of
    contractions, ``pointwise`` all other arithmetic, ``bytes`` those of the level. ``seconds_at``: the sums of all
    kernels at each ceiling alone: "compute" (FLOP at the matrix peaks of their dtypes), "vector" (pointwise at the
    vector peak), "memory" (bytes at the bandwidth). ``flops_by_dtype``: the FLOP by what is multiplied.
    """

    name: str
    seconds: Size
    flops: Size
    pointwise: Size
    bytes: Size
    seconds_at: Mapping[str, Size]
    flops_by_dtype: Mapping[str, Size] = field(default_factory=dict)
    count: Size = 0
    _by_limit: Mapping[str, float] | None = field(default=None, repr=False)

    @property
    def intensity(self) -> Size:
        """FLOP (contractions and pointwise) per byte; None where no byte moves."""
        if self.bytes == 0:
            return None
        arithmetic = self.flops + self.pointwise
        return arithmetic / self.bytes

    @property
    def limit(self) -> str:
        """What its sums take longest at: "compute", "vector" or "memory"; "" where nothing runs. Needs sizes."""
        self._at_sizes("limit")
        limit = max(LIMITS, key=lambda name: self.seconds_at[name])
        return limit if self.seconds_at[limit] else ""

    @property
    def seconds_by_limit(self) -> Mapping[str, float]:
        """The seconds of its kernels by the ceiling that each of them meets first. Needs sizes."""
        self._at_sizes("seconds_by_limit")
        return self._by_limit or {}

    @property
    def flops_per_s(self) -> float:
        """The most FLOP (contractions and pointwise) per second that it can reach. Needs sizes."""
        self._at_sizes("flops_per_s")
        return float(self.flops + self.pointwise) / self.seconds if self.seconds else 0.0

    def _at_sizes(self, name: str) -> None:
        if self._by_limit is None:
            raise MissingSizeError(
                f"{name} depends on the sizes: give them with account.at(...) or roofline.at(...), or ask "
                "compute_bound_when(...) for the size at which it changes"
            )


class Ceilings:
    """What kernels take on a device: the dense matrix peak of a dtype, the vector peak, the bandwidth."""

    def __init__(self, device: Device, tf32: bool, sizes: Mapping[str, int] | None) -> None:
        self.device = device
        self.tf32 = tf32
        self.sizes = sizes
        self._numbers: dict[Any, Any] = {}
        self._kernels: dict[Kernel, tuple[Any, ...]] = {}

    def peak(self, dtype: str, use: Use) -> float:
        """The matrix peak for a dtype. Raises `DeviceError`, which says which op of which module wants it."""
        try:
            return self.device.peak(dtype, self.tf32)
        except DeviceError as error:
            where = f"{use.op} in {use.path or 'the top level'} ({use.phase})" if use.op else f"the {use.phase} phase"
            raise DeviceError(f"{where} multiplies {dtype}: {error}") from None

    def bound(self, name: str, uses: Iterable[Use]) -> Bound:
        """The bound of all these kernels, one after another."""
        return self._in_numbers(name, uses) if self.sizes is not None else self._in_symbols(name, uses)

    # -- numbers -------------------------------------------------------------------------

    def _in_numbers(self, name: str, uses: Iterable[Use]) -> Bound:
        flops = pointwise = nbytes = count = 0
        at = dict.fromkeys(LIMITS, 0.0)
        by_limit = dict.fromkeys(LIMITS, 0.0)
        by_dtype: dict[str, Any] = {}
        for use in uses:
            does, arithmetic, moved, seconds = self._measures(use)
            times = self._number(use.times)
            for dtype, n in does.items():
                by_dtype[dtype] = by_dtype.get(dtype, 0) + n * times
                flops += n * times
            pointwise += arithmetic * times
            nbytes += moved * times
            count += times
            for limit in LIMITS:
                at[limit] += seconds[limit] * times
            first = max(LIMITS, key=seconds.__getitem__)
            by_limit[first] += seconds[first] * times
        return Bound(name, sum(by_limit.values()), flops, pointwise, nbytes, at, by_dtype, count, by_limit)

    def _measures(self, use: Use) -> tuple[Any, ...]:
        """FLOP by dtype, pointwise, bytes, and seconds at each ceiling, of one kernel."""
        found = self._kernels.get(use.kernel)
        if found is None:
            flops: dict[str, Any] = {}
            for (dtype, expr), n in use.kernel.flops:
                flops[dtype] = flops.get(dtype, 0) + n * self._number(expr)
            pointwise = sum(n * self._number(expr) for expr, n in use.kernel.pointwise)
            nbytes = sum(n * self._number(expr) for expr, n in use.kernel.bytes)
            vector = self.device.vector_flops_per_s
            seconds = {
                "compute": sum(float(n) / self.peak(dtype, use) for dtype, n in flops.items()),
                "vector": float(pointwise) / vector if vector else 0.0,
                "memory": float(nbytes) / self.device.bytes_per_s,
            }
            found = self._kernels[use.kernel] = flops, pointwise, nbytes, seconds
        return found

    def _number(self, expr: Any) -> Any:
        if not isinstance(expr, sympy.Basic):
            return expr
        found = self._numbers.get(expr)
        if found is None:
            found = self._numbers[expr] = evaluate(expr, self.sizes or {})
        return found

    # -- symbols -------------------------------------------------------------------------

    def _in_symbols(self, name: str, uses: Iterable[Use]) -> Bound:
        flops: dict[str, dict[Any, Any]] = {}
        pointwise: dict[Any, Any] = {}
        nbytes: dict[Any, Any] = {}
        seconds: dict[Any, Any] = {}
        count: Any = 0
        for use in uses:
            for (dtype, expr), n in use.kernel.flops:
                self.peak(dtype, use)
                _add(flops.setdefault(dtype, {}), expr, n * use.times)
            for expr, n in use.kernel.pointwise:
                _add(pointwise, expr, n * use.times)
            for expr, n in use.kernel.bytes:
                _add(nbytes, expr, n * use.times)
            _add(seconds, self._slowest(use), use.times)
            count += use.times
        by_dtype = {dtype: total_of(terms) for dtype, terms in flops.items()}
        work, moved = total_of(pointwise), total_of(nbytes)
        at = self._seconds(by_dtype, work, moved)
        total = sympy.Add(*(times * each for each, times in seconds.items()))
        return Bound(name, total, sympy.Add(*by_dtype.values()), work, moved, at, by_dtype, count)

    def _slowest(self, use: Use) -> Any:
        """The seconds of one kernel, as a Max of what can be the largest."""
        found = self._kernels.get(use.kernel)
        if found is None:
            flops: dict[str, dict[Any, Any]] = {}
            for (dtype, expr), n in use.kernel.flops:
                _add(flops.setdefault(dtype, {}), expr, n)
            by_dtype = {dtype: total_of(terms) for dtype, terms in flops.items()}
            pointwise, nbytes = total_of(dict(use.kernel.pointwise)), total_of(dict(use.kernel.bytes))
            found = self._kernels[use.kernel] = (largest(self._seconds(by_dtype, pointwise, nbytes).values()),)
        return found[0]

    def _seconds(self, flops: Mapping[str, Any], pointwise: Any, nbytes: Any) -> dict[str, Any]:
        vector = self.device.vector_flops_per_s
        return {
            "compute": sympy.Add(*(n / exact(self.device.peak(dtype, self.tf32)) for dtype, n in flops.items())),
            "vector": pointwise / exact(vector) if vector else sympy.Integer(0),
            "memory": nbytes / exact(self.device.bytes_per_s),
        }


def _add(total: dict[Any, Any], expr: Any, times: Any) -> None:
    expr = sympy.sympify(expr)
    total[expr] = total.get(expr, 0) + times


def exact(rate: float) -> sympy.Rational:
    """A rate as a fraction, so that what is solved with it is exact."""
    fraction = Fraction(rate)
    return sympy.Rational(fraction.numerator, fraction.denominator)


def largest(exprs: Iterable[sympy.Expr]) -> sympy.Expr:
    """The Max of some times, without those that another is never below."""
    left: list[sympy.Expr] = []
    for expr in dict.fromkeys(exprs):
        if any(_never_below(other, expr) for other in left):
            continue
        left = [other for other in left if not _never_below(expr, other)] + [expr]
    if not left:
        return sympy.Integer(0)
    return left[0] if len(left) == 1 else sympy.Max(*left, evaluate=False)


def _never_below(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether each term of one sum of products of sizes has at least the coefficient that it has in the other."""
    difference = sympy.expand(a - b)
    return all(c >= 0 for c in difference.as_coefficients_dict().values())
