"""Accounts as templates see them: the same attributes and methods, whose figures know where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from symacct.account import Account
from symacct.errors import SpecError
from symacct.hardware import Device
from symacct.parts import Phase
from symacct.reports.dimensions import unit_of
from symacct.reports.figures import Figure, Given, Leaf

# Attributes of accounts and of their parts that are figures, with their units.
UNITS = {
    **dict.fromkeys(("flops", "pointwise"), "FLOP"),
    **dict.fromkeys(("bytes", "bytes_read", "bytes_written"), "B"),
    **dict.fromkeys(
        ("param_bytes", "buffer_bytes", "grad_bytes", "optimizer_bytes", "checkpoint_bytes", "activation_bytes",
         "peak_bytes", "input_bytes", "rest_bytes"), "B"),
    **dict.fromkeys(("params", "count"), ""),
    "intensity": "FLOP/B",
}  # fmt: skip
_PARTS = ("forward", "backward", "recompute", "optimizer", "total", "phases", "by_module", "by_op", "title", "sizes")
Pick = tuple[str, tuple[Any, ...], dict[str, Any], str]  # method, its arguments, the key of the group
Find = Callable[[Account], Any]


class Memo:
    """What the accounts of one report were asked before: accounts at sizes, groups of nodes."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def at(self, account: Account, sizes: Mapping[str, int]) -> Account:
        """An account at sizes."""
        found: Account = self._once(account, "at", (), dict(sizes))
        return found

    def grouped(self, account: Account, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What ``by_module`` or ``by_op`` gives."""
        return self._once(account, method, args, options)

    def _once(self, account: Account, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        key = (id(account), method, args, tuple(sorted(options.items())))
        if key not in self._known:  # beside the answer stands the account, whose id no other may get
            self._known[key] = (account, getattr(account, method)(*args, **options))
        return self._known[key][1]


class View:
    """An account, or a phase, a module or an op of one.

    What is a number or a formula there is a `Figure` here; parts are views again; the rest is as it is.
    """

    def __init__(
        self, account: Account, memo: Memo, find: Find = lambda a: a, name: str = "", picks: tuple[Pick, ...] = ()
    ) -> None:
        self._account, self._memo, self._find, self._name, self._picks = account, memo, find, name, picks

    @property
    def _part(self) -> Any:
        return self._find(self._account)

    def figure(self, path: str) -> Figure:
        """A figure by its name: ``acct.figure("forward.flops")``."""
        found: Any = self
        for name in path.split("."):
            if not isinstance(found, View) or not hasattr(found, name):
                raise SpecError(f"figure(): there is no {path!r}; {found_in(found)}")
            found = getattr(found, name)
        if isinstance(found, View) and isinstance(found._part, Phase):
            found = found.flops
        if not isinstance(found, Figure):
            raise SpecError(f"figure(): {path!r} is no figure, which forward.flops, params and peak_bytes are")
        return found

    def at(self, **sizes: int) -> View:
        """The same at sizes; those that an account has already stay where none are given."""
        given = {**(self._account.sizes or {}), **sizes}
        return View(self._memo.at(self._account.symbolic, given), self._memo, self._find, self._name, self._picks)

    def under(self, convention: Any) -> View:
        """The account counted by a convention."""
        return View(self._account.under(convention), self._memo)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kind = type(self._part)
        if name == "rest_bytes" and kind is not Phase:
            return self._figure(name, lambda a: a.memory.rest_bytes)
        if name in UNITS and hasattr(kind, name):
            return self._figure(name, lambda a: getattr(self._find(a), name))
        value = getattr(self._part, name)
        if isinstance(value, Phase):
            pick: tuple[Pick, ...] = () if name == "total" else (("phase", (), {}, name),)
            return self._view(lambda a: getattr(self._find(a), name), name, pick)
        if isinstance(value, Mapping) and value and all(isinstance(each, Phase) for each in value.values()):
            return {key: getattr(self, key) for key in value}
        return self._method(name) if name in ("by_module", "by_op") else value

    def _figure(self, name: str, get: Callable[[Account], Any]) -> Leaf:
        whole = f"{self._name}.{name}" if self._name else name
        return Leaf(self._account, get, whole, unit_of(UNITS[name]), self, None, self._memo.at)

    def _view(self, find: Find, name: str, pick: tuple[Pick, ...]) -> View:
        return View(self._account, self._memo, find, name, (*self._picks, *pick))

    def _method(self, name: str) -> Callable[..., dict[str, View]]:
        def groups(*args: Any, **options: Any) -> dict[str, View]:
            def find(key: str, account: Account) -> Any:
                return self._memo.grouped(account, name, args, options)[key]

            found = self._memo.grouped(self._account, name, args, options)
            return {
                key: self._view(partial(find, key), key or "(top level)", ((name, args, options, key),))
                for key in found
            }

        return groups

    def __dir__(self) -> list[str]:
        kind = type(self._part)
        return [*(_PARTS if kind is not Phase else ()), *(name for name in UNITS if hasattr(kind, name))]

    def __str__(self) -> str:
        return str(self.flops) if isinstance(self._part, Phase) else self._account.title

    def __repr__(self) -> str:
        return f"<View of {self._name or self._account.title}>"


def found_in(what: Any) -> str:
    """What there is instead of a name that is not: "an account has forward, ..."."""
    if isinstance(what, View):
        owner = "a phase, a module or an op" if isinstance(what._part, Phase) else "an account"
        return f"{owner} has {', '.join(what.__dir__())}"
    if isinstance(what, Mapping):
        return f"there are {', '.join(map(str, what)) or 'none'}"
    if isinstance(what, Figure):
        return "a figure has formula, value, unit and name; filters show it"
    names = [name for name in dir(what) if not name.startswith("_")]
    return f"{_article(type(what).__name__)} has {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"


def _article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


class DeviceView:
    """A device whose rates and sizes are figures; ``peak(dtype)`` is one too."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name, self.vendor, self.source = device.name, device.vendor, device.source
        self.memory_bytes = Given(device.memory_bytes, unit_of("B"), "device.memory_bytes")
        self.bytes_per_s = Given(device.bytes_per_s, unit_of("B/s"), "device.bytes_per_s")
        self.vector_flops_per_s = _rate(device.vector_flops_per_s, "FLOP/s", "device.vector_flops_per_s")
        self.interconnect_bytes_per_s = _rate(device.interconnect_bytes_per_s, "B/s", "device.interconnect_bytes_per_s")
        self.peaks = {dtype: self.peak(dtype) for dtype in device.flops_per_s}

    def peak(self, dtype: str, tf32: bool = False) -> Given:
        """The dense peak of matrix products in a dtype."""
        return Given(self._device.peak(dtype, tf32), unit_of("FLOP/s"), f"device.peak({dtype!r})")

    def __str__(self) -> str:
        return self.name


def _rate(rate: float | None, unit: str, name: str) -> Given | None:
    return None if rate is None else Given(rate, unit_of(unit), name)


def plain(value: Any) -> Any:
    """What a view or a figure stands for, for functions that take accounts, devices and expressions."""
    if isinstance(value, View):
        return value._part
    if isinstance(value, DeviceView):
        return value._device
    if isinstance(value, Figure):
        return value.value if value.known else value.formula
    return value
