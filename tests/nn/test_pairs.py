"""A pair of sets of nodes is a pair however many nodes there are; ``fuzz`` has the formulas."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, to_hetero

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.basis import to_scipy
from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Complete,
    Compose,
    Diffusion,
    Directed,
    Explicit,
    Hops,
    Identity,
    Mean,
    Nearest,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.graph import Graph, from_hetero, from_scipy
from pyg_outerconv.testing import assert_layer_equals_dense, assert_near

P, Q = 3, 2
DRAWS = range(6)


ON_PAIRS = [
    GCN(add_self_loops=False),
    GCN(norm="both", add_self_loops=False),
    GCN(norm="target", add_self_loops=False),
    Walk(0),
    Walk(1),
    Walk(1, norm="target", powers=(1,)),
    Walk(1, norm="sym"),
    Walk(3, norm="sym", powers=(1, 0)),
    Walk(1, norm=None, aggr="max", powers=(1,)),
    Walk(2, norm="target", aggr="mean", powers=(0, 1)),
    Relation(1),
    Relation(1, None),
    Identity(),
    Explicit(Walk(1, norm="sym")),
    Stack(Relation(1, None), Walk(1)),
    Stack(GCN(add_self_loops=False), Identity(), Walk(1)),
]
NEED_ONE_SET = [
    GCN(),
    Walk(2),
    Walk(1, add_self_loops=True),
    Walk(1, direction="backward"),
    Walk(1, direction="both"),
    Walk(3, powers=(2,)),
    Walk(2, None, aggr="max"),
    Chebyshev(2),
    Diffusion(length=1),
    Directed(GCN(add_self_loops=False)),
    Hops(2),
    Complete(add_self_loops=False),
    Compose(Relation(1), Relation(1)),
    Mean(GCN()),
    Stack(Relation(1), GCN()),
]


def draw(seed):
    """Edges without parallels between few nodes, and two numbers of nodes, equal every other time.

    Some nodes are isolated; an isolated source may come after the others.
    """
    generator = torch.Generator().manual_seed(seed)
    high = int(torch.randint(2, 6, (1,), generator=generator))
    places = torch.randperm(high * high, generator=generator)[: high * high // 2]
    index = torch.stack([places // high, places % high])
    weight = torch.rand(index.size(1), generator=generator, dtype=torch.float64) + 0.1
    if seed % 2:
        return index, weight, (high, high)
    extra = torch.randint(0, 3, (2,), generator=generator).tolist()
    return index, weight, (high + 1 + extra[0] + extra[1], high + extra[1])


of_each_family = pytest.mark.parametrize("family", ON_PAIRS, ids=str)


@pytest.mark.parametrize("seed", DRAWS)
@of_each_family
def test_an_isolated_node_changes_no_other_output(family, seed):
    index, weight, size = draw(seed)
    conv = OuterConv(P, Q, family).double()
    beside = {"edge_weight": weight} if family.makes_use_of("edge_weight") else {}
    x = torch.randn(max(size) + 3, P, dtype=torch.float64)  # whose node n target n may see
    results = []
    for sources in range(max(size), max(size) + 3):
        for targets in range(size[1], max(size) + 3):
            out = conv((x[:sources], torch.randn(targets, 1).double()), index, **beside)
            assert out.size(0) == targets
            results.append(out[: size[1]])
    for result in results[1:]:
        assert_near(result, results[0])


@pytest.mark.parametrize("size", [(4, 4), (5, 4), (4, 5)], ids=str)
@pytest.mark.parametrize("family", NEED_ONE_SET, ids=str)
def test_a_pair_is_refused_whatever_its_sizes(family, size):
    index = torch.tensor([[0, 3, 2], [1, 0, 3]])
    rule = (
        r"same nodes: expected one x, not a pair; for a pair .*, "
        rf"got a pair of M = {size[0]} sources and N = {size[1]} targets"
    )
    conv, ends = OuterConv(P, Q, family), (torch.randn(size[0], P), torch.randn(size[1], P))
    for call in (
        lambda: conv(ends, index),
        lambda: conv((ends[0], None), index, size=size),
        lambda: family.basis(index, size=size, bipartite=True),
        lambda: conv((ends[0], None), Graph.read(index, size=size, bipartite=True)),
    ):
        with pytest.raises(ValueError, match=rule):
            call()
    if size[0] == size[1]:
        same = ends[0]
        assert_near(conv((same, same), index), conv(same, index))
        assert family.basis(index, size=size).size == size


@pytest.mark.parametrize("cached", [False, True])
def test_a_kept_basis_of_one_set_is_not_that_of_a_pair(cached):
    index = torch.tensor([[0, 0, 1], [0, 1, 1]])
    conv = OuterConv(P, Q, GCN(add_self_loops=False), cached=cached)
    x, far = torch.randn(2, P), torch.randn(2, P)
    fresh = OuterConv(P, Q, GCN(add_self_loops=False))
    fresh.load_state_dict(conv.state_dict())
    for ends in (x, (x, far), x, (x, x), (x, far)):
        assert_near(conv(ends, index), fresh(ends, index.clone()))
    assert not torch.allclose(conv(x, index), conv((x, far), index))


def test_who_says_that_there_are_two_sets_of_nodes():
    index, data = torch.tensor([[0, 0, 1], [0, 1, 1]]), HeteroData()
    for name in "ab":
        data[name].num_nodes = 2
    data["a", "to", "b"].edge_index = data["a", "to", "a"].edge_index = index
    matrix = to_scipy(Relation(1, None).basis(index))[0]
    said = {
        "nobody": Graph.read(index, size=(2, 2)),
        "size": Graph.read(index, size=(2, 3)),
        "bipartite": Graph.read(index, bipartite=True),
        "sizes of both rows": Graph.read(torch.tensor([[0, 4], [1, 2]]), bipartite=True),
        "types": from_hetero(data, ("a", "to", "b"))[0],
        "one type": from_hetero(data, ("a", "to", "a"))[0],
        "all types": from_hetero(data)[0],
        "rows and columns": from_scipy(matrix, bipartite=True),
        "a matrix": from_scipy(matrix),
        "transposed": Graph.read(index, bipartite=True).reversed(),
    }
    one_set = {name for name, edges in said.items() if not edges.bipartite}
    assert one_set == {"nobody", "one type", "all types", "a matrix"}
    assert said["sizes of both rows"].size == (5, 3)
    with pytest.raises(ValueError, match="as many sources as targets: expected M = N"):
        Graph.read(index, size=(2, 3), bipartite=False)


def test_targets_without_positions_of_their_own_are_still_no_sources():
    x, far, pos = torch.randn(4, P), torch.randn(4, P), torch.randn(4, 2)
    basis = OuterConv(P, Q, Nearest(1)).basis((x, far), None, pos=pos).to_dense()
    assert_near(basis[0], torch.eye(4))  # the nearest is at the same place
    assert not OuterConv(P, Q, Nearest(1)).basis(x, None, pos=pos).to_dense()[0].diag().any()


@pytest.mark.parametrize("root_weight", [False, True])
def test_laws_hold_on_a_pair_of_as_many(root_weight):
    edges = Graph.read(
        torch.tensor([[0, 3, 3, 2], [1, 0, 1, 2]]),
        torch.rand(4, dtype=torch.float64, requires_grad=True),
        size=(4, 4),
        bipartite=True,
    )
    conv = OuterConv(P, Q, Walk(1, norm="target")).double()
    assert_layer_equals_dense(conv, torch.randn(4, P, dtype=torch.float64), edges)
    assert_layer_equals_dense(
        conv, torch.randn(4, P, dtype=torch.float64), replace(edges, edge_weight=None)
    )


# Graphs of several types of nodes ----------------------------------------------------------------


def hetero(seed, counts):
    """Types of nodes a and b, with edges within and between them."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, count in counts.items():
        data[name].x = torch.randn(count, P, generator=generator)
    for source, target in ("ab", "ba", "aa"):
        ends = [torch.randint(counts[name], (7,), generator=generator) for name in (source, target)]
        data[source, "to", target].edge_index = torch.stack(ends)
    return data


