"""The dataflow graph: costs that add up, edges that are there, files that read back, critical paths and cuts."""

import io
import itertools
import json
import math
import random

import networkx as nx
import pytest
import sympy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import symacct as sa
from symacct.calls import bind_arguments
from symacct.dataflow import critical_path, crossing, to_networkx, write_graph
from symacct.dim import symbol
from symacct.errors import DeviceError, MissingSizeError, SpecError, StructuralError
from symacct.record import values_in

H100 = sa.device("h100")
MEASURES = ("flops", "pointwise", "bytes_read", "bytes_written")


class Residual(nn.Module):
    """Two branches, work in place, dropout, views, and a checkpoint."""

    def __init__(self, D):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(D, D), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.right = nn.Linear(D, D, bias=False)
        self.last = nn.Linear(D, D)

    def forward(self, x):
        y = self.left(x) + self.right(x).view(x.shape[0], -1)
        return checkpoint(self.last, y, use_reentrant=False)


class Tied(nn.Module):
    """An embedding whose table is the head's too."""

    def __init__(self, V, D):
        super().__init__()
        self.table = nn.Embedding(V, D)
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.norm(self.table(tokens)))


def two_blocks():
    """Blocks in a row, so that what leaves one is known."""
    return sa.build(lambda D: nn.Sequential(*[nn.Linear(D, D, bias=False) for _ in range(3)]))


