"""Which graph each node of a structure is of."""

from __future__ import annotations

import torch
from torch import Tensor

from .edge_list import EdgeList
from .structure import Structure


def graphs_of(structure: Structure) -> tuple[Tensor, Tensor] | None:
    """The graph of each source (M,) and of each target (N,), or None where all are of one.

    Raises:
        ValueError: sources and targets are a pair, and only one end has its graphs told.
    """
    batch = getattr(structure, "batch", None)
    if batch is None:
        return None
    if isinstance(batch, tuple):
        return batch
    if isinstance(structure, EdgeList) and structure.source_batch is not None:
        return structure.source_batch, batch
    if isinstance(structure, EdgeList):
        instead = "batch=(of sources, of targets)"
        structure.require_one_set("one batch vector for both ends", instead)
    return batch, batch


def graph_numbers(structure: Structure) -> tuple[Tensor, Tensor]:
    """:func:`graphs_of`, with zeros where all nodes are of one graph."""
    found, device = graphs_of(structure), structure.device
    sources, targets = structure.size
    if found is not None:
        return found
    return (
        torch.zeros(sources, dtype=torch.long, device=device),
        torch.zeros(targets, dtype=torch.long, device=device),
    )
