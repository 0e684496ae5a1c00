"""Rows and columns of a basis: some of its sources, some of its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedValue, refusal
from .base import Basis, TensorMap, nest
from .cache import cached_property
from .choice import chosen
from .composed import Composed
from .derived import Derived
from .edges import EdgeBasis
from .eye import Eye
from .mixed import Mixed
from .on_demand import OnDemand
from .pattern import Pattern, lasting
from .scaled import Scaled
from .selected import Selected
from .stacked import Stacked
from .transposed import Transposed

Nodes = Union[Tensor, Sequence[int], Sequence[bool], None]  # noqa: UP007
"""Which nodes, in which order: distinct indices, or a mask; None means all."""


@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Derived):
    """A_k[sources, targets] for a rule whose rows and columns cannot be taken away beforehand.

    Attributes:
        base: of size (M, N).
        sources: (M',) distinct indices, or None for all.
        targets: (N',) the same.
    """

    sources: Tensor | None
    targets: Tensor | None

    def __post_init__(self) -> None:
        nest(self, self.base, levels=2)  # those of the product

    @property
    def size(self) -> tuple[int, int]:
        """(M', N')."""
        rows, columns = self.base.size
        return (
            rows if self.sources is None else self.sources.numel(),
            columns if self.targets is None else self.targets.numel(),
        )

    @cached_property
    def product(self) -> Basis:
        """S A_k T, with a matrix S that spreads sources and a T that picks targets."""
        out, (rows, columns) = self.base, self.base.size
        if self.sources is not None:
            out = Composed(_picking(self.sources, rows).transposed_edges(), out)
        return out if self.targets is None else Composed(out, _picking(self.targets, columns))

    def edges(self) -> EdgeBasis:
        """The edges of the base between the nodes that stay."""
        return restricted_edges(self.base.edges(), self.sources, self.targets)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M', N') of the dense base."""
        dense = self.base.to_dense(dtype)
        dense = dense if self.sources is None else dense.index_select(1, self.sources)
        return dense if self.targets is None else dense.index_select(2, self.targets)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """The mean over the edges that stay, where they can be known.

        Raises:
            ValueError: the base is lazy in a way that hides its edges.
        """
        self.base.mean(dtype)  # which refuses
        return self.edges().mean(dtype)

    def transpose(self) -> Basis:
        """Columns and rows of the transpose."""
        return Restricted(self.base.transpose(), self.targets, self.sources)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Restricted:
        """See :meth:`Basis.map`."""
        return Restricted(
            self.base.map(index_map, value_map),
            None if self.sources is None else index_map(self.sources),
            None if self.targets is None else index_map(self.targets),
        )

    def __repr__(self) -> str:
        return f"Restricted(size={self.size}, {self.base!r})"


def restrict(basis: Basis, sources: Nodes = None, targets: Nodes = None) -> Basis:
    """A_k[sources, targets], as far inside ``basis`` as it goes; see :meth:`Basis.restrict`."""
    rows = check_nodes("sources", sources, basis.size[0], basis.device)
    columns = check_nodes("targets", targets, basis.size[1], basis.device)
    return _restrict(basis, rows, columns)


def _restrict(basis: Basis, sources: Tensor | None, targets: Tensor | None) -> Basis:
    if sources is None and targets is None:
        return basis
    if isinstance(basis, Stacked):
        return Stacked(tuple(_restrict(part, sources, targets) for part in basis.parts))
    if isinstance(basis, Transposed):
        return _restrict(basis.base, targets, sources).transpose()
    if isinstance(basis, Scaled):
        return Scaled(_restrict(basis.base, sources, targets), basis.factor)
    if isinstance(basis, Mixed):
        return Mixed(_restrict(basis.base, sources, targets), basis.matrix)
    if isinstance(basis, Selected):
        return Selected(_restrict(basis.base, sources, targets), basis.labels)
    if isinstance(basis, Composed):
        first, second = basis.first, basis.second
        return Composed(_restrict(first, sources, None), _restrict(second, None, targets))
    if isinstance(basis, Restricted):
        return Restricted(
            basis.base, _within(basis.sources, sources), _within(basis.targets, targets)
        )
    if isinstance(basis, EdgeBasis | Eye | OnDemand):
        return restricted_edges(basis.edges(), sources, targets)
    return Restricted(basis, sources, targets)


def _within(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer.index_select(0, inner)


def restricted_edges(
    basis: EdgeBasis, sources: Tensor | None = None, targets: Tensor | None = None
) -> EdgeBasis:
    """The edges between ``sources`` and ``targets``, both renumbered by their places there.

    Where both ascend nothing is sorted.
    """
    pattern = basis.pattern
    source, target = pattern.source.long(), pattern.target.long()
    size = list(basis.size)
    keep = torch.ones_like(source, dtype=torch.bool)
    if sources is not None:
        source, size[0] = _places(sources, size[0]).index_select(0, source), sources.numel()
        keep = source >= 0
    if targets is not None:
        target, size[1] = _places(targets, size[1]).index_select(0, target), targets.numel()
        keep = keep & (target >= 0)
    kept, value = keep.nonzero().view(-1), basis.value
    if all(nodes is None or bool((nodes.diff() > 0).all()) for nodes in (sources, targets)):
        made = pattern.subset(keep, source, target, (size[0], size[1]))
        return EdgeBasis(made, None if value is None else value.index_select(0, kept))
    made = Pattern.build(
        torch.stack([source.index_select(0, kept), target.index_select(0, kept)]),
        pattern.label.index_select(0, kept),
        size=(size[0], size[1]),
        num_labels=pattern.num_labels,
        origin=None if pattern.origin is None else pattern.origin.index_select(0, kept),
    )
    if value is not None:
        value = value.index_select(0, kept.index_select(0, made.order))
    return EdgeBasis(made, value)


def _places(nodes: Tensor, count: int) -> Tensor:
    """(count,) where each node is among ``nodes``, −1 if it is not."""
    out = torch.full((count,), -1, device=nodes.device)
    out[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return out


def _picking(nodes: Tensor, count: int) -> EdgeBasis:
    """(count × n) the matrix that brings node ``nodes[i]`` to place i."""
    places = torch.arange(nodes.numel(), device=nodes.device)
    with lasting(nodes):
        return EdgeBasis(Pattern.build(torch.stack([nodes, places]), size=(count, nodes.numel())))


def check_nodes(name: str, nodes: Nodes, count: int, device: torch.device) -> Tensor | None:
    """(n,) distinct indices below ``count``, of indices or a mask.

    Raises:
        TypeError, ValueError: see :func:`.choice.chosen`; or an index comes twice.
        IndexError: an index is out of range.
    """
    if nodes is None:
        return None
    nodes = chosen(name, nodes, count).to(device)
    if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < count:
        raise RefusedIndex(
            refusal(
                f"{name} must exist", f"[0, {count})", f"[{int(nodes.min())}, {int(nodes.max())}]"
            )
        )
    if nodes.unique().numel() != nodes.numel():
        raise RefusedValue(
            refusal(f"{name} are distinct", "each index once", "an index that comes twice")
        )
    return nodes
