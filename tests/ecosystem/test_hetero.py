"""Heterogeneous models of our layers: HeteroConv beside PyG's own, to_hetero, and training."""

import pytest
import torch
from against_pyg import copy_weights
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    GATConv,
    GraphConv,
    HeteroConv,
    SAGEConv,
    to_hetero,
    to_hetero_with_bases,
)

from pyg_outerconv.nn import AttentionConv, OuterConv
from pyg_outerconv.testing import assert_near

KINDS = [("a", "to", "b"), ("b", "to", "a"), ("a", "self", "a")]


def graph():
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(5, 4), torch.randn(3, 6)
    edges = ([[0, 1, 4, 3], [0, 2, 2, 2]], [[0, 1, 2], [0, 4, 1]], [[0, 1, 2, 2], [3, 2, 1, 2]])
    for kind, index in zip(KINDS, edges, strict=True):
        data[kind].edge_index = torch.tensor(index)
        data[kind].edge_weight = torch.rand(len(index[0])) + 0.1
    return data


OURS = {
    "sums": lambda: OuterConv((-1, -1), 6, "relation(1, norm=None)", root_weight=True),
    "means": lambda: OuterConv((-1, -1), 6, "relation(1)", root_weight=True),
    "columns": lambda: OuterConv((-1, -1), 6, "stack(walk(1), identity)", theta="columns"),
    "low rank": lambda: OuterConv((-1, -1), 6, "walk(1)", theta="low-rank(rank=2)"),
    "maxima": lambda: OuterConv((-1, -1), 6, "relation(1, norm=None)", aggr="max"),
    "attention": lambda: AttentionConv((-1, -1), 6, heads=2),
    "gat": lambda: AttentionConv((-1, -1), 6, heads=3, score="additive", combine="mean"),
}
of_each_kind = pytest.mark.parametrize("kind", OURS)


def by_hand(convs, x, edges):
    """The sums over relations, a call at a time."""
    sums = {}
    for (source, name, target), conv in convs.items():
        ends = x[source] if source == target else (x[source], x[target])
        out = conv(ends, edges[source, name, target])
        sums[target] = out if target not in sums else sums[target] + out
    return sums


@of_each_kind
@pytest.mark.parametrize("same_type", ["single", "pair"])
def test_hetero_conv_adds_up_relations(kind, same_type):
    data, kinds = graph(), KINDS if same_type == "single" else KINDS[:2]
    model = HeteroConv({key: OURS[kind]() for key in kinds})
    out = model(data.x_dict, data.edge_index_dict)
    expected = by_hand({key: model.convs[key] for key in kinds}, data.x_dict, data.edge_index_dict)
    for name, value in expected.items():
        assert_near(out[name], value)
    model.reset_parameters()
    assert not torch.equal(model(data.x_dict, data.edge_index_dict)["b"], out["b"])


