"""Memory, predicted from tensors without data, beside what the CPU allocator really did, byte for byte.

Each account is traced once, in symbols, and evaluated at random sizes; at each of them two steps of training really
run. `allocator.differences` says what has to be equal: bytes at the start, at the end of the forward pass, at rest and
at the peak, in the first step and in the second, the optimizer's state, and the whole sequence of births and deaths.
"""

import dataclasses
import inspect
import random
from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from allocator import differences, infer, plain_kernels, train
from sweep_memory import PAGE
from torch import nn, optim
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, set_checkpoint_early_stop
from torch.utils.checkpoint import create_selective_checkpoint_contexts as selective
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    logging,
)  # fmt: skip

import symacct as sa
from symacct.specs import spec
from symacct.verify.memory import memory_part
from symacct.verify.profiled import Allocated, Called, Operand, Point, Seen
from symacct.verify.scratch import SCRATCH

logging.set_verbosity_error()


# -- models ------------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block: norm, up, GELU, down."""

    def __init__(self, D, F):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, F), nn.Linear(F, D)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Mlp(nn.Module):
    """Residual blocks between two linear layers; ``run(block, x)`` calls a block."""

    def __init__(self, D, F, K, run):
        super().__init__()
        self.first, self.last, self.run = nn.Linear(D, D), nn.Linear(D, K), run
        self.blocks = nn.ModuleList(Block(D, F) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = self.run(block, x)
        return self.last(x)


class ConvBlock(nn.Module):
    """Convolution, batch norm, ReLU in place."""

    def __init__(self, C, K, stride):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, K, 3, stride, padding=1, bias=False), nn.BatchNorm2d(K)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)), inplace=True)


class Cnn(nn.Module):
    """Three convolutions with batch norm, pooling, a linear layer; ``run(block, x)`` calls the last two."""

    def __init__(self, C, K, run):
        super().__init__()
        self.stem, self.last, self.run = ConvBlock(3, C, 1), nn.Linear(2 * C, K), run
        self.blocks = nn.ModuleList([ConvBlock(C, 2 * C, 2), ConvBlock(2 * C, 2 * C, 1)])

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        for block in self.blocks:
            x = self.run(block, x)
        return self.last(x.mean((2, 3)))


def plainly(block, x):
    """Just call it."""
    return block(x)


def checkpointed(block, x, **options):
    """Call it under a checkpoint."""
    return checkpoint(block, x, **{"use_reentrant": False, **options})


def own(module):
    """A builder's maker for the modules above: (checkpointing) -> builder."""
    names = list(inspect.signature(module).parameters)[:-1]

    def maker(checkpointing):
        run = checkpointed if checkpointing else plainly
        return _named(names, lambda **sizes: module(**sizes, run=run))

    return maker


def hugging_face(model):
    """The same for a function that makes a transformers model; it checkpoints by itself."""
    names = [n for n, p in inspect.signature(model).parameters.items() if p.default is p.empty]

    def maker(checkpointing):
        def build(**sizes):
            made = model(**sizes)
            if checkpointing:
                made.gradient_checkpointing_enable()
            return made

        return _named(names, build)

    return maker


def _named(names, function):
    """The function with keyword parameters of these names, as sa.build reads them."""
    function.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names])
    return function


def gpt2(H, Dh, V, dropout=0.0):
    """Two layers of GPT-2, with dropout everywhere or nowhere."""
    return GPT2LMHeadModel(GPT2Config(
        n_embd=H*Dh, n_head=H, n_layer=2, vocab_size=V, n_positions=64, use_cache=False,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    ))  # fmt: skip


def llama(H, G, Dh, F, V):
    """Two layers of Llama, H query heads in each of G groups."""
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=H*G*Dh, num_attention_heads=H*G, num_key_value_heads=G, head_dim=Dh, intermediate_size=F,
        vocab_size=V, num_hidden_layers=2, use_cache=False,
    ))  # fmt: skip


def vit(H, Dh, F):
    """Two layers of ViT on 16 patches of 8 x 8."""
    return ViTForImageClassification(ViTConfig(
        hidden_size=H*Dh, num_attention_heads=H, intermediate_size=F, num_hidden_layers=2, image_size=32, patch_size=8,
        num_labels=10,
    ))  # fmt: skip


def t5(D, H, Dh, F, V):
    """Two layers of encoder and decoder of T5."""
    return T5ForConditionalGeneration(T5Config(
        d_model=D, num_heads=H, d_kv=Dh, d_ff=F, vocab_size=V, num_layers=2, decoder_start_token_id=0,
        dropout_rate=0.0, use_cache=False,
    ))  # fmt: skip