COUNTS = [{"a": 4, "b": 4}, {"a": 5, "b": 3}]


def dense_basis(family, index, size, is_pair):
    edges = Graph.read(index, size=size, bipartite=is_pair)
    return family.basis(edges, dtype=torch.float32).to_dense()


class Two(torch.nn.Module):
    def __init__(self, family, **options):
        super().__init__()
        self.first = OuterConv(-1, 4, family, **options)
        self.second = OuterConv(-1, Q, family, **options)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("family", ON_PAIRS, ids=str)
def test_to_hetero_sums_dense_convolutions(family, counts):
    data = hetero(3, counts)
    model = to_hetero(Two(family), data.metadata())
    out = model(data.x_dict, data.edge_index_dict)

    def expected(stage, x):
        total = dict.fromkeys(x, 0)
        for source, name, target in data.edge_types:
            conv = stage[f"{source}__{name}__{target}"]
            size = (counts[source], counts[target])
            index = data[source, name, target].edge_index
            phi = dense_basis(family, index, size, source != target)
            part = torch.einsum("kmn,mp,kpq->nq", phi, x[source], conv.theta()[:, 0]) + conv.bias
            total[target] = total[target] + part
        return total

    hidden = {name: value.relu() for name, value in expected(model.first, data.x_dict).items()}
    for name, value in expected(model.second, hidden).items():
        assert_near(out[name], value)


