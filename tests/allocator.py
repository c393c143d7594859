"""What the CPU allocator really did in a training step, from torch.profiler's allocator events, beside a prediction.

Three kinds of memory are told apart:

- *storages*: what tensors of the program rest on, also those that autograd's engine and the optimizer make.
  Their lifetimes are what symacct predicts, byte for byte;
- *scratch*: what an operator allocates and frees before it returns. No tensor that the program can see, so
  tensors without data cannot show it. `SCRATCH` is the table of all that is known, each with a bound;
- *numbers*: the tensor of at most 16 bytes that torch makes of a number among an operator's tensor operands,
  before any operator runs. Autograd keeps some of them until the backward pass.
"""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import torch
from torch import nn
from torch._C._profiler import _EventType, _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils import _pytree as pytree

from symacct.torch_private import decomposes

NUMBER = 16  # bytes of a number as a tensor of its own, or of that and its cast to another dtype

# -- what operators allocate and free --------------------------------------------------

SCRATCH = {}  # operator -> (bound in bytes of a `Call`, where its docstring says what is allocated)


def _allocates(*ops):
    """Enter a bound in the table under operators' names without overload."""

    def enter(bound):
        SCRATCH.update({f"aten::{op}": bound for op in ops})
        return bound

    return enter


def _nbytes(operand):
    shape, dtype = operand
    return math.prod(shape) * dtype.itemsize


def _in_place_too(*ops):
    return [name for op in ops for name in (op, f"{op}_")]


@_allocates(
    *_in_place_too("add", "sub", "mul", "div", "pow", "clamp_min", "addcmul", "addcdiv", "lerp", "masked_fill"),
    *("rsub", "eq", "ne", "lt", "gt", "le", "ge", "where", "maximum", "minimum"),
    *_in_place_too("_foreach_add", "_foreach_mul", "_foreach_div", "_foreach_sub", "_foreach_pow", "_foreach_lerp"),
)
def elementwise(call):
    """A number as a tensor and its cast; a copy, in the common dtype, of each operand that has another dtype."""
    tensors = [(shape, dtype) for shape, dtype in call.operands if shape]
    common = max((dtype for _, dtype in tensors), key=lambda d: (d.is_floating_point, d.itemsize), default=None)
    return NUMBER + sum(math.prod(shape) * common.itemsize for shape, dtype in tensors if dtype != common)


@_allocates("sum", "mean", "var", "cumsum", "all", "any")
def reduction(call):
    """For operands that are not float32 or wider: a copy in float32 (of integers in int64), and the result so."""
    shape, dtype = call.operands[0]
    exact = dtype.itemsize >= 4
    wide = 4 if dtype.is_floating_point else 8
    return NUMBER + (0 if exact else math.prod(shape) * wide + call.results * 2)


@_allocates("mm", "bmm", "addmm", "baddbmm", "mv", "addmv")
def product(call):
    """Copies of operands (and the result) whose strides the product cannot read, for one an expanded gradient."""
    return sum(map(_nbytes, call.operands)) + call.results


@_allocates("convolution")
def convolution(call):
    """The unfolded input ("im2col"): kernel elements times input channels for each place of the output; for groups
    and dilations also copies of operands and results."""
    (batch, channels, *_), dtype = call.operands[0]
    out, _, *kernel = call.operands[1][0]
    places = call.results // (batch * out * dtype.itemsize)
    columns = batch * channels * math.prod(kernel) * places * dtype.itemsize
    return columns + sum(map(_nbytes, call.operands)) + call.results


@_allocates("convolution_backward")
def convolution_backward(call):
    """The unfolded input, or its gradient, as in the forward pass; a copy of an expanded gradient; results."""
    (batch, _, *places), dtype = call.operands[0]
    channels, kernel = call.operands[1][0][1], call.operands[2][0][2:]
    columns = batch * channels * math.prod(kernel) * math.prod(places) * dtype.itemsize
    return columns + sum(map(_nbytes, call.operands)) + call.results