class Two(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def assert_is_two_sums_over_relations(model, data):
    """A model that to_hetero made of Two, with a ReLU between."""
    x, edges = data.x_dict, data.edge_index_dict
    out = model(x, edges)
    first, second = (
        {key: stage["__".join(key)] for key in edges} for stage in (model.first, model.second)
    )
    hidden = {name: value.relu() for name, value in by_hand(first, x, edges).items()}
    for name, value in by_hand(second, hidden, edges).items():
        assert_near(out[name], value)


@of_each_kind
def test_to_hetero_makes_a_layer_for_each_relation(kind):
    data = graph()
    assert_is_two_sums_over_relations(to_hetero(Two(OURS[kind]), data.metadata()), data)


ON_ONE_SET = (
    *("walk(2)", "chebyshev(3)", "stack(chebyshev(2), relation(1))", "hops(2)"),
    *("stack(walk(2), gcn(add_self_loops=False))", "directed(gcn(add_self_loops=False))"),
)


@pytest.mark.parametrize("family", ON_ONE_SET)
def test_families_of_one_set_of_nodes_run_within_types_and_between_two_say_what_does(family):
    def models(data):
        make = lambda: OuterConv((-1, -1), 6, family)  # noqa: E731
        yield HeteroConv({key: make() for key in data.edge_types})
        yield to_hetero(Two(make), data.metadata())

    data = graph()
    for model in models(data):
        with pytest.raises(ValueError, match="same nodes: expected one x, not a pair; for a pair"):
            model(data.x_dict, data.edge_index_dict)
    del data["a", "to", "b"], data["b", "to", "a"]
    data["b", "on", "b"].edge_index = torch.tensor([[0, 1], [2, 2]])
    one, two = models(data)
    out = one(data.x_dict, data.edge_index_dict)
    convs = {key: one.convs[key] for key in data.edge_types}
    for name, value in by_hand(convs, data.x_dict, data.edge_index_dict).items():
        assert_near(out[name], value)
    assert_is_two_sums_over_relations(two, data)


def test_to_hetero_with_bases_changes_messages_by_hooks():
    data = graph()
    data["b"].x = torch.randn(3, 4)
    make_conv = lambda: OuterConv(4, 4, "relation(1, norm=None)", root_weight=True)  # noqa: E731
    model = to_hetero_with_bases(Two(make_conv), data.metadata(), num_bases=2)
    out = model(data.x_dict, data.edge_index_dict)
    assert {name: value.shape for name, value in out.items()} == {"a": (5, 4), "b": (3, 4)}
    sum(value.sum() for value in out.values()).backward()
    coefficients = [p for name, p in model.named_parameters() if "edge_type_weight" in name]
    assert coefficients
    assert all(p.grad is not None and bool(p.grad.any()) for p in coefficients)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "cat", None])
def test_hetero_conv_mixes_our_layers_with_pygs(aggr):
    data = graph()
    model = HeteroConv(
        {
            KINDS[0]: OURS["means"](),
            KINDS[1]: SAGEConv((-1, -1), 6),
            KINDS[2]: AttentionConv(-1, 6, heads=2),
        },
        aggr=aggr,
    )
    out = model(data.x_dict, data.edge_index_dict)
    parts = [
        model.convs[KINDS[1]]((data["b"].x, data["a"].x), data[KINDS[1]].edge_index),
        model.convs[KINDS[2]](data["a"].x, data[KINDS[2]].edge_index),
    ]
    together = {
        "sum": lambda: parts[0] + parts[1],
        "mean": lambda: (parts[0] + parts[1]) / 2,
        "max": lambda: torch.maximum(*parts),
        "cat": lambda: torch.cat(parts, dim=-1),
        None: lambda: torch.stack(parts, dim=1),
    }
    assert_near(out["a"], together[aggr]())


@pytest.mark.parametrize("by", ["position", "name"])
def test_weights_go_by_position_and_by_name(by):
    data = graph()
    ours = HeteroConv({key: OURS["sums"]() for key in KINDS})
    theirs = HeteroConv({key: GraphConv((-1, -1), 6) for key in KINDS})
    arguments = (data.x_dict, data.edge_index_dict)
    ours(*arguments), theirs(*arguments)
    for key in KINDS:
        copy_weights(ours.convs[key], theirs.convs[key])
    if by == "position":
        out = ours(*arguments, data.edge_weight_dict)
    else:
        out = ours(*arguments, edge_weight_dict=data.edge_weight_dict)
    expected = theirs(*arguments, data.edge_weight_dict)
    for name in ("a", "b"):
        assert_near(out[name], expected[name])


@pytest.mark.parametrize(
    "make",
    [
        lambda loops: OuterConv(4, 6, f"gcn(add_self_loops={loops})"),
        lambda loops: AttentionConv(4, 6, support=f"hops(add_self_loops={loops})"),
        lambda loops: GATConv(4, 6, add_self_loops=loops),
    ],
    ids=["convolution", "attention", "PyG's"],
)
def test_self_loops_between_two_types_are_refused_as_pygs_are(make):
    with pytest.raises(ValueError, match="'add_self_loops' attribute set to 'True'"):
        HeteroConv({KINDS[0]: make(True)})
    HeteroConv({KINDS[0]: make(False), KINDS[1]: make(False)})