ON_ONE_SET = [GCN(), Walk(2), Chebyshev(3), Directed(), Stack(Chebyshev(2), Relation(1)), Hops(2)]


@pytest.mark.parametrize("family", ON_ONE_SET, ids=str)
def test_hetero_conv_takes_anything_within_a_type_and_what_makes_sense_between(family):
    data = hetero(5, COUNTS[1])
    convs = {kind: OuterConv(P, Q, Walk(1)) for kind in data.edge_types}
    convs["a", "to", "a"] = OuterConv(P, Q, family)
    out = HeteroConv(convs)(data.x_dict, data.edge_index_dict)
    within = convs["a", "to", "a"](data["a"].x, data["a", "to", "a"].edge_index)
    between = convs["b", "to", "a"]((data["b"].x, data["a"].x), data["b", "to", "a"].edge_index)
    assert_near(out["a"], within + between)
    index = data["b", "to", "a"].edge_index
    phi = dense_basis(Walk(1), index, (3, 5), True)
    theta, bias = convs["b", "to", "a"].theta()[:, 0], convs["b", "to", "a"].bias
    assert_near(between, torch.einsum("kmn,mp,kpq->nq", phi, data["b"].x, theta) + bias)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("family", ON_ONE_SET, ids=str)
def test_what_makes_no_sense_between_two_types_says_what_does(family, counts):
    data = hetero(5, counts)
    if family.add_self_loops:  # which PyG refuses
        family = family.set_self_loops(False)
        family = Stack(Walk(2), family)
    rule = "same nodes: expected one x, not a pair; for a pair"
    convs = {kind: OuterConv(P, Q, family) for kind in data.edge_types}
    with pytest.raises(ValueError, match=rule):
        HeteroConv(convs)(data.x_dict, data.edge_index_dict)
    model = to_hetero(Two(family), data.metadata())
    with pytest.raises(ValueError, match=rule):
        model(data.x_dict, data.edge_index_dict)


@pytest.mark.parametrize("family", ON_ONE_SET, ids=str)
def test_to_hetero_takes_anything_where_edges_are_within_types(family):
    data = hetero(7, COUNTS[0])
    del data["a", "to", "b"], data["b", "to", "a"]
    data["b", "on", "b"].edge_index = torch.tensor([[0, 1], [2, 2]])
    if family.add_self_loops:  # which PyG refuses
        family = family.set_self_loops(False)
    model = to_hetero(Two(family), data.metadata())
    out = model(data.x_dict, data.edge_index_dict)
    for (name, relation, _), index in data.edge_index_dict.items():
        key = f"{name}__{relation}__{name}"
        hidden = model.first[key](data[name].x, index).relu()
        assert_near(out[name], model.second[key](hidden, index))


def test_attention_over_a_pair_of_as_many_leaves_no_edge_out():
    x, far = torch.randn(4, P), torch.randn(4, P)
    conv = AttentionConv(P, Q, support=Complete(add_self_loops=False), score="dot-product")
    with pytest.raises(ValueError, match=r"leaving out self-loops .* for a pair Complete\(\)"):
        conv((x, far), None)
    assert conv((x, x), None).shape == (4, Q)
