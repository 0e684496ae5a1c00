"""Mini-batches by PyG's loaders: what a sample holds of a node gives what the whole graph gives.

Samplers by neighbours need torch-sparse (or pyg-lib), and are skipped by name without it.
"""

import pytest
import torch
from torch_geometric import typing as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import KarateClub
from torch_geometric.loader import (
    CachedLoader,
    ClusterData,
    ClusterLoader,
    DataLoader,
    DynamicBatchSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    RandomNodeLoader,
    ShaDowKHopSampler,
)
from torch_geometric.nn import HeteroConv, to_hetero
from torch_geometric.transforms import ToSparseTensor

from pyg_outerconv.families import GCN, Walk
from pyg_outerconv.nn import AttentionConv, AttentionGNN, OuterConv, OuterGNN
from pyg_outerconv.testing import assert_near
from pyg_outerconv.transforms import AddBasis, basis_of

pytestmark = pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
needs_torch_sparse = pytest.mark.skipif(
    not pyg.WITH_TORCH_SPARSE, reason="the sampler needs torch-sparse, which is not installed"
)
needs_sampler = pytest.mark.skipif(
    not (pyg.WITH_TORCH_SPARSE or pyg.WITH_PYG_LIB),
    reason="the sampler needs torch-sparse or pyg-lib, neither of which is installed",
)

# Layers of which an output depends on the edges into its node alone, so that two hops are enough.
MODELS = {
    "sage": lambda p: OuterGNN(p, 8, 2, 3, family="relation(1)", root_weight=True),
    "maxima": lambda p: OuterGNN(p, 8, 2, 3, family="relation(1, norm=None)", aggr="max"),
    "columns": lambda p: OuterGNN(
        p, 8, 2, 4, family="stack(relation(1), identity)", theta="columns"
    ),
    "attention": lambda p: AttentionGNN(p, 8, 2, 3, heads=2, score="additive"),
}
of_each_model = pytest.mark.parametrize("kind", MODELS)


@pytest.fixture(scope="module")
def club():
    """The karate club with few features, weights, and the number of each node and edge."""
    data = KarateClub()[0]
    torch.manual_seed(0)
    return Data(
        x=torch.randn(34, 5),
        y=data.y,
        edge_index=data.edge_index,
        edge_weight=torch.rand(data.num_edges) + 0.1,
        train_mask=data.train_mask,
    )


def hetero():
    """Papers that cite each other, and authors who write them."""
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(12, 4), torch.randn(6, 3)
    data["paper", "cites", "paper"].edge_index = torch.randint(12, (2, 30))
    writes = torch.stack([torch.randint(6, (20,)), torch.randint(12, (20,))])
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "written", "author"].edge_index = writes.flip(0)
    return data


# What samples by neighbours -----------------------------------------------------------------------


@needs_sampler
@pytest.mark.parametrize("edge_key", ["edge_index", "adj_t"])
@of_each_model
def test_all_neighbours_give_seeds_what_the_graph_gives(kind, edge_key, club):
    data, model = club, MODELS[kind](5)
    expected = model(club.x, club.edge_index)
    if edge_key == "adj_t":
        data = Data(x=club.x, edge_index=club.edge_index)
        data = ToSparseTensor(remove_edge_index=True)(data)
    for batch in NeighborLoader(data, [-1, -1], batch_size=10, shuffle=True):
        edges = batch.adj_t if edge_key == "adj_t" else batch.edge_index
        out = model(batch.x, edges)[: batch.batch_size]
        assert_near(out, expected[batch.n_id[: batch.batch_size]])


@needs_sampler
def test_weights_are_sampled_with_edges(club):
    model = OuterGNN(5, 8, 2, 3, family="relation(1, norm=None)")
    expected = model(club.x, club.edge_index, club.edge_weight)
    for batch in NeighborLoader(club, [-1, -1], batch_size=7):
        out = model(batch.x, batch.edge_index, batch.edge_weight)[: batch.batch_size]
        assert_near(out, expected[batch.n_id[: batch.batch_size]])


@needs_sampler
@pytest.mark.parametrize("cache", [False, True])
@of_each_model
def test_inference_layer_by_layer_is_that_of_the_graph(kind, cache, club):
    model = MODELS[kind](5).eval()
    loader = NeighborLoader(club, [-1], batch_size=10)
    with torch.no_grad():
        expected = model(club.x, club.edge_index)
    assert_near(model.inference(loader, cache=cache), expected)


@needs_sampler
@pytest.mark.parametrize("family", [GCN(), Walk(2)], ids=str)
def test_a_stored_basis_is_made_anew_for_a_sample(family, club):
    conv = OuterConv(5, 3, family)
    for batch in NeighborLoader(AddBasis(family)(club), [3, 2], batch_size=10):
        expected = conv(batch.x, batch.edge_index, batch.edge_weight)
        assert_near(conv(batch.x, basis_of(batch)), expected)


