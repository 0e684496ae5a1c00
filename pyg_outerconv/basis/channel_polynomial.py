"""Polynomials of one operator with a recurrence for each channel, whose numbers may learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.sparse_matrix import SparseMatrix
from ..signatures import typed
from ..theta import Theta, ThetaOfChannels
from .algebra import Mixed, transposed
from .base import Basis, Leaf, picked
from .edges import EdgeBasis
from .multi_head_edges import item, of_item
from .polynomial import CHEBYSHEV, OfOperator, Polynomial, Step


@typed
@dataclass(frozen=True, eq=False, repr=False)
class ChannelPolynomial(OfOperator):
    """A_{kC+c} = p_{k,c}(A) for K terms, C channels and one square matrix A.

    p_{k,c}(a) = (α_kc a + β_kc) p_{k−1,c}(a) − γ_kc p_{k−2,c}(a), where p_{0,c} = α_0c, and
    p_{−1,c} = 0. With Θ of channels (:class:`.ThetaOfChannels`), whose label kC + c makes channel
    c of X W alone, all channels go through one recurrence of K − 1 sparse products at width C.
    With any other Θ it is a mix of the Chebyshev polynomials of A.

    Attributes:
        operator: A, explicit, with one label.
        alpha: α (K, *batch, C), which may require gradients, as β and γ may.
        beta: β.
        gamma: γ.

    Raises:
        ValueError: the operator is not one square matrix, or the numbers differ in shape.
        TypeError: the numbers are not floating point.
    """

    alpha: Tensor
    beta: Tensor
    gamma: Tensor

    terms_of = None  # X, W, their versions, and p_{k,c}(A)ᵀ X W (K, N, *batch, C)

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = self.alpha.shape
        if not self.alpha.is_floating_point():
            raise RefusedType("a recurrence has numbers", "floating point", self.alpha.dtype)
        differ = self.beta.shape != shape or self.gamma.shape != shape
        if len(shape) < 2 or not shape[0] or differ:
            raise RefusedValue(
                "a recurrence of channels has three numbers for each term and channel",
                "alpha, beta and gamma (K, *batch, C), K >= 1",
                [tuple(one.shape) for one in (self.alpha, self.beta, self.gamma)],
            )

    @property
    def num_terms(self) -> int:
        """K."""
        return self.alpha.size(0)

    @property
    def num_channels(self) -> int:
        """C."""
        return self.alpha.size(-1)

    @property
    def num_bases(self) -> int:
        return self.num_terms * self.num_channels

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions of the numbers."""
        return tuple(self.alpha.shape[1:-1])

    def knows_terms(self, x: Any, weight: Tensor, terms: Sequence[Tensor]) -> ChannelPolynomial:
        """The basis, where its terms of X W are known already, which none that is made of it has.

        They serve as long as neither X nor W is changed in place.

        Args:
            x: X.
            weight: W.
            terms: p_{k,c}(A)ᵀ X W for each k, (N, *batch, C) each.
        """
        vars(self)["terms_of"] = x, weight, _versions(x, weight), tuple(terms)
        return self

    def terms_known(self, x: Any, weight: Tensor) -> Sequence[Tensor] | None:
        """Its terms of X W, if it was made of them as they are; None for others."""
        cached_terms: Any = self.terms_of
        if (
            cached_terms is None
            or cached_terms[1] is not weight
            or not _is_same(x, cached_terms[0])
        ):
            return None
        versions = _versions(x, weight)
        if versions is None or versions != cached_terms[2]:
            return None
        terms: Sequence[Tensor] = cached_terms[3]
        return terms

    def filtered(self, z: Tensor, filters: Tensor, step: Step) -> Tensor:
        """Σ_k f_kc p_{k,c}(A)ᵀ z_c of Z (M, *batch, C) and f (K, C), from the last term on.

        As in :func:`.sum_clenshaw`, b_k = f_k z + (α_{k+1} Aᵀ + β_{k+1}) b_{k+1} − γ_{k+2} b_{k+2}.
        """
        alpha, beta, gamma, f = (
            part.to(z.dtype) for part in (self.alpha, self.beta, self.gamma, filters)
        )
        last: Tensor | None = None
        here = z * f[-1]
        for k in reversed(range(self.num_terms - 1)):
            ahead = torch.addcmul(z * f[k], step(here, 1.0), alpha[k + 1])
            ahead = torch.addcmul(ahead, here, beta[k + 1])
            if last is not None:
                ahead = torch.addcmul(ahead, last, gamma[k + 2], value=-1.0)
            last, here = here, ahead
        return here * alpha[0]

    def _coefficients(self) -> Tensor:
        """(K·C, K) the coefficients of each p_{k,c} of the Chebyshev polynomials."""
        if self.batch:
            rule = "matrices of a batch are those of its items"
            raise RefusedValue(rule, "numbers (K, C)", tuple(self.alpha.shape))
        count = self.num_terms
        first = torch.eye(count, dtype=self.alpha.dtype, device=self.device)[0]
        rows = [self.alpha[0].unsqueeze(-1) * first]
        for k in range(1, count):
            alpha, beta, gamma = (
                part[k].unsqueeze(-1) for part in (self.alpha, self.beta, self.gamma)
            )
            ahead = alpha * _times_argument(rows[-1]) + beta * rows[-1]
            rows.append(ahead - gamma * rows[-2] if k > 1 else ahead)
        return torch.stack(rows).flatten(0, 1)

    def simpler(self) -> Mixed:
        """The same as a mix of the Chebyshev polynomials of A."""
        dtype = self.operator.dtype or self.alpha.dtype
        operator = self.operator.with_values(self.operator.values(dtype))
        return Polynomial(operator, CHEBYSHEV, self.num_terms).mix(self._coefficients().to(dtype))

    def edges(self) -> EdgeBasis:
        return self.simpler().edges()

    def transpose(self) -> Basis:
        return transposed(self)

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The basis itself as a leaf for Θ of channels; for others its mix is absorbed."""
        if isinstance(theta, ThetaOfChannels) and aggr == "sum":
            return [(self, theta)]
        return self.simpler().absorb(theta, aggr)


@picked.register
def _(basis: ChannelPolynomial, labels: Sequence[int]) -> Basis | None:
    return picked(basis.simpler(), labels)


def _times_argument(rows: Tensor) -> Tensor:
    """The coefficients (*, K) of a·Σ_j t_j T_j(a), for those t of a sum of a degree below K − 1.

    a T_0 = T_1, and a T_j is half the sum of its neighbours.
    """
    pad, half = torch.nn.functional.pad, rows / 2
    above, below = pad(half[..., :-1], (1, 0)), pad(half[..., 1:], (0, 1))
    return above + below + pad(half[..., :1], (1, rows.size(-1) - 2))


def _versions(x: Any, weight: Tensor) -> tuple[int, ...] | None:
    """How often X and W were changed in place; None if either does not count that."""
    if torch.compiler.is_compiling():  # the basis is of the call that is compiled
        return ()
    numbers = x.value if isinstance(x, SparseMatrix) else x
    tensors = [one for one in (numbers, weight) if isinstance(one, Tensor)]
    if any(one.is_inference() for one in tensors):
        return None
    return tuple(one._version for one in tensors)


def _is_same(x: Any, other: Any) -> bool:
    """Whether X is the same object, or the same view of one tensor."""
    if x is other:
        return True
    if not (isinstance(x, Tensor) and isinstance(other, Tensor)) or x._base is None:
        return False
    return (
        x._base is other._base
        and (x.shape, x.stride()) == (other.shape, other.stride())
        and x.storage_offset() == other.storage_offset()
    )


@item.register
def _(basis: ChannelPolynomial, *index: int) -> ChannelPolynomial:
    place = of_item(basis, index)  # numbers have terms in the place of nodes
    changed = {name: getattr(basis, name)[place] for name in ("alpha", "beta", "gamma")}
    return replace(basis, **changed)
