"""Training over many devices: what each one holds, what it sends in a step, and where sending takes longer than work.

Data parallel and ZeRO: Rajbhandari et al. 2019, section 7. Tensor parallel: Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 3.2. The limits at which the wire is as
slow as the products: Austin et al. 2025, "How to Scale Your Model", chapters 1, 3 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.errors import UnknownDimError
from symacct.formulas.expressions import read as read_expression
from symacct.napkin.amounts import over, reduced, shown, table, times
from symacct.napkin.collectives import Communication, collective
from symacct.napkin.states import States, states
from symacct.shown import Shown


@dataclass(frozen=True)
class Parallel(Shown):
    """A step over data*tensor devices: bytes on each one, and the collectives of a step with how often each runs."""

    data: int
    tensor: int
    zero: int
    states: States
    activations: Any
    inputs: Any
    collectives: tuple[tuple[str, Communication, Any], ...]
    notes: tuple[str, ...]

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.data * self.tensor

    @property
    def bytes(self) -> Any:
        """What one device holds between forward and backward."""
        return self.states.total + self.activations + self.inputs

    @property
    def sent_bytes(self) -> Any:
        """What one device sends in a step."""
        return reduced(sum((times(each.sent_bytes, number) for _, each, number in self.collectives), start=0))

    @property
    def seconds(self) -> Any:
        """What sending takes in a step; None where the bandwidth is not known."""
        if any(each.seconds is None for _, each, _ in self.collectives):
            return None
        return reduced(sum((times(each.seconds, number) for _, each, number in self.collectives), start=0))

    def __str__(self) -> str:
        held = (
            ("weights", self.states.weights), ("gradients", self.states.gradients),
            ("optimizer state", self.states.optimizer), ("activations", self.activations), ("inputs", self.inputs),
            ("together", self.bytes),
        )  # fmt: skip
        rows: list[tuple[str, ...]] = [(name, shown(size, "byte")) for name, size in held]
        for name, each, number in self.collectives:
            sent = times(each.sent_bytes, number)
            took = "" if each.seconds is None else shown(times(each.seconds, number), "second")
            rows.append((f"sent: {each.kind} of {name}", shown(sent, "byte"), took))
        title = f"each of {self.devices} devices: data {self.data}, tensor {self.tensor}, ZeRO stage {self.zero}"
        return table(title, rows, self.notes)


def parallel(
    account: Account,
    *,
    data: int = 1,
    tensor: int = 1,
    zero: int = 0,
    link: Any = None,
    hidden: Any = None,
    layers: Any = None,
) -> Parallel:
    """What each device holds and sends in a step of an account that is run over data*tensor devices.

    The account is one replica's: its batch is that of each of the ``data`` ranks. ``tensor`` ranks share out weights,
    gradients, state and activations (as with sequence parallelism). ``zero``: the stage over the data ranks.
    ``link``: a device or its name, or one way's bandwidth, for times. ``hidden`` and ``layers``: the bytes of the
    tensor that tensor parallel layers reduce, such as "4*B*L*D", and their number, such as "N" or 12; without them
    what tensor parallelism sends is left out. Expressions stay where the account has no sizes.
    """
    notes = ["times are of the bandwidth alone, nothing overlaps, and there is no latency"]
    kept = states(account, zero=zero, ranks=data, tensor=tensor)
    whole = states(account, tensor=tensor)
    found = [
        (name, collective(kind, size, data, link), 1)
        for name, kind, size in zero_collectives(whole.weights, whole.gradients, zero)
        if data > 1
    ]
    if tensor > 1 and hidden is not None and layers is not None:
        size, number = (_value(account, each, name) for each, name in ((hidden, "hidden"), (layers, "layers")))
        found.append(("activations", collective("all-reduce", size, tensor, link), times(4, number)))
        notes.append("tensor parallel: two all-reduces forward and two backward in every layer")
    elif tensor > 1:
        notes.append("what tensor parallelism sends is left out: give hidden= and layers=")
    if tensor > 1:
        notes.append("activations are shared out like the weights, as with sequence parallelism: a lower bound without")
    notes += [note for _, each, _ in found[:1] for note in each.notes[:-1]] + list(kept.notes[:1])
    activations = over(account.activation_bytes, tensor)
    return Parallel(data, tensor, zero, kept, activations, account.input_bytes, tuple(found), tuple(notes))


def zero_collectives(weights: Any, gradients: Any, stage: int) -> list[tuple[str, str, Any]]:
    """(what, collective, bytes of the array) for each collective of a step under a stage of ZeRO.

    Stage 0 reduces gradients to all; 1 and 2 scatter them reduced and gather the new weights; 3 gathers weights for the
    forward pass, and again for the backward pass, and scatters gradients. With gradients as large as weights, Psi,
    and many ranks that is 2*Psi to stage 2 and 3*Psi in stage 3, as section 7 of the paper says.
    """
    if stage == 0:
        return [("gradients", "all-reduce", gradients)]
    gathers = 2 if stage == 3 else 1
    return [("gradients", "reduce-scatter", gradients), *([("weights", "all-gather", weights)] * gathers)]


def _value(account: Account, value: Any, name: str) -> Any:
    """A number or expression of the account's dims, at its sizes where it has some."""
    expr = read_expression(value)
    strange = sorted(s.name for s in expr.free_symbols if s.name not in account.trial_sizes)
    if strange:
        known = ", ".join(account.trial_sizes)
        raise UnknownDimError(f"{name}={value}: there is no dim {strange[0]!r}; the account's dims are {known}")
    return reduced(evaluate(expr, account.sizes) if account.sizes is not None else expr)


