"""Θ as a mixture of few matrices, which lets labels be mixed before anything is multiplied."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .bias import add_bias
from .theta import Theta, add_rows, by_label


@dataclass(frozen=True)
class Mixture(Theta):
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

    def form(self) -> Hashable:
        """See :class:`Theta`."""
        return self.shape, self.num_matrices, self.is_unit, self.constant

    @property
    def dtype(self) -> torch.dtype:
        """That of V."""
        return self.matrices.dtype

    @property
    def device(self) -> torch.device:
        """Where V is."""
        return self.matrices.device

    @property
    def requires_grad(self) -> bool:
        """Whether coefficients or matrices do."""
        return self.coefficient.requires_grad or self.matrices.requires_grad

    @property
    def num_matrices(self) -> int:
        """B."""
        return self.coefficient.size(1)

    def full(self) -> Tensor:
        """Θ (K, G, P/G, Q/G), of the type of the matrices, whatever autocast multiplies in."""
        flat = self.coefficient @ self.matrices.flatten(1)
        return flat.view(self.shape).to(self.matrices.dtype)

    def labels(self, start: int, end: int) -> Mixture:
        """See :class:`Theta`."""
        return replace(self, coefficient=self.coefficient[start:end])

    def scaled(self, factor: Tensor | float) -> Mixture:
        """See :class:`Theta`: coefficients are scaled, and the matrices stay."""
        if isinstance(factor, Tensor):
            scaled = self.coefficient * factor.to(self.coefficient.dtype).unsqueeze(-1)
            return replace(self, coefficient=scaled, constant=None)
        constant = None if self.constant is None else self.constant * factor
        return replace(self, coefficient=self.coefficient * factor, constant=constant)

    def mixed(self, matrix: Tensor) -> Mixture:
        """See :class:`Theta`."""
        coefficient = matrix.to(self.coefficient.dtype).t() @ self.coefficient
        return replace(self, coefficient=coefficient, constant=None)

    def gathered(self, label: Tensor, num_labels: int) -> Mixture:
        """See :class:`Theta`."""
        coefficient = add_rows(self.coefficient, label, num_labels)
        return replace(self, coefficient=coefficient, constant=None)

    def transform(self, x: Tensor) -> Tensor:
        """See :class:`Theta`; nothing is multiplied where V is the identity."""
        if not self.is_unit:
            return super().transform(x)
        return torch.einsum("m...p,k->mk...p", x, self.coefficient[:, 0].to(x.dtype))

    def combine(self, h: Tensor, num_rows: int, bias: Tensor | None = None) -> Tensor:
        """See :class:`Theta`; nothing is multiplied where V is the identity."""
        if not self.is_unit:
            return super().combine(h, num_rows, bias)
        coefficient = self.coefficient[:, 0].to(h.dtype)
        rows = by_label(h, num_rows, coefficient.numel())
        out = torch.einsum("nk...p,k->n...p", rows, coefficient)
        return out if bias is None else add_bias(out, bias, own=True)

    def expanded(self, size: tuple[int, ...]) -> Mixture:
        """See :class:`Theta`."""
        return replace(self, matrices=self.matrices.expand(size))
