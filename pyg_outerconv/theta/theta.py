"""What every form of Θ can do: linear combinations of its matrices, and products with X."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch
from torch import Tensor


class Theta(ABC):
    """A matrix Θ_k (P, Q) for each of K labels, block-diagonal with G blocks: (K, G, P/G, Q/G).

    Scaled, mixed and selected labels of a basis are absorbed into Θ by these methods.

    Attributes:
        shape: (K, G, P/G, Q/G).
        dtype: the dtype of its tensors.
        device: the device of its tensors.
        requires_grad: whether any of its tensors requires gradients.
    """

    if TYPE_CHECKING:  # a subclass has each of them as an attribute or as a property

        @property
        def shape(self) -> torch.Size: ...

        @property
        def dtype(self) -> torch.dtype: ...

        @property
        def device(self) -> torch.device: ...

        @property
        def requires_grad(self) -> bool: ...

    bias: Tensor | None = None  # the bias of values, in ValueOutput alone

    def form(self) -> Hashable:
        """A key on which the choice of an order depends; equal for Θ of equal form and sizes."""
        return self.shape

    @abstractmethod
    def full(self) -> Tensor:
        """Θ as one tensor (K, G, P/G, Q/G)."""

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
        """For each k of ``num_labels``, the sum of the Θ_i with ``label[i] == k``."""

    @abstractmethod
    def expanded(self, size: tuple[int, ...]) -> Theta:
        """Θ expanded to another size without a copy; only its sizes are used, for costs."""

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
            h: H (N·K, *batch, P); the K rows of a target are adjacent.
            num_rows: N.
            bias: b (Q,), or (N, *batch, Q), which is overwritten; or None.
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
        same_dtype = h.dtype == bias.dtype and not torch.is_autocast_enabled(h.device.type)
        if not same_dtype or h.dim() != 2:
            return add_bias(h @ tall, bias, own=True)
        if bias.dim() == 2:
            return add_product(bias, h, tall, own=True)
        return torch.addmm(bias, h, tall)


_NARROW, _MANY = 16, 1000  # at most so many columns of Θ, at least so many rows of X


def by_column(matrix: Tensor, x: Tensor) -> Tensor:
    """Θ (P, Q) stored column by column, if it is narrow, X (M, P) has many rows, and on a CPU.

    MKL multiplies many rows with few columns slowly otherwise, forwards and even more for the
    gradient of Θ, for which autograd uses the same layout: 500 to 7 channels take half the time.
    """
    if matrix.size(1) > _NARROW or torch.compiler.is_compiling() or not matrix.is_cpu:
        return matrix  # a compiled graph must not depend on the number of rows
    return matrix if x.numel() < _MANY * matrix.size(0) else matrix.t().contiguous().t()


def by_label(rows: Tensor, num_rows: int, num_labels: int) -> Tensor:
    """Rows (N·K, …) of pairs of node and label, viewed as (N, K, …)."""
    return rows.view(num_rows, num_labels, *rows.shape[1:])


def add_rows(rows: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """Sum the rows of each label, (num_labels, …)."""
    return rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)


def add_bias(out: Tensor, bias: Tensor, own: bool) -> Tensor:
    """Y + b for b (Q,) or of the shape of Y (N, *batch, Q), in Y where that is safe.

    A new tensor costs a good part of a sparse product: large allocations are fresh memory, whose
    first use is slow. ``own``: whether no other code holds Y, as contractions guarantee.
    """
    return out.add_(bias) if _is_writable(out, bias, own) else out + bias


def add_product(out: Tensor, factor: Tensor, rows: Tensor, own: bool) -> Tensor:
    """Y + F R, for Y (N, Q), ``factor`` F (N, K) and ``rows`` R (K, Q); see :func:`add_bias`."""
    if out.dim() != 2 or torch.is_autocast_enabled(out.device.type):
        return out + factor @ rows
    if _is_writable(out, rows, own):
        return out.addmm_(factor, rows)
    return torch.addmm(out, factor, rows)


def _is_writable(out: Tensor, added: Tensor, own: bool) -> bool:
    return (
        own
        and not torch.compiler.is_compiling()  # the compiler fuses the sum, and knows no views
        and out.dtype == added.dtype  # under autocast the sum has the longer dtype
        and not out._is_view()  # autograd needs the primitive's result that it is a view of
        and not torch._C._are_functorch_transforms_active()  # the bias may be batched, Y not
    )


def autocast_pair(value: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands in the dtype of autocast, as for a dense product; float64 is not converted."""
    kind = value.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (value.dtype, theta.dtype):
        dtype = torch.get_autocast_dtype(kind)
        return value.to(dtype), theta.to(dtype)
    return value, theta
