"""What every form of Θ can do: linear combinations of its matrices, in that form where it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .bias import add_bias, add_product


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

    bias: Tensor | None = None  # of values, see :class:`.ValueOutput`

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

    def transform(self, x: Tensor) -> Tensor:
        """X Θ_k for every label and dense X (M, *batch, P): (M, K, *batch, Q)."""
        theta = self.full()
        num_labels, groups, rows, columns = theta.shape
        if groups > 1:
            blocks = x.unflatten(-1, (groups, rows))
            product = torch.einsum("m...gp,kgpq->m...kgq", blocks, theta).flatten(-2)
            return product.movedim(-2, 1)
        if num_labels == 1:
            return (x @ by_column(theta.reshape(rows, columns), x)).unsqueeze(1)
        wide = theta[:, 0].permute(1, 0, 2).reshape(rows, num_labels * columns)
        product = (x @ by_column(wide, x)).unflatten(-1, (num_labels, columns))
        return product.movedim(-2, 1)

    def combine(self, h: Tensor, num_rows: int, bias: Tensor | None = None) -> Tensor:
        """Σ_k H_k Θ_k + b: (N, *batch, Q).

        Args:
            h: H (N·K, *batch, P), the rows of a node's labels one after another.
            num_rows: N.
            bias: b (Q,), or rows (N, *batch, Q) that nobody else holds; or None.
        """
        theta = self.full()
        num_labels, groups, rows, columns = theta.shape
        if groups > 1:
            blocks = by_label(h, num_rows, num_labels).movedim(1, -2).unflatten(-1, (groups, rows))
            out = torch.einsum("n...kgp,kgpq->n...gq", blocks, theta).flatten(-2)
            return out if bias is None else add_bias(out, bias, own=True)
        if num_labels != 1:
            h = by_label(h, num_rows, num_labels).movedim(1, -2).flatten(-2)
        tall = by_column(theta.reshape(num_labels * rows, columns), h)
        if bias is None:
            return h @ tall
        one_type = h.dtype == bias.dtype and not torch.is_autocast_enabled(h.device.type)
        if not one_type or h.dim() != 2:
            return add_bias(h @ tall, bias, own=True)
        if bias.dim() == 2:
            return add_product(bias, h, tall, own=True)
        return torch.addmm(bias, h, tall)


_NARROW, _MANY = 16, 1000  # columns of Θ, rows of X


def by_column(matrix: Tensor, x: Tensor) -> Tensor:
    """The same matrix (P, Q), in memory by column where it is narrow, X has many rows, on a CPU.

    MKL's products of many rows with few columns are slow otherwise, and those of Θ's gradient
    still more, for which autograd looks at this layout: 500 to 7 channels take half the time.
    """
    if matrix.size(1) > _NARROW or torch.compiler.is_compiling() or not matrix.is_cpu:
        return matrix  # no size of the data decides what a graph is
    return matrix if x.numel() < _MANY * matrix.size(0) else matrix.t().contiguous().t()


def by_label(rows: Tensor, num_rows: int, num_labels: int) -> Tensor:
    """Rows (N·K, …) of nodes and labels as (N, K, …)."""
    return rows.view(num_rows, num_labels, *rows.shape[1:])


def add_rows(rows: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """(num_labels, …) the sum of the rows of each label."""
    return rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)
