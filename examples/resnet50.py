"""ResNet-50 from torchvision, unmodified: its sizes stay numbers, only the batch is a dim."""

from torchvision.models import resnet50

import symacct as sa

model = resnet50()


def account():
    """One training step on B images; without a loss of its own, the sum of the logits is the loss."""
    return sa.trace(model, "B 3 224 224")


if __name__ == "__main__":
    step = account()
    print("forward   ", step.forward)
    print("backward  ", step.backward)
    print("parameters", sa.formula(step.params))
    for name, part in step.by_module(depth=1, phase="forward").items():
        if part.flops:
            print(f"  {name:8}", part)
