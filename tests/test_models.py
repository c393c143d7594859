"""What models cost, from the public API: hand-written formulas, and awkward programs with known answers.

A test with "B.." or "N.." in its name has its numbers from a published case or result of that name.
"""

import dataclasses
import math
import time

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import symacct as sa


def linear(m, n, **options):
    """A linear layer without bias."""
    return nn.Linear(m, n, bias=False, **options)


def squares(y):
    """Mean of squares."""
    return (y**2).mean()


def syms(step):
    """The symbols of an account by name."""
    exprs = (step.total.flops, step.total.pointwise, step.total.bytes, step.params)
    return {s.name: s for e in exprs for s in sympy.sympify(e).free_symbols}


def equal(ours, by_hand):
    """Whether two formulas are the same polynomial."""
    return sympy.expand(ours - by_hand) == 0


def modules(step, phase=None):
    """FLOPs by full module path, without those that have none."""
    return {path: part.flops for path, part in step.by_module(None, phase=phase).items() if part.flops}


def works(step):
    """(operator, FLOPs) of the nodes that have any."""
    return [(n.op, n.flops) for n in step.nodes if n.flops]


# -- the two-layer net -------------------------------------------------------------------


def test_two_layer_net_prints_its_closed_forms(example):
    """Forward, and backward with x as data and with x requiring a gradient, as printed."""
    step, wanted = example("two_layer").account(), example("two_layer").account(grad=True)
    assert str(step.forward) == str(wanted.forward) == "2*B*D*K + 2*B*D**2"
    assert str(step.backward) == "4*B*D*K + 2*B*D**2"
    assert str(wanted.backward) == "4*B*D*K + 4*B*D**2"
    assert step.assumptions == ()


def test_two_layer_net_has_its_pointwise_work_beside(example):
    """Forward: B*K squares, B*K adds and a division; backward: 1/n, then y**1, times 2, times the gradient."""
    for step in (example("two_layer").account(), example("two_layer").account(grad=True)):
        assert sa.formula(step.forward.pointwise) == "2*B*K + 1"
        assert sa.formula(step.backward.pointwise) == "4*B*K"


def test_two_layer_net_has_the_lecture_numbers_N016_N017_N018(example):
    """At B=16384, D=32768, K=8192 the numbers of the lecture, with and without the gradient of x."""
    sizes = {"B": 16384, "D": 32768, "K": 8192}
    step, wanted = example("two_layer").account(), example("two_layer").account(grad=True)
    assert step.at(**sizes).forward.flops == 43980465111040
    assert step.at(**sizes).backward.flops == 52776558133248
    assert wanted.at(**sizes).backward.flops == 87960930222080


def test_two_layer_net_is_the_same_as_a_function_and_as_a_module_with_numbers():
    """Written as a function of three tensors, or with layers whose sizes are numbers, the work is the same."""

    def f(x, w1, w2):
        return x @ w1 @ w2

    step = sa.trace(f, x="B D", w1="D D", w2="D K", loss=squares, grad=("w1", "w2"))
    assert str(step.forward) == "2*B*D*K + 2*B*D**2"
    assert str(step.backward) == "4*B*D*K + 2*B*D**2"
    fixed = sa.trace(nn.Sequential(linear(5, 5), linear(5, 3)), "B 5", loss=squares)
    assert str(fixed.forward) == "80*B"
    assert str(fixed.backward) == "110*B"
    assert fixed.params == 40


# -- cruncher ----------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3, 7])
def test_cruncher_N030_N031(example, layers):
    """Parameters, forward, and backward without the gradient of the data, for several depths."""
    model = sa.build(lambda D: example("cruncher").Cruncher(D, layers))
    step = sa.trace(model, "B D", loss=squares, optimizer=torch.optim.AdamW)
    B, D = (syms(step)[n] for n in ("B", "D"))
    weights = layers * D**2 + D
    assert equal(step.params, weights)
    assert equal(step.forward.flops, 2 * B * weights)
    assert equal(step.backward.flops, 4 * B * weights - 2 * B * D**2)
    steps = 4 * (layers + 1)  # AdamW's step counter, one float for each parameter
    assert equal(step.param_bytes + step.grad_bytes + step.optimizer_bytes, 16 * weights + steps)


def test_cruncher_has_the_lecture_numbers_N030_N031(account):
    """The integers of the lecture at D=4, B=2 and at D=64, B=8."""
    small, large = account("cruncher").at(B=2, D=4), account("cruncher").at(B=8, D=64)
    assert (small.params, small.forward.flops, small.backward.flops) == (36, 144, 224)
    assert (large.params, large.forward.flops, large.backward.flops) == (8256, 132096, 198656)


