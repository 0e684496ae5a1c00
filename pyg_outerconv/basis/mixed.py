"""Mixtures of labels: each matrix is a linear combination of the matrices of another basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache import cached_property
from ..errors import RefusedType, RefusedValue, refusal
from ..kernels.lasting import lasting
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
class Mixed(Derived):
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
            raise RefusedType(
                refusal("labels are mixed by numbers", "a floating point tensor (J, K)", got)
            )
        if matrix.dim() != 2 or matrix.size(1) != base.num_bases:
            raise RefusedValue(
                refusal(
                    "a mixing matrix has a column for each label",
                    f"(J, {base.num_bases})",
                    tuple(matrix.shape),
                )
            )
        if base.dtype not in (None, matrix.dtype):
            raise RefusedType(
                refusal("a mixing matrix has the dtype of the values", base.dtype, matrix.dtype)
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

    @cached_property
    def _places(self) -> tuple[int, Tensor, Pattern]:
        """The number of (source, target) pairs, the pair of each edge (E,), the mixed pattern."""
        edges = self.base.edges()
        with lasting(edges.pattern.source):
            key = edges.pattern.target.long() * max(self.size[0], 1) + edges.pattern.source.long()
            pairs, place = key.unique(return_inverse=True)
            ends = torch.stack([pairs % max(self.size[0], 1), pairs // max(self.size[0], 1)])
            label = torch.arange(self.num_bases, device=key.device)
            pattern = Pattern.build(
                ends.repeat_interleave(self.num_bases, dim=1),
                label.repeat(pairs.numel()),
                size=self.size,
                num_labels=self.num_bases,
            )
            return pairs.numel(), place, pattern

    @property
    def learns(self) -> bool:
        """Whether values of the base or the matrix require gradients."""
        return self.base.learns or self.matrix.requires_grad

    def edges(self) -> EdgeBasis:
        """One edge for each label and (source, target) pair that any label of the base joins."""
        edges, (count, place, pattern) = self.base.edges(), self._places
        share = self.matrix.t().index_select(0, edges.label)  # (E, J)
        value = edges.values(self.matrix.dtype).unsqueeze(1) * share
        sums = value.new_zeros(count, self.num_bases).index_add(0, place, value)
        return EdgeBasis(pattern, pattern.sort_values(sums.flatten()))

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(J, M, N): the dense matrices of the base, mixed."""
        return torch.einsum("jk,kmn->jmn", self.matrix, self.base.to_dense(self.matrix.dtype))

    def mean(self, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The mean of the mixed edges, which are made explicit.

        Raises:
            ValueError: the base hides its edges.
        """
        self.base.mean(self.dtype)  # raises if edges are hidden
        return self.edges().mean(dtype)

    def transposed(self) -> Mixed:
        """The transpose of the base, mixed."""
        return Mixed(self.base.transpose(), self.matrix)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Mixed:
        """A_k[sources, targets]: rows and columns of the base, mixed."""
        return Mixed(self.base.restricted(sources, targets), self.matrix)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: by any label of the base."""
        return self.base.reached(seen, range(self.base.num_bases if labels else 0), transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X: what the base gives, mixed."""
        h = self.base.propagate(x)
        return torch.tensordot(self.matrix.to(x.dtype), h, dims=([1], [1])).movedim(0, 1)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`; see :meth:`.Kind.products`."""
        return self.base.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Mix Θ instead: Θ'_k = Σ_j C[j, k] Θ_j. For reductions other than sums, return the edges.

        These join all pairs that any label of the base joins. Identities have one input each, and
        bases that hide their edges are refused later.
        """
        base = self.base
        if not self.num_bases:
            return [(no_edges(self.size, self.device), theta)]
        if reduce != "sum" and not base.is_identity and base.hidden() is None:
            return [(self.edges(), theta)]
        return base.absorb(theta.mixed(self.matrix), reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Mixed:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Mixed(self.base.map(index_map, value_map), value_map(self.matrix))

    def __repr__(self) -> str:
        return f"Mixed({self.num_bases} of {self.base!r})"
