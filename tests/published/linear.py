"""Linear nets: small products, the two-layer net, the deep linear net and the rule of six, intensities of products."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, symbols
from symacct.conventions.presets import Convention

LECTURE = "Stanford CS336 Spring 2025, lecture 2"
BOOK = "Austin et al. 2025, How to Scale Your Model"
B, D, K, L, P = symbols("B D K L P")


def forward(account: sa.Account) -> Any:
    """FLOP of the forward pass."""
    return account.forward.flops


def backward(account: sa.Account) -> Any:
    """FLOP of the backward pass."""
    return account.backward.flops


def total(account: sa.Account) -> Any:
    """FLOP of all phases."""
    return account.total.flops


def params(account: sa.Account) -> Any:
    """Number of parameters."""
    return account.params


def function(target: Any, *specs: Any) -> sa.Account:
    """A forward pass."""
    return sa.trace(target, *specs, train=False)


# -- products ------------------------------------------------------------------------------


def small_products() -> Proof:
    """The products of the seeds, each traced."""
    b, t, m, k, n, s, r, h = symbols("b t m k n s r h")
    rows = (
        ("x @ w", lambda x, w: x @ w, ("m k", "k n"), 2 * m * k * n, {"m": 16, "k": 32, "n": 2}, 2048),
        (
            "x @ w with two batch axes", lambda x, w: x @ w, ("b t m k", "k n"), 2 * b * t * m * k * n,
            {"b": 4, "t": 8, "m": 16, "k": 32, "n": 2}, 65536,
        ),
        (
            "einsum b s h, b r h -> b s r", lambda x, y: torch.einsum("bsh,brh->bsr", x, y), ("b s h", "b r h"),
            2 * b * s * r * h, {"b": 2, "s": 3, "r": 3, "h": 4}, 144,
        ),
        (
            "x @ w with heads", lambda x, w: x @ w, ("b s n h", "h k"), 2 * b * s * n * h * k,
            {"b": 2, "s": 3, "n": 2, "h": 4, "k": 4}, 384,
        ),
        ("x . w", torch.dot, ("n", "n"), 2 * n, {"n": 3}, 6),
    )  # fmt: skip
    figures = (
        Figure(f"FLOP of {name}", function(target, *specs), forward, wanted, numbers=(Number(name, sizes, count),))
        for name, target, specs, wanted, sizes, count in rows
    )
    return Proof("functions of tensors, each traced by itself", tuple(figures))


def elementwise() -> Proof:
    """One FLOP for each element."""
    m, n = symbols("m n")
    at = {"m": 1024, "n": 1024}

    def pointwise(account: sa.Account) -> Any:
        return account.forward.pointwise

    figures = (
        Figure(
            "FLOP of relu (`pointwise`)", function(torch.relu, "m n"), pointwise, m * n,
            numbers=(Number("1024 x 1024", at, 1048576),),
        ),
        Figure(
            "FLOP of an add (`pointwise`)", function(torch.add, "m n", "m n"), pointwise, m * n,
            numbers=(Number("1024 x 1024", at, 1048576),),
        ),
    )  # fmt: skip
    return Proof("functions of tensors", figures)


@cache
def matrix() -> sa.Account:
    """x @ w in bfloat16."""
    return function(lambda x, w: x @ w, "bf16[B, D]", "bf16[D, K]")


def one_product() -> Proof:
    """A product: FLOP, bytes."""
    at = {"B": 16384, "D": 32768, "K": 8192}
    figures = (
        Figure(
            "forward FLOP", matrix(), forward, 2 * B * D * K,
            numbers=(Number("H100", at, 8796093022208), Number("CPU", {"B": 1024, "D": 256, "K": 64}, 33554432)),
        ),
        Figure(
            "bytes read and written, bfloat16", matrix(), lambda a: a.forward.bytes, 2 * (B * D + D * K + B * K),
            numbers=(Number("H100", at, 1879048192),),
        ),
    )  # fmt: skip
    return Proof("`x @ w` on bfloat16 tensors; intensity is FLOP/bytes, B*D*K/(B*D + D*K + B*K)", figures)


def one_parameter_matrix() -> Proof:
    """Parameters of a linear layer."""
    i, o = symbols("n_in n_out")
    model = sa.build(lambda n_in, n_out: nn.Linear(n_in, n_out, bias=False))
    account = sa.trace(model, "B n_in")
    number = Number("16384 x 32", {"B": 1, "n_in": 16384, "n_out": 32}, 524288)
    return Proof("`nn.Linear` without bias", (Figure("parameters", account, params, i * o, numbers=(number,)),))


def intensities() -> Proof:
    """FLOP and bytes of what the roofline chapters take ratios of."""
    d, F = symbols("d F")
    square = function(lambda x, w: x @ w, "bf16[B, d]", "bf16[d, d]")
    each = function(lambda x, w: torch.bmm(x[:, None], w)[:, 0], "bf16[B, D]", "bf16[B, D, F]")
    unary, binary = function(torch.relu, "bf16[d]"), function(torch.add, "bf16[d]", "bf16[d]")
    dot = function(torch.dot, "bf16[d]", "bf16[d]")

    def moved(account: sa.Account) -> Any:
        return account.forward.bytes

    def pointwise(account: sa.Account) -> Any:
        return account.forward.pointwise

    figures = (
        Figure("(B, d) x (d, d): FLOP", square, forward, 2 * B * d**2),
        Figure(
            "(B, d) x (d, d): bytes", square, moved, 2 * (B * d + 2 * d**2),
            (
                (2 * B * d - 2 * d**2, "the seed counts the weights twice and leaves out the result's write (E13)"),
            ),
        ),
        Figure("one matrix for each example: FLOP", each, forward, 2 * B * D * F),
        Figure("one matrix for each example: bytes", each, moved, 2 * (B * D + B * D * F + B * F)),
        Figure("relu: FLOP", unary, pointwise, d),
        Figure("relu: bytes", unary, moved, 2 * 2 * d),
        Figure("add: FLOP", binary, pointwise, d),
        Figure("add: bytes", binary, moved, 3 * 2 * d),
        Figure("dot product: FLOP", dot, forward, 2 * d),
        Figure("dot product: bytes", dot, moved, 2 * 2 * d, ((2, "the one number that is written"),)),
    )  # fmt: skip
    return Proof("functions of bfloat16 tensors", figures)


# -- nets ------------------------------------------------------------------------------------


@cache
def two_layers() -> sa.Account:
    """Two linear layers."""
    model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
    return sa.trace(model, "B D")


def two_layer_net() -> Proof:
    """Forward, backward as run and by convention, and 6*P."""
    at = {"B": 16384, "D": 32768, "K": 8192}
    run, twice, six = (two_layers().under(c) for c in ("torch", Convention(backward="2x"), "6nd"))
    first = (2 * B * D**2, "the gradient of the data, which autograd does not compute and the rule counts (E08)")
    figures = (
        Figure(
            "forward FLOP (N016)", run, forward, 2 * B * D * D + 2 * B * D * K,
            numbers=(Number("lecture", at, 43980465111040),),
        ),
        Figure(
            "backward FLOP as autograd runs it (N018)", run, backward, 4 * B * D * K + 2 * B * D * D,
            numbers=(Number("lecture", at, 52776558133248),),
        ),
        Figure(
            "backward FLOP by the convention, 2 x forward (N017)", twice, backward, 4 * B * D * K + 4 * B * D * D,
            numbers=(Number("lecture", at, 87960930222080),),
        ),
        Figure(
            "forward and backward FLOP as run, beside the convention", run, total, 6 * B * D * (D + K),
            ((-first[0], first[1]),), (Number("lecture", at, 131941395333120),),
        ),
        Figure("FLOP of a step under `6nd`, for each of B tokens (N019)", six, total, 6 * P, per="B"),
    )  # fmt: skip
    how = 'two `nn.Linear` without bias, `"B D"`; presets `torch`, backward 2x, `6nd`'
    return Proof(how, figures, {"P": D**2 + D * K})


def cruncher(D: int, L: int) -> nn.Module:
    """L square layers and a head of one output."""
    return nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(L)), nn.Linear(D, 1, bias=False))


@cache
def deep() -> sa.Account:
    """The deep linear net at any depth."""
    return sa.trace(sa.build(cruncher, depth="L"), "B D")


def deep_linear_net() -> Proof:
    """6*P*B for any number of layers, but for the first layer's input gradient."""
    small, larger = {"B": 2, "D": 4, "L": 2}, {"B": 8, "D": 64, "L": 2}
    six = deep().under("6nd")
    left_out = (-2 * B * D**2, "the gradient of the data, a constant whatever the depth (E08)")
    figures = (
        Figure(
            "parameters", deep(), params, L * D * D + D,
            numbers=(Number("small", small, 36), Number("D=64", larger, 8256)),
        ),
        Figure(
            "forward FLOP", deep(), forward, 2 * B * P,
            numbers=(Number("small", small, 144), Number("D=64", larger, 132096)),
        ),
        Figure(
            "backward FLOP as autograd runs it", deep(), backward, 4 * B * P - 2 * B * D * D,
            numbers=(Number("small", small, 224), Number("D=64", larger, 198656)),
        ),
        Figure(
            "FLOP of a step as run, beside 6*P for each of B tokens", deep(), total, 6 * B * P, (left_out,),
            (Number("small", small, 432),),
        ),
        Figure("FLOP of a step under `6nd`", six, total, 6 * B * P, numbers=(Number("small", small, 432),)),
    )  # fmt: skip
    return Proof('L square `nn.Linear` and one of one output, `depth="L"`', figures, {"P": L * D**2 + D})


