"""Views and bookkeeping: ops that move nothing.

Most views are recognised by the storage they share; named here are those that act in
place, and all others so that they are known. Reading one number is its bytes.
"""

from __future__ import annotations

from symacct.cost import Call, Size
from symacct.rule import Rules
from symacct.rules.common import each

rules = Rules("bookkeeping")

VIEWS = (
    "alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice", "slice_inverse", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex",
    "view_as_real", "_reshape_alias", "_unsafe_view", "_conj", "_neg_view", "lift", "lift_fresh", "_fw_primal",
    "_make_dual", "swapaxes", "swapdims",
)  # fmt: skip
NOTES = (
    "set", "resize", "resize_as", "_resize_output", "record_stream", "is_same_size", "is_pinned", "is_set_to",
    "_has_same_storage_numel", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "size", "stride", "dim",
    "numel", "is_contiguous", "_version", "_fused_sdp_choice", "_assert_async", "_assert_scalar",
    "_assert_tensor_metadata", "_functional_assert_async", "_functional_assert_scalar", "_print",
    "sym_constrain_range", "sym_constrain_range_for_size", "_functional_sym_constrain_range",
    "_functional_sym_constrain_range_for_size", "_linalg_check_errors", "_make_dep_token",
    "_has_compatible_shallow_copy_type", "is_nonzero",
)  # fmt: skip

rules.free(*(f"aten.{name}" for name in VIEWS))
rules.free(*(f"aten.{name}" for name in NOTES))
rules.free(
    "profiler._record_function_enter", "profiler._record_function_enter_new", "profiler._record_function_exit",
    "prim.device", "prim.layout",
)  # fmt: skip


@each(rules.bytes, "aten._local_scalar_dense")
def item(call: Call) -> tuple[Size, Size]:
    """One number is read."""
    return call.inputs[0].itemsize, 0
