"""Cluster: pooling by assignment, from the members of a cluster to the cluster.

``Pool`` slides windows over grids and shares no option with it, so these are two families.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.pattern import Pattern
from ..equations import row
from ..errors import RefusedValue
from ..graph.assignment import Assignment, Criterion
from .family import Family
from .options import check_least


@row(
    "Alignment",
    "means of clusters",
    "Andreoli, section 4",
    option="`Mean(Cluster())`, with `alignment=` assignments",
)
@dataclass(frozen=True)
class Cluster(Family):
    r"""Pooling: source m belongs to cluster n, M ≠ N.

    .. math:: A_k[m, n] = S_k[m, n], \qquad\text{or}\qquad
        A_k[m, n] = 1 \iff m \text{ is the } k\text{-th member of } n \text{ from its end}

    It reads :class:`Assignment` in the place of edges: a ``batch`` or cluster vector, a PyG
    ``SelectOutput``, an assignment matrix S (M, N), or a list of these, one for each of the
    ``criteria``, with a label for each. ``OuterConv(-1, -1, Cluster(), theta="identity",
    bias=False, aggr=...)`` is global pooling, with sum, mean, max and min; a mean divides by the
    number of members, whatever their weights. Unpooling is ``basis.transpose()``. From a PyG
    ``Batch`` it reads ``batch``.

    With ``positions=L`` members have labels by their place, counted from the cluster's end as
    in equation 5 of *Convolution is outer product* (whose indices start at 1): label 0 is the last
    member in the order of sources, and a cluster has at most L members.

    Args:
        criteria (int, optional): the number of assignments. (default: ``1``)
        positions (int, optional): L. K is ``criteria`` times L; label c·L + k is the k-th member
            by criterion c. (default: all members have one label)

    Raises:
        ValueError: a number is not positive; when a basis is made, the number of assignments is
            not ``criteria``, or a cluster has more members than positions.
    """

    equation = "A_k[m, n] = 1 where m belongs to n, or how much it does"
    reads = Assignment
    keeps_nodes = False
    symmetries = ()

    criteria: int = 1
    positions: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, criteria=1, positions=1)

    @property
    def num_bases(self) -> int:
        """K, the number of criteria times that of positions."""
        return self.criteria * (self.positions or 1)

    @property
    def labels(self) -> tuple[str, ...]:
        if self.positions is None:
            return tuple(f"members by criterion {c}" for c in range(self.criteria))
        return tuple(
            f"place {k} from the end by criterion {c}"
            for c in range(self.criteria)
            for k in range(self.positions)
        )

    def basis_on(self, structure: Assignment, dtype: torch.dtype | None = None) -> EdgeBasis:
        """An edge from each member to its cluster, for every criterion."""
        criteria = structure.criteria
        if len(criteria) != self.criteria:
            raise RefusedValue(f"{self} reads as many assignments", self.criteria, len(criteria))
        labels = [self._label(number, one) for number, one in enumerate(criteria)]
        source = torch.cat([one.source.long() for one in criteria])
        target = torch.cat([one.target.long() for one in criteria])
        pattern = Pattern.build(
            torch.stack([source, target]),
            torch.cat(labels),
            size=structure.size,
            num_labels=self.num_bases,
            origin=torch.arange(source.numel(), device=source.device),
        )
        weights = [one.weight for one in criteria]
        dtype = next((weight.dtype for weight in weights if weight is not None), None)
        if dtype is None:
            return EdgeBasis(pattern)
        value = torch.cat(
            [
                torch.ones(one.source.shape, dtype=dtype, device=source.device)
                if one.weight is None
                else one.weight
                for one in criteria
            ]
        )
        return pattern.with_values(pattern.sort_values(value))

    def _label(self, number: int, criterion: Criterion) -> Tensor:
        """The label (E,) of each member."""
        target = criterion.target.long()
        if self.positions is None:
            return torch.full_like(target, number)
        order = torch.sort(target, stable=True).indices
        count = torch.bincount(target)
        if target.numel() and int(count.max()) > self.positions:
            raise RefusedValue(
                "a cluster has no more members than positions",
                f"at most {self.positions}",
                f"{int(count.max())} in cluster {int(count.argmax())}",
            )
        # Members are sorted by cluster; cluster n ends at the sum of the counts up to n.
        ends = count.cumsum(0).index_select(0, target.index_select(0, order))
        places = ends - 1 - torch.arange(target.numel(), device=target.device)
        return number * self.positions + torch.empty_like(places).index_copy(0, order, places)
