"""Full: a label for each pair of a source and a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data

from ..basis.eye import UnitMatrices
from ..errors import RefusedValue, refusal
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .family import Family


@dataclass(frozen=True)
class Full(Family):
    r"""The M·N unit matrices, the largest basis, of no structure.

    .. math:: A_{mN + n} = e_m e_n^{\top}

    A convolution over it is a fully connected layer from M·P to N·Q numbers; :class:`Identity` is
    the opposite end. It has K·P·Q = M·N·P·Q parameters, so a layer refuses more than
    ``max_parameters``. It takes ``None`` in place of ``edge_index``. Source: section 3.1 of
    *Convolution is outer product*.

    Args:
        num_sources (int): M.
        num_targets (int): N.
        max_parameters (int, optional): the largest number of parameters of a layer; ``None`` for
            no limit. (default: ``10_000_000``)

    Raises:
        ValueError: a number is not positive; when a basis is made, M or N differs; when a layer is
            made, it would have too many parameters.
    """

    equation = "A_k = e_m e_n^T for k = m N + n"
    reads = Structure
    reads_beside = ()
    keeps_nodes = False
    symmetries = ()

    num_sources: int
    num_targets: int
    max_parameters: int | None = 10_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_sources", "num_targets", "max_parameters"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise RefusedValue(refusal(f"a full basis needs its {name}", ">= 1", count))

    @property
    def num_bases(self) -> int:
        """K = M·N."""
        return self.num_sources * self.num_targets

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each label."""
        return tuple(
            f"{source} to {target}"
            for source in range(self.num_sources)
            for target in range(self.num_targets)
        )

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> UnitMatrices:
        """The unit matrices, if M and N are those of the family."""
        known = structure.known if isinstance(structure, NodeSet) else structure.size
        if not (isinstance(structure, NodeSet) or structure.targets_are_sources):
            known = (known[0], None)  # a grid has no given number of targets
        sizes = (self.num_sources, self.num_targets)
        for what, count, wanted in zip(("sources", "targets"), known, sizes, strict=True):
            if count not in (None, wanted):
                raise RefusedValue(refusal(f"{self} has a fixed number of {what}", wanted, count))
        return UnitMatrices(sizes, on=structure.device)

    def structure_in(self, data: Data) -> NodeSet:
        """The nodes of a graph as sources; the number of targets stays open."""
        return NodeSet.of_sources(super().structure_in(data))
