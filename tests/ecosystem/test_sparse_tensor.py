"""torch_sparse's ``SparseTensor`` as adjacency matrix; skipped by name without torch-sparse."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import GCNNorm, ToSparseTensor
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import trim_to_layer

from pyg_outerconv.families import GCN, Relation, Walk
from pyg_outerconv.nn import OuterConv, OuterGNN
from pyg_outerconv.testing import assert_near

pytestmark = pytest.mark.skipif(
    not WITH_TORCH_SPARSE, reason="SparseTensor is torch-sparse's, which is not installed"
)

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1], [1, 2, 3, 0, 2, 1, 1]])


def matrix_of(edge_index, value=None, size=(5, 5)):
    """The transposed adjacency matrix (N × M)."""
    from torch_sparse import SparseTensor

    row, column = edge_index.flip(0)
    return SparseTensor(row=row, col=column, value=value, sparse_sizes=size[::-1])


@pytest.mark.parametrize("cached", [None, True, False])
def test_a_changed_matrix_is_noticed(cached):
    conv, x = OuterConv(4, 6, GCN(), cached=cached), torch.randn(5, 4)
    for edges in (EDGES, EDGES.flip(0), EDGES[:, :3]):
        matrix = matrix_of(edges)
        for _ in range(2):
            assert_near(conv(x, matrix), conv(x, edges.clone()))
    value = torch.rand(7) + 0.1
    matrix = matrix_of(EDGES, value)
    assert_near(conv(x, matrix), conv(x, EDGES, value.clone()))
    assert_near(
        conv(x, matrix.set_value(value + 1, layout="coo")),
        conv(x, EDGES[:, order_of(EDGES)], value + 1),
    )


def order_of(edges):
    """The order of entries in a matrix: by target, then by source."""
    return (edges[1] * 5 + edges[0]).argsort(stable=True)


def test_the_transform_makes_what_layers_take():
    weight = torch.rand(7) + 0.1
    data = Data(x=torch.randn(5, 4), edge_index=EDGES, edge_weight=weight)
    for family in (GCN(), Walk(2), Relation(1)):
        transformed = ToSparseTensor(attr="edge_weight")(copy.copy(data))
        assert type(transformed.adj_t).__name__ == "SparseTensor"
        conv = OuterConv(4, 6, family)
        assert_near(conv(transformed.x, transformed.adj_t), conv(data.x, EDGES, weight))
        assert_near(family.basis_of(transformed).to_dense(), family.basis_of(data).to_dense())
        stored = family(transformed)
        assert_near(family.basis_of(stored).to_dense(), family.basis_of(data).to_dense())


def test_gcn_is_pygs_where_no_loop_was_there():
    edges = EDGES[:, EDGES[0] != EDGES[1]]
    theirs, ours, x = GCNConv(4, 6), OuterConv(4, 6, GCN()), torch.randn(5, 4)
    with torch.no_grad():
        ours.theta.weight.copy_(theirs.lin.weight.t()[None])
    assert_near(ours(x, matrix_of(edges)), theirs(x, matrix_of(edges)))
    normed = GCNNorm()(Data(x=x, adj_t=matrix_of(edges)))
    plain = OuterConv(4, 6, Relation(1, None))
    plain.load_state_dict(ours.state_dict())
    assert_near(plain(x, normed.adj_t), ours(x, edges))


def test_trimmed_matrices_give_seeds_what_whole_ones_give():
    nodes, count = [2, 3, 2], [4, 4]
    edges = torch.tensor([[2, 3, 4, 2, 5, 6, 1, 5], [0, 0, 1, 1, 2, 3, 4, 4]])
    model, x = OuterGNN(4, 6, 2, 3, family="relation(1)"), torch.randn(7, 4)
    expected = model(x, edges)
    matrix = matrix_of(edges, size=(7, 7))
    for hop, conv in enumerate(model.convs):
        x, matrix, _ = trim_to_layer(hop, nodes, count, x, matrix)
        x = conv(x, matrix)
        x = x.relu() if hop == 0 else x
    assert_near(x[:2], expected[:2])
