"""Everything that symacct imports of torch beyond its public API. Tested with torch 2.13.0 and 2.14.1."""

from __future__ import annotations

from torch._C import _current_autograd_node as current_autograd_node
from torch._C import _DisableTorchDispatch as no_dispatch
from torch._C._autograd import _get_sequence_nr as next_sequence_nr
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_other_modes

from symacct.torch_private.autograd import (
    around_backward,
    attention_by_products,
    in_place_variant,
    may_be_in_place,
    recognized_attention,
    sequence_nr,
    sole_holder,
)
from symacct.torch_private.cuda import (
    autocast_called_cuda,
    below_autocast,
    composite,
    foreach_by_default,
    in_operators_only,
    operators_with_kernel,
    replaced_kernels,
    shapes_of_cuda,
    when_autocast_forgets,
)
from symacct.torch_private.fake import (
    Pattern,
    copy_fake,
    fake_of_real,
    is_symbolic,
    make_view,
    new_fake,
    new_fake_mode,
    storage_key,
)
from symacct.torch_private.operators import (
    decomposes,
    makes_a_view,
    makes_new_tensors,
    operator_named,
    schema_arguments,
    tensor_arguments,
)
from symacct.torch_private.patches import (
    as_if_real,
    convertible_parameters,
    no_torch_function,
    patched_module_call,
    quiet,
    torchs_own_kernels,
    watched_random_state,
)
from symacct.torch_private.profiler import event_tree, is_allocation, is_operator, profiler_settings
from symacct.torch_private.resizing import resizing_by_symbols
from symacct.torch_private.shapes import answer_about, is_question, run_symbolic

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "Pattern",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "UnsupportedOperatorException",
    "answer_about",
    "around_backward",
    "as_if_real",
    "attention_by_products",
    "autocast_called_cuda",
    "below_autocast",
    "composite",
    "convertible_parameters",
    "copy_fake",
    "current_autograd_node",
    "decomposes",
    "event_tree",
    "fake_of_real",
    "foreach_by_default",
    "in_operators_only",
    "in_place_variant",
    "is_allocation",
    "is_operator",
    "is_question",
    "is_symbolic",
    "make_view",
    "makes_a_view",
    "makes_new_tensors",
    "may_be_in_place",
    "new_fake",
    "new_fake_mode",
    "next_sequence_nr",
    "no_dispatch",
    "no_torch_function",
    "operator_named",
    "operators_with_kernel",
    "patched_module_call",
    "profiler_settings",
    "quiet",
    "recognized_attention",
    "replaced_kernels",
    "resizing_by_symbols",
    "run_symbolic",
    "schema_arguments",
    "sequence_nr",
    "shapes_of_cuda",
    "sole_holder",
    "storage_key",
    "tensor_arguments",
    "torchs_own_kernels",
    "watched_random_state",
    "when_autocast_forgets",
    "without_other_modes",
]