# -- llama -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama(account, example):
    """The account of the Llama example, and its formulas written by hand."""
    step = account("llama")
    B, L, G, H, Dh, F_, V = (syms(step)[n] for n in ("B", "L", "G", "H", "Dh", "F", "V"))
    N, d, rows = example("llama").LAYERS, G * H * Dh, B * L
    hand = {
        "q_proj": 2 * rows * d * (G * H * Dh),
        "k_proj": 2 * rows * d * (G * Dh),
        "v_proj": 2 * rows * d * (G * Dh),
        "o_proj": 2 * rows * (G * H * Dh) * d,
        "gate_proj": 2 * rows * d * F_,
        "up_proj": 2 * rows * d * F_,
        "down_proj": 2 * rows * F_ * d,
        "lm_head": 2 * rows * d * V,
        "attention": 2 * (2 * B * (G * H) * L * L * Dh),
    }
    block = sum(flops for name, flops in hand.items() if name not in ("lm_head", "attention"))
    hand["products"] = N * block + hand["lm_head"]
    hand["params"] = N * (2 * d * d + 2 * d * G * Dh + 3 * d * F_ + 2 * d) + 2 * V * d + d
    return step, hand, N


def test_llama_forward_is_the_sum_of_its_matrix_products(llama):
    """Forward FLOPs are the projections, the head, and the two products of attention; no more."""
    step, hand, layers = llama
    assert equal(step.forward.flops, hand["products"] + layers * hand["attention"])


def test_llama_forward_module_by_module(llama):
    """Each projection of each block has the product that is written by hand; attention is the block's own."""
    step, hand, layers = llama
    found = modules(step, phase="forward")
    expected = {"lm_head": hand["lm_head"]}
    for i in range(layers):
        expected[f"model.layers.{i}.self_attn"] = hand["attention"]
        for name, flops in hand.items():
            if name.endswith("_proj"):
                part = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
                expected[f"model.layers.{i}.{part}.{name}"] = flops
    assert found.keys() == expected.keys()
    assert all(equal(found[path], flops) for path, flops in expected.items())


def test_llama_backward_is_twice_the_products_and_attention_by_its_own_rule(llama):
    """Every weight has two products backward (ids want no gradient); fused attention does 5 products for 2."""
    step, hand, layers = llama
    attention = sympy.Rational(5, 2) * layers * hand["attention"]
    assert equal(step.backward.flops, 2 * hand["products"] + attention)
    fused = {op: part.flops for op, part in step.by_op(phase="backward").items() if "attention" in op and part.flops}
    assert len(fused) == 1
    assert equal(sum(fused.values()), attention)


def test_llama_backward_belongs_to_the_modules_of_its_forward(llama):
    """Each projection's backward is twice its own forward, under the same module path."""
    step, _, _ = llama
    forward, backward = modules(step, phase="forward"), modules(step, phase="backward")
    assert forward.keys() == backward.keys()
    for path, flops in forward.items():
        factor = sympy.Rational(5, 2) if path.endswith("self_attn") else 2
        assert equal(backward[path], factor * flops)


def test_llama_parameters_are_exact(llama, example):
    """The count is the formula by hand, and the real model's own count at a small size."""
    step, hand, _ = llama
    assert equal(step.params, hand["params"])
    sizes = {"G": 2, "H": 3, "Dh": 8, "F": 24, "V": 50}
    real = example("llama").llama(**sizes)
    count = sum(p.numel() for p in real.parameters())
    assert step.at(B=1, L=2, **sizes).params == count
    tensors = len(list(real.parameters()))
    assert equal(step.param_bytes, 4 * step.params)
    assert equal(step.grad_bytes, 4 * step.params)
    assert equal(step.optimizer_bytes, 8 * step.params + 4 * tensors)


def test_llama_has_the_assumptions_that_its_rotation_forces(llama):
    """The rotation needs an even head size, and .at() refuses an odd one."""
    step, _, _ = llama
    assert "Dh % 2 == 0" in [str(a) for a in step.assumptions]
    with pytest.raises(sa.SymacctError, match="Dh % 2 == 0"):
        step.at(B=1, L=8, G=2, H=2, Dh=7, F=8, V=8)


# -- gpt-2 -------------------------------------------------------------------------------

SMALL = {"B": 1, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024}