MODELS = {
    "residual": (lambda: sa.trace(sa.build(Residual), "B D", optimizer=torch.optim.AdamW), {"B": 6, "D": 16}),
    "tied": (lambda: sa.trace(sa.build(Tied), "i64[B, L]"), {"B": 2, "L": 5, "V": 30, "D": 8}),
    "micro-batches": (
        lambda: sa.trace(two_blocks(), "B D", optimizer=torch.optim.SGD, accumulate=2, set_to_none=False, clip=1.0),
        {"B": 6, "D": 16},
    ),
    "inference": (lambda: sa.trace(sa.build(Residual), "B D", train=False), {"B": 6, "D": 16}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """An account and sizes for it."""
    make, sizes = MODELS[request.param]
    return make(), sizes


@pytest.fixture(scope="module")
def blocks():
    """The account of three layers, without an optimizer."""
    return sa.trace(two_blocks(), "B D")


def parsed(text):
    """A formula's text as an expression over the account's symbols."""
    return sympy.sympify(text, locals={name: symbol(name) for name in ("B", "L", "D", "V", "K", "N", "S", "H")})


def ops(graph):
    """The attributes of the nodes that are ops, in order."""
    return [data for _, data in graph.nodes(data=True) if data["kind"] == "op"]


def last_writer(record, reader, value):
    """The last node before a reader that made a tensor or wrote its storage in place; -1 for none. The slow way."""
    for node in reversed(record.nodes[:reader]):
        mutated = [
            each
            for name in record.calls[node.call].mutated
            for each in values_in(bind_arguments(node.func, node.args, node.kwargs)[name])
        ]
        if any(made.id == value.id for made in values_in(node.outputs)):
            return node.index
        if any(written.storage == value.storage for written in mutated):
            return node.index
    return -1


def dependencies(record):
    """(maker, reader) of each tensor that a node reads, found by looking back from every reader."""
    return {
        (last_writer(record, node.index, value), node.index)
        for node in record.nodes
        for value in values_in((node.args, node.kwargs))
    }


# -- the graph -------------------------------------------------------------------------


def test_costs_of_nodes_add_up_to_the_account(model):
    """The formulas of the nodes add up to the account's totals, and the numbers to those at sizes."""
    account, sizes = model
    graph, there = to_networkx(account), to_networkx(account.at(**sizes))
    for measure in MEASURES:
        total = sum((parsed(data[f"{measure}_formula"]) for data in ops(graph)), sympy.Integer(0))
        assert sympy.expand(total - getattr(account.total, measure)) == 0
        assert sum(data[measure] for data in ops(there)) == getattr(account.at(**sizes).total, measure)
        assert all(measure not in data for data in ops(graph))


def test_bytes_kept_add_up_to_the_activations(model):
    """What nodes keep for the backward pass is the account's activation_bytes."""
    account, sizes = model
    kept = [parsed(data["kept_bytes_formula"]) for data in ops(to_networkx(account)) if "kept_bytes_formula" in data]
    assert sympy.expand(sum(kept, sympy.Integer(0)) - account.activation_bytes) == 0
    numbers = [data.get("kept_bytes", 0) for data in ops(to_networkx(account.at(**sizes)))]
    assert sum(numbers) == account.at(**sizes).activation_bytes
    assert bool(kept) == account.step.trained


def test_nodes_are_those_of_the_account(model):
    """Op nodes are named in graph order and say what `Account.nodes` says."""
    account, _ = model
    graph = to_networkx(account)
    names = [name for name, data in graph.nodes(data=True) if data["kind"] == "op"]
    assert names == [f"n{i}" for i in range(len(account.nodes))]
    for node, data in zip(account.nodes, ops(graph), strict=True):
        assert (data["op"], data["phase"], data["module"]) == (node.op, node.phase, node.path)
        assert data["source"] == node.source
        assert data["known"]


def test_edges_are_the_dependencies(model):
    """There is an edge where a node reads what another one made or last wrote, and there are no cycles."""
    account, _ = model
    graph = to_networkx(account)
    assert nx.is_directed_acyclic_graph(graph)
    order = {name: i for i, name in enumerate(graph)}
    assert all(order[tail] < order[head] for tail, head in graph.edges)
    found = {(int(t[1:]) if t[0] == "n" else -1, int(h[1:])) for t, h in graph.edges}
    assert found == dependencies(account.step.record)


def test_tensors_from_outside_have_their_kinds(model):
    """Each parameter that is used stands in the graph once, with its name, shape and bytes; so do inputs."""
    account, sizes = model
    outside = [data for _, data in to_networkx(account.at(**sizes)).nodes(data=True) if data["kind"] != "op"]
    parameters = {data["name"]: data["nbytes"] for data in outside if data["kind"] == "parameter"}
    assert set(parameters) == {held.name for held in account.step.parameters}
    assert sum(parameters.values()) == account.at(**sizes).param_bytes
    assert sum(data["nbytes"] for data in outside if data["kind"] == "input") <= account.at(**sizes).input_bytes
    state = sum(data["nbytes"] for data in outside if data["kind"] == "optimizer state")
    assert state == account.at(**sizes).optimizer_bytes


def test_what_flows_is_on_the_edges():
    """An edge has the shape and the bytes of what goes over it, a tensor that is read twice by a node once."""
    account = sa.trace(lambda x, w: (x @ w) * (x @ w).relu() + x, "B D", "D D", train=False)
    graph = to_networkx(account)
    mm, other, relu, times, _ = (f"n{i}" for i in range(5))
    product = {"tensors": 1, "shape": "f32[B, D]", "nbytes_formula": "4*B*D"}
    assert graph.edges[other, relu] == graph.edges[mm, times] == product
    assert to_networkx(sa.trace(lambda x: x * x, "B D", train=False)).edges["t0", "n0"]["tensors"] == 1
    stacked = to_networkx(sa.trace(lambda x: torch.cat(x.split(4, 1)), "B 8", train=False)).edges["n0", "n1"]
    assert stacked == {"tensors": 2, "shape": "f32[B, 4]; f32[B, 4]", "nbytes_formula": "32*B"}


def test_attributes_are_plain(model):
    """Every attribute is str, int, float or bool, so that any format can hold it."""
    account, sizes = model
    graph = to_networkx(account.at(**sizes), "h100")
    parts = [graph.graph, *(d for _, d in graph.nodes(data=True)), *(d for _, _, d in graph.edges(data=True))]
    assert {type(value) for data in parts for value in data.values()} <= {str, int, float, bool}
    assert graph.graph["sizes"] == ", ".join(f"{n}={sizes[n]}" for n in account.dims)
    assert graph.graph["device"] == "H100-SXM5-80GB"


def test_seconds_add_up_to_the_roofline(model):
    """The least times of the nodes add up to the roofline's total, in formulas too."""
    account, sizes = model
    there = account.at(**sizes)
    found = math.fsum(data["seconds"] for data in ops(to_networkx(there, "h100")))
    assert math.isclose(found, there.roofline("h100").total.seconds, rel_tol=1e-12)
    formulas = [parsed(data["seconds_formula"]) for data in ops(to_networkx(account, H100))]
    at = {symbol(name): size for name, size in sizes.items()}
    assert math.isclose(sum(float(each.subs(at)) for each in formulas), found, rel_tol=1e-12)


def test_a_device_that_cannot_is_refused():
    """A dtype that a device has no peak for is the roofline's error."""
    account = sa.trace(lambda x, w: x @ w, "f64[B, D]", "f64[D, D]", train=False)
    lacking = next(d for d in sa.devices().values() if "float64" not in d.flops_per_s)
    with pytest.raises(DeviceError, match=r"aten\.mm\.default in the top level"):
        to_networkx(account, lacking)


def test_a_node_without_a_rule_has_no_amounts():
    """Unknown is not 0: such a node says that it is not known, and nothing else of its cost."""
    account = sa.trace(lambda x, w: x @ w, "B D", "D D", train=False, rules=sa.Rules("none"))
    (data,) = ops(to_networkx(account.at(B=2, D=3), "h100"))
    assert not data["known"]
    assert set(data) == {"kind", "op", "phase", "module", "source", "shape", "known"}


def test_a_convention_counts_in_the_graph(blocks):
    """Under a convention the FLOP of the nodes are its own, and times stay those of what runs."""
    palm = blocks.under("palm").at(B=4, D=8)
    data = ops(to_networkx(palm, "h100"))
    assert sum(each["flops"] for each in data) == palm.total.flops != blocks.at(B=4, D=8).total.flops
    assert math.isclose(sum(each["seconds"] for each in data), palm.roofline("h100").total.seconds, rel_tol=1e-12)


def test_an_account_without_dims_is_in_numbers():
    """Where nothing is symbolic there are numbers without sizes."""
    account = sa.trace(nn.Linear(3, 4), "2 3", train=False)
    assert sum(data["flops"] for data in ops(to_networkx(account))) == 2 * 2 * 3 * 4
    assert critical_path(account, "h100").share == 1


def test_a_depth_needs_its_size():
    """With a symbolic depth the graph is there at sizes, and equals the unrolled one; without them it is refused."""
    deep = sa.trace(sa.build(lambda D, N: nn.Sequential(*(nn.Linear(D, D) for _ in range(N))), depth="N"), "B D")
    with pytest.raises(StructuralError, match=r"unrolled\(N="):
        to_networkx(deep)
    graph = to_networkx(deep.at(B=4, D=8, N=5))
    assert graph.graph["sizes"] == "D=8, B=4, N=5"
    assert sum(data["flops"] for data in ops(graph)) == deep.at(B=4, D=8, N=5).total.flops
    assert "N=5" in str(critical_path(deep.at(B=4, D=8, N=5), "h100")).splitlines()[1]
    assert len(crossing(deep.at(B=4, D=8, N=5), "3")) == len(crossing(deep.unrolled(N=5), "3")) == 2


# -- files -----------------------------------------------------------------------------


def same(a, b):
    """Whether two graphs have the same nodes and edges with the same attributes, in order."""
    return (
        list(a.nodes(data=True)) == list(b.nodes(data=True))
        and list(a.edges(data=True)) == list(b.edges(data=True))
        and a.graph == {k: v for k, v in b.graph.items() if k not in ("node_default", "edge_default")}
    )


def test_files_read_back(model, tmp_path):
    """GraphML and JSON, written by networkx or by symacct, read back equal."""
    account, sizes = model
    for at in (account, account.at(**sizes)):
        graph = to_networkx(at, "a100-sxm4-80gb")
        written = io.BytesIO()
        nx.write_graphml(graph, written)
        written.seek(0)
        assert same(graph, nx.read_graphml(written))
        assert same(graph, nx.node_link_graph(json.loads(json.dumps(nx.node_link_data(graph)))))
        for suffix in ("graphml", "JSON"):
            write_graph(at, tmp_path / f"step.{suffix}", "a100-sxm4-80gb")
        assert same(graph, nx.read_graphml(tmp_path / "step.graphml"))
        assert same(graph, nx.node_link_graph(json.loads((tmp_path / "step.JSON").read_text())))


def test_large_numbers_keep_their_digits(tmp_path):
    """Beyond 64 bits JSON has the number, and GraphML the same digits as text in all nodes."""
    account = sa.trace(lambda x, w: (x @ w).relu(), "B D", "D D", train=False).at(B=2**40 + 1, D=2**20)
    flops = 2 * (2**40 + 1) * 2**40
    assert flops > 2**63
    for suffix in ("graphml", "json"):
        write_graph(account, tmp_path / f"step.{suffix}")
    read = nx.read_graphml(tmp_path / "step.graphml")
    assert [data["flops"] for data in ops(read)] == [str(flops), "0"]
    assert all(isinstance(data["pointwise"], int) for data in ops(read))
    document = json.loads((tmp_path / "step.json").read_text())
    assert [data["flops"] for data in document["nodes"] if data["kind"] == "op"] == [flops, 0]
    assert [type(data["flops"]) for data in ops(to_networkx(account))] == [int, int]


def test_names_of_all_kinds_survive(tmp_path):
    """Quotes, brackets, backslashes and Greek letters read back; what XML cannot hold stands escaped."""
    names = ['say "hi"', "<b>&amp;</b>", "{a|b}", "back\\slash", "λ→π", "line\nbreak", "bell\a", "it's"]

    class Named(nn.ModuleDict):
        def __init__(self, D):
            super().__init__({name: nn.Linear(D, D) for name in names})

        def forward(self, x):
            for layer in self.values():
                x = layer(x)
            return x

    account = sa.trace(sa.build(Named), "B D", train=False)
    graph = to_networkx(account)
    write_graph(account, tmp_path / "step.graphml")
    assert same(graph, nx.read_graphml(tmp_path / "step.graphml"))
    modules = list(dict.fromkeys(data["module"] for data in ops(graph)))
    assert modules == [name.replace("\n", "\\n").replace("\a", "\\x07") for name in names]


def test_files_are_whole_or_refused(blocks, tmp_path):
    """A wrong suffix, a missing folder or a missing depth is one line, and leaves what was there."""
    with pytest.raises(SpecError, match=r"model.dot ends in .dot; the forms are .graphml and .json"):
        write_graph(blocks, tmp_path / "model.dot")
    with pytest.raises(SpecError, match="ends in nothing"):
        write_graph(blocks, tmp_path / "model")
    with pytest.raises(SpecError, match="there is no folder"):
        write_graph(blocks, tmp_path / "none" / "model.json")
    (tmp_path / "model.json").write_text("kept")
    with pytest.raises(DeviceError):
        write_graph(blocks, tmp_path / "model.json", "no such device")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    assert (tmp_path / "model.json").read_text() == "kept"


def test_output_is_byte_stable(outputs_by_seed, tmp_path):
    """Processes with other hashes write the same bytes, and report the same path and cut."""
    code = f"""
import hashlib, torch, symacct as sa
from torch import nn
from symacct.dataflow import critical_path, crossing, write_graph
model = sa.build(lambda D: nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)))
account = sa.trace(model, "B D", optimizer=torch.optim.AdamW, check=False).at(B=8, D=32)
for suffix in (".graphml", ".json"):
    path = {str(tmp_path)!r} + "/step" + suffix
    write_graph(account, path, "h100")
    print(hashlib.sha256(open(path, "rb").read()).hexdigest())
print(critical_path(account, "h100"), crossing(account, "forward"), crossing(account, "0"))
"""
    assert len(outputs_by_seed(code)) == 1


# -- critical paths --------------------------------------------------------------------


def random_program(seed):
    """A function of two tensors: a random tangle of products, arithmetic, views and work in place."""

    def program(x, w):
        dice = random.Random(seed)
        made = [x * 2, w + 1]
        for _ in range(8):
            a, b = dice.choice(made), dice.choice(made)
            made.append(
                dice.choice([
                    lambda a, b: a @ b, lambda a, b: a + b, lambda a, b: a.relu(), lambda a, b: a.t(),
                    lambda a, b: a.add_(b), lambda a, b: a[:2].mul_(2).sum() * b, lambda a, b: torch.cat([a, b])[:16],
                ])(a, b)
            )  # fmt: skip
        return made[-1]

    return program


@pytest.fixture(scope="module", params=range(12))
def tangle(request):
    """The account of a random program, at sizes."""
    return sa.trace(random_program(request.param), "16 16", "16 16", train=False, check=False).at()


def seconds_of(node):
    """The least time of a node, from its cost alone."""
    return max(
        node.flops / H100.peak("float32"),
        node.pointwise / H100.vector_flops_per_s,
        node.bytes / H100.bytes_per_s,
    )


def test_critical_paths_are_the_longest_of_all(tangle):
    """Of all chains of dependent nodes, walked one by one, none takes longer; the chain is one of them."""
    nodes = tangle.nodes
    readers = {}
    for maker, reader in sorted(dependencies(tangle.step.record)):
        readers.setdefault(maker, []).append(reader)

    def longest(index):
        return seconds_of(nodes[index]) + max((longest(reader) for reader in readers.get(index, [])), default=0)

    path = critical_path(tangle, "h100")
    assert math.isclose(path.seconds, max(longest(node.index) for node in nodes), rel_tol=1e-12)
    for maker, reader in itertools.pairwise(path.nodes):
        assert reader.index in readers[maker.index]
    assert path.seconds <= tangle.roofline("h100").total.seconds * (1 + 1e-12)
    assert math.isclose(path.total_seconds, tangle.roofline("h100").total.seconds, rel_tol=1e-12)


def test_a_chain_is_all_critical():
    """Where each op waits for the one before, the path takes as long as all."""
    account = sa.trace(lambda x, w: ((x @ w).relu() @ w).exp(), "B D", "D D", train=False).at(B=64, D=64)
    path = critical_path(account, H100)
    assert [node.op for node in path.nodes] == [node.op for node in account.nodes]
    assert math.isclose(path.seconds, account.roofline("h100").total.seconds, rel_tol=1e-12)
    assert path.share == pytest.approx(1)


def test_branches_run_beside_each_other():
    """Of two branches the slower one is critical, and the report says where it leads."""

    class Branches(nn.Module):
        def __init__(self, D):
            super().__init__()
            self.thin, self.wide = nn.Linear(D, D, bias=False), nn.Linear(D, 8 * D, bias=False)

        def forward(self, x):
            return self.thin(x).sum() + self.wide(x).sum()

    account = sa.trace(sa.build(Branches), "B D", train=False).at(B=512, D=512)
    path = critical_path(account, "h100")
    assert [node.path for node in path.nodes if node.flops] == ["wide"]
    product, sums, last = 2 * 512 * 512 * 4096 / 67e12, 4 * (512 * 4096 + 1) / 3.35e12, 3 * 4 / 3.35e12
    assert path.seconds == pytest.approx(product + sums + last)
    lines = str(path).splitlines()
    assert lines[:3] == [
        "Branches(f32[B, D]) on H100-SXM5-80GB",
        "at D=512, B=512",
        "critical path 34.6 µs of 38.9 µs: 88.9%",
    ]
    assert [line.split()[0] for line in lines if line.startswith((" wide", " (top", " thin"))] == ["wide", "(top"]


def test_critical_paths_need_sizes(blocks):
    """Without sizes no chain is the longest."""
    with pytest.raises(MissingSizeError, match=r"depends on D, B: give sizes with account.at\(...\)"):
        critical_path(blocks, "h100")


# -- cuts ------------------------------------------------------------------------------


def crossings(account, inside):
    """(maker, storage, reader) over a cut, found by looking back from every reader that is no view."""
    record = account.step.record
    writers = []  # of each node the storages that it writes
    for node in record.nodes:
        call = record.calls[node.call]
        bound = bind_arguments(node.func, node.args, node.kwargs)
        mutated = {value.storage for name in call.mutated for value in values_in(bound[name])}
        writers.append(mutated | (set() if call.is_view else {value.storage for value in values_in(node.outputs)}))
    found = set()
    for node in record.nodes:
        if inside(node) or record.calls[node.call].is_view:
            continue
        for value in values_in((node.args, node.kwargs)):
            makers = [i for i in range(node.index) if value.storage in writers[i]]
            if makers and inside(record.nodes[makers[-1]]):
                found.add((makers[-1], value.storage, node.index))
    return found


def told(cut):
    """The same of a `Crossing`."""
    return {(t.maker.index, t.storage, reader.index) for t in cut for reader in t.readers}


@pytest.mark.parametrize("seed", range(3))
def test_cuts_of_tangles(tangle, seed):
    """Over a random cut go the tensors that a search from every reader finds."""
    dice = random.Random(seed)
    chosen = {node.index for node in tangle.nodes if dice.random() < 0.5}
    cut = crossing(tangle, lambda node: node.index in chosen)
    assert told(cut) == crossings(tangle, lambda node: node.index in chosen)
    assert cut.nbytes == sum({t.storage: t.nbytes for t in cut}.values())
    assert [t.nbytes for t in cut] == sorted((t.nbytes for t in cut), reverse=True)


def test_cuts_of_models(model):
    """The same at the end of the forward pass and around each module at the top."""
    account, sizes = model
    there = account.at(**sizes)
    assert told(crossing(there, "forward")) == crossings(there, lambda node: node.phase == "forward")
    for path in {node.path.split(".")[0] for node in account.nodes} - {""}:
        cut = crossing(there, path)
        assert told(cut) == crossings(there, lambda node, p=path: node.path == p or node.path.startswith(f"{p}."))


def test_what_the_backward_pass_reads(account):
    """The forward pass leaves to the backward pass what the blackboard says: x and y of each product that need it."""
    step = account("two_layer")
    cut = crossing(step, "forward")
    assert sa.formula(cut.nbytes) == "4*B*D + 4*B*K + 4"
    assert cut.nbytes == step.activation_bytes
    assert [(t.name, t.shape) for t in cut] == [
        ("1: mm", "f32[B, K]"),
        ("0: mm", "f32[B, D]"),
        ("(loss): mean", "f32[]"),
    ]
    assert [node.path for node in cut.tensors[1].readers] == ["1"]
    assert step.at(B=8, D=64, K=96).crossing("forward").nbytes == 4 * 8 * 64 + 4 * 8 * 96 + 4


def test_what_leaves_a_block(blocks):
    """Out of the middle of three layers go its result and, backward, the gradient of its input."""
    cut = crossing(blocks, "1")
    assert [(t.maker.phase, t.shape, t.readers[0].path) for t in cut] == [
        ("forward", "f32[B, D]", "2"),
        ("backward", "f32[B, D]", "0"),
    ]
    assert sa.formula(cut.nbytes) == "8*B*D"
    assert len(crossing(blocks, lambda node: True)) == 0
    assert crossing(blocks, lambda node: True).nbytes == 0


def test_a_storage_counts_once():
    """Two tensors of one storage, as work in place gives them, both cross, and their bytes count once."""
    account = sa.trace(lambda x: [y := x * 2, y.exp(), y.mul_(3), y.exp()][-1], "B D", train=False)
    cut = crossing(account, lambda node: node.op.startswith("aten.mul"))
    assert [t.maker.op for t in cut] == ["aten.mul.Tensor", "aten.mul_.Tensor"]
    assert sa.formula(cut.nbytes) == "4*B*D"


def test_cuts_name_what_there_is(blocks):
    """A name that is neither phase nor module is answered with those that there are."""
    with pytest.raises(SpecError, match=r"'h.9' is no phase \(forward, backward, recompute, optimizer\)"):
        crossing(blocks, "h.9")
    with pytest.raises(SpecError, match=r"modules at the top: 0, 1, 2, \(loss\), \(backward\)"):
        crossing(blocks, "")


def test_cuts_are_tables(blocks):
    """A cut prints what goes over it, largest first, with formulas, and values at sizes."""
    lines = str(crossing(blocks.at(B=4, D=8), "1")).splitlines()
    assert lines[:3] == ["Sequential(f32[B, D]): from 1 to the rest", "at D=8, B=4", "2 tensors, 8*B*D bytes = 256 B"]
    assert [" ".join(line.split()) for line in lines if line.startswith(" 1: mm")] == [
        "1: mm forward f32[B, D] 4*B*D 128 B 2 (forward), 2 (backward)",
        "1: mm backward f32[B, D] 4*B*D 128 B 0 (backward)",
    ]
    assert "and 1 more" in crossing(blocks, "1").report(top=1)


def test_equal_blocks_are_one_row():
    """What equal blocks in a row make is one row with their number, and a path through all of them too."""
    model = sa.build(lambda D: nn.Sequential(*(nn.Sequential(nn.Linear(D, D), nn.GELU()) for _ in range(3))))
    account = sa.trace(model, "B D", grad=True, loss=lambda y: (y**2).mean())
    cut = crossing(account, "forward")
    (section,) = cut.sections()
    assert section.rows[0] == ("0-2.0: addmm", "forward", "3 x f32[B, D]", "12*B*D", "0-2.1 (backward)")
    assert len(cut) == sum(int(row[2].partition(" x ")[0]) if " x " in row[2] else 1 for row in section.rows)
    (through,) = critical_path(account.at(B=8, D=8), "h100").sections()
    assert [row[:2] for row in through.rows][:2] == [("0-2", "forward"), ("(loss)", "forward")]
    (one,) = crossing(account, "1").sections()
    assert all(row[0].startswith("1") for row in one.rows)
