"""Θ in parts: runs of labels whose matrices have different forms."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .forms import DenseTheta
from .theta import Theta


@dataclass(frozen=True)
class ThetaParts(Theta):
    """Θ of K₁ labels in one form, then of K₂ in another, and so on: those of a stack of families.

    A stack of bases takes :meth:`labels` of each of its parts, which then has its own form, such as
    the values of heads; whatever combines labels of several parts makes full matrices.

    Attributes:
        parts: of equal P and Q.
    """

    parts: tuple[Theta, ...]

    @property
    def shape(self) -> torch.Size:
        """(K₁ + K₂ + …, 1, P, Q), or with G blocks where all parts have as many."""
        shapes = [part.shape for part in self.parts]
        count = sum(shape[0] for shape in shapes)
        if len({shape[1:] for shape in shapes}) == 1:
            return torch.Size((count, *shapes[0][1:]))
        _, groups, rows, columns = shapes[0]
        return torch.Size((count, 1, groups * rows, groups * columns))

    def form(self) -> Hashable:
        return tuple(part.form() for part in self.parts)

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    @property
    def requires_grad(self) -> bool:
        return any(part.requires_grad for part in self.parts)

    def full(self) -> Tensor:
        tensors = [part.full() for part in self.parts]
        if len({tensor.size(1) for tensor in tensors}) > 1:
            tensors = [_without_blocks(tensor) for tensor in tensors]
        return torch.cat(tensors)

    def labels(self, start: int, end: int) -> Theta:
        """Θ_k for k from ``start`` to ``end``: of one part, if they all are in it."""
        found = [
            part.labels(max(start - first, 0), min(end, last) - first)
            for part, first, last in self._ranges()
            if max(start, first) < min(end, last)
        ]
        if len(found) == 1:
            return found[0]
        return ThetaParts(tuple(found)) if found else DenseTheta(self.full()[start:end])

    def scaled(self, factor: Tensor | float) -> ThetaParts:
        if not isinstance(factor, Tensor):
            return ThetaParts(tuple(part.scaled(factor) for part in self.parts))
        return ThetaParts(
            tuple(part.scaled(factor[first:last]) for part, first, last in self._ranges())
        )

    def mixed(self, matrix: Tensor) -> Theta:
        return DenseTheta(self.full()).mixed(matrix)

    def gathered(self, label: Tensor, num_labels: int) -> Theta:
        return DenseTheta(self.full()).gathered(label, num_labels)

    def expanded(self, size: tuple[int, ...]) -> Theta:
        return DenseTheta(self.full().expand(size))

    def _ranges(self) -> Iterator[tuple[Theta, int, int]]:
        """Each part with the first of its labels, and the one past its last."""
        first = 0
        for part in self.parts:
            last = first + part.shape[0]
            yield part, first, last
            first = last


def _without_blocks(tensor: Tensor) -> Tensor:
    """Block-diagonal matrices (K, G, P/G, Q/G) as full ones (K, 1, P, Q)."""
    if tensor.size(1) == 1:
        return tensor
    return torch.stack([torch.block_diag(*blocks) for blocks in tensor]).unsqueeze(1)