def test_gpt2_forward_backward_and_parameters_by_hand(account):
    """12 blocks of 12*d**2 weights, attention, a tied head; dropout keeps attention unfused, so backward is double."""
    step = account("gpt2")
    B, L, H, Dh, V, P = (syms(step)[n] for n in ("B", "L", "H", "Dh", "V", "P"))
    d = H * Dh
    block = 2 * B * L * d * (3 * d) + 2 * B * L * d * d + 2 * (2 * B * L * d * (4 * d)) + 2 * (2 * B * H * L * L * Dh)
    assert equal(step.forward.flops, 12 * block + 2 * B * L * d * V)
    assert equal(step.backward.flops, 2 * step.forward.flops)
    assert equal(step.params, 12 * (12 * d**2 + 13 * d) + (V + P) * d + 2 * d)


def test_gpt2_small_has_the_published_numbers_N046_N062(account):
    """GPT-2 small at one sequence of 1024 tokens: parameters, forward, backward, and the parts of a block."""
    step = account("gpt2").at(**SMALL)
    assert step.params == 124439808
    assert step.forward.flops == 291648307200
    assert step.backward.flops == 583296614400
    parts = {path: part.flops for path, part in step.by_module(4, phase="forward").items()}
    assert {parts[f"transformer.h.{i}.attn"] for i in range(12)} == {8053063680}
    assert {parts[f"transformer.h.{i}.mlp"] for i in range(12)} == {9663676416}
    assert parts["lm_head"] == 79047426048


