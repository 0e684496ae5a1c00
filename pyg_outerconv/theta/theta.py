"""What every form of Θ can do: linear combinations of its matrices, in that form where it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch
from torch import Tensor


class Theta(ABC):
    """A matrix Θ_k (P, Q) for each of K labels, block-diagonal with G blocks: (K, G, P/G, Q/G).

    What a basis is made of beside its edges moves into Θ by these methods: a scale of labels, a
    mixing or a choice of them.

    Attributes:
        shape: (K, G, P/G, Q/G).
        dtype: the type of its numbers.
        device: where they are.
        requires_grad: whether a backward pass will want a gradient of any part.
    """

    if TYPE_CHECKING:  # what each form has, as attributes or properties

        @property
        def shape(self) -> torch.Size: ...  # noqa: D102

        @property
        def dtype(self) -> torch.dtype: ...  # noqa: D102

        @property
        def device(self) -> torch.device: ...  # noqa: D102

        @property
        def requires_grad(self) -> bool: ...  # noqa: D102

    def form(self) -> Hashable:
        """What a choice of order depends on: equal for parameters of one form and size."""
        return self.shape

    @abstractmethod
    def full(self) -> Tensor:
        """One tensor (K, G, P/G, Q/G)."""

    @abstractmethod
    def labels(self, start: int, end: int) -> Theta:
        """Θ_k for k from ``start`` to ``end``."""

    @abstractmethod
    def scaled(self, factor: Tensor | float) -> Theta:
        """c_k Θ_k, for ``factor`` (K,) or one number."""

    @abstractmethod
    def mixed(self, matrix: Tensor) -> Theta:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K)."""

    @abstractmethod
    def gathered(self, label: Tensor, num_labels: int) -> Theta:
        """Σ of the Θ_i with ``label[i] == k``, for each k of ``num_labels``."""

    @abstractmethod
    def expanded(self, size: tuple[int, ...]) -> Theta:
        """Matrices of another size in the same memory, as ``Tensor.expand``: to ask for a cost."""


def add_rows(rows: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """(num_labels, …) the sum of the rows of each label."""
    return rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)