def its_loss(output):
    """The loss that a transformers model computes by itself."""
    return output.loss


@dataclasses.dataclass(frozen=True)
class Model:
    """How to make a model, its inputs, the range of each dim, and its loss."""

    maker: Callable
    inputs: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int]]
    loss: Callable | None = None

    def random_sizes(self, seed, count=3):
        """Sizes from a seed."""
        rng = random.Random(seed)
        return [{name: rng.randint(*bounds) for name, bounds in self.ranges.items()} for _ in range(count)]


TOKENS = {"B": (1 + 1, 4), "L": (5, 24)}
MODELS = {
    "mlp": Model(own(Mlp), {"x": "B D"}, {"B": (2, 40), "D": (3, 60), "F": (3, 60), "K": (2, 40)}),
    "cnn": Model(own(Cnn), {"x": "B 3 12 12"}, {"B": (2, 6), "C": (2, 12), "K": (2, 12)}),
    "gpt2": Model(
        hugging_face(gpt2), {"input_ids": "i64[B, L]", "labels": "i64[B, L]"},
        {**TOKENS, "H": (2, 4), "Dh": (3, 12), "V": (20, 90)}, its_loss,
    ),
    "llama": Model(
        hugging_face(llama), {"input_ids": "i64[B, L]", "labels": "i64[B, L]"},
        {**TOKENS, "H": (2, 3), "G": (2, 3), "Dh": (3, 6), "F": (9, 50), "V": (20, 90)}, its_loss,
    ),
    "vit": Model(
        hugging_face(vit), {"pixel_values": "B 3 32 32", "labels": "i64[B]"},
        {"B": (2, 4), "H": (2, 4), "Dh": (3, 12), "F": (9, 50)}, its_loss,
    ),
    "t5": Model(
        hugging_face(t5), {"input_ids": "i64[B, L]", "labels": "i64[B, T]"},
        {**TOKENS, "T": (5, 24), "D": (9, 40), "H": (2, 4), "Dh": (3, 12), "F": (9, 50), "V": (20, 90)}, its_loss,
    ),
}  # fmt: skip
EVEN = {"llama": ("Dh",)}  # rotary embeddings split a head in two
OPTIMIZERS = {"AdamW": optim.AdamW, "SGD": partial(optim.SGD, lr=0.1, momentum=0.9)}


# -- comparing ---------------------------------------------------------------------------


def real_inputs(specs, sizes):
    """Tensors for specs at sizes; integers are below 10, which every vocabulary has."""
    generator = torch.Generator().manual_seed(0)

    def make(text):
        form = spec(text)
        shape = form.sizes(sizes.__getitem__)
        if form.dtype.is_floating_point:
            return torch.randn(shape, generator=generator)
        return torch.randint(0, 10, shape, generator=generator, dtype=form.dtype)

    return {name: make(text) for name, text in specs.items()}


def at_sizes(builder, sizes):
    """The builder's module at sizes."""
    return builder(**{name: sizes[name] for name in inspect.signature(builder).parameters})


def runs(builder, inputs, sizes, **options):
    """Trace once; at each of the sizes a real run: (sizes, (account at them, run)).

    Inputs are named, or one spec for a module that takes one tensor.
    """
    named, specs = isinstance(inputs, dict), inputs if isinstance(inputs, dict) else {"x": inputs}
    account = sa.trace(sa.build(builder), *[] if named else [inputs], check=False, **inputs if named else {}, **options)
    for each in sizes:
        real = real_inputs(specs, each)
        args, kwargs = ((), real) if named else (real.values(), {})
        yield each, (account.at(**each), train(at_sizes(builder, each), *args, **kwargs, **options))


def agree(*args, **options):
    """All differences of such runs, in words."""
    return [f"{sizes}: {text}" for sizes, run in runs(*args, **options) for text in differences(*run)]


def sizes_of(name, *salt):
    """Three random sizes for a model; salted, so that each configuration has its own."""
    rows = MODELS[name].random_sizes("/".join(map(str, (name, *salt))))
    return [{n: 2 * s if n in EVEN.get(name, ()) else s for n, s in row.items()} for row in rows]


