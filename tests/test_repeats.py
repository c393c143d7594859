"""Equal blocks of a model that was traced at one depth are one row, with their number, proven equal by their costs."""

import sympy
import torch
from torch import nn

import symacct as sa
from symacct.dim import symbol

B, D = map(symbol, ("B", "D"))


class Block(nn.Module):
    """Two layers, the second in a list of its own."""

    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Linear(d, hidden)
        self.rest = nn.ModuleList([nn.Linear(hidden, d)])

    def forward(self, x):
        return self.rest[0](torch.relu(self.up(x)))


def net(*hidden):
    """Blocks of given hidden sizes, as multiples of D, and a module after them, so that the last is like the others."""
    return sa.build(lambda D: nn.Sequential(*(Block(D, h * D) for h in hidden), nn.Tanh()))


def blocks(account):
    """The names of the blocks' rows."""
    return [name for name in account.by_module(1, repeats=True) if name and not name.startswith("(")][:-1]


def test_equal_blocks_are_one_row():
    """Blocks with equal costs stand under one name with their number, and the groups still add up to the total."""
    account = sa.trace(net(4, 4, 4, 4), "B D", grad=True)
    modules = account.by_module(1, repeats=True)
    assert "0-3" in modules
    assert modules["0-3"].times == 4
    assert modules["0-3"].flops == sympy.expand(4 * 3 * 16 * B * D**2)
    assert sum(m.flops for m in modules.values()) == account.total.flops
    assert account.by_module(1)["2"].flops == sympy.expand(3 * 16 * B * D**2)


def test_a_block_that_costs_more_stands_apart():
    """Blocks are merged where their costs are equal, whatever their names say."""
    account = sa.trace(net(4, 4, 8, 4, 4), "B D", grad=True)
    assert blocks(account) == ["0-1", "2", "3-4"]


def test_the_first_block_without_an_input_gradient_stands_apart():
    """Without a gradient of the input, the first block's backward pass is shorter, and so it is not equal."""
    account = sa.trace(net(4, 4, 4), "B D")
    assert blocks(account) == ["0", "1-2"]


def test_blocks_within_blocks():
    """Repeats within repeats are the product of their numbers."""

    def nested(D):
        return nn.Sequential(*(nn.Sequential(*(nn.Linear(D, D) for _ in range(3))) for _ in range(2)), nn.Tanh())

    account = sa.trace(sa.build(nested), "B D", grad=True)
    modules = account.by_module(2, repeats=True)
    assert modules["0-1.0-2"].times == 6
    assert modules["0-1.0-2"].flops == sympy.expand(6 * 6 * B * D**2)


def test_the_report_shows_a_block_once():
    """In tables a block's formula stands once, times how many there are."""
    report = sa.trace(net(4, 4, 4, 4), "B D", grad=True, train=False).report(1)
    assert "0-3" in report
    assert "4*16*B*D**2" in report
    assert "\n 1 " not in report
