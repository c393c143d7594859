"""What a page knows: accounts as numbers' formulas, places in them, and words, all of it plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import symacct
from symacct.account import Account
from symacct.hardware import Device, devices
from symacct.page.graphs import Texts, graphs
from symacct.page.javascript import Formulas
from symacct.page.lifetimes import memory
from symacct.page.parts import Json, Kernels, groups
from symacct.page.variants import Variant
from symacct.record import PHASES
from symacct.report import footer

_MOST = 2**20  # of a slider whose dim has no larger size to start with


def content(account: Account, made: Iterable[Variant], device: Device, others: Iterable[Device] = ()) -> Json:
    """The content of a page.

    ``account``: whose sizes the page starts with, else its trial sizes. ``made``: its variants. ``device``: that times
    are of at first, ``others``: more that are in no table.
    """
    table = {each.name: each for each in (*devices().values(), *others, device)}
    texts = Texts()
    found = [_variant(each, account, texts) for each in made]
    return {
        "title": account.title,
        "inputs": account.inputs,
        "symacct": symacct.__version__,
        "phases": list(PHASES),
        "device": device.name,
        "devices": [_device(each) for each in table.values()],
        "sizes": [[name, str(size)] for name, size in _start(account).items()],
        "variants": found,
        "texts": list(texts.known),
    }


def _start(account: Account) -> Mapping[str, int]:
    given = account.sizes if account.sizes is not None else account.trial_sizes
    return {name: int(given[name]) for name in account.dims}


def _device(device: Device) -> Json:
    return {
        "name": device.name,
        "vendor": device.vendor,
        "memory": device.memory_bytes,
        "bandwidth": device.bytes_per_s,
        "peaks": dict(device.flops_per_s),
        "vector": device.vector_flops_per_s,
        "source": device.source,
    }


def _variant(variant: Variant, account: Account, texts: Texts) -> Json:
    if variant.account is None:
        return {"label": variant.label, "refusal": variant.refusal}
    symbolic = variant.account.symbolic
    formulas = Formulas(symbolic.dims)
    kernels = Kernels(formulas)
    found = {
        "label": variant.label,
        "refusal": "",
        "dims": _dims(symbolic, _start(account)),
        "conditions": [_condition(formulas, each) for each in symbolic.assumptions if each.relation],
        "notes": [each.note for each in symbolic.assumptions if not each.relation],
        "footer": footer(symbolic),
        "incomplete": [str(each) for each in symbolic.unknown],
        **groups(symbolic, kernels),
        "memory": memory(symbolic, formulas),
        "graphs": graphs(symbolic, kernels, texts),
    }
    return {**found, "kernels": kernels.rows, "program": formulas.source()}


def _dims(account: Account, start: Mapping[str, int]) -> list[Json]:
    """Each dim with the least size that the formulas hold for, and how far its slider goes."""
    return [
        {"name": name, "least": account._least.get(name, 1), "most": max(_MOST, 64 * start.get(name, 1))}
        for name in account.dims
    ]


def _condition(formulas: Formulas, assumption: Any) -> Json:
    return {
        "text": str(assumption),
        "names": sorted(symbol.name for symbol in assumption.symbols),
        "left": formulas.place(assumption.left),
        "relation": assumption.relation,
        "right": formulas.place(assumption.right),
    }
