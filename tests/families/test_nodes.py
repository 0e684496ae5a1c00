"""Families of nodes: the full basis, a part of the nodes; and other bases made explicit."""

import pytest
import torch
from contractions import normal, parameter
from torch_geometric.data import Data

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import Band, EdgeBasis, UnitMatrices
from pyg_outerconv.contract import contract, contraction_path
from pyg_outerconv.families import (
    Explicit,
    Full,
    Part,
    Stack,
    Walk,
)
from pyg_outerconv.graph import Graph
from pyg_outerconv.testing import (
    assert_adjoint,
    assert_contraction,
    assert_near,
    assert_transpose,
)
from pyg_outerconv.theta import Theta

SIZES = [(3, 2), (2, 3), (1, 4), (4, 1), (0, 3), (3, 0)]
CPU = torch.device("cpu")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_label_has_one_edge(size, transposed):
    basis = UnitMatrices(size, on=CPU)
    basis = basis.transpose() if transposed else basis
    dense = basis.to_dense(torch.float64)
    sources, targets = size
    eye = torch.eye(sources * targets).double()
    expected = eye.view(sources * targets, sources, targets)
    assert_near(dense, expected.transpose(1, 2) if transposed else expected)
    edges = basis.edges().pattern
    assert basis.num_edges == edges.num_edges
    assert basis.num_source_pairs == edges.num_source_pairs
    assert basis.num_target_pairs == edges.num_target_pairs
    assert basis.mean() is basis


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", [(), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_order_equals_the_oracle(size, groups, batch, transposed):
    basis = UnitMatrices(size, on=CPU)
    basis = basis.transpose() if transposed else basis
    x = normal(basis.size[0], *batch, 4)
    assert_contraction(basis, x, parameter(basis.num_bases, groups, 4, 2), depth=2)
    if basis.num_bases:
        assert_contraction(basis, x, parameter(basis.num_bases, groups, 4, 2, 2))


def test_it_is_a_linear_layer_with_weights_copied_both_ways():
    m, n, p, q = 5, 6, 3, 4
    conv = OuterConv(p, q, Full((m, n)), bias=False).double()
    linear = torch.nn.Linear(m * p, n * q, bias=False).double()
    x = torch.randn(2, 7, m, p, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        weight = linear.weight.view(n, q, m, p).permute(2, 0, 3, 1)
        conv.theta.weight.copy_(weight.reshape(m * n, p, q))
    actual, expected = conv(x, None), linear(x.flatten(-2)).unflatten(-1, (n, q))
    assert_near(actual, expected)
    direction = torch.randn_like(actual)
    ours = torch.autograd.grad(actual, [x, conv.theta.weight], direction)
    theirs = torch.autograd.grad(expected, [x, linear.weight], direction)
    assert_near(ours[0], theirs[0])
    back = ours[1].view(m, n, p, q).permute(1, 3, 0, 2).reshape(n * q, m * p)
    assert_near(back, theirs[1])
    assert conv.contraction_path(x, None).chosen == ["fully_connected"]


def test_the_transpose_of_the_basis_is_one_dense_product_too():
    basis, x = UnitMatrices((5, 6), on=CPU).transpose(), torch.randn(6, 8, 3)
    theta = torch.randn(30, 1, 3, 4)
    assert contraction_path(basis, x, theta).chosen == ["fully_connected"]
    assert_near(contract(basis, x, theta), contract(basis.edges(), x, theta))


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_reductions_over_the_one_input_of_a_label_are_the_same(aggr):
    basis, x, theta = UnitMatrices((3, 2), on=CPU), torch.randn(3, 4), torch.randn(6, 1, 4, 2)
    assert_near(contract(basis, x, theta, "fully_connected", aggr=aggr), contract(basis, x, theta))


def test_other_bases_and_features_are_refused_by_name():
    theta = torch.randn(6, 1, 4, 2)
    basis = UnitMatrices((3, 2), on=CPU)
    with pytest.raises(ValueError, match="solves UnitMatrices, not a EdgeBasis"):
        contract(basis.edges(), torch.randn(3, 4), theta, "fully_connected")
    indices = torch.tensor([3, 0, 3])
    with pytest.raises(ValueError, match="needs dense node features to propagate"):
        contract(basis, indices, theta, "fully_connected")
    assert_contraction(basis, indices, theta)
    assert_contraction(basis, indices, Theta(torch.randn(2, 1, 4, 2), torch.randn(6, 2)))


def test_more_parameters_than_the_limit_are_refused_before_they_are_made():
    rule = "max_parameters, which can be set higher: expected at most 10000000, got 12000000"
    late = OuterConv(-1, 40, Full((100, 100)))
    with pytest.raises(ValueError, match=rule):
        late(torch.randn(100, 30), None)
    assert late.theta.in_channels == -1, "it can be tried again"
    for most in (12_000, None):
        conv = OuterConv(3, 4, Full((50, 20), max_parameters=most))
        assert conv.theta.weight.numel() == 12_000
    shared = OuterConv(3, 4, Full((50, 20), max_parameters=12), theta="shared")
    assert sum(p.numel() for p in shared.theta.parameters()) == 12


def test_numbers_of_nodes_are_those_of_the_family():
    family = Full((3, 2))
    assert family.num_bases == 6
    assert family.labels == ("0 to 0", "0 to 1", "1 to 0", "1 to 1", "2 to 0", "2 to 1")
    assert family.basis(None).size == (3, 2)
    assert family.basis(torch.tensor([[0], [1]]), size=(3, 2)).size == (3, 2), "edges say nothing"


# Explicit -------------------------------------------------------------------------------------


def test_explicit_edges_take_the_reductions_that_a_rule_refuses():
    graph = Graph.read(torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]))
    x = torch.randn(4, 3).double()
    lazy = OuterConv(3, 3, Walk(2, norm=None), theta="identity", aggr="max", bias=False)
    with pytest.raises(ValueError, match="Polynomial"):
        lazy(x, graph)
    conv = OuterConv(3, 3, Explicit(Walk(2, norm=None)), theta="identity", aggr="max", bias=False)
    basis = conv.family.basis(graph, dtype=torch.float64)
    assert isinstance(basis, EdgeBasis)
    rows = []
    for weight, mask in zip(basis.to_dense(), basis.support(), strict=True):
        largest = (weight[..., None] * x[:, None]).masked_fill(~mask[..., None], -torch.inf).amax(0)
        rows.append(torch.where(largest.isinf(), 0, largest))
    assert_near(conv(x, graph), sum(rows))