def test_gpt2_without_dropout_uses_fused_attention():
    """Without dropout the CPU runs the fused kernel, whose backward computes the scores again: 5 products for 2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    def gpt2(H, Dh, V, P):
        off = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
        return GPT2LMHeadModel(GPT2Config(n_head=H, n_embd=H * Dh, vocab_size=V, n_positions=P, n_layer=1, **off))

    step = sa.trace(sa.build(gpt2), input_ids="i64[B, L]", labels="i64[B, L]")
    B, L, H, Dh = (syms(step)[n] for n in ("B", "L", "H", "Dh"))
    attention = 2 * (2 * B * H * L * L * Dh)
    assert equal(step.backward.flops, 2 * (step.forward.flops - attention) + sympy.Rational(5, 2) * attention)


def test_inference_has_no_backward_and_no_optimizer(example):
    """train=False runs the forward alone, in eval mode, whatever optimizer is named."""
    step = sa.trace(example("gpt2").model, "i64[B, L]", train=False, optimizer=torch.optim.AdamW)
    assert step.backward.count == step.optimizer.count == 0
    assert not any("dropout" in op for op in step.by_op())
    assert step.at(**SMALL).forward.flops == 291648307200


# -- resnet ------------------------------------------------------------------------------


def test_resnet50_is_as_published_and_its_backward_twice_less_the_images(account):
    """Forward is 2 FLOP for each published multiply-add; backward twice that without the gradient of the images."""
    step = account("resnet50")
    (B,) = step.forward.flops.free_symbols
    assert equal(step.forward.flops, 2 * 4089184256 * B)
    first = step.by_module(1, phase="forward")["conv1"].flops
    assert equal(first, 2 * 64 * 3 * 7 * 7 * 112 * 112 * B)
    assert equal(step.backward.flops, 2 * step.forward.flops - first)
    assert step.params == 25557032


# -- what wants a gradient -----------------------------------------------------------------


def test_first_layer_has_no_input_gradient_B45():
    """Backward of Linear, ReLU, Linear on data: one product for the first layer, two for the second."""
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    step, wanted = sa.trace(model, "3 6"), sa.trace(model, "3 6", grad=True)
    assert (step.forward.flops, step.backward.flops, step.total.flops) == (300, 420, 720)
    assert (wanted.forward.flops, wanted.backward.flops, wanted.total.flops) == (300, 600, 900)
    assert modules(step, phase="backward") == {"0": 180, "2": 240}


@pytest.mark.parametrize(
    ("frozen", "backward", "grads"),
    [((), "4*B*D*K + 2*B*D**2", "D*K + D**2"), ((0,), "2*B*D*K", "D*K"), ((1,), "2*B*D*K + 2*B*D**2", "D**2")],
)
def test_frozen_parameters_change_the_backward(frozen, backward, grads):
    """A parameter that wants no gradient has no product of its own, and what only it needed is not computed."""
    model = sa.build(lambda D, K: nn.Sequential(linear(D, D), linear(D, K)))
    for layer in frozen:
        model[layer].weight.requires_grad_(False)
    step = sa.trace(model, "B D", loss=squares, optimizer=torch.optim.SGD)
    assert str(step.backward) == backward
    assert sa.formula(step.params) == "D*K + D**2"
    assert sa.formula(sympy.expand(step.grad_bytes / 4)) == grads


def test_all_frozen_has_no_backward():
    """Where nothing wants a gradient, nothing runs backward."""
    model = nn.Sequential(linear(4, 4), linear(4, 2)).requires_grad_(False)
    step = sa.trace(model, "B 4")
    assert step.backward.count == 0
    assert str(step.forward) == "48*B"


def test_autograd_grad_inside_of_a_function_B57():
    """A gradient with respect to the input alone has one product, and none for the weight."""
    layer = linear(5, 7)

    def f(x):
        y = layer(x)
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0].detach()

    step = sa.trace(f, "3 4 5", grad=True)
    assert sorted(flops for _, flops in works(step)) == [840, 840]
    assert step.total.flops == 1680


# -- sharing -----------------------------------------------------------------------------


class Tied(nn.Module):
    """An embedding and a head, with one weight or two."""

    def __init__(self, tied):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.head = linear(8, 50)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


@pytest.mark.parametrize(("tied", "weights"), [(True, 400), (False, 800)])
def test_tied_embedding_B41(tied, weights):
    """Tying changes no FLOP; parameters, gradients and optimizer state are counted once."""
    step = sa.trace(Tied(tied), "i64[1, 10]", optimizer=torch.optim.Adam)
    assert (step.forward.flops, step.backward.flops) == (8000, 16000)
    assert step.params == weights
    assert step.param_bytes == step.grad_bytes == 4 * weights
    assert step.optimizer_bytes == 8 * weights + 4 * (1 if tied else 2)
    scatter = [part for op, part in step.by_op(phase="backward").items() if "embedding" in op]
    assert [part.pointwise for part in scatter] == [80]


def test_lookup_is_no_matrix_product_B42():
    """A lookup reads and writes the chosen rows only; its dense gradient is the size of the table."""
    V, d = 50257, 768
    step = sa.trace(nn.Embedding(V, d), "i64[T]")
    assert step.total.flops == 0
    rows = step.by_op()["aten.embedding.default"]
    (T,) = rows.bytes.free_symbols
    assert equal(rows.bytes_read, 4 * d * T + 8 * T)
    assert equal(rows.bytes_written, 4 * d * T)
    assert step.grad_bytes == 4 * V * d


def test_shared_weights_do_not_multiply_parameters_B39():
    """Three pieces through one layer cost what three layers cost; the parameters are counted once."""

    class Shared(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.layers = nn.ModuleList(linear(100, 100) for _ in range(count))

        def forward(self, x):
            return [self.layers[i % len(self.layers)](part) for i, part in enumerate(x.split(100, dim=1))]

    one, three = sa.trace(Shared(1), "1 300"), sa.trace(Shared(3), "1 300")
    assert one.forward.flops == three.forward.flops == 60000
    assert (one.params, three.params) == (10000, 30000)
    assert modules(one, phase="forward") == {"layers.0": 60000}


def test_module_under_two_paths_B40():
    """A layer that root and block both own is attributed to the path that ran it, and its parameters counted once."""

    class Block(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.inner = layer

        def forward(self, x):
            return self.inner(x)

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1000, 1000)
            self.block = Block(self.layer)

        def forward(self, x):
            return self.block(self.layer(x))

    step = sa.trace(Root(), "1 20 1000")
    assert modules(step, phase="forward") == {"layer": 40000000, "block.inner": 40000000}
    assert step.forward.flops == 80000000
    assert step.params == 1001000


def test_module_entered_twice_B44():
    """One child called twice in a row has both calls, and the leaves add up to the root."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = linear(10, 10)

        def forward(self, x):
            return {"out": (self.child(self.child(x)),)}

    step = sa.trace(Twice(), "5 10")
    assert step.forward.flops == 2000
    assert modules(step, phase="forward") == {"child": 2000}
    assert [flops for _, flops in works(step)][:2] == [1000, 1000]
    assert step.params == 100


# -- recompute -----------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """Blocks that are computed again in the backward pass, and a head outside of the checkpoint."""

    def __init__(self, width, blocks, reentrant, last=nn.ReLU):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(linear(width, width), nn.ReLU(), last()) for _ in range(blocks))
        self.head = linear(width, 3)
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_computes_its_part_again_B46(reentrant):
    """Recompute has exactly the forward FLOPs of the checkpointed blocks; the model's own FLOPs do not change."""
    plain = sa.trace(sa.build(lambda D: Checkpointed(D, 4, None)), "B D", grad=True)
    step = sa.trace(sa.build(lambda D: Checkpointed(D, 4, reentrant)), "B D", grad=True)
    assert str(plain.recompute) == "0"
    assert str(step.recompute) == "8*B*D**2"
    assert step.forward.flops == plain.forward.flops
    assert step.backward.flops == plain.backward.flops
    blocks = modules(step, phase="recompute")
    assert blocks == {p: f for p, f in modules(step, phase="forward").items() if p.startswith("blocks")}


