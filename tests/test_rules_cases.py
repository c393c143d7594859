"""The cases that users of such tools have reported, by id, with the answers that are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harvest import record
from samples import call, t
from torch import nn
from torch.nn import functional as F

from symacct.cost import Cost
from symacct.rules import default_rules
from symacct.rules.weights import WEIGHTS

RULES = default_rules()


def m(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A meta tensor."""
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def cost(function: Any, *args: Any, only: str = "", **kwargs: Any) -> Cost:
    """The cost of all calls that a function makes (of those whose name holds ``only``)."""
    total = Cost()
    for each in record(function, *args, **kwargs):
        if only in each.op:
            found = RULES.cost(each)
            assert found is not None, each.op
            total = total + found
    return total


def forward(module: nn.Module, *inputs: torch.Tensor, **kwargs: Any) -> Cost:
    """The cost of a module's forward."""
    with torch.no_grad():
        return cost(module.to("meta"), *inputs, **kwargs)


def counts(c: Cost) -> tuple[int, int]:
    """(flops, pointwise)."""
    return c.flops, c.pointwise


def test_b01() -> None:
    """A linear layer is 2 FLOP per multiply-add, and its bias one add per output."""
    assert counts(forward(nn.Linear(4, 3), m(2, 4))) == (48, 6)


def test_b02() -> None:
    """A matrix product is 2mkn, with k the contracted size."""
    assert cost(torch.mm, m(25, 16), m(16, 9)).flops == 7200


def test_b03() -> None:
    """Products of vectors and broadcast batches count, and the bias of addmm is pointwise."""
    assert cost(torch.matmul, m(8), m(8)).flops == 16
    assert cost(torch.matmul, m(4, 8), m(8)).flops == 64
    assert cost(torch.matmul, m(2, 1, 4, 8), m(3, 8, 5)).flops == 1920
    assert counts(cost(torch.addmm, m(5), m(4, 8), m(8, 5))) == (320, 20)


def test_b04() -> None:
    """A linear layer counts all leading axes."""
    assert counts(forward(nn.Linear(3, 8), m(5, 100, 100, 3))) == (2_400_000, 400_000)


def test_b05() -> None:
    """A bias is added to each output element."""
    assert counts(forward(nn.Linear(4, 3), m(2, 7, 4))) == (336, 42)


def test_b06() -> None:
    """baddbmm broadcasts its bias; beta = 0 drops the add and the read, other factors multiply."""
    args = (m(2, 1, 7), m(2, 3, 5), m(2, 5, 7))
    plain = cost(torch.baddbmm, *args)
    assert counts(plain) == (420, 42)
    assert counts(cost(torch.baddbmm, *args, alpha=2, beta=3)) == (420, 126)
    dropped = cost(torch.baddbmm, *args, beta=0)
    assert counts(dropped) == (420, 0)
    assert plain.bytes_read - dropped.bytes_read == 2 * 7 * 4


def test_b07() -> None:
    """An einsum of two operands is twice the product of its distinct indices."""
    assert cost(torch.einsum, "bshd,bthd->bhst", m(2, 3, 4, 5), m(2, 7, 4, 5)).flops == 1680


@pytest.mark.parametrize(
    ("a", "b", "flop"), [((2, 3, 4), (4,), 24), ((8,), (2, 8), 16), ((3, 4), (4,), 12), ((4, 1, 7), (1, 5, 7), 140)]
)
def test_b08(a: tuple, b: tuple, flop: int) -> None:
    """An elementwise op counts its broadcast result, and reads each operand at its own size."""
    found = cost(torch.mul, m(*a), m(*b))
    assert found.pointwise == flop
    assert found.bytes_read == 4 * (m(*a).numel() + m(*b).numel())
    assert found.bytes_written == 4 * flop


def test_b09() -> None:
    """Elementwise ops are pointwise, by the table of weights."""
    assert counts(cost(lambda x: torch.sigmoid(x) * x + 1, m(3, 5))) == (0, 15 * (WEIGHTS["sigmoid"] + 2))


def test_b10() -> None:
    """A complex multiply-add is four real ones, a complex multiply six FLOP, a complex add two."""
    c = torch.complex64
    product = cost(torch.mm, m(2, 3, dtype=c), m(3, 5, dtype=c))
    assert product.flops == 240
    assert product.bytes_written == 8 * 10
    assert cost(torch.mul, m(4, dtype=c), m(4, dtype=c)).pointwise == 24
    assert cost(torch.add, m(4, dtype=c), m(4, dtype=c)).pointwise == 8


