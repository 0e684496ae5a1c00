"""Sparse features on a graph go wherever PyG takes dense ones, and hold the same numbers."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader, DynamicBatchSampler, RandomNodeLoader
from torch_geometric.loader.utils import filter_data, filter_hetero_data
from torch_geometric.transforms import Compose, NormalizeFeatures, RandomNodeSplit, ToDevice

from pyg_outerconv import ToSparseFeatures
from pyg_outerconv.graph import BecameDense, SparseFeatures
from pyg_outerconv.graph.sparse_features import _said
from pyg_outerconv.testing import assert_near

pytestmark = pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")
SPARSE = ToSparseFeatures(max_density=1.0)


@pytest.fixture(autouse=True)
def _nothing_said():
    _said.clear()


def graph(nodes, seed=0, channels=6):
    torch.manual_seed(seed)
    x = torch.rand(nodes, channels) * (torch.rand(nodes, channels) < 0.3)
    edge_index = torch.randint(nodes, (2, 3 * nodes))
    return Data(x=x, edge_index=edge_index, y=torch.randint(3, (nodes,)))


def same(actual, expected):
    assert isinstance(actual.x, SparseFeatures)
    assert tuple(actual.x.shape) == tuple(expected.x.shape)
    assert_near(actual.x.to_dense(), expected.x)
    assert torch.equal(actual.edge_index, expected.edge_index)
    assert actual.num_nodes == expected.num_nodes
    assert actual.num_node_features == expected.num_node_features


def test_features_become_sparse_where_few_are_not_zero():
    data = graph(9)
    share = float((data.x != 0).float().mean())
    assert isinstance(ToSparseFeatures(share + 0.01)(data).x, SparseFeatures)
    assert type(ToSparseFeatures(share - 0.01)(graph(9)).x) is torch.Tensor
    assert type(graph(9).x) is torch.Tensor
    csr = Data(x=graph(9).x.to_sparse_csr())
    assert_near(ToSparseFeatures(0.0)(csr).x.to_dense(), graph(9).x)


def test_the_graph_that_is_transformed_stays():
    data = graph(9)
    same(SPARSE(data), data)
    assert type(data.x) is torch.Tensor


@pytest.mark.parametrize(
    "x",
    [None, [0.0] * 4, torch.zeros(4).long(), torch.zeros(4, 2, 2), SparseFeatures.of(torch.eye(4))],
    ids=["none", "a list", "integers", "three axes", "sparse"],
)
def test_what_is_no_dense_matrix_of_features_stays(x):
    data = Data(x=x, num_nodes=4)
    assert ToSparseFeatures(1.0)(data).x is x


def test_attributes_are_named():
    data = graph(5)
    data.other = data.x
    out = ToSparseFeatures(1.0, attrs=["other"])(data)
    assert isinstance(out.other, SparseFeatures)
    assert type(out.x) is torch.Tensor


def test_each_type_of_nodes_is_decided_by_itself():
    data = HeteroData()
    data["paper"].x, data["author"].x = graph(7).x, torch.ones(4, 3)
    data["paper", "by", "author"].edge_index = torch.tensor([[0, 6], [1, 3]])
    out = ToSparseFeatures(0.6)(copy.copy(data))
    assert_near(out["paper"].x.to_dense(), data["paper"].x)
    assert type(out["author"].x) is torch.Tensor
    kept = out.subgraph({"paper": torch.tensor([6, 0])})
    assert_near(kept["paper"].x.to_dense(), data["paper"].x[[6, 0]])
    nodes = {"paper": torch.tensor([3, 3]), "author": torch.tensor([1])}
    kept = filter_hetero_data(out, nodes, {}, {}, {}, None)
    assert_near(kept["paper"].x.to_dense(), data["paper"].x[[3, 3]])


@pytest.mark.parametrize("steps", [[NormalizeFeatures(), SPARSE], [SPARSE, NormalizeFeatures()]])
def test_rows_are_normalised_before_or_after(steps):
    data = graph(9)
    before = data.x.clone()
    same(Compose(steps)(data), NormalizeFeatures()(data))
    assert torch.equal(data.x, before)
    prepared = SPARSE(data)
    NormalizeFeatures()(prepared)
    assert_near(prepared.x.to_dense(), before)


def test_other_transforms_leave_them():
    data = graph(9)
    same(Compose([SPARSE, RandomNodeSplit(num_val=2, num_test=2), ToDevice("cpu")])(data), data)


def test_graphs_are_batched_and_taken_apart():
    graphs = [graph(n, seed=n) for n in (4, 1, 6)]
    batch = Batch.from_data_list([SPARSE(one) for one in graphs])
    same(batch, Batch.from_data_list(graphs))
    for actual, expected in zip(batch.to_data_list(), graphs, strict=True):
        same(actual, expected)
    same(batch[2], graphs[2])


@pytest.mark.parametrize("by", ["batch_size", "batch_sampler"])
def test_a_loader_batches_them(by):
    graphs = [graph(n, seed=n) for n in (4, 2, 6, 3)]
    sparse = [SPARSE(one) for one in graphs]
    chosen = {"batch_size": 2}
    for actual, wanted in zip(
        DataLoader(sparse, **chosen) if by == "batch_size" else loader_by_size(sparse),
        DataLoader(graphs, **chosen) if by == "batch_size" else loader_by_size(graphs),
        strict=True,
    ):
        same(actual, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [0, 1])
def test_a_worker_makes_a_batch_dense_where_some_features_are(sparse):
    graphs = [graph(n, seed=n) for n in (4, 2)]
    mixed = [SPARSE(one) if i == sparse else one for i, one in enumerate(graphs)]
    with warnings.catch_warnings():  # in the worker too
        warnings.simplefilter("ignore", BecameDense)
        (batch,) = DataLoader(mixed, batch_size=2, num_workers=1)
    assert type(batch.x) is torch.Tensor
    assert_near(batch.x, Batch.from_data_list(graphs).x)


def loader_by_size(graphs):
    return DataLoader(graphs, batch_sampler=DynamicBatchSampler(graphs, max_num=7))


@pytest.mark.slow
def test_worker_processes_send_them_to_the_main_one():
    graphs = [graph(n, seed=n) for n in (4, 2, 6, 3)]
    sparse = [SPARSE(one) for one in graphs]
    loaded = list(DataLoader(sparse, batch_size=2, num_workers=2))
    expected = list(DataLoader(graphs, batch_size=2))
    assert len(loaded) == 2
    for actual, reference in zip(loaded, expected, strict=True):
        same(actual, reference)
    loaded = list(RandomNodeLoader(SPARSE(graph(12)), num_parts=3, num_workers=2))
    assert sum(part.num_nodes for part in loaded) == 12
    assert all(isinstance(part.x, SparseFeatures) for part in loaded)


def test_nodes_are_selected():
    data, sparse = graph(9), SPARSE(graph(9))
    mask = torch.arange(9) % 2 == 0
    same(sparse.subgraph(mask), data.subgraph(mask))
    same(sparse.subgraph(torch.tensor([5, 1, 8])), data.subgraph(torch.tensor([5, 1, 8])))
    edges = torch.arange(4)
    same(sparse.edge_subgraph(edges), data.edge_subgraph(edges))
    node, row = torch.tensor([4, 0, 7]), torch.tensor([0, 1])
    same(
        filter_data(sparse, node, row, row.flip(0), edges[:2]),
        filter_data(data, node, row, row.flip(0), edges[:2]),
    )
    torch.manual_seed(0)
    parts = list(RandomNodeLoader(sparse, num_parts=3))
    torch.manual_seed(0)
    for actual, expected in zip(parts, RandomNodeLoader(data, num_parts=3), strict=True):
        same(actual, expected)


def test_graphs_are_copied_moved_and_written():
    data, sparse = graph(9), SPARSE(graph(9))
    for copied in (sparse.clone(), copy.copy(sparse), copy.deepcopy(sparse), sparse.contiguous()):
        same(copied, data)
    assert sparse.clone().x.value.data_ptr() != sparse.x.value.data_ptr()
    assert copy.deepcopy(sparse).x.value.data_ptr() != sparse.x.value.data_ptr()
    same(sparse.to("cpu"), data)
    same(sparse.detach(), data)
    same(sparse.cpu(), data)
    assert sparse.share_memory_().x.is_shared()
    assert repr(sparse) == repr(data)
    assert sparse.validate()
    assert copy.copy(sparse).to("meta").x.device.type == "meta"
    same(pickle.loads(pickle.dumps(sparse)), data)
    file = io.BytesIO()
    torch.save(sparse, file)
    file.seek(0)
    same(torch.load(file, weights_only=False), data)
    file = io.BytesIO()
    torch.save(sparse.to_dict(), file)  # PyG's own class is not among the safe ones
    file.seek(0)
    same(Data.from_dict(torch.load(file, weights_only=True)), data)


class Kept(InMemoryDataset):
    """Graphs in one file."""

    def __init__(self, root, graphs, **options):
        self.graphs = graphs
        super().__init__(str(root), **options)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self):
        return ["kept.pt"]

    def process(self):
        graphs = self.graphs
        self.save(
            [g if self.pre_transform is None else self.pre_transform(g) for g in graphs],
            self.processed_paths[0],
        )


@pytest.mark.filterwarnings("error:Weights only load failed")
def test_a_dataset_collates_writes_and_separates_them(tmp_path):
    graphs = [graph(n, seed=n) for n in (4, 1, 6)]
    stored = Kept(tmp_path / "stored", graphs, pre_transform=SPARSE)
    later = Kept(tmp_path / "later", graphs, transform=SPARSE)
    assert stored.num_node_features == 6
    for dataset in (stored, later, stored.copy(), stored[[0, 1, 2]]):
        for actual, expected in zip(dataset, graphs, strict=True):
            same(actual, expected)
    same(stored[torch.tensor([2])][0], graphs[2])


def test_a_result_that_was_allocated_is_sparse():
    x = SPARSE(graph(4)).x
    storage = x.untyped_storage()._new_shared(8 * x.numel())
    for out in (x.new(storage).view([8, 6]), x.new(storage).resize_(8, 6)):
        assert_near(torch.cat([x, x], out=out).to_dense(), torch.cat([x.to_dense()] * 2))
        index = torch.tensor([3, 0])
        assert_near(torch.index_select(x, 0, index, out=out).to_dense(), x.to_dense()[index])
    with pytest.raises(TypeError, match="does not change sparse features in place"):
        torch.cat([x, x], out=torch.cat([x, x]))


def test_a_dense_result_is_asked_for_by_a_dense_tensor():
    x = SPARSE(graph(4)).x
    with pytest.warns(BecameDense, match=r"torch\.cat has no rule .* 4 x 6"):
        out = torch.cat([x, torch.ones(4, 1)], dim=1)
    assert_near(out, torch.cat([x.to_dense(), torch.ones(4, 1)], dim=1))