@pytest.mark.parametrize(("reentrant", "early", "recompute"), [(True, True, 4), (False, True, 2), (False, False, 4)])
def test_checkpoint_may_stop_early_B46(reentrant, early, recompute):
    """The newer variant stops when it has what it needs, so a last product without use is not computed again."""
    model = sa.build(lambda D: Checkpointed(D, 1, reentrant, last=lambda: linear(D, D)))
    with set_checkpoint_early_stop(early):
        step = sa.trace(model, "B D", grad=True)
    assert str(step.recompute) == f"{recompute}*B*D**2"


# -- precision, buffers, in-place ----------------------------------------------------------


def test_autocast_runs_products_in_bf16():
    """Under autocast the products take bf16 and count the same; parameters stay float32, and casts appear."""
    model = sa.build(lambda D, K: nn.Sequential(linear(D, D), nn.LayerNorm(D), linear(D, K)))
    plain, cast = sa.trace(model, "B D"), sa.trace(model, "B D", autocast="bf16")
    assert cast.forward.flops == plain.forward.flops
    assert cast.backward.flops == plain.backward.flops
    products = [n for n in cast.nodes if n.flops]
    assert {t.dtype for n in products for t in (*n.inputs, *n.outputs)} == {"bfloat16"}
    assert {t.dtype for n in plain.nodes if n.flops for t in n.inputs} == {"float32"}
    assert cast.param_bytes == plain.param_bytes
    assert cast.grad_bytes == plain.grad_bytes
    assert "aten._to_copy.default" in cast.by_op(phase="forward")


def test_autocast_dtypes_are_those_of_eager_pytorch():
    """Each module's output has the dtype that a real run under autocast gives it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1), nn.Linear(4, 2), nn.Softplus())
    real = {}
    for name, module in model.named_children():
        module.register_forward_hook(lambda m, i, o, name=name: real.__setitem__(name, str(o.dtype).split(".")[1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(3, 4))
    step = sa.trace(model, "B 4", autocast="bf16")
    ours = {n.path: n.outputs[0].dtype for n in step.nodes if n.phase == "forward" and n.path in real}
    assert ours == real


def test_buffers_are_held_and_are_no_parameters():
    """Running statistics are buffers: two floats for each channel and a counter; they get no gradient."""
    step = sa.trace(sa.build(lambda C: nn.BatchNorm1d(C)), "B C 7")
    assert sa.formula(step.params) == "2*C"
    assert sa.formula(step.buffer_bytes) == "8*C + 8"
    assert sa.formula(step.grad_bytes) == "8*C"


def test_in_place_add_of_a_second_input_B61():
    """Convolution, an in-place add of another input with the same B, ReLU, pooling: the add makes no storage."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 3, padding=1)

        def forward(self, x, other):
            return F.max_pool2d(torch.relu(self.conv(x).add_(other)), 3)

    step = sa.trace(Net(), "B 3 256 256", "B 32 256 256", train=False)
    assert str(step.forward) == "113246208*B"
    conv, add = (n for n in step.nodes if n.op in ("aten.convolution.default", "aten.add_.Tensor"))
    assert add.storages == conv.storages
    assert sa.formula(add.pointwise) == "2097152*B"
    assert sa.formula(conv.pointwise) == "2097152*B"


# -- calling conventions ---------------------------------------------------------------------


class EitherOr(nn.Module):
    """Takes ids or embeddings, exactly one, and gives a dict with a None in it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layer = linear(8, 8)

    def forward(self, ids=None, embeds=None):
        if (ids is None) == (embeds is None):
            raise ValueError("exactly one of ids and embeds")
        return {"out": self.layer(self.embed(ids) if embeds is None else embeds), "cache": None}


def test_exactly_one_of_two_inputs_B54():
    """An input that is left out stays None, so both paths run; only one has a lookup; dicts with None come out."""
    by_ids, by_embeds = sa.trace(EitherOr(), ids="i64[2, 5]"), sa.trace(EitherOr(), embeds="2 5 8")
    assert by_ids.forward.flops == by_embeds.forward.flops == 1280
    assert "aten.embedding.default" in by_ids.by_op()
    assert "aten.embedding.default" not in by_embeds.by_op()
    with pytest.raises(sa.SymacctError, match="exactly one"):
        sa.trace(EitherOr(), ids="i64[2, 5]", embeds="2 5 8")


def test_flag_is_a_constant_of_the_trace_B55():
    """A flag that is absent or True chooses what runs, and stands in the account's inputs."""

    class Flagged(nn.Module):
        def __init__(self):
            super().__init__()
            self.extra, self.layer = linear(4, 4), linear(4, 5)

        def forward(self, x, flag=None):
            return self.layer(self.extra(x) if flag else x)

    assert sa.trace(Flagged(), "3 4").forward.flops == 120
    step = sa.trace(Flagged(), "3 4", flag=True)
    assert step.forward.flops == 216
    assert "flag=True" in step.inputs


