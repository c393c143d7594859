"""Two linear layers, as on the blackboard: x (B, D) times w1 (D, D) times w2 (D, K), loss = mean of squares."""

from torch import nn

import symacct as sa

model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))


def account(**options):
    """One training step; ``grad=True`` asks for the gradient of x too."""
    return sa.trace(model, "B D", loss=lambda y: (y**2).mean(), **options)


if __name__ == "__main__":
    step = account()
    print("forward           ", step.forward)
    print("backward, x data  ", step.backward)
    print("backward, x learnt", account(grad=True).backward)
    print("pointwise         ", sa.formula(step.forward.pointwise), "and", sa.formula(step.backward.pointwise))
    print("parameters        ", sa.formula(step.params))
    print("forward at B=16384, D=32768, K=8192:", step.at(B=16384, D=32768, K=8192).forward)
