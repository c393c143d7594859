"""Memory from lifetimes: closed forms, timelines, what is alive at a moment and where it came from."""

import io
import json
from functools import partial

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.algebra import evaluate
from symacct.errors import CheckError, DimError, MissingSizeError, SpecError, TraceError, UnknownDimError
from symacct.printing import text

FUSED = partial(torch.optim.AdamW, fused=True)


def two_layers(D, K):
    """Two matrices with a GELU between them."""
    return nn.Sequential(nn.Linear(D, K, bias=False), nn.GELU(), nn.Linear(K, D, bias=False))


def step(builder=two_layers, **options):
    """A training step of a small model."""
    return sa.trace(sa.build(builder), "B D", **options)


def sums(**terms):
    """Expressions as text, for comparison."""
    return {name: text(value) for name, value in terms.items()}


# -- closed forms ------------------------------------------------------------------------


def test_the_closed_forms_of_a_training_step():
    """Each part of memory, by hand: GELU keeps its input, the second product its own; the loss is a number."""
    account = step(optimizer=FUSED)
    assert sums(
        param=account.param_bytes,
        grad=account.grad_bytes,
        state=account.optimizer_bytes,
        inputs=account.input_bytes,
        activations=account.activation_bytes,
        rest=account.memory.rest_bytes,
        checkpoint=account.checkpoint_bytes,
    ) == {
        "param": "8*D*K",
        "grad": "8*D*K",
        "state": "16*D*K + 8",
        "inputs": "4*B*D",
        "activations": "8*B*K + 4",
        "rest": "32*D*K + 8",
        "checkpoint": "24*D*K + 8",
    }


def test_the_peak_is_a_maximum_of_few_moments():
    """The product with the gradient of the second matrix, the same of the first, or the sum of the output wins."""
    account = step(optimizer=FUSED)
    assert isinstance(account.peak_bytes, sympy.Max)
    assert sa.formula(account.peak_bytes) == (
        "4*(B*D + B*K + 6*D*K + 3) + Max(8*B*K + 4*D*K + 4, 4*B*D + 4*B*K, 8*D*K + 4)"
    )
    moments = [(m.phase, m.path, m.op) for m in account.memory.candidates]
    assert moments == [
        ("forward", "(loss)", "aten.sum.default"),
        ("backward", "2", "aten.mm.default"),
        ("backward", "0", "aten.mm.default"),
    ]
    assert [str(m) for m in account.memory.candidates][1] == "aten.mm.default in 2 (backward, later step)"


def test_bounds_on_dims_leave_fewer_moments():
    """Where a dim is known to be large, moments that others cover are gone, and the maximum stays the same."""
    wide = sa.trace(sa.build(lambda D: two_layers(D, 3)), "B D", optimizer=partial(torch.optim.SGD, lr=0.1))
    every, bounded = wide.memory, wide.memory.where(B=4096)
    assert len(bounded.candidates) < len(every.candidates)
    assert {m.position for m in bounded.candidates} < {m.position for m in every.candidates}
    for sizes in ({"B": 4096, "D": 1}, {"B": 4096, "D": 10**6}, {"B": 10**6, "D": 7}):
        assert evaluate(bounded.peak_bytes, sizes) == evaluate(every.peak_bytes, sizes) == wide.at(**sizes).peak_bytes
    with pytest.raises(UnknownDimError, match="there is no dim 'Q'; they are D, B"):
        every.where(Q=3)
    with pytest.raises(DimError, match="B=0"):
        every.where(B=0)


