"""What families of supports share: one label, and a rule that says who sees whom."""

from __future__ import annotations

import torch
from torch import Tensor

from ..any_structure import AnyStructure
from ..family import Family
from ..structure import Structure


class Support(Family):
    """A family that says for each target which sources it sees, and no more: K = 1, all ones.

    It reads any structure, and of most no more than the number of nodes and the graph of each
    (``batch``). Nodes of different graphs never see each other, and a place in a sequence is the
    place in the graph. Where there are edges, they and their weights are not looked at.

    Its basis is a rule where there is one, of which a transform stores nothing, else edges.
    """

    reads: type[AnyStructure] = AnyStructure
    reads_beside: tuple[str, ...] = ()
    symmetries: tuple[str, ...] = ()

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether no structure is asked for."""
        return self.reads is AnyStructure

    @property
    def num_bases(self) -> int:
        """1."""
        return 1


def graphs_of(structure: AnyStructure) -> tuple[Tensor, Tensor] | None:
    """The graph of each source (M,) and of each target (N,), or None where all are of one.

    Raises:
        ValueError: sources and targets are a pair, and only one end has its graphs told.
    """
    batch = getattr(structure, "batch", None)
    if batch is None:
        return None
    if isinstance(batch, tuple):
        return batch
    if isinstance(structure, Structure) and structure.source_batch is not None:
        return structure.source_batch, batch
    if isinstance(structure, Structure):
        instead = "batch=(of sources, of targets)"
        structure.require_one_set("one batch vector for both ends", instead)
    return batch, batch


def graph_numbers(structure: AnyStructure) -> tuple[Tensor, Tensor]:
    """:func:`graphs_of`, with zeros where all nodes are of one graph."""
    found, device = graphs_of(structure), structure.device
    sources, targets = structure.size
    if found is not None:
        return found
    return (
        torch.zeros(sources, dtype=torch.long, device=device),
        torch.zeros(targets, dtype=torch.long, device=device),
    )
