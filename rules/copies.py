"""Copies, concatenation, padding, rearrangement.

Counted: no arithmetic; bytes by the default: every distinct input region once, every result once.
What is overwritten in place is not read.
"""

from __future__ import annotations

from symacct.cost import Call, Size, TensorMeta
from symacct.rule import Rules, read, written

rules = Rules("copies")

rules.no_arithmetic(
    "aten.clone", "aten._to_copy", "aten._reshape_copy", "aten.lift_fresh_copy", "aten.cat", "aten.stack",
    "aten._stack", "aten._chunk_cat", "aten.block_diag", "aten.repeat", "aten.repeat_interleave",
    "aten.constant_pad_nd", "aten.tril",
    "aten.triu", "aten.flip", "aten.roll", "aten.rot90", "aten.channel_shuffle", "aten.native_channel_shuffle",
    "aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.diag_embed", "aten.copy", "aten._copy_from",
    "aten._pack_padded_sequence", "aten._jagged_to_padded_dense_forward", "aten._padded_dense_to_jagged_forward",
    "aten._pin_memory", "aten._conj_copy", "aten._neg_view_copy", "aten._fw_primal_copy", "aten._make_dual_copy",
    "aten._lazy_clone", "aten.unsafe_split", "aten.unsafe_split_with_sizes",
)  # fmt: skip

VIEW_COPIES = (
    "alias", "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "_reshape_alias", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
    "view_as_complex", "view_as_real",
)  # fmt: skip

rules.no_arithmetic(*(f"aten.{name}_copy" for name in VIEW_COPIES))
rules.overwrites("aten.copy_")


@rules.bytes("aten.copy")
def copy(src: TensorMeta, call: Call) -> tuple[Size, Size]:
    """The functional form overwrites a copy: only the source is read."""
    return read(src), written(call)
