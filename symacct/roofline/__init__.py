"""Rooflines: the least time of a step on a device, what limits it, from which sizes on, and how near a run came."""

from symacct.roofline.bounds import LIMITS, Bound
from symacct.roofline.lifting import LEVELS
from symacct.roofline.pictures import plot_roofline, plot_time
from symacct.roofline.rooflines import Roofline, ridge, roofline, step_bytes
from symacct.roofline.thresholds import Threshold, compute_bound_when
from symacct.roofline.utilization import Utilization, hfu, mfu

__all__ = [
    "LEVELS", "LIMITS", "Bound", "Roofline", "Threshold", "Utilization", "compute_bound_when", "hfu", "mfu",
    "plot_roofline", "plot_time", "ridge", "roofline", "step_bytes",
]  # fmt: skip
