"""The lowering for CUDA beside a PyTorch that was built with CUDA, on tensors without data: no device is needed.

Such a build chooses operators for CUDA tensors as it does with a device, as long as nothing asks the driver. What
asks it (which attention serves, cuDNN's layers) and what comes of a backward pass cannot be had here; nor can norms
of mixed dtypes, for which torch's shape functions for CUDA refuse or guess. Where torch was built without CUDA there
is nothing to compare with.
"""

from functools import partial

import pytest
import torch
from test_autocast import CASES
from torch.nn import functional as F

import symacct as sa
from symacct import autocast
from symacct.torch_private import FakeTensorMode, TorchDispatchMode, operators_with_kernel

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch was built without CUDA")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def shown(op, results):
    """An operator with the shapes and dtypes of its results."""
    return op, [(tuple(int(n) for n in r.shape), str(r.dtype).removeprefix("torch.")) for r in results]


def torchs(function, specs, dtype):
    """What PyTorch runs for fake CUDA tensors of the given specs, "f32 3 4", under autocast to a dtype or without."""
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            flat = [t for t in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(t, torch.Tensor)]
            if func.namespace == "aten":  # and not a question about a device
                seen.append(shown(str(func), flat))
            return out

    with FakeTensorMode(), torch.no_grad():
        made = [
            torch.empty([int(n) for n in sizes], dtype=DTYPES[d], device="cuda") for d, *sizes in map(str.split, specs)
        ]
        if dtype is not None:
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", dtype)
        try:
            with Watch():
                function(*made)
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.clear_autocast_cache()
    return seen


def ours(function, specs, dtype):
    """The same of an account."""
    read = [f"{d}[{', '.join(sizes)}]" for d, *sizes in map(str.split, specs)]
    step = sa.trace(function, *read, train=False, autocast=dtype, check=False, device="cuda")
    return [shown(n.op, n.outputs) for n in step.nodes]


def batch_norm(training, *tensors):
    """Batch norm as a function of its five tensors."""
    x, mean, var, weight, bias = tensors
    return F.batch_norm(x, mean, var, weight, bias, training)


def normed(kind, **options):
    """Layer, group or RMS norm as a function of tensors."""
    if kind == "group_norm":
        return lambda x, *parameters: F.group_norm(x, 2, *parameters)
    return lambda x, *parameters: getattr(F, kind)(x, x.shape[-1:], *parameters, **options)


FUNCTIONS = {
    "dropout": (lambda x: F.dropout(x, 0.1), ["f32 3 4"]),
    "dropout in place": (lambda x: F.dropout(x, 0.1, True, True), ["f32 3 4"]),
    "dropout of all": (lambda x: F.dropout(x, 1.0), ["f16 3 4"]),
    "dropout of none": (lambda x: F.dropout(x, 0.0) + 1, ["f32 3 4"]),
    "dropout of channels": (lambda x: F.dropout2d(x, 0.1), ["f32 2 3 4 4"]),
    **{
        f"{name} of {d}": (lambda x, n=name: getattr(F, n)(x, -1, dtype=torch.float32), [f"{d} 3 4"])
        for name in ("softmax", "log_softmax")
        for d in DTYPES
    },
    **{
        f"{kind} of {d}, {w}": (normed(kind), [f"{d} 3 4", *[f"{w} 4"] * (1 if kind == "rms_norm" else 2)])
        for kind in ("layer_norm", "group_norm", "rms_norm")
        for d, w in (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"))
    },
    "RMS norm of mixed": (normed("rms_norm"), ["bf16 3 4", "f32 4"]),
    "RMS norm without weights": (normed("rms_norm"), ["bf16 3 4"]),
    **{
        f"batch norm of {d}, {w}, {training}": (
            partial(batch_norm, training), [f"{d} 2 4 5 5", "f32 4", "f32 4", f"{w} 4", f"{w} 4"]
        )
        for d, w in (("f32", "f32"), ("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("bf16", "bf16"))
        for training in (True, False)
    },
    "batch norm of two axes": (partial(batch_norm, True), ["f32 2 4", *["f32 4"] * 4]),
    "instance norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), ["f32 2 4 5 5", "f32 4", "f32 4"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_are_those_of_the_build(name):
    """The same operators in the same order, with results of the same shapes and dtypes."""
    function, specs = FUNCTIONS[name]
    assert ours(function, specs, None) == torchs(function, specs, None)


LOSSES = {
    "cross_entropy": lambda h, w, x: F.cross_entropy(h, h.argmax(1)),
    "smooth_l1_loss": lambda h, w, x: F.smooth_l1_loss(h, x),
    "kl_div": lambda h, w, x: F.kl_div(h, x),
    "binary_cross_entropy_with_logits": lambda h, w, x: F.binary_cross_entropy_with_logits(h, x),
    "cosine_similarity": lambda h, w, x: F.cosine_similarity(h, x),
    "group_norm": lambda h, w, x: F.group_norm(h, 2),
    "prelu": lambda h, w, x: F.prelu(h, w[0]),
    "bilinear": lambda h, w, x: F.bilinear(h, x, w[None]),
    "grid_sample": lambda h, w, x: F.grid_sample(
        h[None, None], x[None, :, :2, None].transpose(2, 3), align_corners=False
    ),
    "interpolate": lambda h, w, x: F.interpolate(h[None, None], scale_factor=2, mode="bilinear"),
    "scatter_add": lambda h, w, x: torch.scatter_add(x, 0, h.argmax(0)[None], x),
    "addmv": lambda h, w, x: torch.addmv(x[0], w, h[0]),
    "linalg norms": lambda h, w, x: torch.linalg.vector_norm(h) + torch.linalg.matrix_norm(h),
    "dropout": lambda h, w, x: F.dropout(h, 0.1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*CASES, *LOSSES])
def test_autocast_is_that_of_the_build(name, dtype):
    """Under autocast too, for each function of test_autocast.py and for losses, norms and rarer operators."""
    function = LOSSES.get(name) or CASES[name][0]

    def net(w, x):
        return function(F.linear(x, w), w, x)

    specs = ["f32 4 4", "f32 4 4"]
    assert ours(net, specs, dtype) == torchs(net, specs, dtype)


def test_lists_are_the_kernels_of_the_build():
    """Autocast has a kernel for each operator of the lists, and beyond them for what no program calls by itself.

    Those are cuDNN's own operators, and a function that PyTorch 2.14 adds.
    """
    lists = (autocast.LOWER, autocast.FLOAT32, autocast.FLOAT32_RESULT, autocast.FLOAT32_APPENDED, autocast.WIDEST)
    listed = {autocast.full_name(n) for names in lists for n in names} | {"aten.binary_cross_entropy.default"}
    beyond = {"_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose", "linalg_matrix_sqrth"}
    found = operators_with_kernel("AutocastCUDA")
    assert listed <= found
    assert found - listed <= {autocast.full_name(n) for n in beyond}