def test_what_explicit_says_is_what_its_family_says():
    family = Explicit(Walk(2, add_self_loops=True))
    assert family.add_self_loops
    assert not family.set_self_loops(False).family.add_self_loops
    assert family.labels == family.family.labels


# What torch can do with the order ----------------------------------------------------------------


def test_autocast_and_short_types():
    basis, x, theta = UnitMatrices((3, 2), on=CPU), torch.randn(3, 4), torch.randn(6, 1, 4, 2)
    exact = contract(basis, x, theta, "fully_connected")
    with torch.autocast("cpu", torch.bfloat16):
        short = contract(basis, x, theta, "fully_connected")
    assert short.dtype == torch.bfloat16
    assert_near(short.float(), exact, 4e-2)
    half = contract(basis, x.bfloat16(), theta.bfloat16(), "fully_connected")
    assert_near(half.float(), exact, 4e-2)


@pytest.mark.parametrize(
    ("family", "sources", "wanted"),
    [
        (Part(), 4, range(4)),
        (Part(2), 4, range(2)),
        (Part(start=1), 4, range(1, 4)),
        (Part(2, start=1), 4, range(1, 3)),
        (Part(start=-3), 4, range(1, 4)),
        (Part(1, start=-3), 4, range(1, 2)),
        (Part(0, start=4), 4, range(4, 4)),
        (Part(), 0, range(0)),
        (Part(), 1, range(1)),
    ],
    ids=str,
)
def test_targets_are_consecutive_sources(family, sources, wanted):
    x = torch.randn(sources, 3, dtype=torch.float64)
    basis = family.basis(None, size=(sources, None))
    assert isinstance(basis, Band)
    assert torch.equal(basis.to_dense(torch.float64)[0].t() @ x, x[list(wanted)])
    conv = OuterConv(3, 3, family, theta="identity", bias=False).double()
    assert_near(conv(x, None), x[list(wanted)])
    assert_near(conv(x, (sources,)), x[list(wanted)])
    assert_adjoint(basis)
    assert_transpose(basis)


def test_the_structure_says_how_many_targets_there_are():
    assert Part(start=2).basis(None, size=(5, 3)).size == (5, 3)
    assert Part(start=1).basis(None, size=(5, 3)).size == (5, 3)
    edges = torch.tensor([[0, 4], [1, 0]])
    assert Part().basis(edges, size=(5, 2)).size == (5, 2)
    pair = torch.randn(5, 2), torch.randn(2, 2)
    assert OuterConv(2, 2, Part(start=3))(pair, None).shape == (2, 2)


def test_heads_may_have_parts_of_their_own():
    dense = Stack(Part(2), Part(2, start=-2), Part(2, start=1)).basis(None, size=(5, 2)).to_dense()
    for k, start in enumerate((0, 3, 1)):
        assert_near(dense[k], torch.eye(5)[:, start : start + 2])


def test_a_graph_has_no_place_for_targets_that_are_some_of_its_nodes():
    data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 3], [1, 2]]))
    assert Part(2).basis_of(data).size == (4, 2)