def runs_of(name, optimizer, checkpointing, autocast):
    """The runs of one configuration of the grid."""
    model = MODELS[name]
    return runs(
        model.maker(checkpointing),
        model.inputs,
        sizes_of(name, optimizer, checkpointing, autocast),
        loss=model.loss,
        optimizer=OPTIMIZERS[optimizer],
        autocast=torch.bfloat16 if autocast else None,
    )


def is_as_measured(config):
    """Assert that nothing differs at any of the sizes."""
    assert {str(sizes): found for sizes, run in runs_of(*config) if (found := differences(*run))} == {}


GRID = [
    (name, optimizer, checkpointing, autocast)
    for name in MODELS
    for optimizer in OPTIMIZERS
    for checkpointing in (False, True)
    for autocast in (False, True)
]


def label(config):
    """ "gpt2-AdamW-checkpoint-autocast"."""
    name, optimizer, checkpointing, autocast = config
    return "-".join([name, optimizer, *["checkpoint"] * checkpointing, *["autocast"] * autocast])


def half(config):
    """Whether a configuration is in the half of the grid that has every pair of settings for every model."""
    _, optimizer, checkpointing, autocast = config
    return ((optimizer == "SGD") + checkpointing + autocast) % 2 == 0


# -- the grid ----------------------------------------------------------------------------


@pytest.mark.parametrize("config", [c for c in GRID if half(c)], ids=label)
def test_every_birth_and_death_is_as_in_a_real_run(config):
    """Half of the grid, with every pair of settings for each model, at three random sizes each."""
    is_as_measured(config)


@pytest.mark.slow
@pytest.mark.parametrize("config", [c for c in GRID if not half(c)], ids=label)
def test_every_birth_and_death_is_as_in_a_real_run_in_the_other_half(config):
    """The rest of the grid; docs/memory.md has the figures."""
    is_as_measured(config)


# -- checkpoints -------------------------------------------------------------------------


def keep_products(_, op, *args, **kwargs):
    """A selective policy: the results of linear layers are kept, the rest is computed again."""
    keep = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def to_the_end(block, x):
    """A checkpoint that runs to its end again."""
    with set_checkpoint_early_stop(False):
        return checkpointed(block, x)


CHECKPOINTS = {
    "reentrant": partial(checkpointed, use_reentrant=True),
    "not reentrant": checkpointed,
    "without early stop": to_the_end,
    "random state not preserved": partial(checkpointed, preserve_rng_state=False),
    "selective": partial(checkpointed, context_fn=partial(selective, keep_products)),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_keep_and_recompute_what_real_ones_do(kind):
    """Each way to checkpoint a block, at three random sizes."""

    def builder(D, F, K):
        return Mlp(D, F, K, CHECKPOINTS[kind])

    assert agree(builder, "B D", sizes_of("mlp", kind), optimizer=optim.AdamW) == []


# -- options -----------------------------------------------------------------------------


def two_layers(D, K):
    """Two linear layers with a ReLU that works in place."""
    return nn.Sequential(nn.Linear(D, D), nn.ReLU(inplace=True), nn.Linear(D, K))


SIZES = [{"B": 17, "D": 40, "K": 24}, {"B": 31, "D": 5, "K": 7}, {"B": 2, "D": 9, "K": 60}]
OPTIONS = {
    "gradients zeroed": {"set_to_none": False},
    "micro-batches": {"accumulate": 3},
    "micro-batches, gradients zeroed": {"accumulate": 3, "set_to_none": False},
    "clipped": {"clip": 1.0},
    "outputs kept": {"keep_outputs": True},
    "all": {"accumulate": 2, "set_to_none": False, "clip": 0.5, "keep_outputs": True},
}


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, None])
@pytest.mark.parametrize("option", OPTIONS)
def test_training_loops_of_other_forms_are_as_in_a_real_run(option, optimizer):
    """zero_grad(set_to_none=False), accumulation, clipping, outputs that are held: with AdamW, SGD and no optimizer."""
    options = {**OPTIONS[option], "optimizer": OPTIMIZERS.get(optimizer)}
    assert agree(two_layers, "B D", SIZES, **options) == []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_inference_is_as_in_a_real_run(name, autocast):
    """Peak, births and deaths of a forward pass in eval mode, the output held to its end."""
    model, dtype = MODELS[name], torch.bfloat16 if autocast else None
    builder = model.maker(False)
    account = sa.trace(sa.build(builder), train=False, autocast=dtype, check=False, **model.inputs)
    for sizes in sizes_of(name, "inference"):
        run = infer(at_sizes(builder, sizes), autocast=dtype, **real_inputs(model.inputs, sizes))
        assert differences(account.at(**sizes), run) == []


