"""Layers that reduce with sum, mean, max or min, over inputs and over labels; Θ as the identity."""

from itertools import product

import pytest
import torch
from cases import CELL_PAIRS, CELLS, PAIRS, STRUCTURES, edges_for, over
from contractions import REDUCTIONS, has_edges
from oracle import assert_same
from torch_geometric.nn import MaxAggregation
from torch_geometric.nn.aggr import MeanAggregation, MinAggregation, SumAggregation

from pyg_outerconv import OuterConv, testing
from pyg_outerconv.families import GCN, Identity, Relation, Stack
from pyg_outerconv.nn import FORMS
from pyg_outerconv.testing import assert_near

ALL = list(product(REDUCTIONS, REDUCTIONS))
EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1], [1, 2, 3, 0, 2, 1, 1]])
KINDS = torch.tensor([0, 1, 2, 0, 1, 2, 0])

every = pytest.mark.parametrize(("aggr", "label_aggr"), ALL)


def layer(family, channels=(4, 6), **options):
    conv = OuterConv(*channels, family, **options).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return conv


def features(edges, channels=4):
    return torch.randn(edges.size[0], channels, dtype=torch.float64, requires_grad=True)


# Against the dense form ---------------------------------------------------------------------------


@every
@pytest.mark.parametrize("name", STRUCTURES)
def test_all_sixteen_equal_the_dense_form_fused_and_by_messages(name, aggr, label_aggr):
    edges = STRUCTURES[name]
    for family in (Relation(3, None), Stack(Relation(3), Identity())):
        conv = layer(family, aggr=aggr, label_aggr=label_aggr)
        testing.assert_layer_equals_dense(conv, features(edges), edges)


@every
@over([(family, name) for family, name in PAIRS if name == "multi-edge"])
def test_every_family_is_equal_or_says_that_it_hides_its_edges(family, name, aggr, label_aggr):
    edges = edges_for(family, name)
    conv, x = layer(family, aggr=aggr, label_aggr=label_aggr), features(edges)
    known = has_edges(family.basis(edges, dtype=torch.float64))
    if known or (aggr, label_aggr) in product(("sum",), ("sum", "mean")):
        testing.assert_layer_equals_dense(conv, x, edges)
        return
    for conv.fuse in (True, False):
        with pytest.raises(ValueError, match=r"expected .*basis\.edges\(\)"):
            conv(x, edges.edge_index, edges.edge_weight, edge_type=edges.edge_type, size=edges.size)


@pytest.mark.parametrize(("aggr", "label_aggr"), [("sum", "max"), ("max", "sum"), ("mean", "min")])
@over([pair for pair in CELL_PAIRS if pair[1] in ("shape", "holes", "unbounded batch")])
def test_every_family_of_cells(family, name, aggr, label_aggr):
    cells = CELLS[name]
    for options in ({}, {"theta": "identity", "channels": (4, -1), "bias": False}):
        conv = layer(family, aggr=aggr, label_aggr=label_aggr, **options)
        x = torch.randn(cells.num_cells, 4, dtype=torch.float64, requires_grad=True)
        testing.assert_layer_equals_dense(conv, x, cells)


@every
@pytest.mark.parametrize(
    "options",
    [
        {"root_weight": True},
        {"bias": False},
        {"cached": True},
        {"flow": "target_to_source"},
        {"theta": "basis-decomposed(num_bases=2)"},
        {"theta": "grouped:2"},
        {"theta": "identity", "channels": (4, 4)},
        {"theta": "identity", "channels": (4, -1), "bias": False},
    ],
    ids=str,
)
def test_with_every_other_option(options, aggr, label_aggr):
    edges = STRUCTURES["multi-edge"]
    conv = layer(Relation(3, None), aggr=aggr, label_aggr=label_aggr, **options)
    testing.assert_layer_equals_dense(conv, features(edges), edges)


@pytest.mark.parametrize("label_aggr", ["max", "min"])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_node_indices_and_no_features(aggr, label_aggr):
    conv = layer(Relation(3), (5, 6), aggr=aggr, label_aggr=label_aggr)
    eye = torch.eye(5, dtype=torch.float64)
    index = torch.tensor([4, 0, 1, 1, 2])
    for given, dense in ((None, eye), (index, eye[index])):
        for conv.fuse in (True, False):
            found = conv(given, EDGES, edge_type=KINDS, size=(5, 5))
            assert_near(found, conv(dense, EDGES, edge_type=KINDS))


