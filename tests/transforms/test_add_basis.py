"""AddBasis stores bases under names, and every pipeline reads back the basis of its graph."""

import pytest
import torch
from torch_geometric import transforms as T
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Relation, Walk
from pyg_outerconv.testing import assert_near
from pyg_outerconv.transforms import AddBasis, basis_of

BASES = {"near": GCN(), "far": Walk(2, direction="both"), "kinds": Relation(2)}
add_all = T.Compose([AddBasis(family, name=name) for name, family in BASES.items()])


def graph(seed, nodes=7, edges=15):
    draw = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, 3, generator=draw),
        edge_index=torch.randint(nodes, (2, edges), generator=draw),
        edge_type=torch.randint(2, (edges,), generator=draw),
        edge_weight=torch.rand(edges, generator=draw) + 0.1,
    )


def plain(data):
    kept = ("x", "edge_index", "edge_type", "edge_weight")
    return Data(**{key: data[key] for key in kept}, num_nodes=data.num_nodes)


def assert_all_read_back(data):
    for name, family in BASES.items():
        expected = family.basis_of(plain(data))
        assert_near(basis_of(data, name).to_dense(), expected.to_dense(), 1e-5, at_least=1.0)


STEPS = {
    "as it is": lambda data: data,
    "batch": lambda data: Batch.from_data_list([data, add_all(graph(1, 4, 6))]),
    "loader": lambda data: next(iter(DataLoader([data, add_all(graph(1))], batch_size=2))),
    "subgraph": lambda data: data.subgraph(torch.tensor([4, 0, 2, 1])),
    "subgraph of batch": lambda data: Batch.from_data_list([data] * 3).subgraph(torch.arange(9)),
    "moved": lambda data: data.to("cpu", non_blocking=True),
    "again": add_all,
}


@pytest.mark.parametrize("step", STEPS)
def test_bases_are_read_back_after_a_step_of_a_pipeline(step):
    assert_all_read_back(STEPS[step](add_all(graph(0))))


def test_a_model_reads_a_basis_by_its_name():
    conv, data = OuterConv(3, 5, BASES["far"]), add_all(graph(0))
    expected = conv(data.x, data.edge_index, data.edge_weight)
    assert_near(conv(data.x, basis_of(data, "far")), expected)


def test_one_graph_with_as_many_graphs_as_nodes_in_its_batch():
    single = AddBasis("gcn")(Data(x=torch.ones(1, 2), edge_index=torch.zeros(2, 1).long()))
    batch = Batch.from_data_list([single, single])
    assert basis_of(batch.subgraph(torch.tensor([1]))).size == (1, 1)


def test_the_original_is_left_alone():
    data = graph(0)
    before = set(data.keys())
    add_all(data)
    assert set(data.keys()) == before


def test_it_is_a_functional_transform():
    from torch_geometric.data.datapipes import DatasetAdapter

    graphs = list(DatasetAdapter([graph(0), graph(1)]).add_basis("gcn", name="near"))
    assert [basis_of(data, "near").num_bases for data in graphs] == [1, 1]


def test_repr_is_what_was_asked_for():
    assert repr(AddBasis("walk(2)", name="far")) == (f"AddBasis({Walk(2)}, name='far')")
    assert "AddBasis(GCN(" in repr(add_all)
