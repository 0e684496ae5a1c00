"""Full: every source sees every target by a label of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data

from ..basis.unit_matrices import UnitMatrices
from ..errors import RefusedValue, refusal
from ..graph.node_set import NodeSet
from ..graph.structure import Structure
from .family import Family


@dataclass(frozen=True)
class Full(Family):
    r"""The M·N unit matrices: the largest basis there is, and no structure at all.

    .. math:: A_{mN + n} = e_m e_n^{\top}

    A convolution over it is a fully connected layer from M·P to N·Q numbers: the far end of what
    a basis can be, as :class:`Identity` is the near one. Its parameters depend on M and N, and
    there are many: K·P·Q of them. A layer refuses to make more than ``max_parameters``. It takes
    ``None`` in the place of edges. Source: section 3.1 of *Convolution is outer product*.

    Args:
        num_sources (int): M.
        num_targets (int): N.
        max_parameters (int, optional): how many parameters a layer may have at most; ``None`` for
            no limit. (default: ``10_000_000``)

    Raises:
        ValueError: a number is not positive; when a basis is made, there are other numbers of
            sources or targets; when a layer is, it would have too many parameters.
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
        """M·N."""
        return self.num_sources * self.num_targets

    @property
    def labels(self) -> tuple[str, ...]:
        """What each label means."""
        return tuple(
            f"{source} to {target}"
            for source in range(self.num_sources)
            for target in range(self.num_targets)
        )

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> UnitMatrices:
        """The unit matrices, if the nodes are as many as the family says."""
        known = structure.known if isinstance(structure, NodeSet) else structure.size
        if not (isinstance(structure, NodeSet) or structure.targets_are_sources):
            known = (known[0], None)  # a grid does not say what comes out
        sizes = (self.num_sources, self.num_targets)
        for what, count, wanted in zip(("sources", "targets"), known, sizes, strict=True):
            if count not in (None, wanted):
                raise RefusedValue(refusal(f"{self} is of a number of {what}", wanted, count))
        return UnitMatrices(sizes, on=structure.device)

    def structure_in(self, data: Data) -> NodeSet:
        """The nodes of a graph as sources, of whose targets nothing is said."""
        return NodeSet.of_sources(super().structure_in(data))
