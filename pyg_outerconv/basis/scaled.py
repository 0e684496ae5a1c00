"""A basis with every matrix multiplied by a number."""

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
    """c_k·A_k, ``factor`` (K,) the c_k, which may carry gradients.

    ``number`` is what all c_k are where a number was given, no tensor: two of these are multiplied,
    where tensors, which may learn, are left as they are.
    """

    factor: Tensor
    number: float | None = None

    @staticmethod
    @makes("scale")
    def of(base: Basis, factor: float | Tensor) -> Scaled:
        """Scale ``base`` by one number, or by one for each label.

        Raises:
            TypeError: a factor that is no number.
            ValueError: a factor of another shape than () or (K,).
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
        """The type of the values, which scaled ones take from the factor."""
        return self.base.dtype or self.factor.dtype

    @property
    def learns(self) -> bool:
        """Whether the base learns, or the factor does."""
        return self.base.learns or self.factor.requires_grad

    def edges(self) -> EdgeBasis:
        """The edges with their values multiplied."""
        edges = self.base.edges()
        factor = self.factor.to(self.dtype).index_select(0, edges.label)
        return edges.with_values(edges.values(factor.dtype) * factor)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) of the base, each matrix multiplied."""
        factor = self.factor.to(self.dtype)
        return self.base.to_dense(factor.dtype) * factor.view(-1, 1, 1)

    def mean(self, dtype: torch.dtype | None = None) -> Scaled:
        """The mean within each label, scaled."""
        return Scaled(self.base.mean(self.dtype), self.factor)

    def transposed(self) -> Scaled:
        """The transpose of the base, scaled."""
        return Scaled(self.base.transpose(), self.factor)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Scaled:
        """See :meth:`.Kind.restricted`: rows and columns of the base, scaled."""
        return Scaled(self.base.restricted(sources, targets), self.factor)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """See :meth:`.Kind.reached`: what the base reaches."""
        return self.base.reached(seen, labels, transposed)

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: what the base gives, scaled."""
        return self.base.propagate(x) * self.factor.to(x.dtype).view(-1, *(1,) * (x.dim() - 1))

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`."""
        return self.base.products(shape, learns)

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Θ_k takes c_k, which costs less than scaling edges; values do where inputs are compared.

        A negative c_k turns maxima and minima into each other. An identity compares nothing, and
        what hides its edges is refused later on.
        """
        base = self.base
        if reduce in ("max", "min") and not base.is_identity and base.hidden() is None:
            return base.absorb_scaled(self, theta, reduce)
        return base.absorb(theta.scaled(self.factor), reduce)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Scaled:
        """See :meth:`Basis.map`."""
        return Scaled(self.base.map(index_map, value_map), value_map(self.factor))

    def __repr__(self) -> str:
        return f"Scaled({self.base!r})"
