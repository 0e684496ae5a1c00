"""Scaled bases: every matrix multiplied by a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis
from .derived import Derived
from .edges import EdgeBasis
from .kind import Shape, TensorMap
from .makers import makes

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Derived):
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
            raise RefusedType(refusal("a scale is a number", "a float or a tensor", repr(factor)))
        number = None
        if not isinstance(factor, Tensor):
            number = float(factor)
            if isinstance(base, Scaled) and base.number is not None:
                base, number = base.base, base.number * number
            factor = torch.tensor(number, dtype=base.dtype, device=base.device)
        if factor.shape not in ((), (base.num_bases,)):
            raise RefusedValue(
                refusal(
                    "a scale needs one factor, or one for each label",
                    f"shape () or ({base.num_bases},)",
                    tuple(factor.shape),
                )
            )
        return Scaled(base, factor.expand(base.num_bases), number)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values; that of the factor if the base's values are ones."""
        return self.base.dtype or self.factor.dtype

    @property
    def learns(self) -> bool:
        """Whether values of the base or the factor require gradients."""
        return self.base.learns or self.factor.requires_grad

    def edges(self) -> EdgeBasis:
        """The edges with their values multiplied."""
        edges = self.base.edges()
        factor = self.factor.to(self.dtype).index_select(0, edges.label)
        return edges.with_values(edges.values(factor.dtype) * factor)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N): the dense matrices of the base, scaled."""
        factor = self.factor.to(self.dtype)
        return self.base.to_dense(factor.dtype) * factor.view(-1, 1, 1)

    def mean(self, dtype: torch.dtype | None = None) -> Scaled:
        """The mean within each label, scaled."""
        return Scaled(self.base.mean(self.dtype), self.factor)

    def transposed(self) -> Scaled:
        """The transpose of the base, scaled."""
        return Scaled(self.base.transpose(), self.factor)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Scaled:
        """A_k[sources, targets]: rows and columns of the base, scaled."""
        return Scaled(self.base.restricted(sources, targets), self.factor)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``: those of the base."""
        return self.base.reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = c_k A_kᵀ X: the propagated features of the base, scaled."""
        return self.base.propagate(x) * self.factor.to(x.dtype).view(-1, *(1,) * (x.dim() - 1))

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products in :meth:`propagate`; see :meth:`.Kind.products`."""
        return self.base.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Scale Θ_k by c_k, which is cheaper than scaling edges; for 'max' and 'min' scale values.

        A negative c_k exchanges maxima and minima. Identities have one input each, and bases that
        hide their edges are refused later.
        """
        base = self.base
        if reduce in ("max", "min") and not base.is_identity and base.hidden() is None:
            return base.absorb_scaled(self, theta, reduce)
        return base.absorb(theta.scaled(self.factor), reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Scaled:
        """Apply ``index_map`` to index tensors and ``value_map`` to values."""
        return Scaled(self.base.map(index_map, value_map), value_map(self.factor))

    def __repr__(self) -> str:
        return f"Scaled({self.base!r})"
