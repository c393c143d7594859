"""Targets for the tests of the command line."""

import torch
from torch import nn

from symacct import Rules, trace


class Net(nn.Module):
    """Two layers of width 4*D and K."""

    def __init__(self, D, K):
        super().__init__()
        self.up = nn.Linear(D, 4 * D)
        self.down = nn.Linear(4 * D, K)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


@torch.library.custom_op("symacct_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    """An op that nobody wrote a rule for."""
    return x.clone()


@mystery.register_fake
def _(x):
    return torch.empty_like(x)


net = Net(8, 4)
number = 3
more = Rules("tests")
more.elementwise(2, "symacct_tests.mystery")


def matmul(x, w):
    return x @ w


def odd(x):
    return mystery(x) + 1


def loop(x):
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def pick(x):
    return x[x > 0].sum()


def attend(x):
    """Attention of a sequence to itself."""
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def squares(y):
    return (y**2).mean()


def account():
    return trace(matmul, "B D", "D K")


def made():
    return net


wrong_rules = Rules("wrong")


@wrong_rules.flops("aten.mm", "m k, k n -> m n")
def three(m, k, n):
    """Three FLOP per multiply-add, which no convention has."""
    return 3 * m * k * n
