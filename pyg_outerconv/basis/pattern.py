"""A pattern: where the labelled edges are, sorted once, with both directions kept.

The paper counts from 1, the code from 0: label k, source m and target n start at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from ..errors import RefusedValue, refusal
from ..kernels.sparsity import Sparsity, has_numbers, known_sparsity
from .cache import cached_property
from .compact import (
    LabelBlock,
    Pairs,
    count_pairs,
    label_blocks,
    source_pairs,
    target_pairs,
)
from .makers import make
from .pytree import register

if TYPE_CHECKING:
    from .edges import EdgeBasis

_INT32_LIMIT = 2**31 - 1
INT64_LIMIT = 2**63 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """E edges from M sources to N targets, each under one of K labels; no values, no gradient.

    Edges are sorted by target, then label (then as given). Parallel edges are kept. Indices are
    int32 where every product of sizes fits. Made once by :meth:`build` and shared by all layers.

    Attributes:
        size: (M, N).
        num_labels: K.
        source, target, label: (E,) the edges, sorted.
        order: (E,) the position of each sorted edge in the list that was given.
        origin: (E,) the edge of the user's list that each sorted edge stems from, -1 for one that
            a family added; None where edges have no such origin (products of edges).
        target_ptr: (N + 1,) the edges of target n are ``target_ptr[n]:target_ptr[n + 1]``.
        source_ptr: (M + 1,) the same for source m, in the order of ``by_source``.
        by_source: (E,) positions of the edges sorted by source, then label.
    """

    size: tuple[int, int]
    num_labels: int
    source: Tensor
    target: Tensor
    label: Tensor
    order: Tensor
    origin: Tensor | None
    target_ptr: Tensor
    source_ptr: Tensor
    by_source: Tensor

    @staticmethod
    def build(
        edge_index: Tensor,
        label: Tensor | None = None,
        *,
        size: tuple[int, int],
        num_labels: int = 1,
        origin: Tensor | None = None,
    ) -> Pattern:
        """Sort an edge list and keep both directions.

        Args:
            edge_index: (2, E) sources and targets.
            label: (E,) integers in [0, K), or None for label 0.
            size: (M, N).
            num_labels: K.
            origin: (E,) the edge of the user's list that each edge stems from.

        Raises:
            ValueError: an index or a label is out of range, or there are too many of both.
        """
        if label is None:
            label = edge_index.new_zeros(edge_index.size(1))
        _check_range("source", edge_index[0], size[0])
        _check_range("target", edge_index[1], size[1])
        _check_range("label", label, num_labels)
        dtype = index_type(size, num_labels, edge_index.size(1))
        source, target, label = (t.to(dtype) for t in (edge_index[0], edge_index[1], label))
        order = _sort(target * num_labels + label)
        source, target, label = source[order], target[order], label[order]
        by_source = _sort(source * num_labels + label)
        return Pattern(
            size,
            num_labels,
            source,
            target,
            label,
            order,
            None if origin is None else origin[order],
            _pointers(target, size[1]),
            _pointers(source, size[0]),
            by_source,
        )

    @staticmethod
    def of_sorted(
        source: Tensor, target: Tensor, label: Tensor, *, size: tuple[int, int], num_labels: int
    ) -> Pattern:
        """Edges (E,) that a rule lists by target, then label: no user's list, nothing to check.

        Indices are of the type that :func:`index_type` says.
        """
        order = torch.arange(source.numel(), dtype=source.dtype, device=source.device)
        ends = _pointers(target, size[1]), _pointers(source, size[0])
        by_source = _sort(source * num_labels + label)
        return Pattern(size, num_labels, source, target, label, order, None, *ends, by_source)

    @property
    def num_edges(self) -> int:
        """E, parallel edges counted each."""
        return self.source.numel()

    @property
    def device(self) -> torch.device:
        """Where the edges are."""
        return self.source.device

    @property
    def index(self) -> Tensor:
        """(2, E) sources and targets, sorted by target, then label."""
        return torch.stack([self.source, self.target])

    def with_values(self, value: Tensor | None) -> EdgeBasis:
        """The basis that has these edges, with ``value`` (E,) in sorted order; None means ones."""
        return make("with_values", self, value)

    def sort_values(self, value: Tensor) -> Tensor:
        """Bring values (E,) from the order in which edges were given into sorted order."""
        if value.shape != (self.num_edges,):
            raise RefusedValue(
                refusal(
                    "a pattern needs one value for each edge",
                    f"shape ({self.num_edges},)",
                    tuple(value.shape),
                )
            )
        return value.index_select(0, self.order)

    def count(self) -> Tensor:
        """(E,) how many edges share the target and the label of each edge."""
        key = self.target * self.num_labels + self.label
        run = key.diff(prepend=key[:1]).ne(0).cumsum(0)  # one number for each target and label
        return torch.zeros_like(run).index_add(0, run, torch.ones_like(run)).index_select(0, run)

    # Matrices to multiply with ------------------------------------------------------------------
    # What is kept must serve training too, and outlive ``torch.func``; see lasting.

    @cached_property
    def by_target(self) -> Sparsity:
        """The N × (M·K) matrix with a column for each source and label."""
        with lasting(self.source):
            return known_sparsity(
                self.target_ptr,
                self.source * self.num_labels + self.label,
                self._label_pointers(self.source, self.source_ptr, self.size[0]),
                self.target.index_select(0, self.by_source),
                self.by_source,
            )

    @cached_property
    def by_target_label(self) -> Sparsity:
        """The (N·K) × M matrix with a row for each target and label."""
        if self.num_labels == 1:
            return self.by_target
        with lasting(self.source):
            return known_sparsity(
                self._label_pointers(self.target, self.target_ptr, self.size[1]),
                self.source,
                self.source_ptr,
                (self.target * self.num_labels + self.label).index_select(0, self.by_source),
                self.by_source,
            )

    @cached_property
    def by_both(self) -> Sparsity:
        """The (N·K) × (M·K) matrix with a row for each target, a column for each source, and label.

        Edges of one label join rows and columns of that label.
        """
        if self.num_labels == 1:
            return self.by_target
        near, far = self.by_target, self.by_target_label
        return known_sparsity(far.rowptr, near.col, near.colptr, far.row, near.perm)

    @cached_property
    def ends(self) -> Sparsity:
        """The N × M matrix of all edges, whatever their label."""
        with lasting(self.source):
            row = self.target.index_select(0, self.by_source)
            return known_sparsity(
                self.target_ptr, self.source, self.source_ptr, row, self.by_source
            )

    @cached_property
    def by_label(self) -> tuple[Tensor, Tensor]:
        """(K + 1,) where the edges of each label begin, and (E,) their positions, by label."""
        with lasting(self.source):
            return _pointers(self.label, self.num_labels), _sort(self.label)

    @cached_property
    def source_pairs(self) -> Pairs:
        """The distinct (source, label), label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return source_pairs(self)

    @cached_property
    def target_pairs(self) -> Pairs:
        """The distinct (target, label), label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return target_pairs(self)

    @cached_property
    def label_blocks(self) -> list[LabelBlock]:
        """The edges label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return label_blocks(self)

    @cached_property
    def num_source_pairs(self) -> int:
        """U_in, the number of distinct (source, label)."""
        order = self.by_source
        source, label = self.source.index_select(0, order), self.label.index_select(0, order)
        return count_pairs(source, label, self.num_labels)

    @cached_property
    def num_target_pairs(self) -> int:
        """U_out, the number of distinct (target, label)."""
        return count_pairs(self.target, self.label, self.num_labels)

    def _label_pointers(self, node: Tensor, ptr: Tensor, count: int) -> Tensor:
        if self.num_labels == 1:
            return ptr
        return _pointers(node * self.num_labels + self.label, count * self.num_labels)

    @cached_property
    def transposed(self) -> Pattern:
        """Every edge turned round, without sorting: the order by source is at hand."""
        with lasting(self.source):
            return self._turn()

    def _turn(self) -> Pattern:
        inverse = torch.empty_like(self.by_source)
        inverse[self.by_source] = torch.arange(
            self.num_edges, dtype=inverse.dtype, device=inverse.device
        )

        def by_source(edges: Tensor) -> Tensor:
            return edges.index_select(0, self.by_source)

        return Pattern(
            size=self.size[::-1],
            num_labels=self.num_labels,
            source=by_source(self.target),
            target=by_source(self.source),
            label=by_source(self.label),
            order=by_source(self.order),
            origin=None if self.origin is None else by_source(self.origin),
            target_ptr=self.source_ptr,
            source_ptr=self.target_ptr,
            by_source=inverse,
        )

    def subset(
        self, keep: Tensor, source: Tensor, target: Tensor, size: tuple[int, int]
    ) -> Pattern:
        """Some of the edges between renumbered nodes, whose order stays; nothing is sorted.

        Args:
            keep: (E,) booleans.
            source, target: (E,) the new numbers, ascending with the old ones.
            size: (M, N) of the result.
        """
        kept = keep.nonzero().view(-1)
        place = keep.cumsum(0) - 1  # of each edge among those that are kept
        by_source = self.by_source[keep.index_select(0, self.by_source)]
        dtype = self.source.dtype
        source, target = (end.index_select(0, kept).to(dtype) for end in (source, target))
        return Pattern(
            size=size,
            num_labels=self.num_labels,
            source=source,
            target=target,
            label=self.label.index_select(0, kept),
            order=torch.arange(kept.numel(), dtype=dtype, device=kept.device),
            origin=None if self.origin is None else self.origin.index_select(0, kept),
            target_ptr=_pointers(target, size[1]),
            source_ptr=_pointers(source, size[0]),
            by_source=place.index_select(0, by_source).to(dtype),
        )

    def map(self, fn: Callable[[Tensor], Tensor]) -> Pattern:
        """The pattern with ``fn`` applied to every tensor (to move it, say).

        Itself, with all that was made of it, if that changes nothing.
        """
        old = (
            self.source,
            self.target,
            self.label,
            self.order,
            self.origin,
            self.target_ptr,
            self.source_ptr,
            self.by_source,
        )
        new = [None if tensor is None else fn(tensor) for tensor in old]
        if all(moved is tensor for moved, tensor in zip(new, old, strict=True)):
            return self
        return Pattern(self.size, self.num_labels, *new)  # type: ignore[arg-type]

    def shape_class(self) -> tuple[int, ...]:
        """K, and M, N and E up to a factor of two: see :meth:`.Basis.shape_class`."""
        sources, targets = self.size
        edges = self.source.numel()
        return self.num_labels, sources.bit_length(), targets.bit_length(), edges.bit_length()

    def __repr__(self) -> str:
        return (
            f"Pattern(labels={self.num_labels}, size={self.size}, edges={self.num_edges}, "
            f"device={str(self.device)!r})"
        )


