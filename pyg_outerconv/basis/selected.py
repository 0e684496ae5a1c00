"""Selection of some labels of a basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache import cached_property
from ..errors import RefusedIndex, refusal
from ..graph.choice import Labels, chosen
from .base import Basis
from .derived import Derived
from .edges import EdgeBasis, no_edges
from .kind import Shape, TensorMap
from .makers import makes
from .pattern import Pattern

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False)
class Selected(Derived):
    """A_k for the given labels k, in the given order; labels may be repeated."""

    labels: tuple[int, ...]

    @staticmethod
    @makes("select")
    def of(base: Basis, labels: Labels) -> Selected:
        """Select labels of ``base``, see :meth:`Basis.select`; nested selections are merged.

        Raises:
            TypeError, ValueError: ``labels`` is malformed; see :func:`.choice.chosen`.
            IndexError: a label is out of range.
        """
        count = base.num_bases
        if isinstance(labels, slice):
            labels = range(count)[labels]
        elif isinstance(labels, Integral) and not isinstance(labels, bool):
            labels = (int(labels),)
        found = chosen("selected labels", labels, count).tolist()
        for label in found:
            if not -count <= label < count:
                raise RefusedIndex(refusal("a selected label must exist", f"[0, {count})", label))
        found = [label % count for label in found]
        if isinstance(base, Selected):
            return Selected(base.base, tuple(base.labels[label] for label in found))
        return Selected(base, tuple(found))

    @property
    def num_bases(self) -> int:
        """Number of selected labels."""
        return len(self.labels)

    @cached_property
    def _selected_edges(self) -> tuple[Tensor, Pattern]:
        """The positions of the selected edges in the base, in the order of their new pattern."""
        with torch.inference_mode(False):  # cached tensors must serve training too
            edges = self.base.edges()
            groups = [(edges.label == label).nonzero().view(-1) for label in self.labels]
            keep = torch.cat(groups) if groups else edges.label.new_zeros(0).long()
            label = torch.cat([torch.full_like(g, k) for k, g in enumerate(groups)] or [keep])
            pattern = Pattern.build(
                edges.index[:, keep],
                label,
                size=self.size,
                num_labels=self.num_bases,
                origin=None if edges.pattern.origin is None else edges.pattern.origin[keep],
            )
            return keep.index_select(0, pattern.order), pattern

    def edges(self) -> EdgeBasis:
        """The edges of the selected labels, relabelled by their position in the selection."""
        value = self.base.edges().value
        keep, pattern = self._selected_edges
        return EdgeBasis(pattern, None if value is None else value.index_select(0, keep))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N): the selected dense matrices of the base."""
        return self.base.to_dense(dtype)[list(self.labels)]

    def mean(self, dtype: torch.dtype | None = None) -> Selected:
        """The mean within each selected label."""
        return Selected(self.base.mean(dtype), self.labels)

    def transposed(self) -> Selected:
        """The same selection from the transpose of the base."""
        return Selected(self.base.transpose(), self.labels)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Selected:
        """A_k[sources, targets]: the same selection from the restricted base."""
        return Selected(self.base.restricted(sources, targets), self.labels)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by the selected labels of the base."""
        return self.base.reached(seen, [self.labels[k] for k in labels], transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X for the selected labels k."""
        return self.base.propagate(x)[:, list(self.labels)]

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of the base."""
        return self.base.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """The leaves of the base, with Θ_k added at the selected labels and zeros at the others."""
        if not self.labels:
            return [(no_edges(self.size, self.device), theta)]
        return self.base.absorb_selected(self, theta, reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Selected:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Selected(self.base.map(index_map, value_map), self.labels)

    def __repr__(self) -> str:
        return f"Selected(labels={list(self.labels)}, {self.base!r})"