def test_the_peak_at_sizes_names_the_moment_and_what_is_alive():
    """At sizes the peak is a number; its parts by kind and by module add up to it."""
    account = step(optimizer=FUSED).at(B=8192, D=4096, K=16384)
    peak = account.memory.peak
    assert account.peak_bytes == peak.nbytes == 3_623_878_672
    assert (peak.op, peak.path, peak.phase) == ("aten.mm.default", "2", "backward")
    assert peak.by_kind() == {
        "parameters": 536_870_912,
        "optimizer state": 1_073_741_832,
        "gradients": 268_435_456,
        "inputs": 134_217_728,
        "activations": 1_073_741_828,
        "temporaries": 536_870_916,
    }
    assert sum(peak.by_module().values()) == peak.nbytes
    assert {t.kind for t in peak.live[:3]} == {"activations", "temporaries"}
    assert [t.nbytes for t in peak.live] == sorted((t.nbytes for t in peak.live), reverse=True)
    gelu = next(t for t in peak.live if t.op == "aten.gelu.default")
    assert (gelu.kind, gelu.path, gelu.shape, gelu.dtype) == ("activations", "1", (8192, 16384), "float32")
    weight = next(t for t in peak.live if t.name == "0.weight")
    assert (weight.kind, weight.path, weight.op) == ("parameters", "0", "")


def test_without_sizes_the_winner_is_not_known():
    """Asking which moment wins needs sizes; the message says where to look instead."""
    with pytest.raises(MissingSizeError, match=r"account.at\(...\).*memory.candidates"):
        _ = step().memory.peak


def test_a_checkpoint_has_what_state_dicts_have():
    """Parameters, persistent buffers and optimizer state, a shared one once; no gradients, no passing buffers."""

    class Net(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.first, self.norm, self.second = (
                nn.Linear(D, D, bias=False),
                nn.BatchNorm1d(D),
                nn.Linear(D, D, bias=False),
            )
            self.second.weight = self.first.weight
            self.register_buffer("mask", torch.ones(D), persistent=False)

        def forward(self, x):
            return self.second(self.norm(self.first(x))) * self.mask

    account = sa.trace(sa.build(Net), "B D", optimizer=partial(torch.optim.SGD, momentum=0.9))
    assert text(account.buffer_bytes) == "12*D + 8"
    assert text(account.checkpoint_bytes) == "8*D**2 + 24*D + 8"

    model = Net(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    formats = len(file.getvalue()) - account.at(B=4, D=16).checkpoint_bytes
    assert 0 < formats < 1024 * 16  # names, sizes and padding of a dozen tensors


# -- steps -------------------------------------------------------------------------------


def test_the_state_appears_in_the_first_step():
    """At the end of the first forward pass there is no optimizer state; in later steps there is."""
    memory = step(optimizer=FUSED).memory
    first, later = memory.first.after("forward"), memory.later.after("forward")
    assert text(sympy.expand(later - first)) == "16*D*K + 8"
    assert text(memory.first.after("backward") - memory.later.after("backward")) == "-16*D*K - 8"


def test_gradients_that_are_kept_are_there_all_along():
    """With set_to_none=False gradients of the last step stay, and new ones are added to them and die."""
    free = step(optimizer=torch.optim.SGD).memory.later.after("forward")
    kept = step(optimizer=torch.optim.SGD, set_to_none=False)
    assert text(sympy.expand(kept.memory.later.after("forward") - free)) == "8*D*K"
    assert "aten.add_.Tensor" in kept.by_op("backward")
    assert kept.memory.first.after("forward") == free


def test_micro_batches_add_to_the_gradients_of_the_first():
    """From the second micro-batch on gradients are alive during the forward pass; FLOPs are those of all."""
    one, three = step(), step(accumulate=3)
    assert three.forward.flops == 3 * one.forward.flops
    ends = three.memory.later.marks("forward")
    assert len(ends) == 3
    alive = [three.memory.later.bytes_of(three.memory.later.alive_at(end)) for end in ends]
    assert alive[1] == alive[2]
    assert text(sympy.expand(alive[1] - alive[0])) in ("8*D*K", "8*D*K + 4")
    assert three.activation_bytes == one.activation_bytes


def test_clipping_is_part_of_the_step():
    """Norms are computed in the optimizer's phase, and gradients scaled in place."""
    account = step(optimizer=torch.optim.SGD, clip=1.0)
    assert "(clip)" in account.by_module(phase="optimizer")
    assert account.grad_bytes == step().grad_bytes
    custom = step(clip=lambda parameters: [p.grad.clamp_(-1, 1) for p in parameters])
    assert "aten.clamp_.default" in custom.by_op("optimizer")
    with pytest.raises(SpecError, match="clip: expected the norm"):
        step(clip="much")
    with pytest.raises(SpecError, match="accumulate: expected a whole number"):
        step(accumulate=0)


def test_outputs_live_while_the_caller_holds_them():
    """A sum saves nothing, so the output dies before the backward pass unless the caller keeps it."""
    dropped, kept = step(), step(keep_outputs=True)
    difference = kept.memory.later.after("forward") - dropped.memory.later.after("forward")
    assert text(sympy.expand(difference)) == "4*B*D"


def test_inference_keeps_only_what_is_in_use():
    """Without gradients a layer's input dies with its output's birth; what is left is the model's output."""
    deep = sa.build(lambda D: nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(6))))
    account = sa.trace(deep, "B D", train=False)
    assert sa.formula(account.peak_bytes) == "12*B*D + 24*D**2"
    assert account.activation_bytes == 0
    assert account.grad_bytes == 0
    assert text(account.memory.later.moments[-1].by_kind()["outputs"]) == "4*B*D"


