"""Identity: every node sees itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..basis.eye import Eye
from ..graph.structure import Structure
from .family import Family


@dataclass(frozen=True)
class Identity(Family):
    r"""The identity matrix, with which a convolution is a linear layer on each node.

    .. math:: A_0 = I

    Between two sets of nodes, target n sees source n for n < min(M, N): the targets come first
    among the sources, as in PyG's sampled bipartite blocks. Source: section 3.1 of *Convolution is
    outer product*.
    """

    equation = "A_0 = I"
    reads = Structure
    reads_beside = ()

    @property
    def num_bases(self) -> int:
        """K = 1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        return ("self",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Eye:
        """The identity, as a rule."""
        return Eye(structure.size, structure.device)
