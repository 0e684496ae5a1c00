"""Identity: every node sees itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .any_structure import AnyStructure
from .base import Basis
from .edges import EdgeBasis
from .eye import Eye
from .family import Family


@dataclass(frozen=True)
class Identity(Family):
    r"""The identity matrix, with which a convolution is a linear layer on each node.

    .. math:: A_0 = I

    Of a pair, target n sees source n for n < min(M, N): the targets come first among the sources,
    as in PyG's sampled bipartite blocks. Source: section 3.1 of *Convolution is outer
    product*.
    """

    equation = "A_0 = I"
    reads = AnyStructure
    reads_beside = ()

    @property
    def num_bases(self) -> int:
        """1."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """What each label means."""
        return ("self",)

    def operator_labels(self) -> list[int]:
        """No edge set: the rule needs no edges."""
        return []

    def operators(self, structure: AnyStructure, dtype: torch.dtype | None) -> list[EdgeBasis]:
        """No edge set."""
        return []

    def assemble(
        self, operators: Sequence[EdgeBasis], size: tuple[int, int], device: torch.device
    ) -> Basis:
        """The identity of that size."""
        return Eye(size, device)
