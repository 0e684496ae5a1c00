"""A family as a PyG transform: what it stores survives collation, batching and pickling."""

import pickle

import pytest
import torch
from cases import CASES, CELL_CASES, fits_cells
from torch_geometric import transforms as T
from torch_geometric.data import Data
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader

from pyg_outerconv import OuterConv, testing
from pyg_outerconv.basis.edge_sets import differ_in_edges, edge_sets
from pyg_outerconv.families import GCN, Chebyshev, Relation, Walk
from pyg_outerconv.memo import Memo

# Cells of a graph are its positions, without bounds; targets are stored if they are its nodes.
STORED = CASES + [case for case in CELL_CASES if case.keeps_nodes and fits_cells(case, "unbounded")]


def graphs():
    """Three graphs: directed and weighted, without edges, and one of a single node with a loop."""
    first = Data(
        x=torch.randn(4, 3),
        edge_index=torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 3, 1]]),
        edge_weight=torch.rand(5) + 0.5,
        edge_type=torch.tensor([0, 1, 2, 0, 1]),
        pos=torch.tensor([[0, 0], [1, 0], [-1, 1], [3, 0]]),
    )
    second = Data(
        x=torch.randn(3, 3),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        edge_weight=torch.empty(0),
        edge_type=torch.empty(0, dtype=torch.long),
        pos=torch.tensor([[7, 7], [7, 8], [0, 0]]),
    )
    third = Data(
        x=torch.randn(1, 3),
        edge_index=torch.zeros(2, 1, dtype=torch.long),
        edge_weight=torch.ones(1),
        edge_type=torch.tensor([2]),
        pos=torch.tensor([[0, 1]]),
    )
    return [first, second, third]


def without_types(family, data_list):
    if "num_relations=3" not in repr(family):
        for data in data_list:
            del data.edge_type
    return data_list


@pytest.mark.parametrize("family", STORED, ids=str)
def test_batched_basis_is_that_of_its_graphs(family):
    testing.assert_batch_equals_graphs(family, without_types(family, graphs()))


@pytest.mark.parametrize("family", STORED, ids=str)
def test_loader_collates_what_the_transform_stored(family):
    data_list = without_types(family, graphs())
    conv = OuterConv(3, 2, family)
    expected = torch.cat([conv(data.x, family.basis_of(data)) for data in data_list])
    loader = DataLoader([family(data) for data in data_list], batch_size=3)
    (batch,) = list(loader)
    testing.assert_near(conv(batch.x, family.basis_of(batch)), expected)


@pytest.mark.parametrize("family", STORED, ids=str)
def test_what_is_read_back_is_the_basis_that_was_made(family, monkeypatch):
    """Of the same kinds, of as many labels, with the same edges and values; a rule stays one."""
    made, basis_on = [], type(family).basis_on

    def noted(self, structure, *dtype):
        made.append(structure.is_bare)
        return basis_on(self, structure, *dtype)

    for plain in without_types(family, graphs()):
        data, fresh = family(plain), family.basis_on(family.structure_in(plain))
        with monkeypatch.context() as patch:
            patch.setattr(type(family), "basis_on", noted)
            found = family.basis_of(data)
        assert (found.num_bases, found.size) == (fresh.num_bases, fresh.size)
        assert differ_in_edges(found, fresh)
        for one, other in zip(edge_sets(found), edge_sets(fresh), strict=True):
            assert one.dtype == other.dtype
            for part in ("source", "target", "label"):
                assert torch.equal(getattr(one.pattern, part), getattr(other.pattern, part))
            assert torch.equal(one.values(), other.values())
        if edge_sets(fresh):
            assert all(made), "it was made anew"
        else:
            assert set(data.keys()) == set(plain.keys())
        made.clear()


def test_transforms_compose_and_do_not_disturb_each_other():
    families = [GCN(), Walk(2), Walk(3), Relation(1, None)]
    dataset = FakeDataset(num_graphs=5, avg_num_nodes=20, transform=T.Compose(families))
    for batch in DataLoader(dataset, batch_size=5):
        for family in families:
            stored = family.basis_of(batch)
            plain = family.basis(batch.edge_index, size=(batch.num_nodes,) * 2)
            testing.assert_near(stored.to_dense(torch.float32), plain.to_dense(torch.float32))


def test_only_plain_tensors_are_stored():
    data = Chebyshev(3)(graphs()[0])
    new = set(data.keys()) - set(graphs()[0].keys())
    assert new
    assert all(type(data[key]) is torch.Tensor for key in new)
    assert set(pickle.loads(pickle.dumps(data)).keys()) == set(data.keys())


def test_repr_is_the_recipe():
    assert repr(T.Compose([GCN()])).count("GCN(norm='sym'") == 1


def test_a_memo_knows_objects_and_keeps_nothing_of_those_whose_changes_cannot_be_seen():
    cache, first, second = Memo(), torch.ones(2), torch.ones(2)
    kept = cache.get("key", object, first, second)
    assert cache.get("key", object, first, second) is kept
    other = cache.get("key", object, first, second.clone())
    assert other is not kept
    assert cache.get("key", object, first, second.clone()) is not other  # at the same address, too
    del first
    with torch.inference_mode():
        uncounted = torch.ones(2)
    cache.get("key", object, uncounted)
    assert len(cache) == 0
