"""The kernels of a device that is not here: what a training step on CUDA runs, on tensors without data on the CPU.

CUDA chooses other operators than the CPU: fused attention, dropout with a mask of bytes, cuDNN's batch norm and
recurrent layers, a fused RMS norm, softmax from float16 to float32, autocast by other lists, optimizers by lists of
tensors. `TABLE` has them, one entry each; `lowered` puts them in place while a step runs. They act below the Python
API, at the operator, so it does not matter how a model comes to call it; autograd makes the backward as on CUDA.

Where the choice depends on a size (heads that are a multiple of 8, of at most 256), the question is torch's own, and
the answer an assumption of the account; that a batch is within cuDNN's limits is taken for granted. Not known here, and
counted as nothing: the reserve of cuDNN's batch norm and recurrent layers, and what kernels take while they run (flash
attention's backward has a float32 copy of dQ). What library does a convolution is not chosen here: an account has
``aten.convolution``. Cells such as ``nn.LSTMCell`` keep the CPU's operators, and so does all within
``torch.inference_mode``. Sources: ATen/native of PyTorch 2.13 (transformers/attention.cpp,
transformers/cuda/sdp_utils.cpp, Dropout.cpp, Normalization.cpp, layer_norm.cpp, SoftMax.cpp, GridSampler.cpp,
RNN.cpp); what a build for CUDA does with tensors without data (tests/test_cuda_build.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from symacct import attention, autocast
from symacct.errors import SpecError
from symacct.torch_private import (
    autocast_called_cuda,
    composite,
    foreach_by_default,
    in_operators_only,
    operators_with_kernel,
    replaced_kernels,
    shapes_of_cuda,
    when_autocast_forgets,
)

aten = torch.ops.aten
DEVICES = ("cpu", "cuda")
CUDNN = (torch.float32, torch.float16, torch.float64)  # what cuDNN's own layers are taken for
CPU = "those of PyTorch on a CPU, without oneDNN and NNPACK"


@dataclass(frozen=True)
class Lowering:
    """Whose kernels a step is described with: the device, and where that is CUDA, its attention (None: torch's choice).

    Raises `SpecError` for a device or an attention that is not known.
    """

    device: str = "cpu"
    attention: str | None = None

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise SpecError(f"device: {self.device!r} is none of {', '.join(DEVICES)}")
        if self.attention is not None and self.attention not in attention.KINDS:
            raise SpecError(f"attention: {self.attention!r} is none of {', '.join(attention.KINDS)}")
        if self.attention is not None and self.device == "cpu":
            raise SpecError(f"attention: {self.attention!r} is for device='cuda'; a CPU has one kernel of its own")

    def text(self, used: tuple[str, ...]) -> str:
        """The kernels in words, of which ``used`` are those that the step came across."""
        return CPU if self.device == "cpu" else f"{self.device}: {', '.join(used) or 'none that differs'}"


@dataclass
class Run:
    """One run of a step: what was chosen, where the program is, and which kernels it used, in order."""

    lowering: Lowering
    place: Callable[[], str]
    used: dict[str, None] = field(default_factory=dict)

    def uses(self, name: str) -> None:
        """Note that a kernel was used."""
        self.used.setdefault(name)


@contextmanager
def lowered(lowering: Lowering, place: Callable[[], str]) -> Iterator[Run]:
    """Have torch run the kernels of a device; what is yielded knows which it did run."""
    run = Run(lowering, place)
    with ExitStack() as stack:
        if lowering.device == "cuda":
            casts = autocast.Casts()
            own = {(e.op, e.key): in_operators_only(partial(e.kernel, run)) for e in TABLE}
            here = operators_with_kernel(autocast.KEY)
            lists = autocast.kernels(here, casts, partial(run.uses, "autocast lists of CUDA"))
            stack.enter_context(replaced_kernels({**own, **lists}))
            stack.enter_context(when_autocast_forgets(casts.forget))
            stack.enter_context(autocast_called_cuda())
            stack.enter_context(shapes_of_cuda())
            stack.enter_context(foreach_by_default(partial(run.uses, "foreach optimizer")))
        yield run


# -- kernels ---------------------------------------------------------------------------


def _attention(run: Run, *args: Any, **kwargs: Any) -> Any:
    """By the kernel that was asked for, or else the one that torch takes."""
    kind, result = attention.attend(run.lowering.attention, run.place, *args, **kwargs)
    run.uses(f"{kind} attention")
    return result


def _dropout(run: Run, input: Any, p: float, train: bool) -> Any:
    """One kernel, and a mask of bytes. In place (``inplace=True``) CUDA does what the CPU does, and nothing changes."""
    if not train or not 0 < p < 1 or input.numel() == 0:
        return composite(aten.dropout.default, input, p, train)
    run.uses("native_dropout")
    return aten.native_dropout.default(input, p, True)[0]


_TRAINING_BATCH, _EVAL_BATCH = 880_801, 65_535  # the largest that cuDNN takes


def _batch_norm(
    run: Run, input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Any:  # fmt: skip
    """cuDNN's where it takes the dtypes and the shape, else PyTorch's own. Symbolic batches are within its limits."""
    batch = input.shape[0]
    whole = weight is not None and bias is not None and (mean is None) == (var is None)
    serves = (
        cudnn_enabled
        and whole
        and (training or mean is not None)
        and torch.bfloat16 not in (input.dtype, weight.dtype)
        and (input.dtype is not torch.float16 or weight.dtype is torch.float32)
        and input.dim() >= 3
        and (not isinstance(batch, int) or batch <= (_TRAINING_BATCH if training else _EVAL_BATCH))
    )
    if not serves:
        run.uses("native batch norm")
        return composite(
            aten._batch_norm_impl_index.default, input, weight, bias, mean, var, training, momentum, eps, cudnn_enabled
        )
    run.uses("cudnn batch norm (its reserve, which cuDNN alone knows, as 0 bytes)")
    return *aten.cudnn_batch_norm.default(input, weight, bias, mean, var, training, momentum, eps), 1


def _rms_norm(run: Run, input: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """One kernel, unless the weight has another dtype than the input."""
    if weight is not None and weight.dtype is not input.dtype:
        return composite(aten.rms_norm.default, input, shape, weight, eps)
    run.uses("fused RMS norm")
    return aten._fused_rms_norm.default(input, shape, weight, eps)[0]


def _never(run: Run, *_: Any) -> Any:
    """What stands for a kernel of CUDA that is never run: tensors have no data here."""
    raise NotImplementedError(f"a kernel of CUDA at {run.place()} on real tensors")


def _softmax(name: str, run: Run, input: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    """From float16 to float32 in one kernel, where a CPU first makes a float32 copy."""
    if input.dtype is not torch.float16 or dtype is not torch.float32:
        return composite(getattr(aten, name).int, input, dim, dtype)
    run.uses("softmax from float16 to float32")
    return getattr(aten, f"_{name}").default(input, dim, True)


def _grid_sampler(run: Run, input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
    """cuDNN's for images of up to 1024 channels, bilinear, zeros around them, corners aligned."""
    bilinear, zeros = interpolation == 0, padding == 0
    served = input.dtype in CUDNN and input.dim() == 4 and bilinear and zeros and align_corners
    if not served or input.shape[1] > 1024:
        return composite(aten.grid_sampler.default, input, grid, interpolation, padding, align_corners)
    run.uses("cudnn grid sampler")
    return aten.cudnn_grid_sampler.default(input, grid)


_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # as cuDNN numbers them


def _recurrent(
    name: str, run: Run, input: Any, hidden: Any, weights: Any, has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """All steps and layers in one kernel, whose weights are one buffer (which the parameters are views of)."""
    mode = _MODES[name]
    h, c = hidden if mode == _MODES["lstm"] else (hidden, None)
    if input.dtype not in CUDNN or torch.is_autocast_enabled("cpu"):
        run.uses(f"{name} by matrix products (cuDNN's is not described for bfloat16 and under autocast)")
        return composite(
            getattr(aten, name).input,
            input, hidden, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first,
        )  # fmt: skip
    run.uses("cudnn recurrent layers (their reserve, which cuDNN alone knows, as 0 bytes)")
    size, projection = h.shape[2], 0
    if c is not None and c.shape[2] != size:
        size, projection = c.shape[2], size
    stride = (4 if has_biases else 2) + (projection != 0)
    output, h, c, *_ = aten._cudnn_rnn.default(
        input, weights, stride, None, h, c, mode, size, projection, num_layers, batch_first, dropout, train,
        bidirectional, [], None,
    )  # fmt: skip
    return (output, h, c) if mode == _MODES["lstm"] else (output, h)


# -- the table -------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """An operator that is something else on CUDA: its full name, what runs in its place, and what that may call."""

    op: str
    kernel: Callable[..., Any]
    calls: tuple[str, ...] = ()
    key: str = "AutogradCPU"  # the dispatch key: above autograd, so that what is called makes the backward


TABLE = (
    Entry(
        "aten.scaled_dot_product_attention.default",
        _attention,
        attention.OPERATORS,
    ),
    Entry("aten.dropout.default", _dropout, ("aten.native_dropout.default",)),
    Entry("aten._batch_norm_impl_index.default", _batch_norm, ("aten.cudnn_batch_norm.default",)),
    Entry("aten.rms_norm.default", _rms_norm, ("aten._fused_rms_norm.default",)),
    # With a kernel of its own it is no longer other operators to torch, and has autograd's formula.
    Entry("aten._fused_rms_norm.default", _never, key="CPU"),
    Entry("aten.grid_sampler.default", _grid_sampler, ("aten.cudnn_grid_sampler.default",)),
    *(
        Entry(f"aten.{name}.int", partial(_softmax, name), (f"aten._{name}.default",))
        for name in ("softmax", "log_softmax")
    ),
    *(Entry(f"aten.{name}.input", partial(_recurrent, name), ("aten._cudnn_rnn.default",)) for name in _MODES),
)
