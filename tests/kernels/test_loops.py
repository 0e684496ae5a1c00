"""Self-loops of an edge list: those that are missing, after the edges that are there."""

import pytest
import torch

from pyg_outerconv.kernels import loops as module
from pyg_outerconv.kernels.edge_lists import nodes_without_loops, with_loops


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("edges", [[], [(0, 1), (2, 0)], [(1, 1), (0, 2), (1, 1), (3, 3)]], ids=len)
def test_loops_are_added_where_there_are_none(edges, reads, dtype, monkeypatch):
    if not reads:
        monkeypatch.setattr(module, "can_read", lambda index: False)
    edge_index = torch.tensor(edges, dtype=dtype).view(-1, 2).t()
    nodes = nodes_without_loops(edge_index, 4)
    assert nodes.dtype == dtype
    assert nodes.tolist() == [n for n in range(4) if (n, n) not in edges]
    added = with_loops(edge_index, nodes)
    assert added.dtype == dtype
    assert added.t().tolist() == [*map(list, edges), *([n, n] for n in nodes.tolist())]
