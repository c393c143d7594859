"""Specs: how inputs are described."""

import pytest
import torch
from torch import Tensor, nn

import symacct as sa
from symacct.errors import SpecError


@pytest.mark.parametrize(
    ("text", "axes", "dtype"),
    [
        ("B L D", (("B",), ("L",), ("D",)), torch.float32),
        ("i64[B, L]", (("B",), ("L",)), torch.int64),
        ("bf16[B, (H Dh)]", (("B",), ("H", "Dh")), torch.bfloat16),
        ("B 3 224 224", (("B",), (3,), (224,), (224,)), torch.float32),
        ("f32[]", (), torch.float32),
        ("", (), torch.float32),
        ("b8[ (2 B)  D ]", ((2, "B"), ("D",)), torch.bool),
        ("d_model β", (("d_model",), ("β",)), torch.float32),
    ],
)
def test_reading(text, axes, dtype):
    """Dims, numbers, products and dtypes are read; the spec prints itself in one form."""
    spec = sa.spec(text)
    assert spec.axes == axes
    assert spec.dtype is dtype
    assert sa.spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q7[B]", "spec 'q7[B]': unknown dtype 'q7'; known are f64, f32"),
        ("B (H", "spec 'B (H': '(' without ')'"),
        ("B -1", "spec 'B -1': cannot read '-'; write dims and numbers, as in 'B L D'"),
        ("B H)", "spec 'B H)': cannot read ')'"),
        ("B ... D", "spec 'B ... D': cannot read '.'"),
    ],
)
def test_messages(text, message):
    """A spec that cannot be read says where."""
    with pytest.raises(SpecError) as caught:
        sa.spec(text)
    assert str(caught.value).startswith(message)


class Sum(nn.Module):
    """Adds whatever tensors it finds."""

    def forward(self, first, *, more):
        return first + more["a"] + more["b"][0]


def test_any_pytree_of_specs_is_an_input():
    """Lists, dicts and keywords of specs become the same structure of tensors."""
    account = sa.trace(Sum(), "B D", more={"a": "B D", "b": ["D", 7]}, grad=True)
    assert account.forward.pointwise == sa.trace(lambda x: x + x + x, "B D", grad=True).forward.pointwise


def test_real_and_meta_tensors_describe_themselves():
    """A tensor as an input gives its sizes; the tensor is not touched."""
    x = torch.ones(3, 4)
    account = sa.trace(lambda a, b: a @ b, x, torch.empty(4, 5, device="meta"))
    assert account.forward.flops == 2 * 3 * 4 * 5
    assert torch.equal(x, torch.ones(3, 4))


def test_products_of_dims_split_again():
    """(H Dh) can be taken apart by a view into H and Dh, and einops does so by name."""
    from einops import rearrange

    def split(x, w):
        heads = rearrange(x, "b l (h d) -> b h l d", d=w.shape[0])
        return heads @ w

    account = sa.trace(split, "B L (H Dh)", "Dh E")
    assert str(account.forward) == "2*B*Dh*E*H*L"
    assert account.assumptions == ()


def test_jaxtyping_annotations():
    """A jaxtyping annotation is a spec, also when it is the signature's own."""
    jaxtyping = pytest.importorskip("jaxtyping")

    def forward(x: jaxtyping.Float32[Tensor, "B D"], ids: jaxtyping.Int64[Tensor, "B"]):
        return x @ x.T + ids

    assert str(sa.trace(forward).forward) == "2*B**2*D"
    assert str(sa.trace(lambda x: x @ x.T, jaxtyping.Float[Tensor, "N 8"]).forward) == "16*N**2"


def test_a_missing_input_is_named():
    """What does not fit the function's parameters says so."""
    with pytest.raises(SpecError, match=r"trace\(Linear\): missing a required argument: 'input'"):
        sa.trace(nn.Linear(2, 3))
    with pytest.raises(SpecError, match=r"got an unexpected keyword argument 'y'"):
        sa.trace(nn.Linear(2, 3), "B 2", y="B")


def test_gradients_of_inputs():
    """grad= names the inputs that want a gradient; integers cannot."""
    account = sa.trace(lambda x, w: x @ w, x="B D", w="D K", grad="w")
    assert str(account.backward) == "2*B*D*K"
    both = sa.trace(lambda x, w: x @ w, "B D", "D K", grad=(0, "w"))
    assert str(both.backward) == "4*B*D*K"
    with pytest.raises(SpecError, match="grad: there is no input 'v'; the inputs are x, w"):
        sa.trace(lambda x, w: x @ w, "B D", "D K", grad="v")


def test_sizes_must_belong_to_a_dim():
    """A trial size for a dim that is nowhere is an error, not ignored."""
    from symacct.errors import DimError

    with pytest.raises(DimError, match="sizes: Q=3, but the dim 'Q' occurs in no spec"):
        sa.trace(nn.Linear(2, 3), "B 2", sizes={"Q": 3})
    assert sa.trace(nn.Linear(2, 3), "B 2", sizes={"B": 5}).trial_sizes == {"B": 5}
