"""Bytes that leave the device: checkpoints to storage, training data from it, and transfers from and to the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from symacct.account import Account
from symacct.napkin.amounts import count, over, shown, table, times
from symacct.napkin.states import Policy, policy_of
from symacct.napkin.tokens import tokens_of
from symacct.shown import Shown
from symacct.units import read

# One way, 16 lanes, after the line code (PCI-SIG base specifications 3.0 to 6.0).
PCIE: Mapping[str, float] = MappingProxyType(
    {"PCIe 3.0 x16": 15.754e9, "PCIe 4.0 x16": 31.508e9, "PCIe 5.0 x16": 63.015e9, "PCIe 6.0 x16": 121e9}
)


@dataclass(frozen=True)
class Checkpoint(Shown):
    """A checkpoint: its bytes, the seconds that writing takes, and the share of time that is, where it is regular."""

    bytes: Any
    bytes_per_s: Any
    every: Any
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Any:
        """What writing takes; None without a bandwidth."""
        return None if self.bytes_per_s is None else over(self.bytes, self.bytes_per_s)

    @property
    def share(self) -> Any:
        """Seconds of writing per second of training, where training waits for it."""
        return None if self.every is None or self.seconds is None else over(self.seconds, self.every)

    def __str__(self) -> str:
        rows = [("size", shown(self.bytes, "byte"))]
        rows += [] if self.seconds is None else [("time to write", shown(self.seconds, "second"))]
        rows += [] if self.share is None else [("share of the time", shown(self.share, "%"))]
        return table("checkpoint", rows, self.notes)


def checkpoint(
    what: Account | Any, bandwidth: Any = None, *, every: Any = None, writers: int = 1, policy: str | Policy = "mixed16"
) -> Checkpoint:
    """What a checkpoint takes: of an account as traced, or of a number of parameters under a policy.

    ``bandwidth``: of one writer, such as "2 GB/s"; ``writers`` write at once, each its part. ``every``: how often, such
    as "30 min", for the share of the time.
    """
    if isinstance(what, Account):
        size, said = what.checkpoint_bytes, "the tensors in the state_dicts of model and optimizer, shared ones once"
    else:
        chosen = policy_of(policy)
        size = times(chosen.weights + chosen.optimizer, count(what, "params"))
        said = f"weights and optimizer state of {chosen}"
    rate = None if bandwidth is None else times(read(bandwidth, "byte/second", "bandwidth"), writers)
    notes = (said, "the file's own format is not in it, and training is taken to wait until it is written")
    return Checkpoint(size, rate, None if every is None else read(every, "second", "every"), notes)


@dataclass(frozen=True)
class Loading(Shown):
    """What training reads: tokens and bytes in a step and in a second."""

    tokens: Any
    bytes: Any
    seconds: Any
    notes: tuple[str, ...]

    @property
    def tokens_per_s(self) -> Any:
        """Tokens in a second."""
        return None if self.tokens is None else over(self.tokens, self.seconds)

    @property
    def bytes_per_s(self) -> Any:
        """Bytes in a second."""
        return over(self.bytes, self.seconds)

    def __str__(self) -> str:
        rows = [
            ("in a step", shown(self.tokens, "token"), shown(self.bytes, "byte")),
            ("in a second", shown(self.tokens_per_s, "token/second"), shown(self.bytes_per_s, "byte/second")),
        ]
        return table(f"data for a step of {shown(self.seconds, 'second')}", rows, self.notes)


def loading(
    account: Account, step_seconds: Any, *, replicas: int = 1, tokens: Any = None, bytes_per_token: Any = None
) -> Loading:
    """How fast data must come for a step that takes so long.

    ``step_seconds``: such as 0.35 or "350 ms". ``replicas``: data-parallel ranks that each read a batch of the
    account's. ``tokens``: of a step, such as "B*L", where the trace does not tell. ``bytes_per_token``: as they
    are stored (2 for 16-bit token ids); by default the bytes of the inputs as the model takes them.
    """
    seconds = read(step_seconds, "second", "step_seconds")
    found = tokens_of(account, tokens, needed=bytes_per_token is not None)
    found = None if found is None else times(found, replicas)
    if bytes_per_token is None:
        size, said = times(account.input_bytes, replicas), "the inputs, as the model takes them, targets among them"
    else:
        size = times(found, read(bytes_per_token, "byte", "bytes_per_token"))
        said = f"tokens as they are stored, {bytes_per_token} bytes each"
    return Loading(found, size, seconds, (said,))


@dataclass(frozen=True)
class Transfer(Shown):
    """Bytes over a link, one way, and the seconds that takes."""

    bytes: Any
    bytes_per_s: Any
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Any:
        """What it takes, at least."""
        return over(self.bytes, self.bytes_per_s)

    def __str__(self) -> str:
        rows = [("bytes", shown(self.bytes, "byte")), ("bandwidth", shown(self.bytes_per_s, "byte/second"))]
        return table("transfer", [*rows, ("time, at least", shown(self.seconds, "second"))], self.notes)


def transfer(nbytes: Any, link: Any = "PCIe 4.0 x16") -> Transfer:
    """How long bytes take from the host to the device. ``link``: one of `PCIE`, or one way's bandwidth ("15 GB/s")."""
    rate, note = _link(link)
    return Transfer(read(nbytes, "byte", "nbytes"), rate, (note, "one way, by the link's own rate, without latency"))


def host_limit(peak: Any, link: Any = "PCIe 4.0 x16", itemsize: Any = 2) -> Any:
    """Rows of a product above which it outlasts the transfer of its weights from the host: peak*itemsize/(2*link).

    A product of B rows has 2*B*D*F FLOP and itemsize*D*F bytes of weights. Source: Austin et al. 2025, "How to Scale
    Your Model", chapter 2.
    """
    return over(times(peak, itemsize), times(2, _link(link)[0]))


def _link(link: Any) -> tuple[Any, str]:
    if isinstance(link, str) and link in PCIE:
        return PCIE[link], f"{link}: {shown(PCIE[link], 'byte/second')} one way (PCI-SIG)"
    rate = read(link, "byte/second", f"link (or one of {', '.join(PCIE)})")
    return rate, f"a link of {shown(rate, 'byte/second')}"
