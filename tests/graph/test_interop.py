"""Doors in and out: every form of a graph leads to the same matrices, and back."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from pyg_outerconv.basis import to_edge_index, to_networkx, to_scipy
from pyg_outerconv.families import Relation, edge_basis
from pyg_outerconv.graph import Graph, edge_list_of, from_hetero, from_networkx, from_scipy
from pyg_outerconv.testing import assert_near

INDEX = torch.tensor([[0, 2, 1, 2], [1, 0, 1, 3]])
WEIGHT = torch.tensor([1.0, 2.0, 3.0, 0.0])
DENSE = torch.tensor([[0, 1, 0, 0], [0, 3, 0, 0], [2, 0, 0, 0.0]])


def dense(edges):
    return edge_basis(edges).to_dense()[0]


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_torch_sparse_is_read_transposed_and_its_values_are_weights(layout):
    matrix = torch.sparse_coo_tensor(INDEX.flip(0), WEIGHT, (4, 3))
    if layout != "coo":
        matrix = matrix.coalesce().to_sparse(layout=getattr(torch, f"sparse_{layout}"))
    edges = Graph.read(matrix)
    assert edges.size == (3, 4)
    assert_near(dense(edges), DENSE)
    assert int(edge_basis(edges).support().sum()) == 4, "a stored zero is an edge"


def test_uncoalesced_entries_stay_parallel_edges():
    matrix = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2))
    assert Graph.read(matrix).num_edges == 2


def test_edge_index_class_keeps_its_size():
    edges = Graph.read(EdgeIndex(INDEX, sparse_size=(5, 6)))
    assert edges.size == (5, 6)
    assert type(edges.edge_index) is torch.Tensor
    assert Graph.read(EdgeIndex(INDEX), size=(3, 4)).size == (3, 4)


def test_size_is_inferred_from_the_largest_index():
    assert Graph.read(INDEX).size == (4, 4)
    assert Graph.read(INDEX, size=(None, 6)).size == (3, 6)
    assert Graph.read(torch.empty(2, 0, dtype=torch.long)).size == (0, 0)


def test_data_and_its_adjacency():
    data = Data(edge_index=INDEX, edge_weight=WEIGHT, num_nodes=6)
    assert edge_list_of(data).size == (6, 6)
    assert_near(dense(edge_list_of(data))[:3, :4], DENSE)
    sparse = Data(adj_t=torch.sparse_coo_tensor(INDEX.flip(0), WEIGHT, (6, 6)), num_nodes=6)
    assert_near(dense(edge_list_of(sparse))[:3, :4], DENSE)
    with pytest.raises(ValueError, match="a graph needs edges: expected data.edge_index"):
        edge_list_of(Data(x=torch.ones(2, 1)))
    with pytest.raises(TypeError, match="homogeneous"):
        edge_list_of(HeteroData())


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
def test_scipy_both_ways(kind):
    edges = from_scipy(kind(DENSE.numpy()))
    assert_near(dense(edges), DENSE)
    (back,) = to_scipy(edge_basis(edges))
    np.testing.assert_array_equal(back.toarray(), DENSE.numpy())


def test_several_scipy_matrices_are_relations():
    edges = from_scipy([sp.csr_array(DENSE.numpy()), sp.csr_array(2 * DENSE.numpy())])
    basis = Relation(2, "given").basis(edges)
    assert_near(basis.to_dense(), torch.stack([DENSE, 2 * DENSE]))
    second = to_scipy(basis)[1]
    np.testing.assert_array_equal(second.toarray(), 2 * DENSE.numpy())


def test_networkx_directed_weighted_with_names():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 1.5), ("b", "c", 2.0), ("c", "c", 4.0)])
    edges, nodes = from_networkx(graph)
    expected = nx.to_numpy_array(graph, nodelist=nodes)
    np.testing.assert_allclose(dense(edges).numpy(), expected)
    back = to_networkx(edge_basis(edges), nodes)
    np.testing.assert_allclose(nx.to_numpy_array(back, nodelist=nodes), expected)


def test_networkx_undirected_runs_both_ways_and_loops_once():
    graph = nx.Graph([(7, 3), (3, 3), (3, 5)])
    edges, nodes = from_networkx(graph)
    assert nodes == [7, 3, 5]
    assert edges.edge_weight is None
    assert edges.num_edges == 5
    np.testing.assert_allclose(dense(edges).numpy(), nx.to_numpy_array(graph, nodelist=nodes))


def test_networkx_parallel_edges_are_kept():
    graph = nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)])
    assert from_networkx(graph)[0].num_edges == 3
    assert from_networkx(nx.empty_graph(3))[0].size == (3, 3)


def hetero():
    data = HeteroData()
    data["author"].num_nodes = 2
    data["paper"].x = torch.ones(3, 1)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0], [2]])
    return data


def test_hetero_as_relations_over_all_nodes():
    edges, relations = from_hetero(hetero())
    assert edges.size == (5, 5)
    assert relations == [("author", "writes", "paper"), ("paper", "cites", "paper")]
    matrices = Relation(2, None).basis(edges).to_dense()
    assert matrices[0].nonzero().tolist() == [[0, 2], [1, 2], [1, 4]]
    assert matrices[1].nonzero().tolist() == [[2, 4]]


def test_one_relation_of_hetero_is_bipartite():
    edges, _ = from_hetero(hetero(), ("author", "writes", "paper"))
    assert edges.size == (2, 3)
    with pytest.raises(ValueError, match="unknown edge type"):
        from_hetero(hetero(), ("author", "reads", "paper"))


def test_edge_list_out_is_the_basis_again():
    basis = Relation(2, None).basis(from_hetero(hetero())[0])
    index, weight, kinds = to_edge_index(basis)
    again = Relation(2, "given").basis(index, weight, kinds, size=basis.size)
    assert_near(again.to_dense(), basis.to_dense())


@pytest.mark.parametrize("count", [3, 2**24, 2**40, True])
def test_integers_are_weights_as_they_are(count):
    for edges in (
        from_scipy(sp.coo_array(np.array([[0, count], [0, 0]]))),
        from_networkx(nx.DiGraph([(0, 1, {"weight": count})]))[0],
    ):
        assert float(edges.edge_weight) == float(count)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_values_leave_as_floats(dtype):
    weight = torch.tensor([0.5, 0.25], dtype=dtype)
    basis = Relation(1, None).basis(torch.tensor([[0, 1], [1, 0]]), weight)
    assert to_scipy(basis)[0].todense().tolist() == [[0.0, 0.5], [0.25, 0.0]]