def test_an_optimizer_that_wants_a_closure_is_refused():
    """L-BFGS runs the model as often as the data demands."""
    with pytest.raises(TraceError, match=r"LBFGS.step\(\) wants a closure"):
        step(optimizer=torch.optim.LBFGS)


def test_every_node_of_a_step_has_a_moment():
    """Also those that run before anything is born in their part of the step, such as a fused optimizer's."""
    memory = sa.trace(sa.build(lambda D: nn.Linear(D, D, bias=False)), "1 D", optimizer=FUSED).memory
    later = [m.op for m in memory.later if m.phase == "optimizer"]
    assert later == ["aten._foreach_add_.Scalar", "aten._fused_adamw_.default"]
    assert [m.op for m in memory.first if m.phase == "optimizer"][-2:] == later


# -- recompute ---------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """Blocks, each checkpointed."""

    def __init__(self, D, use_reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(two_layers(D, 4 * D) for _ in range(4))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant, preserve_rng_state=False)
        return x


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_keep_their_inputs_only(reentrant):
    """Between the passes only the blocks' inputs are alive; the hidden layer of one block comes back at a time."""
    account = sa.trace(sa.build(lambda D: Checkpointed(D, reentrant)), "B D", grad="x" if reentrant else ())
    assert text(account.activation_bytes) == "12*B*D + 4"  # inputs of blocks 2, 3 and 4; that of block 1 is the model's
    early_stop = 1 if reentrant else 2  # the second product of a block saves nothing that was not there already
    assert account.recompute.flops == account.forward.flops / early_stop
    assert account.assumptions == ()
    peak = account.at(B=4096, D=64).memory.peak
    assert peak.phase in ("backward", "recompute")
    assert 2 * 4 * 4096 * 256 <= peak.by_kind()["activations"] < 4 * 4 * 4096 * 256 + 4 * 4 * 4096 * 64


