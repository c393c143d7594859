"""Drawings of steps: every node is in one box, what is drawn adds up, and the DOT says the same."""

import math

import pygraphviz
import pytest
import sympy
import torch
from torch import nn

import symacct as sa
from symacct.cost import COST_FIELDS
from symacct.dim import symbol
from symacct.drawing import COSTS, Amounts, draw, to_dot
from symacct.drawing.colours import contrast, fill, text_on
from symacct.errors import SpecError

EXAMPLES = ("two_layer", "cruncher", "gpt2", "llama", "resnet50", "any_depth")
SIZES = {
    "two_layer": {"B": 16384, "D": 32768, "K": 8192},
    "cruncher": {"B": 1024, "D": 4096},
    "gpt2": {"B": 8, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024},
    "llama": {"B": 1, "L": 8192, "G": 8, "H": 4, "Dh": 128, "F": 14336, "V": 128256},
    "resnet50": {"B": 256},
    "any_depth": {"B": 8, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024, "N": 12},
}
PHASES = (None, "forward", "backward", "optimizer")


def wanted(account, phase, name):
    """What the account says of a phase, with what is recomputed in the backward pass."""
    if phase is None:
        return getattr(account.total, name)
    found = getattr(account.phases[phase], name)
    return found + getattr(account.recompute, name) if phase == "backward" else found


def equal(a, b):
    """Whether two expressions are the same."""
    return sympy.expand(sympy.sympify(a) - sympy.sympify(b)) == 0


def parsed(text, names):
    """The expression that DOT has as text."""
    return sympy.sympify(text, locals={name: symbol(name) for name in names})


