"""What training keeps per parameter: as traced, or by a policy that has a name; over how many ranks it is shared out.

ZeRO: Rajbhandari et al. 2019, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", sections 3 and 5:
stage 1 shares the optimizer's state out over the data-parallel ranks, stage 2 gradients too, stage 3 the weights too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sympy

from symacct.account import Account
from symacct.device_file import device_or_file
from symacct.errors import QuestionError, SpecError
from symacct.hardware import Device
from symacct.napkin.amounts import count, over, shown, table, times
from symacct.shown import Shown
from symacct.units import read


@dataclass(frozen=True)
class Policy:
    """Bytes per parameter, by what they are for; ``optimizer`` is the master copy with the moments."""

    name: str
    weights: float
    gradients: float
    master: float
    moments: float
    source: str

    @property
    def optimizer(self) -> float:
        """Bytes per parameter that the optimizer keeps."""
        return self.master + self.moments

    @property
    def total(self) -> float:
        """Bytes per parameter of all of it."""
        return self.weights + self.gradients + self.optimizer

    def __str__(self) -> str:
        parts = (("weights", self.weights), ("gradients", self.gradients), ("master copy", self.master))
        said = [f"{name} {size:g}" for name, size in (*parts, ("moments", self.moments)) if size]
        return f"{self.name}: {' + '.join(said)} = {self.total:g} bytes per parameter ({self.source})"


_ELEUTHER = "EleutherAI, Transformer Math 101 and calc_transformer_mem.py"
_MADE = (
    Policy("fp32", 4, 4, 0, 8, "AdamW in float32, as torch.optim runs it"),
    Policy("bf16", 2, 2, 0, 4, "AdamW with everything in bfloat16, as torch.optim runs it"),
    Policy("mixed12", 2, 2, 0, 8, "16-bit weights and gradients, float32 moments, no master copy"),
    Policy("mixed16", 2, 2, 4, 8, "ZeRO's 2 + 2 + K with K = 12, Rajbhandari et al. 2019"),
    Policy("mixed18", 2, 4, 4, 8, "with float32 main gradients, Megatron-LM and Hugging Face"),
    Policy("adam8bit", 2, 2, 4, 2, f"8-bit moments beside a master copy, {_ELEUTHER}"),
    Policy("sgd-momentum", 2, 2, 4, 4, f"master copy and momentum, {_ELEUTHER}"),
    Policy(
        "jax-book", 2, 0, 0, 8, "Austin et al. 2025, How to Scale Your Model, ch. 5: no master copy, gradients not kept"
    ),
    Policy("inference", 2, 0, 0, 0, "16-bit weights alone"),
)
POLICIES: Mapping[str, Policy] = MappingProxyType({each.name: each for each in _MADE})


def policy_of(name: str | Policy) -> Policy:
    """The policy of that name. Raises `SpecError` with the known ones."""
    if isinstance(name, Policy):
        return name
    if name not in POLICIES:
        raise SpecError(f"policy: {name!r} is none of {', '.join(POLICIES)}")
    return POLICIES[name]


@dataclass(frozen=True)
class States(Shown):
    """Bytes of weights, gradients and optimizer state on one rank; ``whole`` is what they are on one device alone."""

    params: Any
    weights: Any
    gradients: Any
    optimizer: Any
    whole: Any
    zero: int = 0
    ranks: int = 1
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Any:
        """Bytes of all of it on one rank."""
        return self.weights + self.gradients + self.optimizer

    @property
    def per_param(self) -> Any:
        """Bytes per parameter where nothing is shared out."""
        return over(self.whole, self.params)

    def __str__(self) -> str:
        title = f"states of {shown(self.params)} parameters"
        if self.ranks != 1:
            title += f", ZeRO stage {self.zero} over {self.ranks} ranks, on each of them"
        parts = ("weights", "gradients", "optimizer", "total")
        return table(title, [(part, shown(getattr(self, part), "byte")) for part in parts], self.notes)


def states(
    what: Account | Any, policy: str | Policy | None = None, *, zero: int = 0, ranks: int = 1, tensor: int = 1
) -> States:
    """Bytes that stay between steps: of an account as it was traced, or of a number of parameters under a policy.

    ``what``: an account (plain, at sizes or of any depth) or how many parameters, such as "7B" or an expression.
    ``policy``: one of `POLICIES`; of an account it replaces what was traced. ``zero``: the stage, 0 to 3, over
    ``ranks``; ``tensor``: ranks that share every tensor out among them. Raises `SpecError` for what there is none of.
    """
    if zero not in (0, 1, 2, 3):
        raise SpecError(f"zero: {zero!r} is no stage of ZeRO; they are 0, 1, 2 and 3")
    for name, number in (("ranks", ranks), ("tensor", tensor)):
        if not isinstance(number, int) or number < 1:
            raise SpecError(f"{name}: {number!r} is no number of ranks; it is a whole number >= 1")
    notes: list[str] = []
    if isinstance(what, Account) and policy is None:
        params = what.params
        parts = [what.param_bytes, what.grad_bytes, what.optimizer_bytes]
        notes.append("as traced: the dtypes of the model and the state of the optimizer that ran, its counters with it")
    else:
        chosen = policy_of("mixed16" if policy is None else policy)
        params = what.params if isinstance(what, Account) else count(what, "params")
        parts = [times(size, params) for size in (chosen.weights, chosen.gradients, chosen.optimizer)]
        notes.append(str(chosen))
    notes.append("activations, buffers and what is gathered for a while are not in it")
    if tensor > 1:
        notes.append(
            f"every tensor is shared out over {tensor} ranks; what they hold twice (norms, biases) is not counted"
        )
    shared = (zero >= 3, zero >= 2, zero >= 1)
    weights, gradients, optimizer = (
        over(part, tensor * (ranks if is_shared else 1)) for part, is_shared in zip(parts, shared, strict=True)
    )
    return States(params, weights, gradients, optimizer, sum(parts), zero, ranks, tuple(notes))


# -- what fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LargestModel(Shown):
    """How many parameters fit, with their states, into the memory of some devices."""

    params: int
    memory: Any
    policy: Policy
    notes: tuple[str, ...]

    def __str__(self) -> str:
        rows = [("memory", shown(self.memory, "byte")), ("bytes per parameter", f"{self.policy.total:g}")]
        return table(f"at most {self.params:,} parameters", rows, self.notes)


def largest_model(memory: Any, policy: str | Policy = "mixed16", *, devices: int = 1) -> LargestModel:
    """The largest number of parameters whose states fit, shared out evenly over all devices.

    ``memory``: of one device, such as "80 GB", or a device or its name. `solve` does the same for a traced model, with
    its activations.
    """
    chosen = policy_of(policy)
    of_one, notes = memory_of(memory)
    total = times(of_one, devices)
    notes += [str(chosen), "shared out evenly; activations, buffers and what an allocator loses are not in it"]
    return LargestModel(math.floor(over(total, chosen.total)), total, chosen, tuple(notes))


@dataclass(frozen=True)
class DevicesNeeded(Shown):
    """How many devices hold a model: its states shared out evenly, its activations on each."""

    devices: int
    states: Any
    activations: Any
    memory: Any
    notes: tuple[str, ...]

    def __str__(self) -> str:
        rows = [
            ("states, shared out", shown(self.states, "byte")),
            ("activations, on each", shown(self.activations, "byte")),
            ("memory of a device", shown(self.memory, "byte")),
        ]
        return table(f"{self.devices:,} device{'s are' if self.devices > 1 else ' is'} needed", rows, self.notes)


def devices_needed(what: Account | Any, memory: Any, policy: str | Policy | None = None) -> DevicesNeeded:
    """The least number of devices whose memory holds a model, with ZeRO stage 3 or alike over all of them.

    ``what``: an account at sizes, whose activations every device holds for itself, or a number of parameters under a
    ``policy``. ``memory``: "80 GB", or a device or its name. Raises `QuestionError` where the activations alone are too
    large for one device.
    """
    of_one, notes = memory_of(memory)
    kept = states(what, policy)
    activations = what.activation_bytes + what.input_bytes if isinstance(what, Account) else 0
    if isinstance(kept.whole + activations, sympy.Basic):
        raise QuestionError("devices_needed() wants numbers: give the account's sizes with account.at(...)")
    if activations >= of_one:
        raise QuestionError(
            f"no number of devices is enough: the activations and inputs of one alone are "
            f"{shown(activations, 'byte')}, and a device has {shown(of_one, 'byte')}"
        )
    notes += kept.notes[:1]
    notes.append("states are shared out evenly (ZeRO stage 3); every device runs the account's own batch")
    notes.append("weights that are gathered for a while, and what an allocator loses, are not in it")
    return DevicesNeeded(
        math.ceil(over(kept.whole, of_one - activations)), kept.whole, activations, of_one, tuple(notes)
    )


def memory_of(memory: Any) -> tuple[Any, list[str]]:
    """Bytes of "80 GB", of a `Device`, or of a device by its name, with a note on the latter."""
    if isinstance(memory, Device) or (isinstance(memory, str) and not memory.strip()[:1].isdigit()):
        found = device_or_file(memory)
        has = shown(found.memory_bytes, "byte")
        note = f"{found.name} has {has} as it is sold; what its driver keeps is not taken off"
        return found.memory_bytes, [note]
    return read(memory, "byte", "memory"), []
