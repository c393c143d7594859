"""An account at many sizes at once: its figures as arrays over all combinations that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symacct.algebra import RELATIONS
from symacct.assumptions import Assumption
from symacct.errors import AssumptionError, MissingSizeError, SpecError, UnknownDimError
from symacct.formulas.compiled import Compiled, Results, compile_expressions, numpy, whole_sizes
from symacct.formulas.dominance import MEASURES
from symacct.formulas.terms import QUANTITIES

HELD = (*QUANTITIES, "peak_bytes")


def figures(account: Any) -> dict[str, Any]:
    """The formulas of an account by name: "forward.flops", ..., "total.bytes", "params", ..., "peak_bytes"."""
    account = account.symbolic
    phases = {**account.phases, "total": account.total}
    costs = {f"{name}.{m}": getattr(phase, m) for name, phase in phases.items() for m in MEASURES}
    held = [name for name in HELD if name != "peak_bytes" or not account.memory.refusal]
    return costs | {name: getattr(account, name) for name in held}


def compile_account(account: Any) -> Compiled:
    """All figures of an account as one compiled function of sizes."""
    return compile_expressions(figures(account))


class GridPhase:
    """A phase at many sizes: ``flops``, ``pointwise``, ``bytes_read``, ``bytes_written``, ``bytes``, ``intensity``."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.flops = values[f"{name}.flops"]
        self.pointwise = values[f"{name}.pointwise"]
        self.bytes_read = values[f"{name}.bytes_read"]
        self.bytes_written = values[f"{name}.bytes_written"]
        self.bytes = values[f"{name}.bytes"]

    @property
    def intensity(self) -> Any:
        """FLOP per byte, contractions and pointwise together; nan where no byte moves."""
        np = numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.true_divide(self.flops + self.pointwise.astype(np.float64), self.bytes)


class AccountGrid:
    """An account at many sizes: each figure is an array of the shape that the sizes have together.

    ``forward``, ``backward``, ``recompute``, ``optimizer`` and ``total`` have the figures of a phase;
    ``params``, ``param_bytes``, ``activation_bytes``, ``peak_bytes`` and the others of an account stand beside them.
    ``values`` has them all by name, and ``values.exact`` names those that are exact int64; the others,
    beyond 2**63, are float64.
    """

    def __init__(self, sizes: Mapping[str, Any], values: Results) -> None:
        self.sizes = dict(sizes)
        self.values = values
        self.shape: tuple[int, ...] = values["params"].shape
        names = dict.fromkeys(name.partition(".")[0] for name in values if "." in name)
        self.phases = {name: GridPhase(name, values) for name in names}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("phases", {}).get(name)
        found = self.__dict__.get("values", {}).get(name) if found is None else found
        if found is None:
            raise AttributeError(f"a grid has no figure {name!r}; it has {', '.join([*self.phases, *HELD])}")
        return found

    def __repr__(self) -> str:
        return f"<AccountGrid of shape {self.shape}: {', '.join(self.sizes)}>"


def grid(account: Any, compiled: Compiled | None = None, /, **sizes: Any) -> AccountGrid:
    """An account at sizes that are ints and NumPy arrays that broadcast, with its assumptions checked at all of them.

    ``compiled`` is that of the same account (`compile_account`), if there is one already. Raises `UnknownDimError`,
    `MissingSizeError` and `DimError` as ``account.at`` does, and `AssumptionError` that says how many of
    the combinations break a relation, and shows the first.
    """
    for name in sizes:
        if name not in account.trial_sizes:
            known = ", ".join(account.trial_sizes) or "none"
            raise UnknownDimError(f"at(): there is no dim {name!r}; the account's dims are {known}")
    missing = [name for name in account.dims if name not in sizes]
    if missing:
        raise MissingSizeError(
            f"at(): no size for {', '.join(missing)}; give one for each of {', '.join(account.dims)}"
        )
    checked = {name: whole_sizes(name, size) for name, size in sizes.items()}
    if all(isinstance(size, int) for size in checked.values()):
        raise SpecError("at(): there is no array among the sizes to make a grid of; account.at(...) takes ints alone")
    require_all(account.assumptions, checked)
    return AccountGrid(checked, (compile_account(account) if compiled is None else compiled)(**checked))


def require_all(assumptions: Sequence[Assumption], sizes: Mapping[str, Any]) -> None:
    """Raise `AssumptionError` where combinations of sizes break relations: how many do, and the first that does."""
    np = numpy()
    told = [a for a in assumptions if a.relation and {s.name for s in a.symbols} <= sizes.keys()]
    if not told:
        return
    differences = {str(i): a.left - a.right for i, a in enumerate(told)}
    found = compile_expressions(differences)(**sizes)
    broken: list[Any] = [np.logical_not(RELATIONS[a.relation](found[str(i)], 0)) for i, a in enumerate(told)]
    anywhere = np.logical_or.reduce(broken)
    if anywhere.any():
        first = np.unravel_index(int(anywhere.argmax()), anywhere.shape)
        relation = next(a for a, where in zip(told, broken, strict=True) if where[first])
        at = ", ".join(f"{name}={np.broadcast_to(size, anywhere.shape)[first]}" for name, size in sizes.items())
        raise AssumptionError(
            f"{int(anywhere.sum()):,} of {anywhere.size:,} combinations of sizes break what the traced program relied "
            f"on, so its formulas do not hold there; the first is {at}, where {relation} is not so"
        )
