"""Full: a label for each pair of a source and a target."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
from torch_geometric.data import Data

from ..basis.eye import UnitMatrices
from ..errors import RefusedValue, refusal
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .family import Family
from .per_axis import settle


@dataclass(frozen=True)
class Full(Family):
    r"""The M·N unit matrices, the largest basis, of no structure.

    .. math:: A_{mN + n} = e_m e_n^{\top}

    A convolution over it is a fully connected layer from M·P to N·Q numbers; :class:`Identity` is
    the opposite end. It has K·P·Q = M·N·P·Q parameters, so a layer refuses more than
    ``max_parameters``. It takes ``None`` in place of ``edge_index``. Source: section 3.1 of
    *Convolution is outer product*.

    Args:
        size (tuple): (M, N).
        max_parameters (int, optional): the largest number of parameters of a layer; ``None`` for
            no limit. (default: ``10_000_000``)

    Raises:
        ValueError: the size is not two positive numbers; when a basis is made, M or N differs;
            when a layer is made, it would have too many parameters.
    """

    equation = "A_k = e_m e_n^T for k = m N + n"
    reads = Structure
    reads_beside = ()
    keeps_nodes = False
    symmetries = ()

    size: tuple[int, ...]
    max_parameters: int | None = 10_000_000

    def __post_init__(self) -> None:
        settle(self, ("size",))
        super().__post_init__()
        if len(self.size) != 2 or min(self.size) < 1:
            raise RefusedValue(refusal("a full basis has a size", "(M, N), both >= 1", self.size))
        if self.max_parameters is not None and self.max_parameters < 1:
            raise RefusedValue(
                refusal("a layer has parameters", "max_parameters >= 1", self.max_parameters)
            )

    @property
    def num_bases(self) -> int:
        """K = M·N."""
        return prod(self.size)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        return tuple(f"{source} to {target}" for source, target in product(*map(range, self.size)))

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> UnitMatrices:
        """The unit matrices, if M and N are those of the family."""
        known = structure.known if isinstance(structure, NodeSet) else structure.size
        if not (isinstance(structure, NodeSet) or structure.targets_are_sources):
            known = (known[0], None)  # a grid has no given number of targets
        for what, count, wanted in zip(("sources", "targets"), known, self.size, strict=True):
            if count not in (None, wanted):
                raise RefusedValue(refusal(f"{self} has a fixed number of {what}", wanted, count))
        return UnitMatrices((self.size[0], self.size[1]), on=structure.device)

    def structure_in(self, data: Data) -> NodeSet:
        """The nodes of a graph as sources; the number of targets stays open."""
        return NodeSet.of_sources(super().structure_in(data))
