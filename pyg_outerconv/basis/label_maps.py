"""Bases whose labels are scaled, selected or mixed from those of another basis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real

import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedType, RefusedValue
from ..graph.choice import Labels, chosen
from ..kernels.lasting import lasting
from ..memo import cached_property
from ..signatures import typed
from ..theta import Theta
from .base import Basis, Leaf, Shape
from .compound import Derived
from .edges import EdgeBasis, no_edges
from .pattern import Pattern
from .registry import makes


@dataclass(frozen=True, eq=False, repr=False)
class LabelMap(Derived):
    """B_j = Σ_k C[j, k] A_k for some matrix C (J, K)."""

    @abstractmethod
    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        """Σ_k C[j, k] h_k for a tensor with K entries along a dimension."""

    def picked(self, labels: Sequence[int]) -> Basis | None:
        """None: what the labels are multiplied with may learn, and must not be kept."""
        return None

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(J, M, N): the dense matrices of the base, combined."""
        return self.of_labels(self.base.to_dense(self.dtype or dtype), 0)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets]: rows and columns of the base, combined."""
        return self.with_parts(lambda base: base.restricted(sources, targets))

    def diagonal_block(self, nodes: Tensor) -> Basis:
        """A_k[nodes, nodes] of components: those of the base, combined."""
        return self.with_parts(lambda base: base.diagonal_block(nodes))

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: those of the base."""
        return self.base.reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_j = B_jᵀ X: the propagated features of the base, combined."""
        return self.of_labels(self.base.propagate(x), 1)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`: those of the base."""
        return self.base.products(shape, learns)


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Scaled(LabelMap):
    """c_k·A_k, with ``factor`` (K,) of the c_k, which may require gradients.

    ``number`` is the value of all c_k if the scale was a Python number: nested scales by numbers
    are multiplied into one, whereas tensors, which may require gradients, are kept apart.
    """

    factor: Tensor
    number: float | None = None

    @staticmethod
    @makes("scale")
    def of(base: Basis, factor: float | Tensor) -> Scaled:
        """Scale ``base`` by one number, or by one for each label.

        Raises:
            TypeError: ``factor`` is neither a number nor a tensor.
            ValueError: ``factor`` does not have the shape () or (K,).
        """
        if not isinstance(factor, Tensor | Real) or isinstance(factor, bool):
            raise RefusedType("a scale is a number", "a float or a tensor", repr(factor))
        number = None
        if not isinstance(factor, Tensor):
            number = float(factor)
            if isinstance(base, Scaled) and base.number is not None:
                base, number = base.base, base.number * number
            factor = torch.tensor(number, dtype=base.dtype, device=base.device)
        if factor.shape not in ((), (base.num_bases,)):
            raise RefusedValue(
                "a scale needs one factor, or one for each label",
                f"shape () or ({base.num_bases},)",
                tuple(factor.shape),
            )
        if not factor.is_floating_point() and base.dtype is not None:
            factor = factor.to(base.dtype)
        return Scaled(base, factor.expand(base.num_bases), number)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values; that of the factor if the base's values are ones."""
        return self.base.dtype or self.factor.dtype

    @property
    def learns(self) -> bool:
        """Whether values of the base or the factor require gradients."""
        return self.base.learns or self.factor.requires_grad

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        """c_k h_k for a tensor with K entries along a dimension."""
        return h * self.factor.to(h.dtype).view(-1, *(1,) * (h.dim() - dim - 1))

    def edges(self) -> EdgeBasis:
        """The edges with their values multiplied."""
        edges = self.base.edges()
        factor = self.factor.to(self.dtype).index_select(0, edges.label)
        return edges.with_values(edges.values(factor.dtype) * factor)

    def absorb_selected(self, selected: Selected, theta: Theta, aggr: str) -> list[Leaf]:
        factor, labels = self.factor[list(selected.labels)], selected.labels
        return replace(self, base=self.base.select(labels), factor=factor).absorb(theta, aggr)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """Scale Θ_k by c_k, which is cheaper than scaling edges; for 'max' and 'min' scale values.

        A negative c_k exchanges maxima and minima. Identities have one input each, and bases that
        hide their edges are refused later.
        """
        base = self.base
        if aggr in ("max", "min") and not base.is_identity and base.hidden() is None:
            return base.absorb_scaled(self, theta, aggr)
        return base.absorb(theta.scaled(self.factor), aggr)


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Selected(LabelMap):
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
                raise RefusedIndex("a selected label must exist", f"[0, {count})", label)
        return Selected.kept(base, [label % count for label in found])

    @staticmethod
    @makes("keep")
    def kept(base: Basis, labels: Sequence[int]) -> Selected:
        """The selection of labels that are in range, which a compiler can trace."""
        if isinstance(base, Selected):
            return Selected(base.base, tuple([base.labels[label] for label in labels]))
        return Selected(base, tuple(labels))

    @property
    def num_bases(self) -> int:
        """Number of selected labels."""
        return len(self.labels)

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        """h_k for the selected labels of a dimension."""
        return h.index_select(dim, torch.tensor(self.labels, dtype=torch.long, device=h.device))

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

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by the selected labels of the base."""
        return self.base.reached(seen, [self.labels[k] for k in labels], transposed)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The leaves of the selected labels alone, for NaN passes through a Θ_k of zeros."""
        if not self.labels:
            return [(no_edges(self.size, self.device), theta)]
        if (picked := self._picked) is not None:
            return picked.absorb(theta, aggr)
        return self.base.absorb_selected(self, theta, aggr)

    @cached_property
    def _picked(self) -> Basis | None:
        return self.base.picked(self.labels)

    def __repr__(self) -> str:
        return f"Selected(labels={list(self.labels)}, {self.base!r})"


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Mixed(LabelMap):
    """B_j = Σ_k C[j, k] A_k, with ``matrix`` C (J, K), which may require gradients."""

    matrix: Tensor

    @staticmethod
    @makes("mix")
    def of(base: Basis, matrix: Tensor) -> Mixed:
        """Mix the labels of ``base``.

        Raises:
            TypeError: the matrix is not a floating point tensor of the dtype of the values.
            ValueError: it does not have one column for each label.
        """
        if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
            got = getattr(matrix, "dtype", type(matrix).__name__)
            raise RefusedType("labels are mixed by numbers", "a floating point tensor (J, K)", got)
        if matrix.dim() != 2 or matrix.size(1) != base.num_bases:
            raise RefusedValue(
                "a mixing matrix has a column for each label",
                f"(J, {base.num_bases})",
                tuple(matrix.shape),
            )
        if base.dtype not in (None, matrix.dtype):
            raise RefusedType(
                "a mixing matrix has the dtype of the values", base.dtype, matrix.dtype
            )
        return Mixed(base, matrix)

    @property
    def num_bases(self) -> int:
        """Number of labels, J."""
        return self.matrix.size(0)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the matrix and of the values."""
        return self.matrix.dtype

    @property
    def learns(self) -> bool:
        """Whether values of the base or the matrix require gradients."""
        return self.base.learns or self.matrix.requires_grad

    def of_labels(self, h: Tensor, dim: int) -> Tensor:
        return torch.tensordot(self.matrix.to(h.dtype), h, dims=([1], [dim])).movedim(0, dim)

    @cached_property
    def _places(self) -> tuple[int, Tensor, Pattern]:
        """The number of (source, target) pairs, the pair of each edge (E,), the mixed pattern."""
        edges, rows = self.base.edges(), max(self.size[0], 1)
        with lasting(edges.pattern.source):
            key = edges.pattern.target.long() * rows + edges.pattern.source.long()
            pairs, place = key.unique(return_inverse=True)
            ends = torch.stack([pairs % rows, pairs // rows])
            label = torch.arange(self.num_bases, device=key.device)
            pattern = Pattern.build(
                ends.repeat_interleave(self.num_bases, dim=1),
                label.repeat(pairs.numel()),
                size=self.size,
                num_labels=self.num_bases,
            )
            return pairs.numel(), place, pattern

    def edges(self) -> EdgeBasis:
        """One edge for each label and (source, target) pair that any label of the base joins."""
        edges, (count, place, pattern) = self.base.edges(), self._places
        share = self.matrix.t().index_select(0, edges.label)  # (E, J)
        value = edges.values(self.matrix.dtype).unsqueeze(1) * share
        sums = value.new_zeros(count, self.num_bases).index_add(0, place, value)
        return EdgeBasis(pattern, pattern.sort_values(sums.flatten()))

    def mean(self, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The mean of the mixed edges, which are made explicit.

        Raises:
            ValueError: the base hides its edges.
        """
        self.base.mean(self.dtype)  # raises if edges are hidden
        return self.edges().mean(dtype)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by any label of the base."""
        return self.base.reached(seen, range(self.base.num_bases if labels else 0), transposed)

    def absorb_selected(self, selected: Selected, theta: Theta, aggr: str) -> list[Leaf]:
        return replace(self, matrix=self.matrix[list(selected.labels)]).absorb(theta, aggr)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """Mix Θ instead: Θ'_k = Σ_j C[j, k] Θ_j. For reductions other than sums, return the edges.

        These join all pairs that any label of the base joins. Identities have one input each, and
        bases that hide their edges are refused later.
        """
        base = self.base
        if not self.num_bases:
            return [(no_edges(self.size, self.device), theta)]
        if aggr != "sum" and not base.is_identity and base.hidden() is None:
            return [(self.edges(), theta)]
        return base.absorb(theta.mixed(self.matrix), aggr)

    def __repr__(self) -> str:
        return f"Mixed({self.num_bases} of {self.base!r})"