# -- programs ----------------------------------------------------------------------------


class Program(nn.Module):
    """A linear layer, a function of its result, another linear layer."""

    def __init__(self, D, K, function, freeze=()):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, K)
        self.scale = nn.Parameter(torch.ones(1, D))
        self.function = function
        for name in freeze:
            getattr(self, name).requires_grad_(False)

    def forward(self, x):
        return self.last(self.function(self, self.first(x)))


class Tied(nn.Module):
    """An embedding whose table is the output layer's weight as well."""

    def __init__(self, V, D):
        super().__init__()
        self.embed, self.middle, self.last = nn.Embedding(V, D), nn.Linear(D, D), nn.Linear(D, V, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, x):
        return self.last(torch.tanh(self.middle(self.embed(x))))


def many_times(m, h):
    """One module four times."""
    for _ in range(4):
        h = torch.tanh(m.middle(h))
    return h


def expanded(m, h):
    """An expanded parameter, whose gradient is a sum."""
    scale = m.scale.expand(h.shape[0], -1)
    return torch.cat([h * scale, scale])


def views(m, h):
    """Parts of one tensor, a transposed copy: what is saved are views."""
    a, b = torch.stack([m.middle(h), h.exp()], 1).unbind(1)
    return a.sigmoid() * b + b.t().contiguous().t()


def in_place(m, h):
    """Operators that work in place, on results and on parts of them."""
    h = h * 2.0
    h += m.scale
    h[:, 0] = 0
    return F.relu_(h.mul_(0.5).clone())


def masked(m, h):
    """Attention whose mask wants a gradient, which no fused kernel gives: the mask is added to the scores in place."""
    return F.scaled_dot_product_attention(*[h[None, None]] * 3, attn_mask=h @ h.t())[0, 0]


