"""Pooling by assignment: PyG's global and cluster pools, and assignment matrices."""

import pytest
import torch
from oracle import assert_same
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.nn.pool.select import SelectOutput, SelectTopK

from pyg_outerconv import OuterConv
from pyg_outerconv.contract import contract
from pyg_outerconv.families import Cluster, Stack
from pyg_outerconv.graph import Assignment
from pyg_outerconv.testing import (
    assert_near,
)

BATCH = torch.tensor([0, 0, 0, 1, 1, 3, 3, 3, 3])  # nobody is in cluster 2
NODES, CLUSTERS, C = BATCH.numel(), 4, 3


def pool(aggr="sum", criteria=1, **options):
    family = Cluster(criteria)
    return OuterConv(-1, -1, family, theta="identity", bias=False, aggr=aggr, **options)


def features():
    return torch.randn(NODES, C, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("aggr", "peer"),
    [("sum", global_add_pool), ("mean", global_mean_pool), ("max", global_max_pool)],
)
@pytest.mark.parametrize("order", [torch.arange(NODES), torch.randperm(NODES)], ids=["in", "out"])
def test_global_pools(aggr, peer, order):
    x, batch = features(), BATCH[order]
    assert_same(pool(aggr)(x, batch), peer(x, batch), [x])
    wide = pool(aggr)(x, batch, size=(NODES, 6))
    assert_near(wide, peer(x, batch, 6))


def test_soft_assignments_are_dense_products():
    x, s = features(), torch.rand(NODES, CLUSTERS, dtype=torch.float64)
    s = (s * (s > 0.3)).requires_grad_()
    actual, expected = pool()(x, s), s.t() @ x
    assert_near(actual, expected)
    direction = torch.randn_like(actual)
    ours, theirs = (torch.autograd.grad(out, [x, s], direction) for out in (actual, expected))
    assert_near(ours[0], theirs[0])
    assert_near(ours[1], theirs[1] * (s != 0))  # zeros are no members


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_assignments(layout):
    s = torch.rand(NODES, CLUSTERS, dtype=torch.float64)
    s = s * (s > 0.5)
    sparse = s.to_sparse_coo() if layout == "coo" else s.to_sparse_csr()
    x = features()
    assert_near(pool()(x, sparse), s.t() @ x)
    assert_near(pool("max")(x, sparse), pool("max")(x, s))


def test_gradients_reach_a_sparse_assignment():
    values = torch.rand(3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[0, 1, 2], [0, 1, 0]])
    sparse = torch.sparse_coo_tensor(index, values, (3, 2), is_coalesced=True)
    x = torch.randn(3, 2).double()
    actual = torch.autograd.grad(pool()(x, sparse).square().sum(), values)[0]
    dense = torch.zeros(3, 2).double().index_put(tuple(index), values)
    wanted = torch.autograd.grad((dense.t() @ x).square().sum(), values)[0]
    assert_near(actual, wanted)


def test_what_pyg_selects():
    x = features()
    selected = SelectTopK(C, ratio=0.5).double()(x, BATCH)
    out = pool()(x, selected)
    expected = torch.zeros(selected.num_clusters, C).double()
    rows = x[selected.node_index] * selected.weight[:, None]
    expected = expected.index_add(0, selected.cluster_index, rows)
    assert_near(out, expected)
    plain = SelectOutput(torch.tensor([4, 0, 2]), NODES, torch.tensor([1, 0, 1]), 3)
    assert_near(pool("max")(x, plain)[1], x[[2, 4]].amax(0))
    assert not pool("max")(x, plain)[2].any()


def test_several_criteria_are_several_labels():
    x, other = features(), torch.arange(NODES) % 2
    soft = torch.rand(NODES, CLUSTERS, dtype=torch.float64)
    conv = OuterConv(C, 5, Cluster(criteria=3), bias=False).double()
    expected = sum(
        pooled @ weight
        for pooled, weight in zip(
            (global_add_pool(x, BATCH), global_add_pool(x, other, 4), soft.t() @ x),
            conv.theta.weight,
            strict=True,
        )
    )
    assert_near(conv(x, [BATCH, other, soft]), expected)
    basis = conv.family.basis([BATCH, other, soft])
    assert_near(basis.to_dense()[1, :, :2], torch.nn.functional.one_hot(other).double())


# Places ---------------------------------------------------------------------------------------


