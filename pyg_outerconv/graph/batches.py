"""The graph that each node of a structure belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from .edge_list import EdgeList
from .structure import Structure


def graphs_of(structure: Structure) -> tuple[Tensor, Tensor] | None:
    """The graph of each source (M,) and of each target (N,), or None without a batch vector.

    Raises:
        ValueError: sources and targets are different nodes, and only one side has a batch vector.
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
    """The graph of each source (M,) and of each target (N,); zeros without a batch vector."""
    found, device = graphs_of(structure), structure.device
    sources, targets = structure.size
    if found is not None:
        return found
    return (
        torch.zeros(sources, dtype=torch.long, device=device),
        torch.zeros(targets, dtype=torch.long, device=device),
    )