def test_dict_that_forward_writes_to_B56():
    """What forward puts into its input dict is counted, and the caller's dict of specs is left as it was."""

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear(10, 10)

        def forward(self, data):
            data["mid"] = torch.relu(self.layer(data["in"]))
            data.update(out=torch.relu(self.layer(data["mid"])))
            return data["out"]

    given = {"in": "4 10"}
    assert sa.trace(Writes(), given).forward.flops == 1600
    assert given == {"in": "4 10"}


def test_inputs_that_the_user_gives_are_used_or_refused_B58():
    """The account describes the shapes that were given, and an input that the model does not have is an error."""
    model = nn.Sequential(nn.Embedding(10, 8), linear(8, 8))
    step = sa.trace(model, "i64[1, 7]")
    assert step.forward.flops == 896
    assert step.inputs == "i64[1, 7]"
    with pytest.raises(sa.SymacctError, match="ids"):
        sa.trace(model, "i64[1, 7]", ids="i64[1, 128]")


def test_constructor_that_computes_a_size_from_data_B59():
    """A size that the constructor reads from a small tensor of plain numbers is known, as built and as it is."""

    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, int(torch.linspace(0, 3, 4).sum()))

        def forward(self, x):
            return self.layer(x)

    for model in (Sized(), sa.build(Sized)):
        step = sa.trace(model, "2 4")
        assert step.params == 30
        assert step.forward.flops == 96
        assert step.by_op()["aten.addmm.default"].pointwise == 12


def test_dataclass_and_nested_outputs():
    """A dataclass with a tensor, a tuple and None in it is an output; every tensor of it reaches the loss."""

    @dataclasses.dataclass
    class Output:
        first: torch.Tensor
        rest: tuple
        nothing: None = None

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = linear(4, 4), linear(4, 6)

        def forward(self, x):
            return Output(self.a(x), (self.b(x), None))

    step = sa.trace(Net(), "B 4")
    assert str(step.forward) == "80*B"
    assert str(step.backward) == "80*B"


def test_autograd_function_is_seen_through():
    """The products inside of a custom autograd.Function are counted in the phase in which they run."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.t(), x.t() @ g

    step = sa.trace(Product.apply, "B D", "D K", grad=True)
    assert str(step.forward) == "2*B*D*K"
    assert str(step.backward) == "4*B*D*K"


@torch.library.custom_op("symacct_test::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    """A custom op that no rule knows."""
    return x * 2


@opaque.register_fake
def _(x):
    return torch.empty_like(x)


def test_custom_op_is_unknown_until_it_has_a_rule_B49():
    """An op without a rule is listed by name and count and is never 0; with a rule it is counted."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = linear(5, 5), linear(5, 5)

        def forward(self, x):
            return self.b(opaque(self.a(x)))

    step = sa.trace(Net(), "3 5", train=False)
    assert step.forward.flops == 300
    assert step.forward.unknown
    assert [(u.op, u.count) for u in step.unknown] == [("symacct_test.opaque.default", 1)]
    with pytest.raises(sa.SymacctError, match=r"symacct_test\.opaque"):
        sa.trace(Net(), "3 5", train=False, strict=True)
    mine = sa.Rules()
    mine.elementwise(1, "symacct_test.opaque")
    known = sa.trace(Net(), "3 5", train=False, rules=sa.default_rules() + mine, strict=True)
    assert known.unknown == []
    assert known.forward.pointwise == 15


def test_compiled_wrapper_is_not_there_B51():
    """A compiled module counts as the module that it wraps, under the same paths."""
    model = nn.Sequential(linear(1000, 1000))
    compiled = sa.trace(torch.compile(model, backend="eager"), "1 1000", train=False)
    assert compiled.forward.flops == 2000000
    assert modules(compiled) == modules(sa.trace(model, "1 1000", train=False)) == {"0": 2000000}


# -- symbols -------------------------------------------------------------------------------


