"""The sparse matrices of a pattern, each computed at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..cache import cached_property
from ..kernels.counting_sort import counting_sort
from ..kernels.lasting import lasting
from ..kernels.sparsity import Sparsity, known_rows
from .compact import (
    LabelBlock,
    Pairs,
    count_pairs,
    label_blocks,
    source_pairs,
    target_pairs,
)


class PatternMatrices:
    """The sparse matrices that products with the edges of a pattern use.

    Cached tensors are made by :func:`.lasting`, so that they serve inference and training, and
    outlive ``torch.func``.
    """

    if TYPE_CHECKING:
        size: tuple[int, int]
        num_labels: int
        source: Tensor
        target: Tensor
        label: Tensor
        target_ptr: Tensor
        source_ptr: Tensor
        label_ptr: Tensor
        by_source: Tensor

    @cached_property
    def by_target(self) -> Sparsity:
        """The N × (M·K) matrix with a column for each source and label."""
        with lasting(self.source):
            column = self.source
            if self.num_labels != 1:
                column = column * self.num_labels + self.label
            return known_rows(self.target_ptr, column, self.size[0] * self.num_labels)

    @cached_property
    def by_target_label(self) -> Sparsity:
        """The (N·K) × M matrix with a row for each target and label."""
        if self.num_labels == 1:
            return self.by_target
        with lasting(self.source):
            return known_rows(self.label_ptr, self.source, self.size[0])

    @cached_property
    def by_both(self) -> Sparsity:
        """The (N·K) × (M·K) matrix with a row per target and label, a column per source and label.

        The rows and columns of different labels are not connected.
        """
        if self.num_labels == 1:
            return self.by_target
        return known_rows(self.label_ptr, self.by_target.col, self.size[0] * self.num_labels)

    @cached_property
    def ends(self) -> Sparsity:
        """The N × M matrix of all edges, without regard to labels."""
        if self.num_labels == 1:
            return self.by_target
        return known_rows(self.target_ptr, self.source, self.size[0])

    @cached_property
    def by_label(self) -> tuple[Tensor, Tensor]:
        """(K + 1,) the start of each label, and (E,) the positions of the edges sorted by label."""
        with lasting(self.source):
            return counting_sort(self.label, self.num_labels)

    @cached_property
    def source_pairs(self) -> Pairs:
        """The distinct pairs (source, label), sorted by label; see :mod:`.compact`."""
        with lasting(self.source):
            return source_pairs(self)

    @cached_property
    def target_pairs(self) -> Pairs:
        """The distinct pairs (target, label), sorted by label; see :mod:`.compact`."""
        with lasting(self.source):
            return target_pairs(self)

    @cached_property
    def label_blocks(self) -> list[LabelBlock]:
        """The edges of each label as a matrix of their own; see :mod:`.compact`."""
        with lasting(self.source):
            return label_blocks(self)

    @cached_property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), U_in."""
        order = self.by_source
        source, label = self.source.index_select(0, order), self.label.index_select(0, order)
        return count_pairs(source, label, self.num_labels)

    @cached_property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), U_out."""
        return count_pairs(self.target, self.label, self.num_labels)