def test_a_checkpoint_keeps_the_random_state():
    """What torch.get_rng_state returns is memory of the host, 5056 bytes a checkpoint; a CUDA device has none of it."""

    class One(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.inner = nn.Linear(D, D)

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    account = sa.trace(sa.build(One), "B D")
    assert text(account.activation_bytes) == "5060"
    assert text(account.with_allocator("cuda").activation_bytes) == "512"


# -- what eager does ---------------------------------------------------------------------


def test_a_tensor_used_twice_gets_its_gradients_added_in_place():
    """The engine reuses the first gradient if nobody else holds it, and otherwise makes a new one."""
    inside = sa.trace(sa.build(lambda D: nn.Linear(D, D)), "B D", loss=lambda h: (h * h).sum())
    assert "aten.add_.Tensor" in inside.by_op("backward")
    shared = sa.trace(sa.build(lambda D: nn.Linear(D, D)), "B D", loss=lambda h: h.tanh().sum() + h.sum())
    assert "aten.add.Tensor" in shared.by_op("backward")  # the gradient of a sum is one expanded number


@pytest.mark.parametrize(
    "loss",
    [F.mse_loss, F.smooth_l1_loss, F.binary_cross_entropy, F.soft_margin_loss, F.huber_loss, F.l1_loss, F.kl_div],
)
def test_a_reduced_loss_has_the_storage_that_its_kernel_leaves(loss):
    """Some kernels lay out B*D losses, then shrink the result to a number: as long as it lives, so does all of that."""
    real = loss(torch.rand(3, 5), torch.rand(3, 5)).untyped_storage().nbytes()
    account = sa.trace(sa.build(lambda D: nn.Linear(D, D)), "B D", loss=lambda h: loss(h, torch.ones_like(h)))
    at = account.at(B=3, D=5)
    end = at.memory.later.moments[-1]
    assert sum(t.nbytes for t in end.live if t.shape == () and t.kind == "activations") == real
    assert real in (4, 60)


def test_normalization_under_autocast_keeps_statistics_in_four_bytes():
    """Mixed input and weights: mean and deviation are float32, as the CPU kernels make them."""
    norm = nn.LayerNorm(8)
    real = torch.ops.aten.native_layer_norm(torch.zeros(3, 8).bfloat16(), [8], norm.weight, norm.bias, 1e-5)
    account = sa.trace(nn.LayerNorm(8), "bf16[B, 8]", grad=True)
    node = next(n for n in account.nodes if n.op == "aten.native_layer_norm.default")
    assert [t.dtype for t in node.outputs] == [str(t.dtype).removeprefix("torch.") for t in real]
    assert text(account.activation_bytes) == "8*B + 2"


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.GroupNorm(2, 4), nn.BatchNorm1d(4)])
def test_gradients_of_mixed_norms_have_the_dtypes_of_what_they_are_of(norm):
    """The input's gradient has the input's dtype, the parameters' have theirs."""
    account = sa.trace(norm, "bf16[B, 4, 8]", grad=True)
    node = next(n for n in account.nodes if n.op.endswith("norm_backward.default"))
    assert [t.dtype for t in node.outputs] == ["bfloat16", "float32", "float32"]


def test_a_model_that_looks_for_fake_tensors_finds_none():
    """Such a model takes another path when it is traced; here it does what it does on real tensors."""

    def model(x):
        return x.exp() if isinstance(x, torch._subclasses.FakeTensor) else x + 1

    account = sa.trace(model, "B", train=False)
    assert [n.op for n in account.nodes] == ["aten.add.Tensor"]


def test_questions_to_data_are_answered_as_if_all_were_well():
    """``all`` is answered with yes, ``any`` with no, and both answers are listed."""

    def model(x):
        if (x > 0).all():
            x = x + 1
        if torch.isnan(x).any():
            x = x * 2
        return x

    account = sa.trace(model, "B", train=False)
    assert {"aten.add.Tensor"} == {n.op for n in account.nodes} & {"aten.add.Tensor", "aten.mul.Tensor"}
    answers = [str(a).split(" at ")[0] for a in account.assumptions]
    assert answers == ["a value that depends on data was taken as " + v for v in ("True", "False")]


def test_a_cache_that_is_returned_is_an_output():
    """Tensors in the fields of an object that the model returns are held by the caller."""

    class Cache:
        def __init__(self, keys):
            self.layers = [keys]

    account = sa.trace(lambda x: (x.sum(), Cache(x * 2)), "B", train=False)
    assert text(account.memory.later.moments[-1].by_kind()["outputs"]) == "4*B + 4"


