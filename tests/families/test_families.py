"""What each family claims to be, written out densely."""

import numpy as np
import pytest
import torch
from cases import CASES

from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Directed,
    Hops,
    Identity,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.families.chebyshev import largest_eigenvalues
from pyg_outerconv.graph import Graph
from pyg_outerconv.graph.spectrum import DENSE_LIMIT
from pyg_outerconv.testing import (
    assert_near,
    awkward_structures,
)

EDGES = awkward_structures()["weighted"]


def adjacency(edges):
    """W[m, n], parallel edges added."""
    dense = torch.zeros(edges.size, dtype=torch.float64)
    weight = edges.weight(torch.float64).double()
    return dense.index_put((edges.source, edges.target), weight, accumulate=True)


def invert(degree):
    return torch.where(degree > 0, 1 / degree, 0.0)


# Walk ----------------------------------------------------------------------------------------


def walks_by_hand(w, length):
    """Weights of all walks m → n of that length, listed one by one over parallel edges."""
    found = {(m, n): ([1.0] if m == n else []) for m in range(5) for n in range(5)}
    for _ in range(length):
        longer = {key: [] for key in found}
        for (m, j), weights in found.items():
            for source, target, weight in w:
                if source == j:
                    longer[m, target] += [weight * other for other in weights]
        found = longer
    return found


@pytest.mark.parametrize(
    ("aggr", "function"), [("sum", sum), ("mean", np.mean), ("max", max), ("min", min)]
)
@pytest.mark.parametrize("name", ["weighted", "multi-edge", "self-loops"])
def test_walk_aggregates_over_walks_listed_one_by_one(name, aggr, function):
    edges = awkward_structures()[name]
    listed = list(zip(*edges.edge_index.tolist(), edges.edge_weight.tolist(), strict=True))
    dense = Walk(3, norm=None, aggr=aggr).basis(edges).to_dense()
    for length in range(4):
        for (m, n), weights in walks_by_hand(listed, length).items():
            expected = function(weights) if weights else 0.0
            assert float(dense[length, m, n].detach()) == pytest.approx(expected, rel=1e-12)


# Chebyshev -----------------------------------------------------------------------------------


def laplacian(edges, norm):
    w = adjacency(edges).detach()
    w = w - torch.diag(w.diag())
    degree = w.sum(1)
    if norm is None:
        return torch.diag(degree) - w
    if norm == "source":
        return torch.eye(len(w), dtype=w.dtype) - invert(degree)[:, None] * w
    root = invert(degree).sqrt()
    return torch.eye(len(w), dtype=w.dtype) - root[:, None] * w * root


def random_graph(num_nodes, num_edges, symmetric):
    index = torch.randint(num_nodes, (2, num_edges))
    index = torch.cat([index, index.flip(0)], 1) if symmetric else index
    weight = torch.rand(num_edges).double() + 0.1
    weight = torch.cat([weight, weight]) if symmetric else weight
    return Graph.read(index, weight, size=(num_nodes, num_nodes))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [DENSE_LIMIT - 1, DENSE_LIMIT + 40])
def test_largest_eigenvalue_is_exact_below_and_above_the_dense_limit(size, symmetric):
    edges = random_graph(size, 4 * size, symmetric)
    found = float(largest_eigenvalues(edges))
    expected = float(torch.linalg.eigvals(adjacency(edges)).abs().max())
    assert found == pytest.approx(expected, rel=1e-6)


def test_largest_eigenvalue_of_many_equal_ones_in_float32():
    """Many separate pairs of nodes with uneven weights: each has the eigenvalue 2."""
    index = torch.arange(300).view(2, 150)
    index = torch.cat([index, index.flip(0)], 1)
    weight = torch.rand(150) + 0.1
    edges = Graph.read(index, torch.cat([weight, weight]), size=(300, 300))
    basis = Chebyshev(2, "exact").basis(edges)
    assert_near(basis.to_dense()[1] + torch.eye(300), laplacian(edges, "sym").float())


