"""Some of the matrices of a basis."""

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
    """A_k for the given labels k, in the given order; a label may come twice."""

    labels: tuple[int, ...]

    @staticmethod
    @makes("select")
    def of(base: Basis, labels: Labels) -> Selected:
        """Select from ``base``; see :meth:`Basis.select`. Of a selection its base is taken.

        Raises:
            TypeError, ValueError: see :func:`.choice.chosen`.
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
        """How many labels were chosen."""
        return len(self.labels)

    @cached_property
    def _chosen(self) -> tuple[Tensor, Pattern]:
        """The positions of the chosen edges in the base, sorted as their pattern is."""
        with torch.inference_mode(False):  # What is kept must serve training too.
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
        """The edges of the chosen labels, relabelled by their place in the choice; sorted once."""
        value = self.base.edges().value
        keep, pattern = self._chosen
        return EdgeBasis(pattern, None if value is None else value.index_select(0, keep))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N): the chosen matrices of the base."""
        return self.base.to_dense(dtype)[list(self.labels)]

    def mean(self, dtype: torch.dtype | None = None) -> Selected:
        """The mean within each chosen label."""
        return Selected(self.base.mean(dtype), self.labels)

    def transposed(self) -> Selected:
        """Labels of the transpose of the base."""
        return Selected(self.base.transpose(), self.labels)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Selected:
        """See :meth:`.Kind.restricted`: labels of what is left of the base."""
        return Selected(self.base.restricted(sources, targets), self.labels)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`: by the labels that were chosen."""
        return self.base.reached(seen, [self.labels[k] for k in labels], transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: some of what the base gives."""
        return self.base.propagate(x)[:, list(self.labels)]

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`: those of the base."""
        return self.base.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """As its base says: Θ_k goes to the label that was chosen, zeros to those that were not."""
        if not self.labels:
            return [(no_edges(self.size, self.device), theta)]
        return self.base.absorb_selected(self, theta, reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Selected:
        """See :meth:`Basis.map`."""
        return Selected(self.base.map(index_map, value_map), self.labels)

    def __repr__(self) -> str:
        return f"Selected(labels={list(self.labels)}, {self.base!r})"