def test_b11() -> None:
    """A real Fourier transform is modelled as 2.5*n*log2(n)."""
    assert cost(torch.fft.rfft, m(8, 1024)).pointwise == 204_800
    assert cost(torch.fft.fft, m(8, 1024, dtype=torch.complex64)).pointwise == 409_600


def test_b12() -> None:
    """Attention spelled in operators counts like any other."""
    q = m(1, 2, 6, 4)
    assert cost(lambda: torch.softmax(q @ q.mT, -1) @ q).flops == 1152
    assert cost(lambda: torch.softmax(q @ q.mT, -1) @ q, only="softmax").pointwise == 5 * 72


def test_b13() -> None:
    """A transposed convolution counts input times output channels."""
    assert counts(forward(nn.ConvTranspose2d(32, 1, 3), m(1, 32, 1, 1))) == (576, 9)


def test_b14() -> None:
    """A transposed convolution counts its input positions."""
    assert counts(forward(nn.ConvTranspose2d(3, 1, 2, stride=2), m(1, 3, 2, 2))) == (96, 16)


def test_b15() -> None:
    """Grouped and depthwise transposed convolutions divide by their groups once."""
    deep = nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, output_padding=1, groups=4)
    assert counts(forward(nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), m(2, 4, 8, 8))) == (98_304, 3072)
    assert counts(forward(deep, m(2, 4, 8, 8))) == (9216, 2048)
    assert counts(forward(nn.ConvTranspose2d(6, 6, 2, stride=2, groups=3), m(2, 6, 8, 8))) == (12_288, 3072)


@pytest.mark.parametrize(("grad", "factor"), [(False, 1), (True, 2)])
def test_b16(grad: bool, factor: int) -> None:
    """A backward has the input's gradient only where the input wants one, and counting leaves no state."""
    conv = nn.ConvTranspose2d(192, 384, 2, stride=2, device="meta")
    for _ in range(2):
        assert cost(conv, m(6, 192, 30, 96, grad=grad), only="convolution.").flops == 10_192_158_720
        backward = cost(conv, m(6, 192, 30, 96, grad=grad), only="convolution_backward")
        assert backward.flops == factor * 10_192_158_720


def test_b17() -> None:
    """A depthwise convolution has one input channel per output, however it is split."""
    assert forward(nn.Conv2d(24, 24, 3, groups=24, bias=False), m(1, 24, 6, 6)).flops == 6912
    assert 2 * forward(nn.Conv2d(12, 12, 3, groups=12, bias=False), m(1, 12, 6, 6)).flops == 6912


def test_b18() -> None:
    """Counts do not overflow."""
    conv = nn.Conv1d(1000, 1000, 3, padding=1, device="meta")
    assert counts(forward(conv, m(1, 1000, 512))) == (3_072_000_000, 512_000)


@pytest.mark.parametrize("dilation", [1, 2])
def test_b19(dilation: int) -> None:
    """Padding by name counts the padded taps too."""
    conv = nn.Conv2d(3, 6, 3, padding="same", dilation=dilation)
    assert counts(forward(conv, m(1, 3, 5, 5))) == (8100, 150)


def test_b20() -> None:
    """Interpolation counts the size of its result."""
    nearest = cost(F.interpolate, m(1, 3, 4, 4), scale_factor=(2, 3))
    assert (nearest.pointwise, nearest.bytes_read, nearest.bytes_written) == (0, 48 * 4, 288 * 4)
    assert cost(F.interpolate, m(1, 3, 4, 4), scale_factor=(2, 3), mode="bilinear").pointwise == 9 * 288


