"""Compose: two families one after the other, their matrices multiplied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..basis.base import Basis
from ..basis.products import composed
from ..errors import RefusedValue, refusal
from ..graph.structure import Structure, common_kind
from .family import Family
from .gcn import GCN
from .parts import nested


@dataclass(frozen=True)
class Compose(Family):
    r"""The products of two families' matrices: one convolution, then the other.

    .. math:: A_{i K_2 + j} = A^{(1)}_i A^{(2)}_j

    Two linear convolutions in a chain as one (Proposition 2 of *Convolution is outer product*).
    ``Compose(GCN(), GCN())`` sees neighbours of neighbours; nested, it is SGConv. The second family
    reads the targets of the first: the same edges, where sources and targets are the same nodes, or
    the grid that a family of grids makes.

    Args:
        first (Family, optional): the family applied to the input. (default: ``GCN()``)
        second (Family, optional): the family applied to the outputs of the first.
            (default: ``GCN()``)

    Raises:
        TypeError: an argument is not a family, or the two read structures of different kinds.
        ValueError: the first family does not define its outputs; when a basis is made,
            edges run between a pair of sets of nodes, or as the families do.
    """

    equation = "A_{i K2 + j} = A_i of the first, times A_j of the second"
    reads_beside = ()

    first: Family = field(default_factory=GCN)
    second: Family = field(default_factory=GCN)

    def __post_init__(self) -> None:
        super().__post_init__()
        common_kind((self.first, self.second))
        if not self.first.keeps_nodes and type(self.first).outputs is Family.outputs:
            raise RefusedValue(
                refusal(
                    "the second family reads the targets of the first",
                    "a first family that defines outputs; "
                    "basis.compose(other) takes any two bases that fit",
                    self.first,
                )
            )

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that both read."""
        return common_kind((self.first, self.second))

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether both families keep the nodes."""
        return self.first.keeps_nodes and self.second.keeps_nodes

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether either family adds self-loops."""
        return self.first.add_self_loops or self.second.add_self_loops

    def set_self_loops(self, add: bool) -> Compose:
        """The same recipe without added self-loops; adding them is refused."""
        if add:
            raise RefusedValue(
                refusal(
                    "self-loops are an option of each family of a composition",
                    "GCN(add_self_loops=True) among them",
                    repr(self),
                )
            )
        return Compose(self.first.set_self_loops(False), self.second.set_self_loops(False))

    def factors(self) -> list[Family]:
        """The factors of the first family, then those of the second."""
        return [*self.first.factors(), *self.second.factors()]

    def outputs(self, structure: Any) -> Structure:
        """The outputs of the second family on the outputs of the first."""
        return self.second.outputs(self.first.outputs(structure))

    @property
    def num_bases(self) -> int:
        """K₁·K₂."""
        return self.first.num_bases * self.second.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each pair of labels."""
        return tuple(
            f"{first}, then {second}"
            for first in self.first.labels
            for second in self.second.labels
        )

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The product of both bases; equal families share one basis."""
        between = self.first.outputs(structure)
        first = self.first.basis_on(structure, dtype)
        made_alike = self.first == self.second and not any(p.learns for p in nested(self.first))
        same = between is structure and made_alike
        return composed(first, first if same else self.second.basis_on(between, dtype))