def test_places_are_counted_from_the_end_of_a_cluster():
    basis = Cluster(positions=4).basis(BATCH)
    dense = basis.to_dense()
    assert dense[0].nonzero().tolist() == [[2, 0], [4, 1], [8, 3]], "the last ones"
    assert dense[1].nonzero().tolist() == [[1, 0], [3, 1], [7, 3]]
    assert dense[3].nonzero().tolist() == [[5, 3]]
    assert Cluster(2, positions=4).labels[5] == "place 1 from the end by criterion 1"


def test_members_in_any_order_have_the_places_in_which_they_were_given():
    order = torch.tensor([8, 3, 0, 5, 1, 4, 2, 7, 6])
    dense = Cluster(positions=4).basis(BATCH[order]).to_dense()
    for cluster in range(CLUSTERS):
        members = (BATCH[order] == cluster).nonzero().view(-1).flip(0).tolist()
        nodes = [int(dense[k, :, cluster].nonzero()) for k in range(len(members))]
        assert nodes == members


def test_places_of_equal_clusters_are_a_linear_layer_of_each():
    """As intervals of one length: a convolution with a stride of its window."""
    x, length = torch.randn(2, 12, C).double(), 3
    conv = OuterConv(C, 5, Cluster(positions=length), bias=False).double()
    out = conv(x, torch.arange(12) // length)
    blocks = x.unflatten(1, (4, length)).flip(2)
    assert_near(out, torch.einsum("bnkp,kpq->bnq", blocks, conv.theta.weight))


def test_places_of_several_criteria():
    other = torch.arange(NODES) % 3
    both = Cluster(2, positions=4).basis([BATCH, other]).to_dense()
    assert_near(both[:4], Cluster(positions=4).basis(BATCH).to_dense())
    assert_near(both[4:, :, :3], Cluster(positions=4).basis(other).to_dense())


# In layers ------------------------------------------------------------------------------------


def test_unpooling_is_the_transpose():
    x, family = features(), Cluster()
    basis = family.basis(BATCH)
    pooled = pool()(x, basis)
    assert_near(pool()(pooled, basis.transpose()), pooled[BATCH])
    theta = torch.randn(1, 1, C, 2).double()
    assert_near(contract(basis.T, pooled, theta), pooled[BATCH] @ theta[0, 0])


def test_a_batch_of_graphs_is_pooled_graph_by_graph():
    graphs = [Data(x=torch.randn(n, 2), edge_index=torch.empty(2, 0).long()) for n in (2, 3, 1)]
    batch = Batch.from_data_list(graphs)
    basis = Cluster().basis_of(batch)
    assert basis.size == (6, 3)
    assert_near(pool()(batch.x, basis), global_add_pool(batch.x, batch.batch))
    assert Cluster().basis_of(graphs[1]).size == (3, 1)


def test_the_basis_of_a_vector_is_kept_and_that_of_a_learned_matrix_is_not():
    conv, x = pool(cached=True), features()
    assert conv.basis(x, BATCH) is conv.basis(x, BATCH)
    assert conv.basis(x, BATCH) is not conv.basis(x, BATCH.clone())
    soft = torch.rand(NODES, 2, dtype=torch.float64)
    assert conv.basis(x, soft) is conv.basis(x, soft)
    soft.requires_grad_()
    assert conv.basis(x, soft) is not conv.basis(x, soft)
    two, other = pool(criteria=2, cached=True), BATCH.clone()
    assert two.basis(x, [BATCH, other]) is two.basis(x, [BATCH, other])
    assert two.basis(x, [BATCH, other]) is not two.basis(x, [other, BATCH])
    node, cluster = torch.tensor([0]), torch.tensor([0])
    for count in (1, 2):
        selected = SelectOutput(node, NODES, cluster, count)
        assert conv.basis(x, selected).size == (NODES, count)


def test_no_members_and_no_sources():
    x = torch.randn(0, C)
    assert pool()(x, BATCH[:0]).shape == (0, C)
    assert pool("max")(x, BATCH[:0], size=(0, 2)).shape == (2, C)
    assert Cluster(positions=2).basis(BATCH[:0]).num_edges == 0


def test_short_integers_and_stacks():
    x = features()
    assert_near(pool()(x, BATCH.int()), pool()(x, BATCH))
    both = Stack(Cluster(), Cluster(positions=4)).basis(BATCH)
    assert both.num_bases == 5
    assert_near(both.to_dense()[1:].sum(0), both.to_dense()[0])


def test_assignments_are_read_once():
    read = Assignment.read(BATCH)
    assert Assignment.read(read) is read
    assert Cluster().basis(read).size == (NODES, CLUSTERS)
