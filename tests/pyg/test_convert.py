"""Copies of layers and models with our classes, with PyG's, and as an OuterConv."""

import copy

import pytest
import torch
from pyg.cases import CASES
from pyg.parity import Drawn, compare, graphs
from torch import nn
from torch_geometric import nn as theirs
from torch_geometric.nn import models

from pyg_outerconv import OuterConv
from pyg_outerconv import pyg as ours
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.pyg import from_pyg, outer_conv, to_pyg

GRAPH = graphs()["directed"]


def arguments(case, call="plain"):
    call = call if call in case.calls else next(iter(case.calls))
    return case.calls[call](Drawn(GRAPH, torch.float64))


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    case = CASES[name]
    layer = case.make(getattr(theirs, name, getattr(ours, name))).double()
    copied = from_pyg(layer)
    back = to_pyg(copied)
    assert type(copied) is getattr(ours, name)
    assert not isinstance(back, ours.DropIn)
    ends = [{one.data_ptr() for one in part.parameters()} for part in (layer, copied, back)]
    assert ends[0].isdisjoint(ends[1])  # copies of the weights
    assert ends[1].isdisjoint(ends[2])
    if type(layer) is not type(copied):  # SplineConv of PyG needs pyg-lib
        compare(layer, copied, arguments(case), case.compared_in(torch.float64))
        compare(layer, back, arguments(case), case.compared_in(torch.float64))


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_alone_becomes_an_outer_conv(name):
    case = CASES[name]
    layer = case.make(getattr(ours, name)).double().eval()
    if layer.outside() or isinstance(layer._outer_conv(), nn.ModuleList):
        with pytest.raises(RefusedValue, match=r"nothing beside it|several steps"):
            outer_conv(layer)
        return
    conv = outer_conv(layer)
    assert isinstance(conv, OuterConv)
    assert all(one.requires_grad for one in conv.parameters())
    assert {one.data_ptr() for one in conv.parameters()}.isdisjoint(
        {one.data_ptr() for one in layer.parameters()}
    )
    x, edge_index, *rest = arguments(case)
    if not rest:
        torch.testing.assert_close(conv(x, edge_index), layer(x, edge_index))


def test_models_keep_what_has_no_equal():
    model = nn.ModuleList([theirs.GCNConv(4, 4), theirs.EdgeConv(nn.Linear(8, 4)), nn.Linear(4, 4)])
    copied = from_pyg(model)
    assert isinstance(copied[0], ours.GCNConv)
    assert type(copied[1]) is theirs.EdgeConv
    assert type(model[0]) is theirs.GCNConv
    assert ours.restore(copied) == []  # a copy has no other past
    assert [type(layer) for layer in to_pyg(copied)] == [type(layer) for layer in model]


def test_types_modes_and_frozen_parameters_stay():
    layer = theirs.GATConv(4, 3, heads=2).double().eval()
    layer.att_src.requires_grad_(False)
    conv = outer_conv(layer)
    assert not conv.training
    assert conv.theta.weight.dtype == torch.float64
    frozen = [name for name, one in conv.named_parameters() if not one.requires_grad]
    assert frozen == ["functions.0.att_source"]


def test_what_cannot_be_converted_is_named():
    with pytest.raises(TypeError, match="both ends of an edge"):
        from_pyg(theirs.EdgeConv(nn.Linear(8, 4)))
    with pytest.raises(TypeError, match="layers of pyg_outerconv"):
        to_pyg(theirs.GCNConv(4, 4))
    with pytest.raises(ValueError, match="median"):
        outer_conv(theirs.SAGEConv(4, 4, aggr="median"))
    with pytest.raises(ValueError, match="before the first input"):
        outer_conv(theirs.SAGEConv(-1, 4))
    with pytest.raises(ValueError, match="nothing beside it"):
        outer_conv(theirs.SAGEConv(4, 4, normalize=True))
    hooked = theirs.GCNConv(4, 4)
    hooked.lin.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="no hooks: .* on lin"):
        outer_conv(hooked)
    with pytest.raises(TypeError, match="subclass"):
        outer_conv(type("Mine", (theirs.GCNConv,), {})(4, 4))


def test_a_copied_model_trains_by_itself():
    torch.manual_seed(0)
    model = models.GCN(6, 8, 2, 3)
    copied, x = from_pyg(model), torch.randn(9, 6)
    before = copy.deepcopy(model.state_dict())
    copied(x, GRAPH.edge_index).sum().backward()
    torch.optim.SGD(copied.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
