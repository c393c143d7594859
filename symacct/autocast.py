"""What autocast does on CUDA: the operators of its lists, each with a kernel that casts as CUDA's does.

Autocast on a CPU has other lists: layer norm, softmax, powers and sums keep two bytes there, and on CUDA have four.
Tensors that stand for CUDA ones are on the CPU here, so the kernels take the place of the CPU's. Those for products
and convolutions are the same on both, and stay torch's own, with the cache of cast weights. Source of the lists:
ATen/autocast_mode.h, which comes with torch, and "torch.amp, CUDA Op-Specific Behavior" in its documentation.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from symacct.torch_private import below_autocast, in_operators_only, operator_named, schema_arguments

LOWER = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
    "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity",
    "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm",
    "logsumexp", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
FLOAT32_APPENDED = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip

KEY = "AutocastCPU"


def full_name(name: str) -> str:
    """An operator of a list by its full name: ``aten.mm.default`` for "mm"."""
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


class Casts:
    """The casts of weights that autocast keeps until its outermost region ends, for the kernels of this file."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def forget(self) -> None:
        """Let go of all of them."""
        self.kept.clear()

    def of(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A tensor in another dtype; that of a float32 leaf that wants a gradient is kept."""
        if tensor.dtype is dtype:
            return tensor
        kept = self.kept.get(id(tensor))
        if kept is not None and kept[0]() is tensor and kept[1].dtype is dtype:
            return kept[1]
        cast = tensor.to(dtype)
        weight = tensor.dtype is torch.float32 and tensor.is_leaf and tensor.requires_grad
        if weight and torch.is_autocast_cache_enabled() and dtype is lower_dtype():
            self.kept[id(tensor)] = (weakref.ref(tensor), cast)
        return cast


def lower_dtype() -> torch.dtype:
    """The dtype of two bytes that autocast is set to."""
    return torch.get_autocast_dtype("cpu")


def kernels(
    own: frozenset[str], casts: Casts, used: Callable[[], None]
) -> Mapping[tuple[str, str], Callable[..., Any] | None]:
    """The kernels to be put in place of the CPU's, whose operators are ``own``; None where CUDA has none.

    A kernel of the CPU that does what CUDA's does is left as it is. ``used`` is called when a kernel runs.
    """
    made: dict[str, Callable[..., Any] | None] = {}
    for name in map(full_name, LOWER):
        if name not in own:
            made[name] = _casting(name, casts, lambda tensors: lower_dtype())
    for name in map(full_name, FLOAT32):
        made[name] = _casting(name, casts, lambda tensors: torch.float32)
    for name in map(full_name, WIDEST):
        made[name] = _casting(name, casts, _widest)
    for name in map(full_name, FLOAT32_RESULT):
        made[name] = _with_float32_result(name)
    for name, other in FLOAT32_APPENDED.items():
        made[full_name(name)] = _with_dtype_appended(full_name(name), full_name(other))
    made["aten.binary_cross_entropy.default"] = _refused
    known = {*made, *map(full_name, LOWER)}
    made.update(dict.fromkeys(own - known))
    return {(name, KEY): kernel and _told(kernel, used) for name, kernel in made.items()}


# -- kernels ---------------------------------------------------------------------------


def _told(kernel: Callable[..., Any], used: Callable[[], None]) -> Callable[..., Any]:
    """A kernel that runs below autocast and past torch functions, and tells that it does."""

    def run(*args: Any, **kwargs: Any) -> Any:
        used()
        with below_autocast():
            return kernel(*args, **kwargs)

    return in_operators_only(run)


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64


def _casting(name: str, casts: Casts, choose: Callable[[list[torch.Tensor]], torch.dtype]) -> Callable[..., Any]:
    """Cast all floating-point operands to one dtype, those in lists too, and run the operator without autocast."""
    func = operator_named(name)

    def cast(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([cast(v, dtype) for v in value])
        return casts.of(value, dtype) if _eligible(value) else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = choose([a for a in (*args, *kwargs.values()) if _eligible(a)])
        named = {k: cast(v, dtype) for k, v in kwargs.items()}
        placed = [cast(a, dtype) for a in reversed(args)]  # the last argument first, as the compiler of C++ has it
        return func(*reversed(placed), **named)

    return kernel


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32 if any(t.dtype is torch.float32 for t in tensors) else lower_dtype()


def _with_float32_result(name: str) -> Callable[..., Any]:
    """Ask the operator for float32 where no dtype was asked for."""
    func = operator_named(name)
    place = [argument for argument, _, _ in schema_arguments(func)].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get("dtype")
        if given is None and _eligible(args[0]):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)

    return kernel


def _with_dtype_appended(name: str, other: str) -> Callable[..., Any]:
    """Run the variant of an operator that takes the result's dtype, with float32."""
    func, with_dtype = operator_named(name), operator_named(other)
    defaults = [default for _, default, _ in schema_arguments(func)]

    def kernel(*args: Any) -> Any:
        if not _eligible(args[0]):
            return func(*args)
        return with_dtype(*args, *defaults[len(args) :], dtype=torch.float32)

    return kernel


def _refused(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "binary_cross_entropy is unsafe under autocast, and CUDA refuses it; use binary_cross_entropy_with_logits"
    )