# Equal to PyG's -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggr", "module"),
    [
        ("sum", SumAggregation()),
        ("mean", MeanAggregation()),
        ("max", MaxAggregation()),
        ("min", MinAggregation()),
    ],
)
def test_aggregation_modules_of_pyg(aggr, module):
    """The assignment of nodes to graphs is a basis: m → batch[m]."""
    batch = torch.tensor([0, 0, 1, 3, 3, 3])
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    conv = OuterConv(4, -1, Relation(1, None), False, "identity", aggr=aggr)
    index = torch.stack([torch.arange(6), batch])
    found = conv((x, None), index, size=(6, 4))
    assert_same(found, module(x, batch, dim_size=4), [x])


def test_sums_and_means_of_messages_are_those_of_pyg():
    names = {
        (aggr, label_aggr): type(
            OuterConv(4, 6, Relation(3), aggr=aggr, label_aggr=label_aggr).aggr_module
        ).__name__
        for aggr, label_aggr in ALL
    }
    for (aggr, label_aggr), name in names.items():
        folded = aggr == "mean" and label_aggr in ("sum", "mean")
        of_pyg = f"{'Sum' if folded else aggr.capitalize()}Aggregation"
        assert name == ("FirstOfEqual" if aggr in ("max", "min") else of_pyg)


def test_hooks_see_values_times_inputs_where_theta_follows():
    x, weight = torch.randn(5, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    for aggr, label_aggr in (("max", "sum"), ("min", "max")):
        conv, seen = layer(Relation(3, None), aggr=aggr, label_aggr=label_aggr), []
        conv.register_message_forward_hook(lambda _, inputs, out, seen=seen: seen.append(out))
        conv(x, EDGES, weight, edge_type=KINDS)
        assert_near(seen[0], weight[:, None] * x[EDGES[0]])


# Θ as the identity --------------------------------------------------------------------------------


def test_the_identity_is_a_form_of_theta():
    assert "identity" in FORMS
    conv = OuterConv(4, 4, Relation(3), theta="identity")
    assert [name for name, _ in conv.named_parameters()] == ["bias"]
    assert torch.equal(conv.theta(), torch.ones(3, 4, 1, 1))
    assert conv.theta.parameter().is_unit


def test_channels_come_with_the_first_input():
    conv = OuterConv(-1, -1, Relation(3), theta="identity", bias=False)
    assert conv.out_channels == -1
    with pytest.raises(RuntimeError, match="before the first input"):
        conv.theta()
    x = torch.randn(5, 7)
    assert conv(x, EDGES, edge_type=KINDS).shape == (5, 7)
    assert (conv.theta.in_channels, conv.out_channels) == (7, 7)
    with pytest.raises(ValueError, match="a column for each channel"):
        conv(x[:, :3], EDGES, edge_type=KINDS)
    lazy = OuterConv(-1, 7, Relation(3), theta="identity")
    with pytest.raises(ValueError, match="as many out_channels as in_channels: expected 3, or -1"):
        lazy(x[:, :3], EDGES, edge_type=KINDS)
    assert lazy(x, EDGES, edge_type=KINDS).shape == (5, 7)


def test_state_of_a_layer_without_parameters_is_empty_and_loads():
    conv = OuterConv(-1, -1, GCN(), theta="identity", bias=False)
    assert not conv.state_dict()
    conv(torch.randn(5, 2), EDGES)
    again = OuterConv(-1, -1, GCN(), theta="identity", bias=False)
    again.load_state_dict(conv.state_dict())
    x = torch.randn(5, 2)
    assert torch.equal(again(x, EDGES), conv(x, EDGES))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("label_aggr", REDUCTIONS)
def test_type_is_that_of_the_features(dtype, label_aggr):
    conv = OuterConv(-1, -1, Relation(3), False, "identity", label_aggr=label_aggr)
    x = torch.randn(5, 4, dtype=dtype)
    assert conv(x, EDGES, edge_type=KINDS).dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x, EDGES, edge_type=KINDS).dtype == dtype


def test_the_input_is_not_the_output():
    conv = OuterConv(4, 4, Identity(), theta="identity")
    with torch.no_grad():
        conv.bias.fill_(1.0)
    x = torch.randn(5, 4)
    kept = x.clone()
    assert_near(conv(x, EDGES), x + 1.0)
    assert torch.equal(x, kept), "the bias was not added to the input"
