"""The common forms of Θ: one tensor, or a mixture of few matrices."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Union

import torch
from torch import Tensor

from .theta import Theta, add_bias, add_rows, by_label


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
        return self.tensor

    def labels(self, start: int, end: int) -> DenseTheta:
        return DenseTheta(self.tensor[start:end])

    def scaled(self, factor: Tensor | float) -> DenseTheta:
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
        return DenseTheta(add_rows(self.tensor, label, num_labels))

    def expanded(self, size: tuple[int, ...]) -> DenseTheta:
        return DenseTheta(self.tensor.expand(size))


@dataclass(frozen=True)
class Mixture(Theta):
    """Θ_k = Σ_b c_kb V_b, so that Σ_k A_k ⊗ Θ_k = Σ_b (Σ_k c_kb A_k) ⊗ V_b has B terms, not K.

    Attributes:
        coefficient: c (K, B).
        matrices: V (B, G, P/G, Q/G).
        is_unit: whether Θ_k = c_k I: V is ones (1, P, 1, 1), requires no gradient, and needs no
            product.
        constant: the value of every c_k, if it is known without reading the tensor; else None.
    """

    coefficient: Tensor
    matrices: Tensor
    is_unit: bool = False
    constant: float | None = None

    @staticmethod
    def identity(num_labels: int, channels: int, like: Tensor) -> Mixture:
        """Θ_k = I of ``channels`` channels for every k, with the dtype and device of ``like``."""
        ones = torch.ones(1, dtype=like.dtype, device=like.device)  # not batched, as like may be
        return Mixture(ones.expand(num_labels, 1), ones.expand(1, channels, 1, 1), True, 1.0)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.coefficient.size(0), *self.matrices.shape[1:]))

    def form(self) -> Hashable:
        return self.shape, self.num_matrices, self.is_unit, self.constant

    @property
    def dtype(self) -> torch.dtype:
        return self.matrices.dtype

    @property
    def device(self) -> torch.device:
        return self.matrices.device

    @property
    def requires_grad(self) -> bool:
        return self.coefficient.requires_grad or self.matrices.requires_grad

    @property
    def num_matrices(self) -> int:
        """The number B of matrices that are mixed."""
        return self.coefficient.size(1)

    def full(self) -> Tensor:
        """Θ (K, G, P/G, Q/G), in the dtype of V even under autocast."""
        flat = self.coefficient @ self.matrices.flatten(1)
        return flat.view(self.shape).to(self.matrices.dtype)

    def labels(self, start: int, end: int) -> Mixture:
        return replace(self, coefficient=self.coefficient[start:end])

    def scaled(self, factor: Tensor | float) -> Mixture:
        """s_k Θ_k, for ``factor`` s (K,) or one number: c is scaled, V stays the same."""
        if isinstance(factor, Tensor):
            scaled = self.coefficient * factor.to(self.coefficient.dtype).unsqueeze(-1)
            return replace(self, coefficient=scaled, constant=None)
        constant = None if self.constant is None else self.constant * factor
        return replace(self, coefficient=self.coefficient * factor, constant=constant)

    def mixed(self, matrix: Tensor) -> Mixture:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K): c is mixed, V stays the same."""
        coefficient = matrix.to(self.coefficient.dtype).t() @ self.coefficient
        return replace(self, coefficient=coefficient, constant=None)

    def gathered(self, label: Tensor, num_labels: int) -> Mixture:
        coefficient = add_rows(self.coefficient, label, num_labels)
        return replace(self, coefficient=coefficient, constant=None)

    def transform(self, x: Tensor) -> Tensor:
        """X Θ_k for every label, (M, K, *batch, Q): c_k X without a product where V is I."""
        if not self.is_unit:
            return super().transform(x)
        return torch.einsum("m...p,k->mk...p", x, self.coefficient[:, 0].to(x.dtype))

    def combine(self, h: Tensor, num_rows: int, bias: Tensor | None = None) -> Tensor:
        """Σ_k H_k Θ_k + b, (N, *batch, Q): Σ_k c_k H_k + b where V is I."""
        if not self.is_unit:
            return super().combine(h, num_rows, bias)
        coefficient = self.coefficient[:, 0].to(h.dtype)
        rows = by_label(h, num_rows, coefficient.numel())
        out = torch.einsum("nk...p,k->n...p", rows, coefficient)
        return out if bias is None else add_bias(out, bias, own=True)

    def expanded(self, size: tuple[int, ...]) -> Mixture:
        return replace(self, matrices=self.matrices.expand(size))


# PyG parses the type hints of layers, and can parse this spelling.
ThetaValue = Union[Tensor, Theta]  # noqa: UP007
"""Θ (K, G, P/G, Q/G): a tensor, a mixture, or values and outputs of heads."""


def as_theta(theta: ThetaValue) -> Theta:
    """Θ as an object of :class:`Theta`; a tensor becomes a :class:`DenseTheta`."""
    return DenseTheta(theta) if isinstance(theta, Tensor) else theta


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor (K, G, P/G, Q/G)."""
    return theta if isinstance(theta, Tensor) else theta.full()


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number; a tensor if ``theta`` is a tensor."""
    product = as_theta(theta).scaled(factor)
    return product.full() if isinstance(theta, Tensor) else product
