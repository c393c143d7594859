"""A deep linear network, the "Cruncher": LAYERS square layers and a head that gives one number for each row."""

import torch
from torch import nn

import symacct as sa

LAYERS = 2


class Cruncher(nn.Module):
    """D -> D -> ... -> D -> 1, without biases and without nonlinearities."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x).squeeze(-1)


model = sa.build(lambda D: Cruncher(D, LAYERS))


def account():
    """One training step with AdamW, loss = mean of squares."""
    return sa.trace(model, "B D", loss=lambda y: (y**2).mean(), optimizer=torch.optim.AdamW)


if __name__ == "__main__":
    step = account()
    print("forward        ", step.forward)
    print("backward       ", step.backward)
    print("parameters     ", sa.formula(step.params))
    print("optimizer bytes", sa.formula(step.optimizer_bytes))
    small = step.at(B=8, D=64)
    print("at B=8, D=64   ", small.forward, "and", small.backward, "for", sa.formula(small.params), "parameters")
