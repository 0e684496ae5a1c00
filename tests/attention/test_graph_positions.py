"""Encodings of graphs are what PyG's transforms compute, graph by graph."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import erdos_renyi_graph, to_dense_adj, to_undirected

from pyg_outerconv.attention import GraphPositions
from pyg_outerconv.testing import assert_near


def ring(count):
    node = torch.arange(count)
    return Data(edge_index=to_undirected(torch.stack([node, (node + 1) % count])), num_nodes=count)


def drawn(count, seed=0):
    """A connected graph whose Laplacian has no eigenvalue twice, as far as chance goes."""
    torch.manual_seed(seed)
    path = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    index = torch.cat([path, erdos_renyi_graph(count, 0.3)], dim=1)
    return Data(edge_index=to_undirected(index), num_nodes=count)


def laplacian(data):
    adjacency = to_dense_adj(data.edge_index, max_num_nodes=data.num_nodes)[0].double()
    scale = adjacency.sum(0).rsqrt()
    return torch.eye(data.num_nodes) - scale[:, None] * adjacency * scale


def test_walks_come_back_with_these_probabilities():
    data = drawn(9)
    adjacency = to_dense_adj(data.edge_index)[0]
    step = adjacency / adjacency.sum(1, keepdim=True)
    powers = [torch.linalg.matrix_power(step, k).diagonal() for k in range(1, 6)]
    assert_near(GraphPositions("random-walk", 5)(data), torch.stack(powers, dim=1))


@pytest.mark.parametrize("count", [12, 120])  # PyG's dense and sparse solver
def test_columns_are_eigenvectors_of_the_smallest_eigenvalues(count):
    data = drawn(count)
    encoding = GraphPositions("laplacian", 4).eval()(data)
    value, vector = torch.linalg.eigh(laplacian(data))
    alike = (encoding.double().t() @ vector[:, 1:5]).abs()
    assert_near(alike, torch.eye(4, dtype=torch.float64), 1e-3)
    assert encoding.dtype == torch.float32
    assert (value[1:5].diff() > 1e-4).all()  # else there were no eigenvectors to compare


@pytest.mark.parametrize("count", [12, 120])
def test_eigenvectors_of_equal_eigenvalues_are_orthogonal_and_stay_the_same(count):
    positions, data = GraphPositions("laplacian", 6).eval(), ring(count)
    encoding = positions(data)
    assert_near(encoding.t() @ encoding, torch.eye(6), 1e-4)
    assert torch.equal(positions(data), encoding)


def test_a_graph_may_have_fewer_eigenvectors_than_the_sparse_solver_would_find():
    encoding = GraphPositions("laplacian", 99).eval()(drawn(100))
    assert_near(encoding.square().sum(0), torch.cat([torch.ones(98), torch.zeros(1)]), 1e-4)


def test_signs_are_fixed_without_training():
    positions = GraphPositions("laplacian", 3).eval()
    one, other = positions(drawn(10)), positions(drawn(10))
    assert torch.equal(one, other)
    assert (one.gather(0, one.abs().argmax(0, keepdim=True)) > 0).all()


def test_signs_are_fixed_where_the_largest_entries_are_opposite():
    path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    for _ in range(8):  # PyG draws signs each time
        encoding = GraphPositions("laplacian", 1).eval()(path).flatten()
        assert_near(encoding, torch.tensor([0.5, 0.0, -0.5]).mul(2**0.5), 1e-5)


def test_signs_are_drawn_in_training_for_each_graph_and_eigenvector():
    positions = GraphPositions("laplacian", 3)
    batch = positions.store(Batch.from_data_list([drawn(10), drawn(12, seed=1)]))
    fixed = positions.eval()(batch)
    positions.train()
    seen = set()
    for _ in range(100):
        sign = positions(batch) / fixed
        assert torch.equal(sign.abs().nan_to_num(1.0), torch.ones(22, 3))
        for nodes in (slice(0, 10), slice(10, 22)):
            part = sign[nodes].nan_to_num(0.0)
            assert ((part.amax(0) - part.amin(0)) <= 1).all()  # one sign in a graph, or zero
        seen.add(tuple(sign[[0, 10]].sign().flatten().tolist()))
    assert len(seen) > 30  # of 64
    assert torch.equal(GraphPositions("laplacian", 3, flip=False)(batch), fixed)


@pytest.mark.parametrize("kind", ["laplacian", "random-walk"])
def test_graphs_of_a_batch_are_encoded_one_by_one(kind):
    graphs = [drawn(10), ring(4), drawn(7, seed=3), Data(edge_index=torch.empty(2, 0).long())]
    graphs[3].num_nodes = 2
    positions = GraphPositions(kind, 4).eval()
    together = positions(Batch.from_data_list(graphs))
    assert_near(together, torch.cat([positions(graph) for graph in graphs]))


def test_graphs_may_be_mixed_up_in_a_batch():
    batch = Batch.from_data_list([drawn(10), drawn(7, seed=3)])
    order = torch.randperm(17)
    place = order.argsort()
    mixed = Data(edge_index=place[batch.edge_index], num_nodes=17, batch=batch.batch[order])
    positions = GraphPositions("laplacian", 3).eval()
    assert_near(positions(mixed).abs(), positions(batch)[order].abs(), 1e-4)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_small_graphs_have_zeros_in_the_place_of_eigenvectors(count):
    node = torch.arange(count)
    path = to_undirected(torch.stack([node[:-1], node[1:]]))
    encoding = GraphPositions("laplacian", 4).eval()(Data(edge_index=path, num_nodes=count))
    assert encoding.shape == (count, 4)
    num_eigenvectors = max(min(count - 1, 4), 0)
    assert_near(encoding.square().sum(0)[:num_eigenvectors], torch.ones(num_eigenvectors))
    assert not encoding[:, num_eigenvectors:].any()


def test_graphs_without_edges_stay_where_they_are():
    alone = Data(edge_index=torch.empty(2, 0).long(), num_nodes=3)
    assert not GraphPositions("random-walk", 2)(alone).any()
    assert GraphPositions("laplacian", 2)(alone).isfinite().all()


def test_weights_count_for_the_laplacian():
    data = drawn(8)
    data.edge_weight = torch.ones(data.num_edges, dtype=torch.float64)
    positions = GraphPositions("laplacian", 3).eval()
    assert_near(positions(data), positions(drawn(8)), 1e-4)
    index = data.edge_index
    data.edge_weight = 1.0 + (index[0] + index[1]).double()
    assert not torch.allclose(positions(data), positions(drawn(8)), atol=1e-2)


def test_directed_graphs_have_encodings_too():
    path = Data(edge_index=torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]]), num_nodes=4)
    for kind in ("laplacian", "random-walk"):
        encoding = GraphPositions(kind, 3).eval()(path)
        assert encoding.shape == (4, 3)
        assert encoding.isfinite().all()


def test_stored_encodings_are_taken_and_the_data_stay_as_they_were():
    for kind in ("laplacian", "random-walk"):
        positions, data = GraphPositions(kind, 3).eval(), drawn(9)
        stored = positions.store(data)
        assert positions.attribute not in data
        assert torch.equal(stored[positions.attribute], positions(data))
        stored[positions.attribute] = torch.full((9, 3), 7.0)
        assert torch.equal(positions(stored), torch.full((9, 3), 7.0))


def test_short_integers_will_do():
    data = drawn(9)
    narrow = Data(edge_index=data.edge_index.int(), num_nodes=9)
    for kind in ("laplacian", "random-walk"):
        positions = GraphPositions(kind, 3).eval()
        assert torch.equal(positions(narrow), positions(data))


def test_walks_do_not_depend_on_the_numbers_of_nodes():
    data, order = drawn(11), torch.randperm(11)
    place = order.argsort()
    renamed = Data(edge_index=place[data.edge_index], num_nodes=11)
    positions = GraphPositions("random-walk", 6)
    assert_near(positions(renamed), positions(data)[order])
