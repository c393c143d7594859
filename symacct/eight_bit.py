"""Block-wise 8-bit AdamW, to account for where bitsandbytes is not installed or has no GPU to run on.

Its memory is that of ``bitsandbytes.optim.AdamW8bit`` as documented there (Dettmers et al. 2021, "8-bit
Optimizers via Block-wise Quantization"): two states of one byte for each element of a parameter, for each of
them one float32 maximum for each block of ``block_size`` elements, and two code tables of 256 float32 that all
parameters share. Parameters of fewer than ``min_8bit_size`` elements keep two float32 states. A step is one
kernel for each parameter, in place and without temporaries.

It does not train: its operator moves no data, and says so when it is given any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symacct.errors import SymacctError

CODES = 256  # entries of a code table: what one byte can tell apart
OPERATOR = "symacct::adamw_8bit_"

torch.library.define(
    OPERATOR,
    "(Tensor(a!) self, Tensor grad, Tensor(b!) state1, Tensor(c!) state2, Tensor(d!)? absmax1, Tensor(e!)? absmax2, "
    "Tensor? qmap1, Tensor? qmap2, float lr, float beta1, float beta2, float eps, float weight_decay, int step, "
    "int block_size) -> ()",
)


def _moves_no_data(*args: Any) -> None:
    """Everything is written in place, so there is nothing to make."""


def _has_no_kernel(*args: Any) -> None:
    raise SymacctError(
        "AdamW8bit: this optimizer accounts for memory and cannot train, it has no kernel for tensors with data; give "
        "it to symacct.trace(..., optimizer=AdamW8bit), and train with bitsandbytes.optim.AdamW8bit"
    )


torch.library.register_fake(OPERATOR, _moves_no_data)
torch.library.impl(OPERATOR, "default", _has_no_kernel)


class AdamW8bit(torch.optim.Optimizer):
    """AdamW with block-wise 8-bit states, for accounts: ``sa.trace(model, ..., optimizer=AdamW8bit)``.

    The names and defaults are those of ``bitsandbytes.optim.AdamW8bit``; ``block_size`` is 256 there since
    version 0.44 and was 2048 before. Whether a parameter of symbolic size has ``min_8bit_size`` elements is decided
    at the trial sizes, and becomes an assumption of the account.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        block_size: int = 256,
        min_8bit_size: int = 4096,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size: expected a whole number >= 1 of elements, got {block_size!r}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.block_size = block_size
        self.min_8bit_size = min_8bit_size
        self._tables: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One kernel for each parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state.update(self._states_of(parameter))
        state["step"] += 1
        tensors = (state.get(name) for name in ("state1", "state2", "absmax1", "absmax2", "qmap1", "qmap2"))
        torch.ops.symacct.adamw_8bit_(
            parameter, parameter.grad, *tensors, group["lr"], *group["betas"], group["eps"], group["weight_decay"],
            state["step"], self.block_size,
        )  # fmt: skip

    def _states_of(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        count = parameter.numel()
        if count < self.min_8bit_size:
            return {n: torch.zeros_like(parameter, dtype=torch.float32) for n in ("state1", "state2")}
        device = parameter.device
        if device not in self._tables:
            self._tables[device] = (torch.zeros(CODES, device=device), torch.zeros(CODES, device=device))
        blocks = -(-count // self.block_size)  # rounded up
        found = {n: torch.zeros_like(parameter, dtype=torch.uint8) for n in ("state1", "state2")}
        found |= {n: torch.zeros(blocks, dtype=torch.float32, device=device) for n in ("absmax1", "absmax2")}
        return found | dict(zip(("qmap1", "qmap2"), self._tables[device], strict=True))