@_allocates("native_batch_norm")
def batch_norm(call):
    """A factor and an offset for each channel, in float32."""
    return 2 * 4 * call.operands[0][0][1]


@_allocates("native_batch_norm_backward")
def batch_norm_backward(call):
    """A copy of an expanded gradient; two sums for each channel, in float32."""
    return _nbytes(call.operands[0]) + 2 * 4 * call.operands[0][0][1]


@_allocates("native_layer_norm_backward")
def layer_norm_backward(call):
    """Sums for weight and bias for each thread, in float32; a copy of an expanded gradient."""
    gradient, rows = call.operands[0], math.prod(call.operands[2][0])
    return _nbytes(gradient) + 2 * 4 * call.threads * math.prod(gradient[0]) // rows


@_allocates("_softmax_backward_data", "_log_softmax_backward_data", "embedding_dense_backward", "avg_pool2d_backward")
def copies(call):
    """Copies of operands that are not contiguous (expanded gradients, strided indices)."""
    return sum(map(_nbytes, call.operands))


@_allocates("logsumexp")
def logsumexp(call):
    """The exponentials, and the largest of each."""
    return sum(map(_nbytes, call.operands)) + call.results


@_allocates("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
def losses(call):
    """The terms of the loss before they are summed, twice for binary cross-entropy."""
    return 2 * _nbytes(call.operands[0]) + NUMBER


@_allocates("sort")
def sort(call):
    """The values and positions of one row for each thread."""
    shape, dtype = call.operands[0]
    return call.threads * max(shape) * (dtype.itemsize + 8)


@_allocates("native_group_norm_backward")
def group_norm_backward(call):
    """Two sums for each channel of each sample, in float32; copies of expanded operands."""
    return sum(map(_nbytes, call.operands)) + 2 * 4 * math.prod(call.operands[0][0][:2])


@_allocates("_safe_softmax")
def safe_softmax(call):
    """Which elements are -inf, and which rows are so throughout, as bools."""
    shape, _ = call.operands[0]
    return math.prod(shape) + math.prod(shape[:-1]) + NUMBER


def _block(call):
    """Of attention: threads, rows and columns of scores that a thread works on, size of a head, dtype."""
    (query, dtype), (key, _) = call.operands[:2] if len(call.operands) < 5 else call.operands[1:3]
    return call.threads, min(query[-2], 256), min(key[-2], 512), query[-1], dtype


@_allocates("_scaled_dot_product_flash_attention_for_cpu")
def attention(call):
    """For each thread a block of scores (at most 256 x 512), of the result, and two numbers a row, in float32; for
    bfloat16 the scores again in that."""
    threads, rows, columns, head, dtype = _block(call)
    again = 2 * rows * columns if dtype.itemsize == 2 else 0
    return threads * (4 * (rows * columns + 2 * rows + rows * head) + again)


@_allocates("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(call):
    """For each thread two blocks of scores, in float32, and for bfloat16 again in that; a number for each row; a copy
    of an expanded gradient."""
    threads, rows, columns, _, dtype = _block(call)
    again = 4 * rows * columns if dtype.itemsize == 2 else 0
    return threads * (8 * rows * columns + again) + 4 * rows + _nbytes(call.operands[0])


# -- parts of a run --------------------------------------------------------------------


@dataclass
class Call:
    """One call of an operator: its tensor operands, the threads it had, bytes of its results, most scratch at once."""

    op: str
    operands: list[tuple[tuple[int, ...], torch.dtype]]
    threads: int = 1
    results: int = 0
    scratch: int = 0
    _now: int = 0

    def allocates(self, size):
        self._now += size
        self.scratch = max(self.scratch, self._now)

    @property
    def bound(self):
        """Bytes of scratch that the table allows; none for an operator that is not in it."""
        return SCRATCH[self.op](self) if self.op in SCRATCH else 0


@dataclass
class Part:
    """Allocator events between two points of the program."""

    name: str
    start: int = 0  # bytes alive when it began
    events: list[int] = field(default_factory=list)  # sizes of births, of deaths negative, in order
    callers: list[int | None] = field(default_factory=list)  # beside it: which call of an operator
    marks: dict[str, int] = field(default_factory=dict)  # how many events lie before a point
    calls: dict[int, Call] = field(default_factory=dict)
    numbers: int = 0  # most bytes at once of numbers that became tensors
    raw_peak: int = 0  # most bytes alive, with scratch and numbers

    def at(self, mark):
        """Bytes alive at a point."""
        return self.start + sum(self.events[: self.marks[mark]])

    @property
    def end(self):
        """Bytes alive at the end of the part."""
        return self.start + sum(self.events)

    @property
    def peak(self):
        """Most bytes alive, without scratch and numbers, after `zero_grad`."""
        total = peak = self.at("zeroed")
        for event in self.events[self.marks["zeroed"] :]:
            total += event
            peak = max(peak, total)
        return peak

    @property
    def sequence(self):
        """Births and deaths between the points "zeroed" and "end", as `predicted` gives them."""
        first, last = self.marks["zeroed"], self.marks["end"]
        return _sequence(self.events[first:last], self.callers[first:last])


def _sequence(events, callers):
    """Births and deaths in order; those whose order is left to chance by size; nothing after the last birth.

    A kernel makes its results in any order, and autograd lets go of what a node kept in any order: births of one
    call, and deaths with no birth between them, are sorted. Neither moves a highest or lowest point of memory.
    """
    found, before = [], None
    for event, caller in zip(events, callers, strict=True):
        kind = "death" if event < 0 else caller
        if kind is not None and kind == before:
            found[-1].append(event)
        else:
            found.append([event])
        before = kind
    if before == "death":
        found.pop()
    return [e for group in found for e in sorted(group)]


def predicted(timeline):
    """The same from a timeline of symacct: bytes at its start, and the sequence of births and deaths."""
    sizes, record = timeline.storages.numbers, timeline.storages.record
    alive = timeline.alive_at(0)
    start = sum(sizes[s] for s in alive)
    written = _written_numbers(record, sizes)
    events, callers = [], []
    for event in (event for _, event in timeline.running() if event is not None):
        number = max(event, ~event)
        if (event >= 0) == (number in alive) or not sizes[number] or number in written:
            continue
        (alive.add if event >= 0 else alive.discard)(number)
        storage = record.storages[number]
        made = storage.node is not None and record.values[storage.value].origin == ""
        events.append(sizes[number] if event >= 0 else -sizes[number])
        callers.append(id(storage.node) if made else None)
    return start, _sequence(events, callers)


def _written_numbers(record, sizes):
    """Numbers that are written into a tensor (``x[mask] = 1.0``): really, no operator makes tensors of them."""
    nodes = sorted((*record.nodes, *record.aside), key=lambda node: node.clock)
    acting = [node for node in nodes if node.op not in ("aten.select.int", "aten.slice.Tensor")]
    writing = ("aten.index_put_.default", "aten.fill_.Tensor")
    fresh = [a for a, b in pairwise(acting) if a.op == "aten.lift_fresh.default" and b.op in writing]
    return {value.storage for node in fresh for value in node.outputs if sizes[value.storage] <= NUMBER}


def differences(account, parts, state=0, spare=0):
    """What differs between an account at given sizes and the parts of a real run, in words; nothing when all is equal.

    Equal to the byte: bytes at the start, at the end of the forward pass, at rest and at the peak, the optimizer's
    state, and every birth and death in order. Scratch and numbers stay within their bounds, to which ``spare`` bytes
    are added for each call of an operator in the table.
    """
    memory, found = account.memory, []

    def equal(what, real, ours):
        if real != ours:
            found.append(f"{what}: really {real}, predicted {ours}")

    equal("optimizer state", state, account.optimizer_bytes)
    for part, timeline in zip(parts, (memory.first, memory.later), strict=False):
        start, sequence = predicted(timeline)
        equal(f"{part.name}, start", part.at("zeroed"), start)
        equal(f"{part.name}, peak", part.peak, timeline.peak.nbytes)
        equal(f"{part.name}, at rest", part.end, memory.rest_bytes + account.input_bytes)
        if "forward" in part.marks:
            equal(f"{part.name}, end of forward", part.at("forward"), timeline.after("forward"))
        if part.sequence != sequence:
            found.append(f"{part.name}: {_first_difference(part.sequence, sequence)}")
        found += unexplained(part, timeline.peak.nbytes, account, spare)
    return found


def _first_difference(real, ours):
    same = next((i for i, (a, b) in enumerate(zip(real, ours, strict=False)) if a != b), min(len(real), len(ours)))
    window = slice(max(same - 3, 0), same + 6)
    return (
        f"{len(real)} births and deaths, predicted {len(ours)}; differ at {same}: {real[window]}, "
        f"predicted {ours[window]}"
    )


def unexplained(part, peak, account, spare=0):
    """Scratch and numbers beyond their bounds, in words."""
    calls = [(call, call.bound + spare * (call.op in SCRATCH)) for call in part.calls.values() if call.scratch]
    found = [
        f"{part.name}: {call.op} on {call.operands} allocated {call.scratch} bytes of scratch, allowed {bound}"
        for call, bound in calls
        if call.scratch > bound
    ]
    numbers = NUMBER * numbers_in(account)
    if part.numbers > numbers:
        found.append(f"{part.name}: numbers took {part.numbers} bytes, allowed {numbers}")
    most = max((bound for _, bound in calls), default=0)
    if not peak <= part.raw_peak <= peak + most + numbers:
        found.append(f"{part.name}: the allocator's peak {part.raw_peak} lies outside {peak} + {most} + {numbers}")
    return found


def numbers_in(account):
    """How many calls of an account have a number where the operator has a tensor, or write one into a tensor."""
    record = account.step.record
    return sum(_takes_number(node) for node in (*record.nodes, *record.aside))


def _takes_number(node):
    if node.op in ("aten.lift_fresh.default", "aten.fill_.Scalar", "aten.where.self"):
        return True
    return any(isinstance(node.args[i], (int, float)) for i in _tensor_positions(node.func) if i < len(node.args))


@cache
def _tensor_positions(func):
    return [i for i, argument in enumerate(func._schema.arguments) if str(argument.type) == "Tensor"]


# -- measuring -------------------------------------------------------------------------


def measure(program, start):
    """Run ``program(point)`` under the profiler, where ``point(name)`` starts a part named "step..." or marks a point.

    ``start`` is the bytes alive before. Returns the parts in order.
    """
    enabled = gc.isenabled()
    gc.disable()  # collected cycles would free tensors at chance moments
    try:
        with profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True,
            experimental_config=_ExperimentalConfig(capture_overload_names=True),
        ) as profiler:  # fmt: skip
            program(lambda name: record_function(f"## {name}").__enter__().__exit__(None, None, None))
    finally:
        if enabled:
            gc.enable()
    roots = profiler.profiler.kineto_results.experimental_event_tree()
    return _parts(_flat(roots), start)


@dataclass
class _Seen:
    """An allocator event (``size`` not 0), or a point of the program (``size`` 0, ``op`` its name)."""

    time: int
    op: str
    call: int | None = None  # which call of a recorded operator it belongs to
    operands: tuple = ()
    size: int = 0
    ptr: int = 0


def _flat(roots):
    """Allocator events and points, in the order in which they happened."""
    found = []
    stack = [(event, None) for event in roots]
    while stack:
        event, owner = stack.pop()
        if event.tag == _EventType.Allocation:
            extra = event.extra_fields
            if extra.device.type == "cpu" and extra.alloc_size:
                call = (owner.name, owner.id, owner.extra_fields.inputs) if owner is not None else ("", None, ())
                found.append(_Seen(event.start_time_ns, *call, extra.alloc_size, extra.ptr))
            continue
        if event.name.startswith("## "):
            found.append(_Seen(event.start_time_ns, event.name[3:]))
        elif owner is None and _is_recorded(event) and not _wraps(event):
            owner = event
        stack += [(child, owner) for child in event.children]
    return sorted(found, key=lambda seen: seen.time)


def _is_recorded(event):
    """Whether an event is a call of an operator that symacct records."""
    return event.tag == _EventType.TorchOp and _recorded(event.name, event.overload_name)


@cache
def _recorded(name, overload):
    """Whether an operator is a real one, not made of others."""
    space, _, op = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), op, None) if op and space in ("aten", "symacct") else None
    return packet is not None and not decomposes(getattr(packet, overload or "default"))