def linear_head() -> Proof:
    """One layer of one output."""
    model = sa.build(lambda D: nn.Linear(D, 1, bias=False))
    small = {"B": 2, "D": 4}
    account = sa.trace(model, "B D")
    figures = (
        Figure("parameters", account, params, D, numbers=(Number("small", small, 4),)),
        Figure(
            "FLOP of a step as run, beside 6*B*D", account, total, 6 * B * D,
            ((-2 * B * D, "the gradient of the data is not computed (E08)"),), (Number("small", small, 48),),
        ),
        Figure("FLOP of a step under `6nd`", account.under("6nd"), total, 6 * B * D),
    )  # fmt: skip
    return Proof("`nn.Linear(D, 1)` without bias", figures)


def muon() -> Proof:
    """The Newton-Schulz iteration, from the optimizer step of torch."""
    n, m = symbols("n m")
    model = sa.build(lambda n, m: nn.Linear(n, m, bias=False), n=64, m=32)
    account = sa.trace(model, "B n", optimizer=torch.optim.Muon)
    step = Figure(
        "FLOP of five Newton-Schulz steps on an (m, n) matrix, m <= n", account, lambda a: a.optimizer.flops,
        5 * 2 * (2 * n * m**2 + m**3),
        numbers=(Number("GPT-3's feed-forward", {"B": 1, "n": 49152, "m": 12288}, 5 * 33397665693696),),
    )  # fmt: skip
    return Proof("`torch.optim.Muon` on one `nn.Linear(n, m)`: `account.optimizer`", (step,))