def test_b21() -> None:
    """Two spellings of one pool cost the same, and grow with channels; borders are charged a full window."""
    whole, adaptive = nn.AvgPool2d(7), nn.AdaptiveAvgPool2d(1)
    assert forward(whole, m(1, 4, 7, 7)).pointwise == forward(adaptive, m(1, 4, 7, 7)).pointwise == 200
    assert forward(whole, m(1, 8, 7, 7)).pointwise == forward(adaptive, m(1, 8, 7, 7)).pointwise == 400
    assert (
        forward(nn.AdaptiveAvgPool2d(7), m(1, 4, 14, 14)).pointwise
        == forward(nn.AvgPool2d(2), m(1, 4, 14, 14)).pointwise
    )
    ragged = nn.AvgPool1d(3, stride=2, ceil_mode=True, count_include_pad=False)
    assert forward(ragged, m(1, 1, 4)).pointwise == 2 * (3 + 1)


def test_b22() -> None:
    """Nested containers add nothing."""

    def conv() -> nn.Module:
        return nn.Conv2d(16, 16, 3, bias=False)

    assert forward(nn.Sequential(nn.Sequential(conv(), conv()), conv()), m(1, 16, 8, 8)).flops == 2 * 129_024


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_b23(device: str) -> None:
    """Fused attention costs the same on every device."""
    q = torch.empty(1, 12, 64, 64, device=device)
    assert cost(F.scaled_dot_product_attention, q, q, q).flops == 12_582_912


def test_b24() -> None:
    """Grouped-query attention has FLOPs by query heads, bytes by key heads."""
    q, k, v = t(1, 32, 128, 64, dtype="bfloat16"), *(t(1, 8, 128, 64, dtype="bfloat16", storage=s) for s in (1, 2))
    out = t(1, 32, 128, 64, dtype="bfloat16", storage=3)
    op = "aten._scaled_dot_product_flash_attention"
    found = RULES.cost(call(op, out, query=q, key=k, value=v))
    assert found is not None
    assert found.flops == 134_217_728
    assert found.bytes_read == q.nbytes + 2 * 8 * 128 * 64 * 2


def test_b25() -> None:
    """A causal mask halves nothing by default."""
    q = m(1, 1, 4, 1)
    assert cost(F.scaled_dot_product_attention, q, q, q, is_causal=True).flops == 4 * 4 * 4


def test_b27() -> None:
    """A fused backward is five products, an unfused one four."""
    q = t(64, 16, 1024, 64)
    forward_call = call("aten._scaled_dot_product_flash_attention", q, query=q, key=q, value=q)
    backward_call = call(
        "aten._scaled_dot_product_flash_attention_backward", q, q, q, grad_out=q, query=q, key=q, value=q, dropout_p=0.0
    )
    assert RULES.cost(forward_call).flops == 274_877_906_944
    assert RULES.cost(backward_call).flops == 687_194_767_360
    x = m(1024, 1024, 64, grad=True)
    unfused = cost(lambda: torch.softmax(x @ x.mT, -1) @ x, only="bmm").flops
    assert unfused - 274_877_906_944 == 549_755_813_888


def test_b28() -> None:
    """Queries and values may have heads of different sizes."""
    q, v = t(1, 2, 8, 192), t(1, 2, 8, 128, storage=1)
    op = "aten._scaled_dot_product_flash_attention"
    assert RULES.cost(call(op, v, query=q, key=q, value=v)).flops == 81_920
    back = call(f"{op}_backward", q, q, v, grad_out=v, query=q, key=q, value=v, dropout_p=0.0)
    assert RULES.cost(back).flops == 212_992


def test_b29() -> None:
    """Packed sequences give the padded upper bound, not the pack as one sequence."""
    pack = m(192, 8, 64, dtype=torch.bfloat16)
    lengths = m(3, dtype=torch.int32)
    op = torch.ops.aten._flash_attention_forward
    assert cost(op, pack, pack, pack, lengths, lengths, 128, 128, 0.0, False, False).flops == 67_108_864


@pytest.mark.parametrize("heads", [4, 8])
def test_b31(heads: int) -> None:
    """The number of heads changes no contraction, only softmax."""
    layer, x = nn.MultiheadAttention(448, heads, batch_first=True), m(1, 300, 448, grad=True)
    found = list(record(layer.to("meta"), x, x, x))
    contractions = [RULES.cost(c).flops for c in found]
    split = next(i for i, c in enumerate(found) if c.op.startswith("aten.ones_like"))
    assert sum(contractions[:split]) == 642_969_600


