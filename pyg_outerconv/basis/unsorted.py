"""Edges and values in their input order, before a pattern sorts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..kernels.index_checks import has_numbers, is_exporting, surely

if TYPE_CHECKING:
    from .pattern import Pattern


_INT32_LIMIT = 2**31 - 1
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
    fits = (products[0] < _INT32_LIMIT, products[1] < _INT32_LIMIT, num_edges < _INT32_LIMIT)
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
        value: (E, *) in the pattern's order, or None for ones; computed from ``given`` when needed.
        given: (E, *) in the input order of the edges, if stored.
    """

    if TYPE_CHECKING:
        pattern: Pattern

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: values in input order are sorted here.
        if name != "value" or "given" not in vars(self):
            raise AttributeError(name)
        given = vars(self)["given"]
        value = given.index_select(0, self.pattern.order)
        if torch.compiler.is_compiling():  # a traced tensor must not be cached
            return value
        lasts = value.requires_grad == given.requires_grad and not torch.is_inference_mode_enabled()
        if lasts and not torch._C._are_functorch_transforms_active():
            # Cached: later products use this tensor, so that gradients reach it.
            object.__setattr__(self, "value", value)
        return value

    @property
    def _listed(self) -> Tensor | None:
        """The values in input order; None if there are none, or sorted ones require gradients."""
        held = vars(self)
        value: Tensor | None = held.get("value")
        return None if value is not None and value.requires_grad else held.get("given")

    @property
    def _in_some_order(self) -> Tensor | None:
        """The values, sorted or in input order."""
        held = vars(self)
        found: Tensor | None = held["value"] if "value" in held else held["given"]
        return found
