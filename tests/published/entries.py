"""All entries, in the order of their ids."""

from published import (
    adapters,
    attention,
    diffusion,
    electra,
    experts,
    gpts,
    linear,
    parameters,
    reports,
    scans,
    training,
    vision,
)

_MODULES = (
    linear, gpts, parameters, training, reports, electra, attention, experts, adapters, vision, diffusion, scans,
)  # fmt: skip
ENTRIES = tuple(sorted((entry for module in _MODULES for entry in module.ENTRIES), key=lambda entry: entry.ids))
