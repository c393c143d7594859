"""What there is to say about serving a model, as one text: memory, work, and times where there is a device."""

from __future__ import annotations

from collections.abc import Mapping

from symacct.device_file import device_or_file
from symacct.hardware import Device
from symacct.inference.result import Inference, aligned
from symacct.units import show


def overview(
    made: Inference, sizes: Mapping[str, int] | None = None, device: str | Device | None = None, devices: int = 1
) -> str:
    """The figures in formulas, or at sizes (the config's own where none are given); times on devices.

    Raises `MissingSizeError` where a device is given and sizes are not all known.
    """
    shown = made.at(**(sizes or {})) if sizes or device else made
    lines = [str(shown)]
    if device:
        chosen = device_or_file(device)
        fits = show(chosen.memory_bytes * devices, "B", binary=True)
        rows = [
            ("decode step, at least", show(shown.step_seconds(chosen, devices), "s")),
            ("tokens per second, at most", show(shown.tokens_per_second(chosen, devices), "tokens/s")),
        ]
        if shown.prefill is not None:
            rows.append(("time to first token, at least", show(shown.time_to_first_token(chosen, devices), "s")))
        others = {n: s for n, s in (shown.sizes or {}).items() if n != shown.batch and n in made.decode.dims}
        rows.append((f"sequences that fit in {fits}", f"{made.largest(made.batch, chosen, devices, **others):,}"))
        count = f"{devices} x " if devices > 1 else ""
        lines += [f"on {count}{chosen.name} (dense peak, {shown.dtype})", *aligned(rows)]
    return "\n".join([*lines, *(f"assumes: {line}" for line in shown.assumptions)])