@needs_sampler
@of_each_model
def test_links_are_scored_as_in_the_graph(kind, club):
    model, label = MODELS[kind](5), club.edge_index[:, ::3]
    hidden = model(club.x, club.edge_index)
    loader = LinkNeighborLoader(
        club, [-1, -1], edge_label_index=label, neg_sampling_ratio=1.0, batch_size=16
    )
    seen = 0
    for batch in loader:
        out = model(batch.x, batch.edge_index)
        score = (out[batch.edge_label_index[0]] * out[batch.edge_label_index[1]]).sum(-1)
        ends = batch.n_id[batch.edge_label_index]
        assert_near(score, (hidden[ends[0]] * hidden[ends[1]]).sum(-1))
        seen += int(batch.edge_label.sum())
    assert seen == label.size(1)


@needs_sampler
@pytest.mark.parametrize("model_of", ["HeteroConv", "to_hetero"])
def test_types_of_nodes_are_sampled(model_of):
    data = hetero()
    if model_of == "to_hetero":
        gnn = OuterGNN((-1, -1), 8, 2, 3, family="relation(1)", root_weight=True)
        model, hops = to_hetero(gnn, data.metadata()), [-1, -1]
    else:
        model, hops = HeteroConv({k: AttentionConv((-1, -1), 4) for k in data.edge_types}), [-1]
    expected = model(data.x_dict, data.edge_index_dict)["paper"]
    for batch in NeighborLoader(data, hops, batch_size=5, input_nodes="paper"):
        seeds = batch["paper"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)["paper"][:seeds]
        assert_near(out, expected[batch["paper"].n_id[:seeds]])


@needs_torch_sparse
def test_hgt_samples_give_seeds_what_the_graph_gives():
    data = hetero()
    model = HeteroConv({k: OuterConv((-1, -1), 4, "relation(1)") for k in data.edge_types})
    expected = model(data.x_dict, data.edge_index_dict)["paper"]
    for batch in HGTLoader(data, [50, 50], batch_size=4, input_nodes="paper"):
        seeds = batch["paper"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)["paper"][:seeds]
        assert_near(out, expected[batch["paper"].n_id[:seeds]])


@needs_torch_sparse
@of_each_model
def test_shadow_subgraphs_give_roots_what_the_graph_gives(kind, club):
    model = MODELS[kind](5)
    data = Data(x=club.x, node=torch.arange(34), edge_index=club.edge_index)
    expected = model(club.x, club.edge_index)
    for batch in ShaDowKHopSampler(data, depth=2, num_neighbors=34, batch_size=6):
        out = model(batch.x, batch.edge_index)[batch.root_n_id]
        assert_near(out, expected[batch.node[batch.root_n_id]])


@needs_torch_sparse
def test_walks_of_graph_saint_are_subgraphs(club):
    conv = OuterConv(5, 3, "gcn")
    data = Data(x=club.x, node=torch.arange(34), edge_index=club.edge_index)
    for batch in GraphSAINTRandomWalkSampler(data, batch_size=4, walk_length=2, num_steps=3):
        assert_near(
            conv(batch.x, batch.edge_index),
            conv(club.x[batch.node], data.subgraph(batch.node).edge_index),
        )


# What needs no sampler ----------------------------------------------------------------------------


def test_random_parts_of_several_types():
    data = hetero()
    model = HeteroConv({k: OuterConv((-1, -1), 4, "relation(1)") for k in data.edge_types})
    for part in RandomNodeLoader(data, num_parts=2, shuffle=True):
        out = model(part.x_dict, part.edge_index_dict)
        assert {name: len(value) for name, value in out.items()} == {
            name: part[name].num_nodes for name in ("paper", "author")
        }


class Parts(ClusterData):
    """Clusters by the number of a node, where METIS is not at hand."""

    def _metis(self, edge_index, num_nodes):
        return torch.arange(num_nodes) % self.num_parts


def random_parts(data):
    return RandomNodeLoader(data, num_parts=3, shuffle=True)


def clusters(data):
    return ClusterLoader(Parts(data, 4, log=False), batch_size=2, shuffle=True)


@pytest.mark.parametrize("load", [random_parts, clusters])
@of_each_model
def test_parts_are_subgraphs(kind, load, club):
    model, seen = MODELS[kind](5), 0
    for part in load(Data(x=club.x, node=torch.arange(34), edge_index=club.edge_index)):
        inside = torch.zeros(34, dtype=torch.bool).index_fill(0, part.node, True)
        whole = model(club.x, club.edge_index[:, inside[club.edge_index].all(0)])
        assert_near(model(part.x, part.edge_index), whole[part.node])
        seen += part.num_nodes
    assert seen == 34


def graphs():
    return [
        Data(x=torch.randn(n, 5), edge_index=torch.randint(n, (2, 2 * n))) for n in (3, 6, 1, 4, 5)
    ]


@pytest.mark.parametrize("batches", ["fixed", "dynamic", "cached"])
@of_each_model
def test_batches_of_graphs_are_their_graphs(kind, batches):
    model, data = MODELS[kind](5), graphs()
    if batches == "dynamic":
        loader = DataLoader(data, batch_sampler=DynamicBatchSampler(data, max_num=8))
    else:
        loader = DataLoader(data, batch_size=2)
        loader = CachedLoader(loader) if batches == "cached" else loader
    for _ in range(2):
        for batch in loader:
            out = model(batch.x, batch.edge_index)
            parts = [model(one.x, one.edge_index) for one in batch.to_data_list()]
            assert_near(out, torch.cat(parts))