PROGRAMS = {
    "a frozen layer between": (lambda m, h: torch.relu(m.middle(torch.relu(h))), ("middle",)),
    "a frozen first layer": (lambda m, h: torch.relu(m.middle(h)), ("first",)),
    "a module many times": (many_times, ()),
    "expanded": (expanded, ()),
    "views": (views, ()),
    "in place": (in_place, ()),
    "a residual": (lambda m, h: h + m.middle(h) + h.tanh(), ()),
    "dropout": (lambda m, h: F.dropout(F.relu(F.dropout(h, 0.3)), 0.1), ()),
    "numbers": (lambda m, h: (1 - h * 2.0 + 3) / 4.0 - h**2, ()),
    "where": (lambda m, h: torch.where(h > 0, h, 0.0) + torch.where(h > 0, 1.0, h), ()),
    "activations": (lambda m, h: F.silu(F.gelu(F.softplus(F.leaky_relu(F.elu(h))), approximate="tanh")), ()),
    "statistics": (lambda m, h: h / (h.std(1, keepdim=True) + h.mean() + h.norm(dim=1, keepdim=True)), ()),
    "products": (lambda m, h: h @ (h.t() @ h) + torch.einsum("bd,cd->bc", h, h) @ h, ()),
    "softmaxes": (lambda m, h: h.softmax(1) * h.log_softmax(0) + h.logsumexp(1, keepdim=True), ()),
    "one tensor twice": (lambda m, h: (h * h).tanh() + F.layer_norm(h, h.shape[1:], m.scale[0], m.scale[0]), ()),
    "choices": (lambda m, h: h.gather(1, h.detach().argsort(1)) + h.sort(1).values * h.topk(3).values.sum(), ()),
    "indices": (lambda m, h: torch.cat([h[:, torch.arange(3)], h.index_select(1, torch.arange(2)), h], 1)[:, 5:], ()),
    "squared errors": (lambda m, h: h * F.mse_loss(h, m.middle(h)) + F.smooth_l1_loss(h, torch.zeros_like(h)), ()),
    "logits": (lambda m, h: F.binary_cross_entropy_with_logits(h, torch.ones_like(h), reduction="none"), ()),
    "group norm": (lambda m, h: F.group_norm(torch.stack([h, h * h], 1), 2).sum(1), ()),
    "attention with a learned mask": (masked, ()),
    "angles": (lambda m, h: torch.atan2(h, h + 1) + torch.hypot(h, h), ()),
    "detached": (lambda m, h: h * h.detach() + m.middle(h.detach()), ()),
    "attention": (lambda m, h: F.scaled_dot_product_attention(*[h[None, None]] * 3, is_causal=True)[0, 0], ()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_awkward_forms_are_as_in_a_real_run(name):
    """Frozen parameters, modules used often, expanded tensors, saved views, work in place, numbers among tensors."""
    function, freeze = PROGRAMS[name]

    def builder(D, K):
        return Program(D, K, function, freeze)

    assert agree(builder, "B D", SIZES, optimizer=optim.AdamW) == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tied_weights_are_as_in_a_real_run(optimizer):
    """A shared parameter, its gradient and its state count once."""
    sizes = [{"B": 3, "L": 11, "V": 31, "D": 16}, {"B": 5, "L": 4, "V": 12, "D": 33}]
    assert agree(Tied, "i64[B, L]", sizes, optimizer=OPTIMIZERS[optimizer]) == []


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpoint"])
def test_dropout_in_a_transformer_is_as_in_a_real_run(checkpointing):
    """Dropout masks are kept, also within attention; a checkpoint keeps the generator's state to make them again."""
    builder = hugging_face(partial(gpt2, dropout=0.1))(checkpointing)
    sizes = sizes_of("gpt2", "dropout", checkpointing)[:2]
    assert agree(builder, MODELS["gpt2"].inputs, sizes, loss=its_loss, optimizer=optim.AdamW) == []


# -- optimizers --------------------------------------------------------------------------


ALL_OPTIMIZERS = {
    "SGD": (optim.SGD, {"lr": 0.1}),
    "SGD, momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "SGD, Nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adagrad": (optim.Adagrad, {}),
    "RMSprop": (optim.RMSprop, {}),
    "RMSprop, centered": (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "Adam": (optim.Adam, {}),
    "Adam, AMSGrad": (optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (optim.AdamW, {}),
    "AdamW, AMSGrad": (optim.AdamW, {"amsgrad": True}),
    "NAdam": (optim.NAdam, {}),
    "RAdam": (optim.RAdam, {}),
    "Adamax": (optim.Adamax, {}),
    "Adadelta": (optim.Adadelta, {}),
    "Adafactor": (optim.Adafactor, {}),
    "Rprop": (optim.Rprop, {}),
    "ASGD": (optim.ASGD, {}),
    "Muon": (optim.Muon, {}),
}


def ways():
    """(optimizer, how it is implemented): each with those that it accepts on a CPU."""
    for name, (kind, options) in ALL_OPTIMIZERS.items():
        yield name, {}
        for how in ({"foreach": False}, {"foreach": True}, {"fused": True}):
            try:
                kind([nn.Parameter(torch.zeros(2, 2))], **options, **how)
            except (TypeError, RuntimeError):
                continue
            yield name, how


def matrices(D, K):
    """Layers without biases, since Muon takes matrices only."""
    return nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, K, bias=False))


@pytest.mark.parametrize(("name", "how"), ways())
def test_optimizers_are_as_in_a_real_run(name, how):
    """Every optimizer of torch.optim but LBFGS, one parameter at a time, in lists and fused: peaks, state, at rest."""
    kind, options = ALL_OPTIMIZERS[name]
    builder = matrices if name == "Muon" else two_layers
    sizes = [{"B": 17, "D": 24, "K": 40}, {"B": 3, "D": 12, "K": 31}]
    assert agree(builder, "B D", sizes, optimizer=partial(kind, **options, **how)) == []


def test_parameter_groups_are_as_in_a_real_run():
    """Two groups with settings of their own."""

    def optimizer(parameters):
        parameters = list(parameters)
        return optim.AdamW([
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "lr": 0.1},
        ])  # fmt: skip

    assert agree(two_layers, "B D", SIZES, optimizer=optimizer) == []


def test_an_optimizer_that_wants_a_closure_is_refused():
    """LBFGS runs the model as often as the data demands."""
    with pytest.raises(sa.SymacctError, match="closure"):
        sa.trace(sa.build(two_layers), "B D", optimizer=optim.LBFGS)


# -- other kernels ----------------------------------------------------------------------


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch was built without oneDNN")
@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_autocast_to_half_is_as_in_a_real_run(name):
    """The same with float16 as with bfloat16, which the grid has."""
    model = MODELS[name]
    options = {"loss": model.loss, "optimizer": OPTIMIZERS["AdamW"], "autocast": torch.float16}
    assert agree(model.maker(False), model.inputs, sizes_of(name, "float16"), **options) == []


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["", "autocast"])
def test_storages_are_the_same_with_onednn(autocast):
    """PyTorch's default on CPUs: the same tensors are made and kept; convolutions have up to 32 KiB more of scratch."""
    model, optimizer = MODELS["cnn"], OPTIMIZERS["AdamW"]
    builder, options = model.maker(False), {"optimizer": optimizer, "autocast": autocast}
    account = sa.trace(sa.build(builder), check=False, **model.inputs, **options)
    for sizes in sizes_of("cnn", "oneDNN"):
        inputs = real_inputs(model.inputs, sizes)
        run = train(at_sizes(builder, sizes), kernels=partial(plain_kernels, onednn=True), **inputs, **options)
        assert differences(account.at(**sizes), run, spare=2**15) == []


