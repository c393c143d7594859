"""The recorded step as an annotated torch.fx graph, and what each node knows."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import symacct as sa


class Block(nn.Module):
    """A residual block whose first half is checkpointed, on a tied weight and a buffer."""

    def __init__(self, D):
        super().__init__()
        self.up = nn.Linear(D, 2 * D)
        self.down = nn.Linear(2 * D, D)
        self.register_buffer("scale", torch.ones(D))

    def forward(self, x):
        hidden = checkpoint(lambda y: torch.relu(self.up(y)), x, use_reentrant=False)
        return self.down(hidden).add_(x * self.scale)


def step():
    """A whole training step of the block."""
    return sa.trace(sa.build(Block), "B D", optimizer=torch.optim.SGD)


def test_the_graph_is_a_valid_fx_graph():
    """It lints, prints, and has a node for every recorded call plus its inputs."""
    account = step()
    graph = account.graph
    graph.lint()
    calls = [n for n in graph.nodes if n.op == "call_function" and isinstance(n.target, torch._ops.OpOverload)]
    assert [str(n.target) for n in calls] == [n.op for n in account.nodes]
    placeholders = {n.meta["label"]: n.meta for n in graph.nodes if n.op == "placeholder"}
    assert {"up.weight", "up.bias", "down.weight", "down.bias", "scale", "input_0"} <= set(placeholders)
    assert placeholders["up.weight"]["origin"] == "param"
    assert [str(n) for n in placeholders["up.weight"]["shape"]] == ["2*D", "D"]
    assert "2*D" in str(graph)
    assert account.graph is graph


def test_every_node_knows_its_place():
    """Phase, module path, source line, shapes, dtype, storage and cost are on every node; costs add up."""
    account = step()
    total = sa.Cost()
    for node in account.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        assert node.meta["phase"] in ("forward", "backward", "recompute", "optimizer")
        assert isinstance(node.meta["module"], str)
        assert "test_graph.py:" in node.meta["source"]
        assert node.meta["dtype"]
        assert node.meta["storage"] is not None
        total = total + node.meta["cost"]
    assert total.flops.expand() == account.total.flops
    assert total.bytes_written.expand() == account.total.bytes_written


def test_backward_nodes_belong_to_the_module_whose_forward_made_them():
    """Matrix products of the backward pass stand under the layer that they differentiate."""
    account = step()
    paths = {p for n in account.nodes if n.phase == "backward" and n.flops != 0 for p in [n.path]}
    assert paths == {"up", "down"}
    forward = {n.index: n for n in account.nodes}
    for node in account.nodes:
        if node.phase == "backward" and node.forward >= 0:
            assert forward[node.forward].phase in ("forward", "recompute")
            assert forward[node.forward].path == node.path
    assert {n.path for n in account.nodes if n.phase == "recompute" and n.flops != 0} == {"up"}


def test_in_place_ops_and_views_share_storage():
    """add_ writes where its operand is; a transpose is the weight itself."""
    account = step()
    in_place = next(n for n in account.nodes if n.op == "aten.add_.Tensor")
    product = next(n for n in account.nodes if n.op == "aten.addmm.default" and n.path == "down")
    assert in_place.storages == product.storages
    inputs = {n.meta["label"]: n.meta["storage"] for n in account.graph.nodes if n.op == "placeholder"}
    transposed = next(n for n in account.nodes if n.op == "aten.t.default" and n.path == "up")
    assert transposed.storages == (inputs["up.weight"],)
    assert transposed.cost == sa.Cost()
