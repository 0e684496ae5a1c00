"""Θ as a mixture of few matrices, which lets labels be mixed before anything is multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """Θ_k = Σ_b c_kb V_b, so that Σ_k A_k ⊗ Θ_k = Σ_b (Σ_k c_kb A_k) ⊗ V_b has B terms, not K.

    Attributes:
        coefficient: c (K, B).
        matrices: V (B, G, P/G, Q/G).
    """

    coefficient: Tensor
    matrices: Tensor

    @property
    def shape(self) -> torch.Size:
        """(K, G, P/G, Q/G) of Θ."""
        return torch.Size((self.coefficient.size(0), *self.matrices.shape[1:]))

    @property
    def num_matrices(self) -> int:
        """B."""
        return self.coefficient.size(1)

    def full(self) -> Tensor:
        """Θ (K, G, P/G, Q/G), of the type of the matrices, whatever autocast multiplies in."""
        flat = self.coefficient @ self.matrices.flatten(1)
        return flat.view(self.shape).to(self.matrices.dtype)


# Spelled as PyG, which reads the types of the layer, can read it.
ThetaValue = Union[Tensor, Mixture]  # noqa: UP007
"""Θ (K, G, P/G, Q/G): a tensor, or a mixture."""


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor."""
    return theta.full() if isinstance(theta, Mixture) else theta


def labels_of(theta: ThetaValue, start: int, end: int) -> ThetaValue:
    """Θ_k for k from ``start`` to ``end``."""
    if isinstance(theta, Mixture):
        return Mixture(theta.coefficient[start:end], theta.matrices)
    return theta[start:end]


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number."""
    if isinstance(theta, Mixture):
        factor = factor.unsqueeze(-1) if isinstance(factor, Tensor) else factor
        return Mixture(theta.coefficient * factor, theta.matrices)
    return theta * (factor.view(-1, 1, 1, 1) if isinstance(factor, Tensor) else factor)


def gathered(theta: ThetaValue, label: Tensor, num_labels: int) -> ThetaValue:
    """Σ of the Θ_i with ``label[i] == k``, for each k of ``num_labels``."""
    rows = theta.coefficient if isinstance(theta, Mixture) else theta
    out = rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)
    return Mixture(out, theta.matrices) if isinstance(theta, Mixture) else out
