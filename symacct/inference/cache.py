"""The cache of an account: which tensors it is, how large it is, and memory while it grows where it lies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import sympy
from torch import nn

from symacct.account import Account
from symacct.cost import ITEMSIZE, Size
from symacct.depth.memory import DeepMemory
from symacct.depth.structural import StructuralAccount
from symacct.errors import SpecError
from symacct.memory import Memory
from symacct.program import Program
from symacct.record import values_in
from symacct.specs import Spec, make_inputs
from symacct.storages import Storages

_LOOKUPS = ("aten.embedding.default", "aten.index_select.default")
Named = Callable[[str, str], bool]  # of an origin ("buffer", "input") and a name: whether that tensor is cache


def of_inputs(account: Account, names: tuple[str, ...]) -> Named:
    """The tensors of inputs by the names that the traced function has for them.

    Raises `SpecError` for an input that the account does not have.
    """
    program = account.program
    inputs: dict[str, Any] = {}
    if program is not None:
        inputs = {**dict(zip(_positional(program), program.args, strict=True)), **program.kwargs}
    count, found = 0, {}
    for name, tree in inputs.items():
        tensors = sum(1 for _ in _tensors(tree))
        found[name] = {f"input_{i}" for i in range(count, count + tensors)}
        count += tensors
    if missing := [name for name in names if name not in found]:
        raise SpecError(f"cache: there is no input {missing[0]!r}; the inputs are {', '.join(found) or 'none'}")
    chosen = frozenset(each for name in names for each in found[name])
    return lambda origin, name: origin == "input" and name in chosen


def _positional(program: Program) -> list[str]:
    """The names of the parameters that take the positional inputs; numbers where they have no names."""
    function = program.target.forward if isinstance(program.target, nn.Module) else program.target
    try:
        names = list(inspect.signature(function).bind_partial(*program.args).arguments)
    except (TypeError, ValueError):
        names = []
    return names if len(names) == len(program.args) else [str(i) for i in range(len(program.args))]


def _tensors(tree: Any) -> Iterator[Any]:
    """The tensors that a pytree of parsed specs stands for."""
    found: list[Any] = []

    def visit(sizes: tuple[int, ...], spec: Spec) -> None:
        found.append(spec)

    make_inputs(tree, lambda _: 1, visit, found.append)
    return iter(found)


# -- sizes, of accounts in formulas ------------------------------------------------------


def cache_bytes(account: Account, is_cache: Named) -> Size:
    """Bytes of the cache that a step finds."""
    return lifted(account, "the cache", lambda plain: plain.memory.storages.sum(_found(plain, is_cache)))


def cache_elements(account: Account, is_cache: Named) -> Size:
    """Elements of the cache that a step finds: its bytes where each has one."""

    def elements(plain: Account) -> Size:
        storages = plain.memory.storages
        total: Size = 0
        for storage in _found(plain, is_cache):
            total = total + storages.formulas[storage] / _itemsize(plain, storage)
        return total

    return lifted(account, "the cache", elements)


def grown_bytes(account: Account) -> Size:
    """Bytes of the cache that a step leaves: of all that it returns behind the first tensor."""
    return lifted(account, "the new cache", lambda plain: plain.memory.storages.sum(_left(plain)))


def room_for(account: Account, is_cache: Named) -> Size:
    """The most bytes alive at once in a step that writes into a cache which has room for what it adds."""
    added = grown_bytes(account) - cache_bytes(account, is_cache)
    peak = in_place(account, is_cache).peak_bytes
    if isinstance(peak, sympy.Max):
        return sympy.Max(*(sympy.expand(size + added) for size in peak.args), evaluate=False)
    return peak + added


def in_place(account: Account, is_cache: Named) -> Memory | DeepMemory:
    """The memory of a step that writes into its cache: the copies that concatenation makes of it take nothing.

    What the step adds to the cache (`grown_bytes` less `cache_bytes`) is not in it either.
    """
    if not isinstance(account, StructuralAccount):
        return _without_copies(account, is_cache)
    members = {offset: _without_copies(member, is_cache) for offset, member in account.members.items()}

    def at_sizes() -> Memory:
        return _without_copies(account.laid_out, is_cache)

    return DeepMemory(members, account.lattice, account._figure, account.sizes, account._least, at_sizes)


def read_weights(account: Account) -> Size:
    """Bytes of the parameters that a step reads in full: all but tables of which it looks up a few rows."""

    def of_plain(plain: Account) -> Size:
        record = plain.step.record
        used = {
            v.storage for node in record.nodes if node.op not in _LOOKUPS for v in values_in((node.args, node.kwargs))
        }
        return plain._held([held for held in plain.step.parameters if held.storage in used], lambda t: t.nbytes)

    return lifted(account, "the weights that are read", of_plain)


def lifted(account: Account, what: str, figure: Callable[[Account], Size]) -> Size:
    """A figure of plain accounts, for one at any depth too."""
    return account.fit(what, figure) if isinstance(account, StructuralAccount) else figure(account)


# -- helpers -----------------------------------------------------------------------------


def _found(account: Account, is_cache: Named) -> list[int]:
    """The storages of the cache that a step finds, by number."""
    record = account.step.record
    return list(dict.fromkeys(v.storage for v in record.values if is_cache(v.origin, v.name)))


def _left(account: Account) -> list[int]:
    """The storages of the cache that a step leaves: those of its outputs but the first."""
    return list(dict.fromkeys(account.step.outputs[1:]))


def _itemsize(account: Account, storage: int) -> int:
    record = account.step.record
    dtype = record.layouts[record.values[record.storages[storage].value].layout][3]
    return ITEMSIZE[str(dtype).removeprefix("torch.")]


def _without_copies(account: Account, is_cache: Named) -> Memory:
    copies = set(_left(account)) - set(_found(account, is_cache))
    return Memory(_Without(account, copies), account._least)


class _Without(Storages):
    """The storages of an account, of which some take nothing."""

    def __init__(self, account: Account, gone: set[int]) -> None:
        super().__init__(account.step, account.trial_sizes, account.sizes, account._exact, account.allocator)
        self.gone = gone

    @cached_property
    def formulas(self) -> list[Size]:
        """The size of each storage, in bytes; 0 for those that are left out."""
        return [0 if number in self.gone else size for number, size in enumerate(super().formulas)]
