"""Bytes per parameter of AdamW under seven policies: which tensors, in which dtype, add up to 8, 12, 16, 18 or 20."""

import sympy
import torch
from torch import nn

import symacct as sa


class MixedAdamW(torch.optim.Optimizer):
    """AdamW for weights in bfloat16 whose moments are float32, as people write it for themselves.

    ``master``: a float32 copy of the weights is updated, and rounded into them. ``main_grad``: gradients are
    added up in float32, "beside" the weights' own or "instead" of them (each is freed as soon as it was added).
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, master=True, main_grad=None):
        if main_grad not in (None, "beside", "instead"):
            raise ValueError(f"main_grad: expected None, 'beside' or 'instead', got {main_grad!r}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.steps = 0
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if master:
                    state["master"] = p.detach().to(torch.float32, copy=True)
                names = ("exp_avg", "exp_avg_sq") + (("main_grad",) if main_grad else ())
                state.update((name, torch.zeros_like(p, dtype=torch.float32)) for name in names)
                if main_grad:
                    p.register_post_accumulate_grad_hook(self._add_beside if main_grad == "beside" else self._add)

    @torch.no_grad()
    def _add_beside(self, p):
        self.state[p]["main_grad"].add_(p.grad)

    def _add(self, p):
        self._add_beside(p)
        p.grad = None

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                gradient = state["main_grad"] if "main_grad" in state else p.grad.float()
                weights = state.get("master", p)
                first = state["exp_avg"].lerp_(gradient, 1 - beta1)
                second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                scale = (second / (1 - beta2**self.steps)).sqrt_().add_(group["eps"])
                weights.mul_(1 - group["lr"] * group["weight_decay"])
                weights.sub_(scale.reciprocal_().mul_(first).mul_(group["lr"] / (1 - beta1**self.steps)))
                if "master" in state:
                    p.copy_(weights)
                if "main_grad" in state:
                    state["main_grad"].zero_()


def layers(D, K):
    """Two linear layers without biases: D*D + D*K parameters, float32."""
    return nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False))


def halved(D, K):
    """The same in bfloat16."""
    return layers(D, K).to(torch.bfloat16)


def mixed(**options):
    """A factory of the optimizer above."""
    return lambda params: MixedAdamW(params, **options)


POLICIES = {
    "float32": (layers, "f32[B, D]", {"optimizer": torch.optim.AdamW}),
    "autocast to bfloat16": (layers, "f32[B, D]", {"optimizer": torch.optim.AdamW, "autocast": "bf16"}),
    "bfloat16, all of it": (halved, "bf16[B, D]", {"optimizer": torch.optim.AdamW}),
    "bfloat16, float32 moments": (halved, "bf16[B, D]", {"optimizer": mixed(master=False)}),
    "... and float32 master": (halved, "bf16[B, D]", {"optimizer": mixed()}),
    "... and float32 gradients": (halved, "bf16[B, D]", {"optimizer": mixed(main_grad="instead")}),
    "... beside bfloat16 ones": (halved, "bf16[B, D]", {"optimizer": mixed(main_grad="beside")}),
}


def account(policy="... and float32 master"):
    """One training step of the two layers under a policy."""
    builder, spec, options = POLICIES[policy]
    return sa.trace(sa.build(builder), spec, loss=lambda y: (y.float() ** 2).mean(), **options)


def per_parameter(step):
    """(bytes per parameter, bytes beside that) of weights, gradients and optimizer state."""

    def divided(nbytes):
        rest = nbytes.subs(dict.fromkeys(nbytes.free_symbols, 0))
        return int(sympy.cancel((nbytes - rest) / step.params)), int(rest)

    return [divided(nbytes) for nbytes in (step.param_bytes, step.grad_bytes, step.optimizer_bytes)]


if __name__ == "__main__":
    print(f"{'bytes per parameter':26} weights  gradients  state  total")
    for policy in POLICIES:
        (weights, _), (gradients, _), (state, counters) = per_parameter(account(policy))
        line = f"{policy:26} {weights:7}  {gradients:9}  {state:5}  {weights + gradients + state:5}"
        print(line + (f"  and {counters} bytes of step counters" if counters else ""))
    print("The optimizer keeps the float32 gradients, so they are part of its state.")
