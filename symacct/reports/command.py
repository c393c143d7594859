"""The command ``symacct report``, but for what `symacct.cli` reads: which accounts, which names, where to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from symacct.account import Account
from symacct.errors import SpecError
from symacct.inference import Inference
from symacct.reports.rendering import account_name, render, setting_name, write


def report(
    template: str, source: Account | Inference, *, against: Account | None = None,
    against_at: Mapping[str, int] | None = None, device: str = "", out: str = "", form: str = "",
    names: Iterable[str] = (),
) -> str:  # fmt: skip
    """The report as text, or "" where it went to the file ``out``.

    ``source``: an account, at sizes where ``--at`` gave them. ``against``: a second account, ``against_at``: the first
    at other sizes; with both, the second at these. ``names``: "tokens=1e9 tokens", more names for the template.
    """
    options: dict[str, Any] = {**_names(names), "device": device or None, "form": form or None}
    if against is not None or against_at:
        if isinstance(source, Inference):
            raise SpecError("--against: what is laid side by side are accounts of steps, not of inference")
        options["accounts"] = beside(source, against, against_at or {})
        given: Account | Inference | None = None
    else:
        given = source
    if not out:
        return render(template, given, **options)
    write(out, template, given, **options)
    return ""


def beside(first: Account, second: Account | None, sizes: Mapping[str, int]) -> dict[str, Account]:
    """Two accounts by name: two models by their titles, one model by the sizes that differ."""
    if second is None:
        if first.sizes is None:
            raise SpecError("--against-at: give the first setting with --at")
        other = first.symbolic.at(**{**first.sizes, **sizes})
        settings = [first.sizes, other.sizes or {}]
        return {setting_name(each, settings): account for each, account in zip(settings, (first, other), strict=True)}
    if sizes:
        second = second.symbolic.at(**sizes)
    elif first.sizes is not None and second.sizes is None:
        second = second.at(**{name: size for name, size in first.sizes.items() if name in second.trial_sizes})
    titles = [account_name(first), account_name(second)]
    if titles[0] == titles[1]:
        titles = [f"{titles[0]} (1)", f"{titles[1]} (2)"]
    return dict(zip(titles, (first, second), strict=True))


def _names(pairs: Iterable[str]) -> dict[str, Any]:
    """``"mfu=0.4"`` as names with numbers, or texts where they are none."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = (part.strip() for part in pair.partition("="))
        if not sign or not name.isidentifier():
            raise SpecError(f"--set: {pair!r} is not NAME=VALUE, as in mfu=0.4 or tokens='15T tokens'")
        found[name] = _number(value)
    return found


def _number(value: str) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