ENTRIES = (
    Entry("N006", "Parameters of a matrix", LECTURE, "n_in*n_out", one_parameter_matrix),
    Entry("N007, N008", "Small products and einsums", LECTURE, "2 FLOP for each pair that is multiplied and added, "
          "each dim once", small_products),
    Entry("N015, N035", "One product", f"{LECTURE}; {BOOK}, ch. 1", "2*B*D*K FLOP, 2*(B*D + D*K + B*K) bytes in "
          "bfloat16", one_product),
    Entry("N016, N017, N018, N019", "The two-layer net", LECTURE, "2*B*D*D + 2*B*D*K forward; backward twice that, or "
          "4*B*D*K + 2*B*D*D as it is run; 6 for each parameter and token", two_layer_net),
    Entry("N020", "Elementwise arithmetic", LECTURE, "m*n FLOP", elementwise),
    Entry("N029", "A linear head", LECTURE, "6*B*D FLOP for D parameters", linear_head),
    Entry("N030, N031", "6*N*D for the deep linear net", LECTURE, "6*B*P FLOP of a step of a net of P = L*D*D + D "
          "parameters; 2*B*D*D less as autograd runs it", deep_linear_net),
    Entry("N036, N037, N040", "What intensities are ratios of", f"{LECTURE}; {BOOK}, ch. 1", "FLOP and bytes of a "
          "square product, of one matrix for each example, of elementwise operations and of a dot product",
          intensities),
    Entry("N092", "Muon's extra FLOP", "Jordan 2024, Muon", "2*(2*n*m**2 + m**3) for each of five Newton-Schulz "
          "steps", muon),
)  # fmt: skip
