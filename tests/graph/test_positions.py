"""Nodes have the positions that a structure says, or else implies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from pyg_outerconv import Cells
from pyg_outerconv.attention import ALiBi, IndexTerm
from pyg_outerconv.graph import (
    Assignment,
    Graph,
    NodeSet,
    Structure,
    edge_list_of,
    places_within,
    positions_of,
    relative_positions,
)

EDGES = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]])


def test_positions_that_came_with_edges_are_taken():
    pos = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    source, target = positions_of(Graph.read(EDGES, pos=pos, batch=torch.tensor([0, 0, 1])))
    assert source is pos
    assert target is pos


def test_both_ends_may_have_positions_of_their_own():
    ends = torch.randn(3, 2), torch.randn(4, 2)
    positions = positions_of(Graph.read(EDGES, size=(3, 4), pos=ends))
    assert all(torch.equal(one, own) for one, own in zip(positions, ends, strict=True))


def test_one_coordinate_may_be_a_vector():
    source, _ = positions_of(Graph.read(EDGES, pos=torch.tensor([4.0, 1.0, 2.0])))
    assert source.tolist() == [[4.0], [1.0], [2.0]]


def test_cells_are_where_they_are():
    full, _ = positions_of(Cells.of_shape((2, 3)))
    assert full.tolist() == [[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0, 2.0)]
    index = torch.tensor([[4, -1], [0, 7]])
    listed, _ = positions_of(Cells(index, batch=torch.tensor([0, 1])))
    assert torch.equal(listed, index.float())


def test_nodes_of_a_batch_count_within_their_graph():
    graphs = [Data(edge_index=EDGES, num_nodes=count) for count in (3, 4)]
    source, target = positions_of(edge_list_of(Batch.from_data_list(graphs)))
    assert source.flatten().tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert torch.equal(source, target)


def test_nodes_without_edges_may_say_where_they_are_and_of_which_graphs():
    ends = torch.randn(3, 2), torch.randn(4, 2)
    positions = positions_of(NodeSet.read(None, pos=ends))
    assert all(torch.equal(one, own) for one, own in zip(positions, ends, strict=True))
    graphs = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1, 0])
    source, target = positions_of(NodeSet.read(None, batch=graphs))
    assert source.flatten().tolist() == [0, 0, 1]
    assert target.flatten().tolist() == [0, 1, 0, 2]


def test_other_nodes_are_numbered():
    device = torch.device("cpu")
    for structure, sizes in (
        (Graph.read(EDGES, size=(3, 5)), (3, 5)),
        (NodeSet((4, 2), device), (4, 2)),
        (Structure.read(EDGES), (3, 3)),
        (Assignment.read(torch.tensor([0, 1, 1, 0])), (4, 2)),
    ):
        for position, count in zip(positions_of(structure), sizes, strict=True):
            assert position.flatten().tolist() == list(range(count))
            assert position.shape == (count, 1)


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.bfloat16])
def test_the_type_can_be_chosen(dtype):
    placed = Graph.read(EDGES, pos=torch.ones(3, 2))
    for structure in (Cells.of_shape((2,)), Graph.read(EDGES), placed):
        assert positions_of(structure, dtype)[0].dtype == (dtype or torch.float32)
    own = Graph.read(EDGES, pos=torch.ones(3, 2, dtype=torch.float16))
    assert positions_of(own, dtype)[1].dtype == (dtype or torch.float16)


@given(st.lists(st.integers(0, 4)), st.sampled_from([torch.int64, torch.int32]))
def test_places_count_the_members_that_came_before(groups, dtype):
    expected = [groups[:node].count(group) for node, group in enumerate(groups)]
    assert places_within(torch.tensor(groups, dtype=dtype)).tolist() == expected


def test_relative_positions_are_of_the_source_as_seen_from_the_target():
    actual = relative_positions(positions_of(Graph.read(EDGES)), EDGES)
    assert actual.flatten().tolist() == [-1, 0, 2, 0]


def test_a_module_without_heads_is_no_index_term():
    assert isinstance(ALiBi(2), IndexTerm)
    assert not isinstance(torch.nn.Linear(2, 2), IndexTerm)
