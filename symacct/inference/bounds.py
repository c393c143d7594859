"""Bounds on the time of inference, and the batch from which on a step is compute-bound: amounts in, amounts out.

A step reads every weight and the whole cache once, and computes. None of that can be faster than the device's memory
and its matrix units, so each time here is a lower bound: kernels that run one after the other, what they read and write
between them, and communication between devices only add to it. Amounts are in bytes, FLOP and seconds, as numbers,
SymPy expressions, or text with a unit. Sources: kipply, Transformer Inference Arithmetic (2022); Austin et al., How to
Scale Your Model (2025), chapter 7.
"""

from __future__ import annotations

from typing import Any

import sympy

from symacct.cost import Size
from symacct.dim import symbol
from symacct.errors import QuestionError
from symacct.hardware import Device
from symacct.napkin.amounts import exact
from symacct.units import read

ASSUMPTIONS = (
    "lower bounds: weights and cache are read once, matrix units run at their dense peak, kernels overlap fully",
    "activations, launches and communication between devices are counted as nothing",
    "of a mixture of experts all weights are read, as by batches that reach every expert",
)


def read_seconds(nbytes: Any, device: Device, devices: int = 1) -> Size:
    """The least time in which so many bytes are read, spread evenly over ``devices``."""
    return exact(read(nbytes, "byte", "bytes")) / (devices * exact(device.bytes_per_s))


def compute_seconds(flops: Any, device: Device, dtype: str, devices: int = 1) -> Size:
    """The least time for so many FLOP in matrix products. Raises `DeviceError` for a dtype without a peak."""
    return exact(read(flops, "FLOP", "flops")) / (devices * exact(device.peak(dtype)))


def step_seconds(
    weights: Any, cache: Any, flops: Any, device: Device, dtype: str, devices: int = 1, *, in_turn: bool = False
) -> Size:
    """The least time of a step: the longer of reading weights and cache, and computing.

    ``weights``, ``cache``: bytes that are read. ``in_turn``: attention, which reads the cache, and the products with
    weights come one after the other, so that only reading weights overlaps with computing (Austin et al.); ``flops``
    are then those of the products with weights.
    """
    weight_time, cache_time = read_seconds(weights, device, devices), read_seconds(cache, device, devices)
    compute = compute_seconds(flops, device, dtype, devices)
    if in_turn:
        return cache_time + _longer(weight_time, compute)
    return _longer(weight_time + cache_time, compute)


def exchange_seconds(layers: Any, width: Any, batch: Any, link: Any, itemsize: int = 2) -> Size:
    """The least time in which devices that share every layer exchange what they computed, in a step.

    A layer sums over devices twice, behind its attention and behind its MLP, and each time a device sends and receives
    nearly ``width`` elements of every sequence. ``link``: bytes per second of a device in one direction. Source:
    kipply (2022), which has 8*layers*width bytes in 16 bits.
    """
    return 4 * exact(layers) * exact(width) * exact(batch) * itemsize / exact(read(link, "byte/second", "link"))


def exchange_latency(layers: Any, latency: Any) -> Size:
    """What these exchanges take however little is sent: four messages in each layer, one after the other."""
    return 4 * exact(layers) * exact(read(latency, "second", "latency"))


def compute_bound_batch(flops: Any, nbytes: Any, device: Device, dtype: str, batch: str = "B") -> Size | None:
    """The batch from which on computing takes at least as long as moving bytes; None where it never does.

    ``flops`` and ``nbytes``: linear in the batch, as those of a step are. Exact: a rational number, or a formula in the
    other dims. Raises `QuestionError` where one of them is not linear.
    """
    dim = symbol(batch)
    per_flop, fixed_flop = _linear(flops, dim)
    per_byte, fixed_byte = _linear(nbytes, dim)
    peak, rate = exact(device.peak(dtype)), exact(device.bytes_per_s)
    gain = per_flop / peak - per_byte / rate  # by how much computing takes longer for each sequence more
    late = fixed_byte / rate - fixed_flop / peak
    if gain.is_number and gain <= 0:
        return None
    return sympy.cancel(late / gain)


def _linear(formula: Any, dim: sympy.Symbol) -> tuple[sympy.Expr, sympy.Expr]:
    """What stands by a dim, and what stands without it."""
    expanded = sympy.expand(formula)
    by_dim = sympy.expand(expanded.coeff(dim, 1))
    rest = sympy.expand(expanded - by_dim * dim)
    if rest.has(dim) or by_dim.has(dim):
        raise QuestionError(f"the batch at which it is compute-bound: {expanded} is not linear in {dim}")
    return by_dim, rest


def _longer(a: Size, b: Size) -> Size:
    if not getattr(a, "free_symbols", None) and not getattr(b, "free_symbols", None):
        return max(a, b)
    return sympy.Max(a, b, evaluate=False)
