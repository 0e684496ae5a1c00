"""Renumbering nodes: the same convolution, on neighbours that lie near each other."""

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import EdgeBasis, Polynomial
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack
from pyg_outerconv.testing import assert_near

FAMILIES = [GCN(), Chebyshev(3), Relation(3), Stack(GCN(), Chebyshev(2), Identity())]


def renamed_path(size):
    """Edges of a path whose nodes were renamed at random."""
    name = torch.randperm(size)
    return torch.stack([name[:-1], name[1:]])


def bandwidth(basis):
    source, target = basis.edges().index.long()
    return int((source - target).abs().max())


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_convolution_is_the_same_and_lazy_bases_stay_lazy(family):
    edge_index = torch.randint(20, (2, 60))
    types = torch.randint(3, (60,)) if isinstance(family, Relation) else None
    weight = torch.rand(60, dtype=torch.float64, requires_grad=True)
    basis = family.basis(edge_index, weight, edge_type=types, size=(20, 20))
    there = basis.reorder()
    assert type(there.basis) is type(basis)
    conv, x = OuterConv(4, 3, family).double(), torch.randn(20, 4, dtype=torch.float64)
    expected = conv(x, basis)
    actual = conv(x[there.nodes], there.basis)[there.place]
    assert_near(actual, expected)
    direction = torch.randn_like(expected)
    found, wanted = (
        torch.autograd.grad(out, weight, direction, retain_graph=True)[0]
        for out in (actual, expected)
    )
    assert_near(found, wanted)


def test_neighbours_come_near_each_other():
    basis = GCN(add_self_loops=False).basis(renamed_path(200), size=(200, 200))
    assert bandwidth(basis) > 50
    assert bandwidth(basis.reorder().basis) == 1


def test_values_go_with_their_edges_and_edges_with_the_users_list():
    edge_index = torch.randint(9, (2, 30))
    basis = Relation(1, None).basis(edge_index, torch.arange(30.0), size=(9, 9))
    there = basis.reorder()
    edges = there.basis.edges()
    assert isinstance(edges, EdgeBasis)
    source, target = edge_index[:, edges.pattern.origin.long()]
    assert torch.equal(there.place[source], edges.pattern.source.long())
    assert torch.equal(there.place[target], edges.pattern.target.long())
    assert torch.equal(edges.value, edges.pattern.origin.float())
    given = edges.pattern.order.long()
    assert torch.equal(edge_index[:, given], torch.stack([source, target]))


def test_places_and_nodes_are_inverse():
    there = Chebyshev(2).basis(renamed_path(30), size=(30, 30)).reorder()
    assert isinstance(there.basis, Polynomial)
    assert torch.equal(there.nodes[there.place], torch.arange(30))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_graphs_without_edges(size):
    none = torch.empty(2, 0, dtype=torch.long)
    there = Relation(1, None).basis(none, size=(size, size)).reorder()
    assert sorted(there.nodes.tolist()) == list(range(size))


def test_two_sets_of_nodes_are_refused():
    with pytest.raises(ValueError, match="at both ends: expected M = N, got M = 3, N = 4"):
        Relation(1, None).basis(torch.tensor([[0], [3]]), size=(3, 4)).reorder()