def _wraps(event):
    """Whether a call only casts its operands, as autocast does, and then calls the same operator."""
    same = (event.name, event.overload_name)
    return any(c.tag == _EventType.TorchOp and (c.name, c.overload_name) == same for c in event.children)


def _kinds(flat):
    """Which events are scratch, and which are numbers, by position."""
    born, died = {}, {}
    for i, seen in enumerate(flat):
        if seen.size > 0:
            born[seen.ptr] = i
        elif seen.size < 0 and seen.ptr in born:
            died[born.pop(seen.ptr)] = i
    scratch, numbers = set(), set()
    for i, seen in enumerate(flat):
        if seen.size > 0:
            end = died.get(i)
            if seen.call is not None and end is not None and flat[end].call == seen.call:
                scratch |= {i, end}
            elif seen.call is None and seen.size <= NUMBER:
                numbers |= {i, end}
    return scratch, numbers


def _parts(flat, start):
    scratch, numbers = _kinds(flat)
    threads = torch.get_num_threads()
    parts = [Part("before", start)]
    raw, held = start, 0
    for i, seen in enumerate(flat):
        part = parts[-1]
        if not seen.size:
            if seen.op.startswith("step"):
                parts.append(Part(seen.op, part.end))
            else:
                part.marks[seen.op] = len(part.events)
                part.raw_peak = raw if seen.op == "zeroed" else part.raw_peak
            continue
        raw += seen.size
        part.raw_peak = max(part.raw_peak, raw)
        call = None
        if seen.call is not None:
            call = part.calls.setdefault(seen.call, Call(seen.op, _tensors_of(seen.operands), threads))
        if i in scratch:
            call.allocates(seen.size)
        elif i in numbers:
            held += seen.size
            part.numbers = max(part.numbers, held)
        else:
            part.events.append(seen.size)
            part.callers.append(seen.call)
            if call is not None and seen.size > 0:
                call.results += seen.size
    return parts[1:]


