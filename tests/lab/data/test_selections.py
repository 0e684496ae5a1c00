"""Parts of a graph that are data sets of their own."""

import torch
from torch_geometric.data import Data

from pyg_outerconv.lab.data.selections import SELECTIONS


def test_the_first_of_nodes_with_equal_class_and_targets_is_kept() -> None:
    #  0, 1 and 3 cite {4, 5}; 3 is of another class; 2 cites {4}; 4, 5 and 6 cite nobody
    edges = [(0, 4), (0, 5), (1, 5), (1, 4), (1, 4), (3, 4), (3, 5), (2, 4)]
    y = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    masks = torch.arange(14).view(7, 2) % 3 == 0
    graph = Data(
        x=torch.arange(7.0).view(7, 1), edge_index=torch.tensor(edges).t(), y=y, train_mask=masks
    )
    found = SELECTIONS["distinct"](graph)
    kept = [0, 2, 3, 4, 5, 6]
    assert found.x.view(-1).tolist() == kept
    assert found.y.tolist() == y[kept].tolist()
    assert torch.equal(found.train_mask, masks[kept])
    wanted = {(kept.index(m), kept.index(n)) for m, n in edges if 1 not in (m, n)}
    assert set(map(tuple, found.edge_index.t().tolist())) == wanted


def test_the_largest_component_is_kept_whatever_the_direction_of_edges() -> None:
    edges = torch.tensor([[0, 5, 2, 3], [4, 4, 3, 2]])
    graph = Data(x=torch.arange(6.0).view(6, 1), edge_index=edges, y=torch.arange(6))
    found = SELECTIONS["largest-component"](graph)
    assert found.x.view(-1).tolist() == [0, 4, 5]
    assert found.y.tolist() == [0, 4, 5]
    assert sorted(found.edge_index.t().tolist()) == [[0, 1], [2, 1]]