# -- closed forms ------------------------------------------------------------------------------


def tensor_elements(b: Any, s: Any, h: Any, t: Any) -> Any:
    """Elements that a rank sends in one transformer layer and micro-batch: 8*b*s*h*(t - 1)/t.

    Four all-reduces of b*s*h, two forward and two backward. Source: Narayanan et al. 2021, section 3.2.
    """
    return times(8, b, s, h, over(t - 1, t))


def bubble(p: Any, m: Any, v: Any = 1) -> Any:
    """Idle time of a pipeline over the time that the work takes: (p - 1)/(v*m).

    p: stages, m: micro-batches, v: chunks of layers on each stage (interleaved). Source: Narayanan et al. 2021, 2.2.
    """
    return over(p - 1, times(v, m))


def data_limit(peak: Any, bytes_per_s: Any, axes: Any = 1, itemsize: Any = 2) -> Any:
    """Tokens per chip above which products outlast the gathering of weights (FSDP) or of gradients: C/(axes*W).

    ``peak``: C in FLOP/s; ``bytes_per_s``: W of one axis of the mesh, both directions together. For 16 bits: a layer's
    products take 4*tokens*D*F/C, its weights 4*D*F/W. Source: Austin et al. 2025, chapter 5.
    """
    return over(times(peak, itemsize), times(2, axes, bytes_per_s))


def tensor_limit(F: Any, alpha: Any, axes: Any = 1) -> Any:
    """Ranks up to which a feed-forward layer of F units stays bound by its products: axes*F/alpha.

    ``alpha``: C/W, as `data_limit` has it for one axis. Source: Austin et al. 2025, chapter 5.
    """
    return over(times(axes, F), alpha)


def mixed_limit(F: Any, alpha: Any, data_axes: Any = 2, tensor_axes: Any = 1) -> Any:
    """Tokens per chip that suffice where both are mixed in the best way: 4*alpha**2/(data_axes*tensor_axes*F).

    Source: Austin et al. 2025, chapter 5.
    """
    return over(times(4, alpha, alpha), times(data_axes, tensor_axes, F))


def best_data_ranks(tokens: Any, chips: Any, F: Any, data_axes: Any = 2, tensor_axes: Any = 1) -> Any:
    """Ranks of data parallelism with which a mix sends least: sqrt(tokens/F * data_axes/tensor_axes * chips).

    Source: Austin et al. 2025, chapter 5.
    """
    return reduced(sympy.sqrt(over(times(tokens, data_axes, chips), times(tensor_axes, F))))


def split_limit(peak: Any, bytes_per_s: Any, itemsize: Any = 2) -> Any:
    """The contracted width above which two chips that split it are bound by their products: itemsize*C/W.

    Each multiplies half of the width, B*D*F/C, and sends its part of the sum, itemsize*B*F/W. Source: Austin et al.
    2025, chapter 1.
    """
    return over(times(itemsize, peak), bytes_per_s)
