"""Θ as a mixture of few matrices, which lets labels be mixed before anything is multiplied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Union

import torch
from torch import Tensor

from .value_output import ValueOutput


@dataclass(frozen=True)
class Mixture:
    """Θ_k = Σ_b c_kb V_b, so that Σ_k A_k ⊗ Θ_k = Σ_b (Σ_k c_kb A_k) ⊗ V_b has B terms, not K.

    Attributes:
        coefficient: c (K, B).
        matrices: V (B, G, P/G, Q/G).
        is_unit: whether V is the identity alone, ones (1, P, 1, 1) without gradients which nothing
            needs to be multiplied with: Θ_k = c_k I.
        constant: the number that every c_k is, where that is known without looking.
    """

    coefficient: Tensor
    matrices: Tensor
    is_unit: bool = False
    constant: float | None = None

    @staticmethod
    def identity(num_labels: int, channels: int, like: Tensor) -> Mixture:
        """Θ_k = I of ``channels`` channels for every k, of the type and device of ``like``."""
        ones = torch.ones(1, dtype=like.dtype, device=like.device)  # no batch, where like has one
        return Mixture(ones.expand(num_labels, 1), ones.expand(1, channels, 1, 1), True, 1.0)

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
ThetaValue = Union[Tensor, Mixture, ValueOutput]  # noqa: UP007
"""Θ (K, G, P/G, Q/G): a tensor, a mixture, or values and outputs of heads."""


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor."""
    return theta if isinstance(theta, Tensor) else theta.full()


def numbers_of(theta: ThetaValue) -> Tensor:
    """The tensor whose type and device are those of Θ."""
    if isinstance(theta, Mixture):
        return theta.matrices
    return theta.value if isinstance(theta, ValueOutput) else theta


def labels_of(theta: ThetaValue, start: int, end: int) -> ThetaValue:
    """Θ_k for k from ``start`` to ``end``."""
    if isinstance(theta, Mixture):
        return replace(theta, coefficient=theta.coefficient[start:end])
    return theta.labels(start, end) if isinstance(theta, ValueOutput) else theta[start:end]


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number."""
    if isinstance(theta, Mixture):
        if isinstance(factor, Tensor):
            scaled = theta.coefficient * factor.unsqueeze(-1)
            return replace(theta, coefficient=scaled, constant=None)
        constant = None if theta.constant is None else theta.constant * factor
        return replace(theta, coefficient=theta.coefficient * factor, constant=constant)
    if isinstance(theta, ValueOutput):
        return theta.scaled(factor)
    return theta * (factor.view(-1, 1, 1, 1) if isinstance(factor, Tensor) else factor)


def mixed(theta: ThetaValue, matrix: Tensor) -> ThetaValue:
    """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K); a mixture of the Θ_j where J < K."""
    if isinstance(theta, Mixture):
        return replace(theta, coefficient=matrix.t() @ theta.coefficient, constant=None)
    if isinstance(theta, ValueOutput) and theta.bias is not None:
        return theta.recombined(lambda rows: torch.tensordot(matrix.t(), rows, dims=1))
    theta = full(theta)
    if matrix.size(0) < matrix.size(1):
        return Mixture(matrix.t(), theta)
    return torch.tensordot(matrix.t(), theta, dims=1)


def gathered(theta: ThetaValue, label: Tensor, num_labels: int) -> ThetaValue:
    """Σ of the Θ_i with ``label[i] == k``, for each k of ``num_labels``."""

    def gather(rows: Tensor) -> Tensor:
        return rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)

    if isinstance(theta, ValueOutput) and theta.bias is not None:
        return theta.recombined(gather)
    out = gather(theta.coefficient if isinstance(theta, Mixture) else full(theta))
    return replace(theta, coefficient=out, constant=None) if isinstance(theta, Mixture) else out