def _tensors_of(operands):
    """(shape, dtype) of an operator's tensors, those in lists too."""
    flat = [t for each in operands for t in (each if isinstance(each, list) else [each])]
    return [(tuple(t.sizes), t.dtype) for t in flat if hasattr(t, "sizes")]


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
    """Really run steps of training, each a call of a function, as sa.trace describes them.

    Returns the parts, and the bytes of the optimizer's state. Points: "zeroed" (after zero_grad), "forward" (of the
    last micro-batch) and "end" (before the function returns). ``kernels`` makes a context.
    """
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    made = optimizer(parameters) if optimizer is not None else None

    def step(point):
        (made if made is not None else model).zero_grad(set_to_none=set_to_none)
        point("zeroed")
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

    def program(point):
        for n in range(steps):
            point(f"step {n + 1}")
            step(point)

    with kernels():
        parts = measure(program, alive(model, args, kwargs, _state(made)))
    return parts, alive(_state(made))


def infer(model, *args, autocast=None, **kwargs):
    """Really run inference, in a function that holds the output to its end; returns its one part."""
    model.eval()

    def program(point):
        point("step 1")
        point("zeroed")
        with torch.no_grad(), torch.autocast("cpu", autocast) if autocast else nullcontext():
            output = model(*args, **kwargs)
        point("end")
        del output

    with plain_kernels():
        return measure(program, alive(model, args, kwargs))


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