register(Pattern)


@contextmanager
def lasting(made_of: Tensor) -> Iterator[None]:
    """In the block, tensors are made that serve training, and outlive a ``torch.func`` transform.

    What is made in inference mode cannot be differentiated through, and what is made within
    ``torch.func.grad`` is wrapped for ever, even if ``made_of`` is not.
    """
    if torch.compiler.is_compiling():  # which decides by itself what it keeps
        yield
        return
    with torch.inference_mode(False), ExitStack() as stack:
        if not is_functorch_wrapped_tensor(made_of):
            stack.enter_context(torch._C._DisableFuncTorch())
        yield


def index_type(size: tuple[int, int], num_labels: int, num_edges: int) -> torch.dtype:
    """The integers of a pattern: int32 where every product of sizes fits.

    What is exported has int64, for it takes any sizes.

    Raises:
        ValueError: a number for each node and label does not even fit into int64.
    """
    if is_exporting():
        return torch.int64
    # One by one: which is the largest would be one more thing that a compiler fixes.
    products = (size[0] * num_labels, size[1] * num_labels)
    if products[0] > INT64_LIMIT or products[1] > INT64_LIMIT:
        raise RefusedValue(
            refusal(
                "nodes and labels are numbered together, in int64",
                "max(M, N) * K < 2**63",
                f"size {size}, K = {num_labels}",
            )
        )
    fits = products[0] < _INT32_LIMIT and products[1] < _INT32_LIMIT
    return torch.int32 if fits and num_edges < _INT32_LIMIT else torch.int64


def is_exporting() -> bool:
    """Whether torch.export traces; torch has a name for it from 2.7 on."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def _sort(key: Tensor) -> Tensor:
    """The stable order of ``key`` (E,)."""
    return torch.sort(key, stable=True).indices.to(key.dtype)


def _pointers(row: Tensor, num_rows: int) -> Tensor:
    """(num_rows + 1,) where the entries of each row begin, for the row of each entry."""
    if torch.compiler.is_compiling():  # which does not know how many rows bincount finds
        count = row.new_zeros(num_rows).index_add(0, row, torch.ones_like(row))
        return torch.cat([row.new_zeros(1), count.cumsum(0).to(row.dtype)])
    ptr = row.new_zeros(num_rows + 1)
    torch.cumsum(torch.bincount(row, minlength=num_rows), 0, out=ptr[1:])
    return ptr


def _check_range(name: str, index: Tensor, count: int) -> None:
    if not has_numbers(index) or index.numel() == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= count:
        raise RefusedValue(
            refusal(
                f"every {name} of a pattern must lie in range",
                f"[0, {count})",
                lowest if lowest < 0 else highest,
            )
        )