def test_b32() -> None:
    """The fast path of an encoder layer has the contractions of the layer in training."""
    expected = 209_715_200
    layer = nn.TransformerEncoderLayer(512, 4, 512, batch_first=True, dropout=0.0).eval()
    with torch.no_grad():
        fast = cost(layer, torch.zeros(1, 64, 512))
    assert fast.flops == expected
    assert forward(layer.train(), m(1, 64, 512)).flops == expected


def test_b33() -> None:
    """Cross attention has projections of their own widths; bias and zero rows lengthen the keys."""
    other = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True)
    assert forward(other, m(1, 3, 8), m(1, 5, 6), m(1, 5, 4)).flops == 2048
    longer = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    assert forward(longer, m(1, 3, 8), m(1, 5, 8), m(1, 5, 8)).flops == 2720


def test_b35() -> None:
    """A repeat is a copy, an expanded view is free."""
    mask = m(1, 7784, 7784)
    assert cost(lambda: mask.repeat(12, 1, 1)).bytes_written == 2_908_351_488
    assert cost(lambda: mask.expand(12, -1, -1)).bytes == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_b36(device: str) -> None:
    """An LSTM is linear in time, on the fused CPU path and step by step."""
    for sizes, shape, flops in (((10, 20), (5, 3, 10), 72_000), ((300, 512, 2), (100, 1, 300), 752_025_600)):
        with torch.no_grad():
            found = cost(nn.LSTM(*sizes, device=device), torch.zeros(shape, device=device))
        assert found.flops == flops
    with torch.no_grad():
        one = cost(nn.LSTM(10, 20, device=device), torch.zeros(1, 3, 10, device=device)).pointwise
        two = cost(nn.LSTM(10, 20, device=device), torch.zeros(2, 3, 10, device=device)).pointwise
    assert two - one == 3 * (8 * 20 + 4 * 20 + 18 * 20)


def test_b37() -> None:
    """A GRU's FLOP are twice its multiply-adds."""
    layer = nn.GRU(128, 128, device="meta")
    assert forward(layer, m(32, 10, 128)).flops == 62_914_560
    one, two = (forward(layer, m(n, 10, 128)).pointwise for n in (1, 2))
    assert two - one == 10 * 128 * (6 + 3 + 13)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("layers", "flops"), [(1, 58_982_400), (2, 2 * 58_982_400)])
def test_b38(device: str, layers: int, flops: int) -> None:
    """A bidirectional LSTM has two directions, and its second layer twice the hidden size as input."""
    with torch.no_grad():
        module = nn.LSTM(128, 64, layers, bidirectional=True, device=device)
        assert cost(module, torch.zeros(75, 4, 128, device=device)).flops == flops


def test_b41_b42() -> None:
    """A lookup reads the chosen rows; its backward adds them into a dense gradient."""
    weight, ids = m(50, 8, grad=True), m(1, 10, dtype=torch.int64)
    lookup = cost(F.embedding, ids, weight, only="aten.embedding.")
    assert lookup == Cost(0, 0, 10 * 8 * 4 + 10 * 8, 10 * 8 * 4)
    backward = cost(F.embedding, ids, weight, only="embedding_dense_backward")
    assert backward == Cost(0, 80, 10 * 8 * 4 + 10 * 8, 50 * 8 * 4)


def test_b45() -> None:
    """The first layer has no input gradient."""
    mlp = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).to("meta")
    assert cost(mlp, m(3, 6)).flops == 720
    assert cost(mlp, m(3, 6, grad=True)).flops == 900


def test_b50() -> None:
    """A kernel that nobody wrote a rule for is unknown, not free."""
    assert "mamba.selective_scan.default" not in RULES


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.AdamW, {"weight_decay": 0.1, "maximize": True}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}),
        (torch.optim.Adagrad, {"weight_decay": 0.1}),
    ],
)
def test_fused_steps_are_the_loops(optimizer: Any, options: dict) -> None:
    """The second step of a fused optimizer has the arithmetic of the for-loop and of the foreach one."""
    found = {}
    for name in ("for-loop", "foreach", "fused"):
        p = nn.Parameter(torch.ones(1000))
        p.grad = torch.ones_like(p)
        how = {"foreach": name == "foreach"} if name != "fused" else {"fused": True}
        step = optimizer([p], lr=0.1, **how, **options)
        step.step()
        found[name] = cost(step.step).pointwise // 1000
    assert found["for-loop"] == found["foreach"] == found["fused"] > 0