@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_scratch_of_two_threads_is_in_bounds(name):
    """Where each thread has scratch of its own (attention, layer norm), the table says so."""
    model = MODELS[name]
    options = {"loss": model.loss, "optimizer": optim.SGD, "autocast": torch.bfloat16}
    two_threads = partial(plain_kernels, threads=2)
    account = sa.trace(sa.build(model.maker(False)), check=False, **model.inputs, **options)
    for sizes in sizes_of(name, "threads"):
        inputs = real_inputs(model.inputs, sizes)
        run = train(at_sizes(model.maker(False), sizes), kernels=two_threads, **inputs, **options)
        assert differences(account.at(**sizes), run) == []


# -- the comparison itself -----------------------------------------------------------------


def test_the_comparison_sees_other_sizes_and_other_programs():
    """An account at other sizes, of another optimizer, or of outputs that are held has other births and deaths."""
    account = sa.trace(sa.build(two_layers), "B D", optimizer=optim.AdamW, check=False)
    run = train(two_layers(40, 24), torch.randn(17, 40), optimizer=optim.AdamW)
    assert differences(account.at(B=17, D=40, K=24), run) == []
    assert differences(account.at(B=17, D=40, K=25), run) != []
    held = train(two_layers(40, 24), torch.randn(17, 40), optimizer=optim.AdamW, keep_outputs=True)
    assert any("live on until after" in text for text in differences(account.at(B=17, D=40, K=24), held))
    run = train(two_layers(40, 24), torch.randn(17, 40), optimizer=optim.SGD)
    found = differences(account.at(B=17, D=40, K=24), run)
    assert {"optimizer's state", "peak, first step", "at rest, later step"} <= {t.partition(":")[0] for t in found}


def test_scratch_that_the_table_does_not_have_is_a_difference():
    """An unknown operator is allowed nothing, a known one no more than its formula."""
    account = sa.trace(sa.build(two_layers), "B D", check=False).at(B=17, D=40, K=24)
    matrix = Operand((4, 5), (5, 1), torch.float32)
    limits = {"aten.unheard_of.default": "not in the table of operators with scratch", "aten.mm.default": "160 allowed"}
    for op, scratch in (("aten.unheard_of.default", 4), ("aten.mm.default", 161), ("aten.mm.default", 160)):
        call = Called(2, 5, op, (matrix, matrix), index=0)
        memory = [Allocated(3, scratch, 1, "cpu", call=0), Allocated(4, -scratch, 1, "cpu", call=0)]
        seen = Seen([call], [Point(0, "step 1"), Point(1, "start"), call, *memory, Point(6, "end")])
        found = [r for r in memory_part(account, seen, {}, alive=0).residuals if "scratch" in r.text]
        text = f"{scratch} bytes of scratch on float32[4, 5], float32[4, 5], {limits[op]}"
        wanted = [(op, text, {"aten.unheard_of.default": 4, "aten.mm.default": 1}[op])] if scratch != 160 else []
        assert [(r.op, r.text, r.amount) for r in found] == wanted


def test_the_page_names_every_operator_with_scratch():
    """docs/memory.md lists the operators of the table."""
    text = PAGE.read_text()
    assert [op for op in SCRATCH if f"`{op.removeprefix('aten.')}`" not in text] == []


def test_the_page_has_the_whole_grid():
    """docs/memory.md has a row for each configuration, and each says that all is equal at all of its three sizes."""
    rows = [[cell.strip() for cell in line.split("|")] for line in PAGE.read_text().splitlines() if " of 3 |" in line]
    listed = {(row[1], row[2], row[3] == "yes", row[4] == "bf16"): row[-2] for row in rows}
    assert listed == dict.fromkeys(GRID, "3 of 3")