def test_exact_eigenvalue_is_computed_once_without_gradient(monkeypatch):
    calls = []

    def count(*args):
        calls.append(args)
        return largest_eigenvalues(*args)

    monkeypatch.setattr("pyg_outerconv.families.chebyshev.largest_eigenvalues", count)
    index, weight = EDGES.edge_index.clone(), EDGES.edge_weight.detach().clone()
    for _ in range(3):
        Chebyshev(3, "exact").basis(index, weight, size=(5, 5))
    assert len(calls) == 1
    weight.mul_(2.0)
    Chebyshev(3, "exact").basis(index, weight, size=(5, 5))
    assert len(calls) == 2, "an in-place change is noticed"
    Chebyshev(3, "exact").basis(index.clone(), weight, size=(5, 5))
    assert len(calls) == 3, "other edges are other edges"


def test_eigenvalues_are_each_graphs_own_in_a_batch():
    one, two = random_graph(6, 12, True), random_graph(4, 5, False)
    index = torch.cat([one.edge_index, two.edge_index + 6], 1)
    weight = torch.cat([one.edge_weight, two.edge_weight])
    batch = torch.tensor([0] * 6 + [1] * 4)
    for family in (Chebyshev(3, "exact"), Chebyshev(3, "bound", None), Chebyshev(2, (1.5, 2.5))):
        parts = [family, family]
        if isinstance(family.lambda_max, tuple):
            parts = [Chebyshev(2, value) for value in family.lambda_max]
        whole = family.basis(index, weight, size=(10, 10), batch=batch).to_dense()
        expected = [
            part.basis(graph).to_dense() for part, graph in zip(parts, (one, two), strict=True)
        ]
        for k in range(family.num_bases):
            assert_near(whole[k], torch.block_diag(*(dense[k] for dense in expected)), 1e-9)


# The others ----------------------------------------------------------------------------------


def test_given_norm_is_the_edge_weight():
    dense = Relation(3, "given").basis(EDGES).to_dense()
    assert_near(dense.sum(0), adjacency(EDGES))


def test_identity_where_targets_come_first_among_sources():
    dense = Identity().basis(torch.empty(2, 0, dtype=torch.long), size=(5, 3)).to_dense()
    assert_near(dense[0], torch.eye(5, 3))


def test_labels_say_what_each_matrix_means():
    family = Stack(Walk(1, direction="both"), Relation(2), Identity())
    assert family.labels == (
        "forward walks of length 0",
        "forward walks of length 1",
        "backward walks of length 0",
        "backward walks of length 1",
        "relation 0",
        "relation 1",
        "self",
    )
    assert Directed(GCN()).labels == ("neighbours", "neighbours, reversed")


def test_self_loops_are_a_setting_of_nested_families():
    family = Stack(Directed(GCN()), Identity())
    assert family.add_self_loops
    assert family.set_self_loops(False) == Stack(Directed(GCN(add_self_loops=False)), Identity())
    assert Hops().set_self_loops(True) == Hops(add_self_loops=True)


# Weights -------------------------------------------------------------------------------------


NEGATIVE = Graph.read(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, -2.0]), size=(2, 2))


@pytest.mark.parametrize("family", [Relation(1), Walk(1, None), Relation(1, None)], ids=str)
def test_families_without_a_norm_take_negative_weights(family):
    assert float(family.basis(NEGATIVE).to_dense().min()) < 0


@pytest.mark.parametrize("family", [GCN(norm="target"), Walk(1, norm="target")], ids=str)
def test_degrees_of_short_types_count_past_what_these_hold(family):
    many = 1000  # bfloat16 counts to 256
    edge_index = torch.stack([torch.arange(1, many + 1), torch.zeros(many).long()])
    basis = family.basis(edge_index, torch.ones(many, dtype=torch.bfloat16))
    assert basis.dtype == torch.bfloat16
    assert float(basis.edges().values().float().min()) == pytest.approx(1 / many, rel=0.01)


@pytest.mark.parametrize("family", CASES, ids=str)
def test_values_have_the_type_of_the_weights_and_no_weight_makes_them_nan(family):
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 3]])
    weight = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    basis = family.basis(Graph.read(edge_index, weight, torch.zeros(4).long(), size=(5, 5)))
    assert basis.dtype in (None, torch.bfloat16)
    dense = basis.to_dense(torch.bfloat16)
    assert dense.isfinite().all()
    if dense.requires_grad:
        (gradient,) = torch.autograd.grad(dense.float().pow(2).sum(), weight, allow_unused=True)
        assert gradient is None or gradient.isfinite().all()
