"""Real runs of training loops that are written out by hand, and what an account has otherwise than these.

What is measured and compared is `symacct.verify`: the profiler's allocator events, and the lifetimes in them. The
loops here are not symacct's own, so that what it takes a step to be is tested as well.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils import _pytree as pytree

from symacct.verify.allocations import courses
from symacct.verify.findings import DIFFERENT
from symacct.verify.memory import memory_part
from symacct.verify.operators import align, nodes_of, steps_of
from symacct.verify.profiled import Seen, point, profiled


@dataclass
class Run:
    """What the profiler saw of a run, and the bytes that were alive before it and are the optimizer's after it."""

    seen: Seen
    alive: int
    state: int = 0

    @property
    def steps(self):
        """The course of each step."""
        return courses(self.seen, {}, self.alive)


def compared(account, run, spare=0):
    """The part of a verification that is about memory, for an account at sizes and a run."""
    matched = {}
    for calls, nodes in zip(steps_of(run.seen), nodes_of(account.step.record), strict=False):
        matched |= align(calls, nodes).matched
    return memory_part(account, run.seen, matched, run.alive, run.state, spare=spare)


def differences(account, run, spare=0):
    """What differs between an account at given sizes and a real run, in words; nothing when all is equal.

    Equal to the byte: bytes at the start, at the end of the forward pass, at rest and at the peak, the optimizer's
    state, and every birth and death in order. Scratch and numbers stay within their bounds, to which ``spare`` bytes
    are added for each call of an operator in the table.
    """
    part = compared(account, run, spare)
    unequal = [figure for figure in part.figures if figure.verdict == DIFFERENT]
    assert part.holds == (not part.residuals)  # a figure that differs has a residual
    return [f"{f.name}: really {f.measured}, predicted {f.predicted}" for f in unequal] + list(map(str, part.residuals))


# -- real runs -------------------------------------------------------------------------


@contextmanager
def plain_kernels(threads=1, onednn=False):
    """PyTorch's own kernels, without oneDNN and NNPACK, in one thread: what they allocate depends on no machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.backends.mkldnn.flags(onednn, allow_tf32=None), torch.backends.nnpack.flags(onednn):
            yield
    finally:
        torch.set_num_threads(before)


def train(
    model, *args, loss=None, optimizer=None, autocast=None, accumulate=1, clip=None, set_to_none=True,
    keep_outputs=False, steps=2, kernels=plain_kernels, **kwargs,
):  # fmt: skip
    """Really run steps of training, each a call of a function, as sa.trace describes them; returns the `Run`.

    Points: "start" (after zero_grad), "forward" (of each micro-batch) and "end" (before the function returns).
    ``kernels`` makes a context.
    """
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    made = optimizer(parameters) if optimizer is not None else None

    def step():
        (made if made is not None else model).zero_grad(set_to_none=set_to_none)
        point("start")
        value = output = None
        for _ in range(accumulate):
            with torch.autocast("cpu", autocast) if autocast else nullcontext():
                output = model(*args, **kwargs)
                value = loss(output) if loss is not None else output.sum()
            if not keep_outputs:
                output = None
            point("forward")
            value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        if made is not None:
            made.step()
        point("end")

    def program():
        for n in range(steps):
            point(f"step {n + 1}")
            step()

    before = alive(model, args, kwargs, _state(made))
    with kernels():
        seen = profiled(program)
    return Run(seen, before, alive(_state(made)))


def infer(model, *args, autocast=None, **kwargs):
    """Really run inference, in a function that holds the output to its end."""
    model.eval()

    def program():
        point("step 1")
        point("start")
        with torch.no_grad(), torch.autocast("cpu", autocast) if autocast else nullcontext():
            output = model(*args, **kwargs)
        point("end")
        del output

    with plain_kernels():
        return Run(profiled(program), alive(model, args, kwargs))


def alive(*trees):
    """Bytes of the storages of tensors in modules and pytrees, shared ones once."""
    leaves = []
    for tree in trees:
        leaves += [*tree.parameters(), *tree.buffers()] if isinstance(tree, nn.Module) else pytree.tree_leaves(tree)
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in leaves if isinstance(t, torch.Tensor)}
    return sum(storage.nbytes() for storage in storages.values())


def _state(optimizer):
    """An optimizer's state. Adagrad makes it at once, most others in their first step."""
    return [list(state.values()) for state in optimizer.state.values()] if optimizer is not None else []