def test_an_optimizer_made_outside_of_the_step_costs_nothing_in_it():
    """State that a constructor makes is there from the start, and making it is no node."""

    class Averaged(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters, lr=0.1)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["average"] = torch.zeros_like(p)

    plain, averaged = step(optimizer=partial(torch.optim.SGD, lr=0.1)), step(optimizer=Averaged)
    assert averaged.forward.cost == plain.forward.cost
    assert text(averaged.optimizer_bytes) == "8*D*K"
    difference = averaged.memory.first.after("forward") - plain.memory.first.after("forward")
    assert text(sympy.expand(difference)) == "8*D*K"


# -- allocators --------------------------------------------------------------------------


def test_cuda_memory_comes_in_blocks():
    """Every storage is rounded up to 512 bytes; formulas say so with a ceiling, numbers are multiples."""
    account = step(optimizer=FUSED, allocator="cuda")
    assert text(account.activation_bytes) == "1024*ceiling(B*K/128) + 512"
    at = account.at(B=3, D=5, K=7)
    assert at.peak_bytes % 512 == 0
    assert at.peak_bytes > at.with_allocator("logical").peak_bytes
    assert at.param_bytes == 280
    with pytest.raises(SpecError, match="allocator: 'jemalloc' is none of logical, cuda"):
        account.with_allocator("jemalloc")


# -- checks ------------------------------------------------------------------------------


def test_what_is_alive_is_checked_at_other_sizes():
    """A tensor that lives on only above some size is found, although every node costs what its formula says."""
    kept = []

    def model(x):
        kept.clear()
        y = x.exp()
        if len(range(x.shape[0])) > 90:
            kept.append(y)
        return y.tanh()

    with pytest.raises(CheckError, match="when tensors are freed changes with the sizes"):
        sa.trace(model, "B", train=False, sizes={"B": 104})
    kept.clear()


def test_resizing_a_tensor_makes_another_piece_of_memory():
    """``resize_`` to more elements moves the tensor; the old piece is gone."""

    def model(x):
        y = x.new_empty(x.shape[0])
        y.resize_(4 * x.shape[0])
        return y.zero_()

    account = sa.trace(model, "B", train=False)
    assert text(account.memory.later.moments[-1].by_kind()["outputs"]) == "16*B"
    assert text(account.peak_bytes) == "24*B"
    assert text(account.memory.later.moments[-1].nbytes) == "20*B"


def test_a_timeline_is_a_list_of_moments_with_their_bytes():
    """Moments know node, phase, module and bytes; all bytes at once come as expressions, or as numbers at sizes."""
    account = step(optimizer=FUSED)
    timeline = account.memory.later
    formulas = timeline.totals()
    assert len(formulas) == len(timeline.moments) == len(account.nodes) + 1
    assert [text(m.nbytes) for m in timeline][::4] == [text(f) for f in formulas][::4]
    sizes = {"B": 3, "D": 5, "K": 7}
    assert account.at(**sizes).memory.later.totals() == [evaluate(f, sizes) for f in formulas]
    kinds = account.at(**sizes).memory.later.totals_by_kind()
    assert [sum(column) for column in zip(*kinds.values(), strict=True)] == account.at(**sizes).memory.later.totals()


def test_the_report_of_memory_comes_in_three_forms():
    """Text, Markdown and JSON say the same peak; another form is refused."""
    account = step(optimizer=FUSED).at(B=8, D=16, K=32)
    assert f"{account.peak_bytes:,}" in account.memory_report()
    assert "| --- |" in account.memory_report(form="markdown")
    assert json.loads(account.memory_report(form="json"))["peak"]["value"] == account.peak_bytes
    with pytest.raises(SpecError, match="form: 'pdf' is none of text, markdown, json"):
        account.memory_report(form="pdf")
