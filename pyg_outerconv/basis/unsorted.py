"""Edges and values in their input order, before a pattern sorts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..kernels.index_checks import has_numbers, is_exporting, surely

if TYPE_CHECKING:
    from .pattern import Pattern


INT32_LIMIT = 2**31 - 1
INT64_LIMIT = 2**63 - 1


class UnsortedEdges(NamedTuple):
    """Labelled edges in input order.

    Attributes:
        source, target: (E,) integers.
        label: (E,) integers, or None for label 0.
        origin: (E,) the edge of the user's list that each edge comes from, or the number of leading
            edges that are the user's.
        dtype: the integer dtype of the sorted edges.
    """

    source: Tensor
    target: Tensor
    label: Tensor | None
    origin: Tensor | int | None
    dtype: torch.dtype

    def under_label(self, node: Tensor, num_labels: int) -> Tensor:
        """(E,) node · K + label of each edge; ``node`` (E,) are its sources or its targets."""
        if num_labels == 1:
            return node
        node = node * num_labels
        return node if self.label is None else node + self.label


def index_type(size: tuple[int, int], num_labels: int, num_edges: int) -> torch.dtype:
    """The dtype of a pattern's indices: int32 if every product of sizes fits, else int64.

    Under torch.export it is int64, because an exported graph takes any sizes; so it is where a
    compiler does not know a size, as that of edges without their self-loops.

    Raises:
        ValueError: max(M, N) · K does not fit into int64.
    """
    if is_exporting():
        return torch.int64
    # Compared one by one: a maximum would make a compiler specialise on which one is the largest.
    products = (size[0] * num_labels, size[1] * num_labels)
    if surely(products[0] > INT64_LIMIT) or surely(products[1] > INT64_LIMIT):
        raise RefusedValue(
            "a pattern numbers pairs of a node and a label in int64",
            "max(M, N) * K < 2**63",
            f"size {size}, K = {num_labels}",
        )
    fits = (products[0] < INT32_LIMIT, products[1] < INT32_LIMIT, num_edges < INT32_LIMIT)
    return torch.int32 if surely(*fits) else torch.int64


def check_range(name: str, index: Tensor, count: int) -> None:
    """Refuse indices outside of [0, count); not checked where a tensor has no readable numbers.

    Raises:
        ValueError: an index is out of range.
    """
    if not has_numbers(index) or index.numel() == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= count:
        raise RefusedValue(
            f"every {name} of a pattern must lie in range",
            f"[0, {count})",
            lowest if lowest < 0 else highest,
        )


class InSomeOrder:
    """A mixin for a basis with a pattern and values, which may still be in input order.

    Attributes:
        pattern: the edges.
        in_order: (E, *) the values in the pattern's order, if they are stored so.
        listed: (E, *) the values in the input order of the edges, if they are stored so.
    """

    if TYPE_CHECKING:
        pattern: Pattern

    listed: ClassVar[Tensor | None] = None
    in_order: ClassVar[Tensor | None] = None

    @property
    def value(self) -> Tensor | None:
        """(E, *) the values in the pattern's order, None for ones."""
        listed = self.listed
        if self.in_order is not None or listed is None:
            return self.in_order
        value = listed.index_select(0, self.pattern.order)
        if torch.compiler.is_compiling():  # a traced tensor must not be cached
            return value
        lasts = value.requires_grad == listed.requires_grad
        lasts = lasts and not torch.is_inference_mode_enabled()
        if lasts and not torch._C._are_functorch_transforms_active():
            # Cached: later products use this tensor, so that gradients reach it.
            vars(self)["in_order"] = value
        return value

    @value.setter
    def value(self, value: Tensor | None) -> None:  # by constructors alone: bases are frozen
        vars(self)["in_order"] = value

    @property
    def _listed(self) -> Tensor | None:
        """The values in input order; None if there are none, or sorted ones require gradients."""
        in_order = self.in_order
        return None if in_order is not None and in_order.requires_grad else self.listed

    @property
    def _in_some_order(self) -> Tensor | None:
        """The values, sorted or in input order."""
        return self.listed if self.in_order is None else self.in_order
