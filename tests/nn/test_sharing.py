"""Layers with equal families on one graph share its basis, and never one that is another's."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import OuterConv, clear_caches
from pyg_outerconv.families import GCN, Relation
from pyg_outerconv.kernels.mode import mode
from pyg_outerconv.nn.bases import recent, shares_here
from pyg_outerconv.testing import assert_near

EDGES = 5000  # not a tiny graph, of which no basis is made


def graph(seed=0, nodes=9, edges=EDGES):
    pick = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, edges), generator=pick)


@pytest.fixture
def made(monkeypatch):
    """How often GCN has made a basis."""
    counted, make = [], GCN.basis_on
    monkeypatch.setattr(
        GCN, "basis_on", lambda self, *given: counted.append(self) or make(self, *given)
    )
    return counted


def test_layers_of_a_model_share_a_basis(made):
    first, second, third = OuterConv(4, 8, GCN()), OuterConv(8, 8, "gcn"), OuterConv(8, 2, "gcn")
    x, edge_index = torch.randn(9, 4), graph()
    for _ in range(3):
        third(second(first(x, edge_index), edge_index), edge_index).sum().backward()
    assert len(made) == 1
    third(torch.randn(9, 8), edge_index.clone())
    assert len(made) == 2


def test_cached_false_shares_nothing(made):
    x, edge_index = torch.randn(9, 4), graph()
    for _ in range(2):
        OuterConv(4, 4, GCN(), cached=False)(x, edge_index)
    assert len(made) == 2


def test_other_options_sizes_weights_and_types_are_other_bases():
    x, edge_index = torch.randn(9, 4, dtype=torch.float64), graph(edges=30)
    weight = torch.rand(30)
    conv = OuterConv(4, 4, GCN()).double()
    plain = conv(x, edge_index)
    weighted = conv(x, edge_index, weight)
    assert not torch.allclose(plain, weighted)
    assert_near(conv(x, edge_index), plain)
    bare = OuterConv(4, 4, GCN(add_self_loops=False)).double()
    bare.load_state_dict(conv.state_dict())
    assert not torch.allclose(bare(x, edge_index), plain)
    wider = torch.cat([x, x[:1]])
    assert conv(wider, edge_index).shape == (10, 4)
    assert conv.float()(x.float(), edge_index).dtype == torch.float32


def test_a_graph_that_was_written_to_is_another(made):
    conv, other = OuterConv(4, 4, GCN()), OuterConv(4, 4, GCN(), cached=False)
    other.load_state_dict(conv.state_dict())
    x, edge_index = torch.randn(9, 4), graph()
    changes = (
        lambda: edge_index.copy_(graph(1)),
        lambda: edge_index.data.copy_(graph(2)),
        lambda: edge_index.numpy().__setitem__((0, 0), 8 - edge_index[0, 0].item()),
    )
    assert_near(conv(x, edge_index), other(x, edge_index))
    for change in changes:
        change()
        assert_near(conv(x, edge_index), other(x, edge_index))
    assert len(made) == 8


@pytest.mark.parametrize("cached", [None, True])
def test_weights_that_learn_are_not_shared(cached, made):
    conv, x, edge_index = OuterConv(4, 4, GCN(), cached=cached), torch.randn(9, 4), graph()
    weight = torch.rand(EDGES, requires_grad=True)
    for _ in range(2):
        conv(x, edge_index, weight).sum().backward()
    assert len(made) == 2


def test_only_the_last_graphs_are_kept():
    conv, x = OuterConv(4, 4, GCN()), torch.randn(9, 4)
    graphs = [graph(seed) for seed in range(7)]
    for edge_index in graphs:
        conv(x, edge_index)
    assert len(recent) == 4
    del graphs, edge_index
    assert len(recent) == 0
    edge_index = graph()
    conv(x, edge_index)
    assert len(recent) == 1
    clear_caches()
    assert len(recent) == 0


def test_tracers_and_inference_share_nothing(monkeypatch):
    conv, edge_index = OuterConv(4, 4, Relation(1)), graph()
    with torch.inference_mode():
        conv(torch.randn(9, 4), graph())
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert not shares_here(edge_index, mode())
    assert len(recent) == 0
    monkeypatch.setattr(torch._C, "_is_tracing", lambda: True)
    assert not shares_here(edge_index, mode())


def test_layers_on_a_device_share_by_themselves():
    assert shares_here(torch.zeros(2, 3, dtype=torch.long, device="meta"), mode())