class Small(nn.Module):
    """A convolution, a mean over space, a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.layer = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(self.conv(x).mean((2, 3)))


@pytest.mark.parametrize("trial", [None, 1, 2])
def test_trial_size_one_is_no_constant_B60(trial):
    """A batch whose trial size is 1 stays a dim."""
    step = sa.trace(Small(), "B 3 8 8", train=False, sizes={"B": trial} if trial else None)
    assert str(step.forward) == "27712*B"
    assert step.at(B=1).forward.flops == 27712


def test_divisibility_from_a_reshape_is_kept_and_enforced_B62():
    """A reshape to pairs needs an even S: no floor in the formula, and an odd S is an error."""
    step = sa.trace(lambda x, w: x.reshape(x.shape[0], -1, 64) @ w, "B S 32", "64 10", train=False)
    assert str(step.forward) == "640*B*S"
    assert step.at(B=2, S=6).forward.flops == 7680
    assert [str(a) for a in step.assumptions] == ["S % 2 == 0"]
    with pytest.raises(sa.SymacctError, match="S % 2 == 0"):
        step.at(B=2, S=7)


@pytest.mark.parametrize("sizes", [None, {"b": 5}])
def test_dim_that_a_constant_forces_B63(sizes):
    """A concatenation with a constant forces b == 5: the account says so, and refuses another b."""
    layer, constant = linear(5, 3), torch.zeros(5, 5)
    step = sa.trace(lambda x: layer(torch.cat([x, constant])), "a b", train=False, sizes=sizes)
    assert [str(each) for each in step.assumptions] == ["b == 5"]
    assert [step.at(a=a, b=5).forward.flops for a in (1, 2, 9)] == [30 * (a + 5) for a in (1, 2, 9)]
    with pytest.raises(sa.SymacctError, match="b == 5"):
        step.at(a=2, b=6)


@pytest.mark.parametrize("trial", [None, 1])
def test_mask_does_not_make_the_batch_a_constant_B64(trial):
    """masked_fill at trial size 1 keeps B; choosing is no arithmetic, and the mask is read as one byte each."""
    layer = linear(7, 3)
    step = sa.trace(
        lambda x, m: layer(x.masked_fill(m, 0.0)), "B 7", "b8[B, 7]", train=False, sizes={"B": trial} if trial else None
    )
    assert str(step.forward) == "42*B"
    fill = next(part for op, part in step.by_op().items() if "masked_fill" in op)
    assert sa.formula(fill.bytes) == "63*B"


@pytest.mark.parametrize("sizes", [{"B": 4, "S": 4}, {"B": 4, "S": 16}, {"B": 16, "S": 16}])
def test_equal_trial_sizes_do_not_merge_dims_B65(sizes):
    """Two dims of one size, or of the size of a constant, stay themselves; attention keeps S**2 and B apart."""

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear(16, 32)

        def forward(self, x):
            y = self.layer(x)
            return y @ y.transpose(1, 2)

    step = sa.trace(Attends(), "B S 16", train=False, sizes=sizes)
    assert sa.formula(modules(step)["layer"]) == "1024*B*S"
    assert sa.formula(modules(step)[""]) == "64*B*S**2"
    assert step.at(B=4, S=16).by_module()["layer"].flops == 65536


def test_repeated_heads_and_attention_over_a_dim_B66():
    """Keys and values repeated for eight heads are copied once each; the products are 1024*S**2."""

    def attend(q, k, v):
        k, v = (t.repeat_interleave(4, dim=1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    step = sa.trace(attend, "2 8 S 16", "2 2 S 16", "2 2 S 16", train=False)
    assert str(step.forward) == "1024*S**2"
    assert step.at(S=6).forward.flops == 36864
    (S,) = step.forward.flops.free_symbols
    written = sum(n.bytes_written for n in step.nodes if "attention" not in n.op)
    assert equal(written, 2 * 4 * (2 * 8 * 16) * S)


def test_names_that_sympy_owns_are_names_B67():
    """Dims called N, S, E, I are dims, alone and beside Q, O, beta, gamma, pi, lambda_."""
    model = sa.build(lambda E, I: linear(E, I))  # noqa: E741
    step = sa.trace(model, "N S E", train=False)
    assert str(step.forward) == "2*E*I*N*S"
    assert step.at(N=2, S=3, E=5, I=7).forward.flops == 420
    other = sa.trace(lambda x, y: x @ y, "Q O beta", "Q beta (gamma pi lambda_)", train=False)
    names = ("Q", "O", "beta", "gamma", "pi", "lambda_")
    assert {s.name for s in other.forward.flops.free_symbols} == set(names)
    primes = dict(zip(names, (2, 3, 5, 7, 11, 13), strict=True))
    assert other.at(**primes).forward.flops == 2 * math.prod(primes.values())


def test_sums_of_many_symbols_do_not_blow_up_B68():
    """60 inputs of different lengths, and 48 equal blocks: right, and done in seconds."""
    layer = linear(4, 3)
    begin = time.perf_counter()
    step = sa.trace(lambda xs: layer(torch.cat(xs)), [f"s{i} 4" for i in range(60)], train=False)
    assert time.perf_counter() - begin < 60
    assert equal(step.forward.flops, 24 * sum(step.forward.flops.free_symbols))
    assert len(step.forward.flops.free_symbols) == 60
    blocks = sa.trace(sa.build(lambda D: nn.Sequential(*(linear(D, D) for _ in range(48)))), "B D", grad=True)
    assert str(blocks.total) == "288*B*D**2"


def test_reading_an_account_does_not_change_it_B69():
    """The graph, the groups and the report may be asked for in any order and any number of times."""
    model = Small()
    first, second = sa.trace(model, "B 3 h w"), sa.trace(model, "B 3 h w")
    before = str(first.total), sa.formula(first.total.bytes), [str(a) for a in first.assumptions]
    for _ in range(2):
        assert len(first.graph.nodes) >= len(first.nodes)
        assert first.by_module(None)
        assert first.at(B=2, h=8, w=9).total.flops > 0
    assert before == (str(second.total), sa.formula(second.total.bytes), [str(a) for a in second.assumptions])
    assert before == (str(first.total), sa.formula(first.total.bytes), [str(a) for a in first.assumptions])


# -- leaving things as they were -------------------------------------------------------------


def state_of(model):
    """All that tracing a model must leave as it is."""
    hooks = [
        (name, len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks), m.training)
        for name, m in model.named_modules()
    ]
    tensors = [(n, tuple(t.shape), t.data_ptr(), t._version) for n, t in model.state_dict(keep_vars=True).items()]
    wants = [(n, p.requires_grad, p.grad) for n, p in model.named_parameters()]
    return hooks, tensors, wants, torch.random.get_rng_state().tolist(), nn.Module.__call__, torch.is_grad_enabled()


def test_tracing_leaves_no_residue_B43():
    """Three traces, one of them a failure, are identical; the module, its data and the RNG are as before."""
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 4))
    model[0].weight.requires_grad_(False)
    model[1].eval()
    before = state_of(model)
    first = sa.trace(model, "B 6", optimizer=torch.optim.AdamW)
    assert state_of(model) == before
    with pytest.raises(sa.SymacctError):
        sa.trace(model, "B 7", optimizer=torch.optim.AdamW)
    assert state_of(model) == before
    second = sa.trace(model, "B 6", optimizer=torch.optim.AdamW)
    third = sa.trace(model, "B 6", optimizer=torch.optim.AdamW)
    assert state_of(model) == before
    assert first.to_json() == second.to_json() == third.to_json()
    assert first.report() == second.report() == third.report()


def test_tracing_a_built_module_twice_is_byte_identical_B43():
    """A built module can be traced again, with a failure in between, and gives the same bytes."""
    model = sa.build(lambda D, K: nn.Sequential(linear(D, D), nn.ReLU(), linear(D, K)))
    model[1].eval()
    model[2].weight.requires_grad_(False)

    def state():
        flags = [(n, m.training, len(m._forward_hooks)) for n, m in model.named_modules()]
        return list(model.state_dict()), flags, [(n, p.requires_grad, p.grad) for n, p in model.named_parameters()]

    before = state()
    first = sa.trace(model, "B D", optimizer=torch.optim.Adam)
    assert state() == before
    with pytest.raises(sa.SymacctError):
        sa.trace(model, "B D", loss=lambda y: y.nope)
    assert state() == before
    second = sa.trace(model, "B D", optimizer=torch.optim.Adam)
    assert state() == before
    assert first.to_json() == second.to_json()
    assert first.report() == second.report()
    again = sa.build(lambda D, K: nn.Sequential(linear(D, D), nn.ReLU(), linear(D, K)))
    again[2].weight.requires_grad_(False)
    assert sa.trace(again, "B D", optimizer=torch.optim.Adam).to_json() == first.to_json()


# -- attention layers ------------------------------------------------------------------------


@pytest.mark.parametrize("train", [True, False])
def test_encoder_layer_is_the_same_in_training_and_inference(train):
    """An encoder layer's fast path in eval mode is left alone, so that what is counted does not depend on it."""
    step = sa.trace(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), "B L 16", train=train)
    B, L = (syms(step)[n] for n in ("B", "L"))
    assert equal(step.forward.flops, 2 * B * L * (4 * 16 * 16 + 2 * 16 * 32) + 2 * (2 * B * L * L * 16))
    assert torch.backends.mha.get_fastpath_enabled()
