"""What families of supports share: one label, and a rule that says who sees whom."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..any_structure import AnyStructure
from ..base import Basis
from ..edges import EdgeBasis
from ..family import Family
from ..structure import Structure


class Support(Family):
    """A family that says for each target which sources it sees, and no more: K = 1, all ones.

    It reads any structure, and of most no more than the number of nodes and the graph of each
    (``batch``). Nodes of different graphs never see each other, and a place in a sequence is the
    place in the graph. Where there are edges, they and their weights are not looked at.

    As a transform it stores pairs of nodes; else :meth:`rule` stays a rule where it can.
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

    @abstractmethod
    def rule(self, structure: Any) -> EdgeBasis | Basis:
        """The pairs of a structure that was read, as a rule if there is one."""

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """See :meth:`Family.basis_on`."""
        return self.rule(structure)

    def operators(self, structure: Any, dtype: torch.dtype | None) -> list[EdgeBasis]:
        """The pairs."""
        return [self.rule(structure).edges()]

    def assemble(
        self, operators: Sequence[EdgeBasis], size: tuple[int, int], device: torch.device
    ) -> Basis:
        """The pairs."""
        return operators[0]


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
