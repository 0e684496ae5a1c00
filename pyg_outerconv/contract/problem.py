"""One contraction to be done: a leaf basis, the input, and its slice of the parameter."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..basis.base import Basis


@dataclass(frozen=True)
class Problem:
    """Y = Σ_k A_kᵀ X Θ_k for one basis that no rewriting takes apart.

    Attributes:
        basis: K matrices of size M × N: explicit edges, a polynomial, or the identity.
        x: (M, *batch, P); integers (M,), the row of Θ_k that each source takes; or None, where
            source m takes row m, which is X = I.
        theta: (K, G, P/G, Q/G): Θ_k is block-diagonal with G blocks; G = 1 is a full matrix.
    """

    basis: Basis
    x: Tensor | None
    theta: Tensor

    @property
    def num_labels(self) -> int:
        """K."""
        return self.theta.size(0)

    @property
    def in_channels(self) -> int:
        """P."""
        return self.theta.size(1) * self.theta.size(2)

    @property
    def out_channels(self) -> int:
        """Q."""
        return self.theta.size(1) * self.theta.size(3)

    @property
    def has_features(self) -> bool:
        """Whether X is dense; without features only products with Θ exist."""
        return self.x is not None and self.x.is_floating_point()

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes between the nodes and the channels of x."""
        return tuple(self.x.shape[1:-1]) if self.x is not None and self.has_features else ()

    @property
    def num_columns(self) -> int:
        """How many copies of the channels a batch makes."""
        return prod(self.batch)

    def transform(self) -> Tensor:
        """X Θ_k for every label: (M, K, *batch, Q)."""
        theta, x = self.theta, self.x
        num_labels, groups, rows, columns = theta.shape
        if x is None or not x.is_floating_point():
            # Row m of X Θ_k is a row of Θ_k; a full Θ, so that G = 1.
            table = theta[:, 0].transpose(0, 1)
            return table if x is None else table.index_select(0, x)
        if groups == 1:
            wide = theta[:, 0].permute(1, 0, 2).reshape(rows, num_labels * columns)
            product = (x @ wide).unflatten(-1, (num_labels, columns))
        else:
            blocks = x.unflatten(-1, (groups, rows))
            product = torch.einsum("m...gp,kgpq->m...kgq", blocks, theta).flatten(-2)
        return product.movedim(-2, 1)

    def transform_label(self, label: int) -> Tensor:
        """X Θ_k for one label: (M, *batch, Q)."""
        one = Problem(self.basis, self.x, self.theta[label : label + 1])
        return one.transform().squeeze(1)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_k H_k Θ_k for H (N, K, *batch, P): (N, *batch, Q)."""
        num_labels, groups, rows, columns = self.theta.shape
        h = h.movedim(1, -2)
        if groups == 1:
            tall = self.theta.reshape(num_labels * rows, columns)
            return h.flatten(-2) @ tall
        blocks = h.unflatten(-1, (groups, rows))
        return torch.einsum("n...kgp,kgpq->n...gq", blocks, self.theta).flatten(-2)

    def collect_label(self, h: Tensor, label: int) -> Tensor:
        """H_k Θ_k for one label and H_k (N, *batch, P): (N, *batch, Q)."""
        one = Problem(self.basis, self.x, self.theta[label : label + 1])
        return one.collect(h.unsqueeze(1))