def blocks(number=3, **options):
    """A small model with equal blocks, residual additions, and views."""

    class Block(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.ln_1, self.up, self.ln_2, self.down = (
                nn.LayerNorm(D),
                nn.Linear(D, D),
                nn.LayerNorm(D),
                nn.Linear(D, D),
            )

        def forward(self, x):
            x = x + self.up(self.ln_1(x))
            return x + self.down(self.ln_2(x)).transpose(0, 1).contiguous().transpose(0, 1)

    class Net(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.first = nn.Linear(D, D)
            self.h = nn.ModuleList(Block(D) for _ in range(number))
            self.last = nn.Linear(D, 1)

        def forward(self, x):
            x = self.first(x)
            for block in self.h:
                x = block(x)
            return self.last(x)

    return sa.trace(sa.build(Net), "B D", check=False, **options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_drawn_adds_up(account, name):
    """In each phase, at each depth, the boxes' costs, bytes kept and nodes are those of the account, in symbols."""
    step = account(name)
    for phase in PHASES:
        if wanted(step, phase, "count") == 0:
            continue
        for depth in (None, 1, 3, "ops"):
            boxes = draw(step, phase, depth).boxes
            for field in COST_FIELDS:
                drawn = sympy.Add(*(p.times * getattr(p.cost, field) for b in boxes for p in b.parts))
                assert equal(drawn, wanted(step, phase, field)), (phase, depth, field)
            assert equal(sum(p.times for b in boxes for p in b.parts), wanted(step, phase, "count"))
            kept = step.activation_bytes if phase in (None, "forward") else 0
            assert equal(sum(box.kept for box in boxes), kept), (phase, depth)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_sums_in_the_dot(account, name):
    """Read back from the DOT, formulas and values of all boxes add up to the account's, and no box is missing."""
    step = account(name)
    big = step.at(**SIZES[name])
    for cost, depth in (("flops", None), ("bytes", "ops"), ("pointwise", 2), ("activation_bytes", None)):
        drawing = draw(big, None, depth)
        graph = pygraphviz.AGraph(string=to_dot(drawing, cost))
        nodes = graph.nodes()
        assert sorted(nodes) == sorted(box.id for box in drawing.boxes)
        have = [node.attr for node in nodes if node.attr["formula"]]
        kept = cost == "activation_bytes"
        expected = [a.activation_bytes if kept else getattr(a.total, cost) for a in (step, big)]
        assert equal(sum(parsed(attributes["formula"], step.dims) for attributes in have), expected[0])
        assert sum(int(attributes["value"]) for attributes in have) == expected[1]


def test_seconds(account):
    """The least seconds of the boxes add up to the roofline's, in symbols exactly, in numbers but for rounding."""
    step = account("two_layer")
    for phase in (None, "forward", "backward"):
        amounts = Amounts(draw(step, phase), "seconds", "h100")
        roof = step.roofline("h100")
        assert equal(amounts.total, (roof.phases[phase] if phase else roof.total).seconds)
    for name in ("llama", "any_depth"):
        big = account(name).at(**SIZES[name])
        for depth in (None, 2):
            seconds = Amounts(draw(big, depth=depth), "seconds", "h100").value
            assert math.isclose(seconds, big.roofline("h100").total.seconds, rel_tol=1e-12)


def test_equal_blocks_are_drawn_once():
    """Blocks with equal costs are one cluster with their number; modules in different places are not joined."""
    drawing = draw(blocks(), "forward", 3)
    (cluster,) = drawing.clusters
    assert (cluster.label, cluster.path, cluster.times) == ("h.0-2", "h.0-2", 3)
    inside = [(box.label, box.kind, box.times) for box in drawing.boxes if box.cluster == cluster.id]
    assert inside == [
        ("ln_1", "module", 3), ("up", "module", 3), ("add", "own", 3),
        ("ln_2", "module", 3), ("down", "module", 3), ("clone, add", "own", 3),
    ]  # fmt: skip
    assert "×3" in to_dot(drawing)
    assert "3*2*B*D**2" in to_dot(drawing)
    labels = {box.id: box.label for box in drawing.boxes}
    back = [(labels[e.tail], labels[e.head]) for e in drawing.edges if e.back]
    assert back == [("clone, add", "ln_1"), ("clone, add", "add")]
    chain = [(labels[e.tail], labels[e.head]) for e in drawing.edges if not e.back]
    assert ("first", "ln_1") in chain
    assert ("clone, add", "last") in chain


def test_a_depth_that_is_a_dim_is_drawn():
    """Blocks of any number stand once, as often as the dim says, and shapes and formulas are in it."""
    step = sa.trace(
        sa.build(lambda D, N: nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(N))), depth="N"), "B D"
    )
    drawing = draw(step, "forward", 1)
    box = next(box for box in drawing.boxes if box.path == "*")
    assert box.times == symbol("N")
    assert equal(Amounts(drawing).formulas[box.id], step.forward.flops)
    assert "×N" in to_dot(drawing)


def test_views_are_hidden_unless_asked_for():
    """A view has no box and edges go through it; with ``free`` it has one."""

    def model(x):
        return torch.relu(x).view(-1).exp()

    step = sa.trace(model, "B D", train=False)
    hidden, free = draw(step, depth="ops"), draw(step, depth="ops", free=True)
    assert [box.label for box in hidden.boxes] == ["x", "relu", "exp", "output"]
    assert [(e.tail, e.head) for e in hidden.edges] == [("b0", "b1"), ("b1", "b2"), ("b2", "b3")]
    assert [box.label for box in free.boxes] == ["x", "relu", "view", "exp", "output"]
    assert any("not shown" in note for note in hidden.notes)
    assert not any("not shown" in note for note in free.notes)


def test_ops_without_a_rule_are_shown():
    """An op without a rule has a box with a red dashed border that says so, and a note."""
    rules = sa.Rules("none")
    step = sa.trace(lambda x: torch.relu(x).view(-1), "B D", train=False, rules=rules, check=False)
    drawing = draw(step, depth="ops")
    assert [box.unknown for box in drawing.boxes if box.label == "relu"] == [True]
    dot = to_dot(drawing)
    assert "no rule" in dot
    assert "dashed" in dot
    assert any("INCOMPLETE" in note for note in drawing.notes)


@pytest.mark.parametrize("cost", [cost for cost in COSTS if cost != "seconds"])
def test_nasty_names_come_through(cost):
    """Quotes, braces, angle brackets, backslashes, entities, newlines and Greek letters survive, node by node."""
    names = [
        'q"uo"te',
        "br{a}ce|s",
        "<b>a&amp;</b>",
        "back\\slash\\",
        "tail\\",
        "λ₁-лямбда",
        "new\nline",
        "a b;c//d",
        "é",
    ]

    class Net(nn.Module):
        def __init__(self, α):
            super().__init__()
            self.names = names
            for name in names:
                self.add_module(name, nn.Linear(α, α))

        def forward(self, x):
            for name in names:
                x = getattr(self, name)(x)
            return x

    step = sa.trace(sa.build(Net), "B α", check=False)
    for depth in (1, "ops"):
        drawing = draw(step, depth=depth)
        graph = pygraphviz.AGraph(string=to_dot(drawing, cost))
        assert len(graph.nodes()) == len(drawing.boxes)
        have = [parsed(n.attr["formula"], step.dims) for n in graph.nodes() if n.attr["formula"]]
        expected = step.activation_bytes if cost == "activation_bytes" else getattr(step.total, cost)
        assert equal(sum(have), expected)
        assert "λ₁-лямбда" in to_dot(drawing)


def test_large_steps_are_collapsed():
    """What would be thousands of boxes is at most as many as the limit, adds up, and says how it is collapsed."""
    step = sa.trace(
        sa.build(lambda D: nn.Sequential(*(m for _ in range(150) for m in (nn.Linear(D, D), nn.ReLU())))), "B D",
        check=False,
    )  # fmt: skip
    for depth, limit in ((None, 40), ("ops", 250), (1, 250)):
        drawing = draw(step, depth=depth)
        assert len([box for box in drawing.boxes if box.parts]) <= limit
        assert equal(Amounts(drawing).total, step.total.flops)
        assert any("neighbours taken together" in note for note in drawing.notes)
    assert any("more boxes than can be read" in note for note in draw(step, depth="ops").notes)


def test_checkpoints_and_accumulation_add_up():
    """What is recomputed stands with its module, and micro-batches with each other."""

    class Net(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(lambda y: self.b(torch.relu(self.a(y))), x, use_reentrant=False)
            return x * 2

    for options in ({"grad": True}, {"accumulate": 2, "clip": 1.0, "optimizer": torch.optim.SGD, "grad": True}):
        step = sa.trace(sa.build(Net), "B D", check=False, **options)
        for depth in (1, "ops"):
            for phase in (None, "backward"):
                drawing = draw(step, phase, depth)
                assert equal(Amounts(drawing).total, wanted(step, phase, "flops"))
            assert equal(sum(b.kept for b in draw(step, None, depth).boxes), step.activation_bytes)
    assert [box.label for box in draw(step, None, 1).boxes][-2:] == ["(clip)", "(optimizer)"]


def test_colours_can_be_read():
    """Text on every colour of the ramp has a contrast of 4.5 at the least, and larger shares are darker."""
    colours = [fill(share / 200) for share in range(201)]
    assert all(contrast(text_on(colour), colour) >= 4.5 for colour in colours)
    light = [contrast(colour, "#000000") for colour in colours]
    assert light == sorted(light, reverse=True)
    assert len(set(colours)) > 100


def test_wrong_wishes_are_refused(account):
    """What there is not is named, with what there is."""
    step = account("two_layer")
    for options, words in (
        ({"phase": "recompute"}, "phase: 'recompute' is none of"),
        ({"depth": 0}, "depth: 0 is neither"),
        ({"phase": "optimizer"}, "nothing runs in 'optimizer'"),
    ):
        with pytest.raises(SpecError, match=words):
            draw(step, **options)
    with pytest.raises(SpecError, match="cost: 'flop' is none of flops"):
        to_dot(draw(step), "flop")
    with pytest.raises(SpecError, match="seconds are those of a device"):
        to_dot(draw(step), "seconds")


def test_the_dot_is_stable(outputs_by_seed):
    """Processes with other hash seeds write the same DOT, byte by byte."""
    code = (
        "import symacct as sa, torch\n"
        "from torch import nn\n"
        "from symacct.drawing import draw, to_dot\n"
        "model = sa.build(lambda D, K: nn.Sequential(*(nn.Linear(D, D) for _ in range(4)), nn.Linear(D, K)))\n"
        "step = sa.trace(model, 'B D', optimizer=torch.optim.AdamW, check=False)\n"
        "print(*(to_dot(draw(step, p, d), c, 'h100') for p in (None, 'backward') for d in (None, 'ops')"
        " for c in ('flops', 'seconds')))\n"
    )
    assert len(outputs_by_seed(code)) == 1
