"""Θ as one tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from .mixture import Mixture
from .theta import Theta, add_rows


class DenseTheta(Theta):
    """Θ as one tensor that holds every Θ_k.

    Attributes:
        tensor: Θ (K, G, P/G, Q/G).
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.requires_grad = tensor.requires_grad

    def full(self) -> Tensor:
        """Θ (K, G, P/G, Q/G), the tensor itself."""
        return self.tensor

    def labels(self, start: int, end: int) -> DenseTheta:
        """Θ_k for k from ``start`` to ``end``."""
        return DenseTheta(self.tensor[start:end])

    def scaled(self, factor: Tensor | float) -> DenseTheta:
        """c_k Θ_k, for ``factor`` (K,) or one number."""
        if isinstance(factor, Tensor):
            factor = factor.to(self.tensor.dtype).view(-1, 1, 1, 1)
        return DenseTheta(self.tensor * factor)

    def mixed(self, matrix: Tensor) -> Theta:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K); a mixture of the Θ_j if J < K."""
        matrix = matrix.to(self.tensor.dtype)
        if matrix.size(0) < matrix.size(1):
            return Mixture(matrix.t(), self.tensor)
        return DenseTheta(torch.tensordot(matrix.t(), self.tensor, dims=1))

    def gathered(self, label: Tensor, num_labels: int) -> DenseTheta:
        """For each k of ``num_labels``, the sum of the Θ_i with ``label[i] == k``."""
        return DenseTheta(add_rows(self.tensor, label, num_labels))

    def expanded(self, size: tuple[int, ...]) -> DenseTheta:
        """Θ expanded to another size without a copy; only its sizes are used, for costs."""
        return DenseTheta(self.tensor.expand(size))
