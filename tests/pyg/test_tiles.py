"""Sums of messages in tiles: derivatives of both orders, and the memory that is held."""

import pytest
import torch
from pyg.parity import contracted
from torch.nn import Linear
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours
from pyg_outerconv.pyg import tiles
from pyg_outerconv.pyg.tiles import Message, Operands, message_sums

EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 3, 0, 4, 0], [1, 2, 0, 0, 3, 1, 2, 1]])


def message(x, to, edge, weight):
    return (x * to + edge @ weight).tanh()


def operands():
    """Rows for sources, targets and edges, and a weight of all."""
    shapes = ((5, 3), (4, 3), (8, 2), (2, 3))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def sums(x, to, edge, weight):
    return message_sums(
        Message(message), EDGE_INDEX, 4, Operands((x,), (to,), (edge,), (weight,)), 3
    )


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 9)  # three edges of three channels


def test_sums_have_both_derivatives():
    inputs = operands()
    x, to, edge, weight = inputs
    sent = message(x[EDGE_INDEX[0]], to[EDGE_INDEX[1]], edge, weight)
    expected = torch.zeros(4, 3, dtype=torch.float64).index_add(0, EDGE_INDEX[1], sent)
    torch.testing.assert_close(sums(*inputs), expected)
    assert torch.autograd.gradcheck(sums, inputs)
    assert torch.autograd.gradgradcheck(sums, inputs)


def test_only_wanted_gradients_are_computed():
    x, to, edge, weight = operands()
    out = sums(x, to.detach(), edge.detach(), weight)
    (actual,) = torch.autograd.grad(out.sum(), x)
    (expected,) = torch.autograd.grad(sums(x, to, edge, weight).sum(), x)
    assert torch.equal(actual, expected)


def test_forward_mode_and_vmap():
    inputs = operands()
    tangents = [torch.randn_like(one) for one in inputs]
    _, along = torch.func.jvp(sums, tuple(inputs), tuple(tangents))
    step = 1e-6
    ahead, behind = (
        sums(*[one + sign * step * t for one, t in zip(inputs, tangents, strict=True)])
        for sign in (1, -1)
    )
    torch.testing.assert_close(along, (ahead - behind) / (2 * step), atol=1e-6, rtol=1e-6)
    batch = torch.stack([inputs[0], 2 * inputs[0]])
    both = torch.func.vmap(lambda x: sums(x, *inputs[1:]))(batch)
    torch.testing.assert_close(both[1], sums(2 * inputs[0], *inputs[1:]))


@contracted
@pytest.mark.parametrize("name", ["GINEConv", "FiLMConv"])
def test_nothing_of_edges_times_channels_is_saved(name, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 512)
    nodes, edges, channels = 10, 4000, 16
    x = torch.randn(nodes, channels, requires_grad=True)
    edge_index = torch.randint(nodes, (2, edges))
    if name == "GINEConv":
        layer = ours.GINEConv(Linear(channels, 3), edge_dim=2)
        beside = (torch.randn(edges, 2, requires_grad=True),)
    else:
        layer, beside = ours.FiLMConv(channels, channels), ()
    saved = []

    def save(tensor):
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        out = layer(x, edge_index, *beside)
    assert max(saved) < edges * channels / 4  # edges themselves and their two attributes
    allocated = []
    run = tiles._Buffers.rows

    def rows(self, *args):
        allocated.extend(row_buffers := run(self, *args))
        return row_buffers

    monkeypatch.setattr(tiles._Buffers, "rows", rows)
    out.sum().backward()
    assert max(row.numel() for row in allocated) <= 2 * 512  # FiLM has two numbers a channel


def test_unknown_activations_run_by_pyg():
    layer = ours.FiLMConv(3, 2, act=torch.nn.Dropout())
    assert layer.why_not() == ["act is not a known function of single numbers"]
    torch.manual_seed(1)
    out = layer(torch.ones(5, 3), EDGE_INDEX)
    other = theirs.FiLMConv(3, 2, act=torch.nn.Dropout())
    other.load_state_dict(layer.state_dict())
    torch.manual_seed(1)
    assert torch.equal(other(torch.ones(5, 3), EDGE_INDEX), out)
