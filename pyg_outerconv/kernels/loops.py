"""Self-loops of an edge list, by numpy on a CPU, which takes fewer steps than torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .counts import SHORT
from .index_checks import can_read


def nodes_without_loops(edge_index: Tensor, count: int) -> Tensor:
    """The nodes without a self-loop, ascending.

    Args:
        edge_index: (2, E) integers in [0, N).
        count: N.
    """
    if can_read(edge_index):
        source, target = edge_index.numpy()
        nodes, is_loop = np.arange(count, dtype=source.dtype), source == target
        return torch.from_numpy(np.delete(nodes, source[is_loop]) if is_loop.any() else nodes)
    source, target = edge_index.unbind(0)
    is_loop = source == target
    # A trace must serve edges with self-loops too.
    if not (torch.jit.is_tracing() or bool(is_loop.any())):
        return torch.arange(count, dtype=source.dtype, device=source.device)
    lacks_loop = torch.ones(count, dtype=torch.bool, device=source.device)
    lacks_loop[source[is_loop].long()] = False
    return lacks_loop.nonzero().view(-1).to(source.dtype)


def with_loops(edge_index: Tensor, nodes: Tensor) -> Tensor:
    """Append self-loops of L nodes to the edges (2, E): (2, E + L)."""
    if not can_read(edge_index) or edge_index.size(1) > SHORT:
        return torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
    edges, count = edge_index.numpy(), edge_index.size(1)
    out = np.empty((2, count + nodes.numel()), edges.dtype)
    out[:, :count] = edges
    out[:, count:] = nodes.numpy()
    return torch.from_numpy(out)
