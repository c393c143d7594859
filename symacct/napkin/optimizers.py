"""Optimizers that multiply: what Muon adds to a training's work."""

from __future__ import annotations

from typing import Any

from symacct.napkin.amounts import over, times


def newton_schulz(n: Any, m: Any) -> Any:
    """FLOP of one Newton-Schulz step on an (n, m) matrix with m <= n: 2*(2*n*m**2 + m**3).

    X*X^T (m*m from n), its square, and that times X. Source: Jordan 2024, "Muon: An optimizer for hidden layers",
    runtime analysis. A trace of `torch.optim.Muon` counts the same.
    """
    return times(2, times(2, n, m, m) + times(m, m, m))


def muon_overhead(steps: Any, m: Any, tokens: Any) -> Any:
    """The most that Muon adds to a training's work, as a share of it: steps*m/tokens.

    ``steps``: of Newton-Schulz, ``m``: the width, ``tokens``: of a batch. Of a square matrix, 6*m**2 FLOP per step and
    parameter matrix over 6*m**2 per token. Source: as above.
    """
    return over(times(steps, m), tokens)
