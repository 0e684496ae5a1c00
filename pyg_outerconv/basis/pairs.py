"""Compact forms of a pattern: (node, label) pairs with edges, and the edges of each label."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..kernels.csr import CSR
from ..kernels.edge_lists import counting_sort
from ..kernels.lasting import lasting

if TYPE_CHECKING:
    from .pattern import Pattern


class Pairs(NamedTuple):
    """The U distinct pairs (node, label) of one side, sources or targets, by label, then node.

    Attributes:
        node: (U,) the node of each pair.
        ptr: (K + 1,) the pairs of label k are ``ptr[k]:ptr[k + 1]``.
        csr: the matrix between pairs and the nodes at the other end: N × U for pairs of
            sources, U × M for pairs of targets.
        order: (E,) the position, in the pattern's order, of each entry of the matrix in row order;
            None if the orders are the same.
    """

    node: Tensor
    ptr: Tensor
    csr: CSR
    order: Tensor | None


class LabelBlock(NamedTuple):
    """The edges of one label, between the targets and the sources that have edges of it.

    Attributes:
        label: k.
        source: (m,) the sources.
        target: (n,) the targets.
        csr: n × m.
        order: (e,) the position, in the pattern's order, of each entry in row order.
    """

    label: int
    source: Tensor
    target: Tensor
    csr: CSR
    order: Tensor


class _SortedPairs(NamedTuple):
    """The pairs of a list of edges that is sorted by node, then label.

    ``pair`` (E,) is the pair of each edge, ``number`` (U,) the number of edges of each pair, and
    ``by_label`` (E,) the permutation that sorts the edges by label, then node.
    """

    node: Tensor
    ptr: Tensor
    pair: Tensor
    number: Tensor
    by_label: Tensor


def count_pairs(node: Tensor, label: Tensor, num_labels: int) -> int:
    """Number of distinct pairs U of edges that are sorted by node, then label."""
    key = node * num_labels + label
    return int((key.diff() != 0).sum()) + min(1, key.numel())


def source_pairs(pattern: Pattern) -> Pairs:
    """The distinct pairs (source, label): transform these, then sum over all edges."""
    with lasting(pattern.source):
        order = pattern.by_source
        pairs = _sort_pairs(
            pattern.source.index_select(0, order),
            pattern.label.index_select(0, order),
            pattern.num_labels,
        )
        column = torch.empty_like(pairs.pair)
        column[order] = pairs.pair
        perm = order.index_select(0, pairs.by_label)
        row = pattern.target.index_select(0, perm)
        columns = _pointers(pairs.number), row, perm
        csr = CSR.of(pattern.target_ptr, column, pairs.node.numel(), columns)
        return Pairs(pairs.node, pairs.ptr, csr, None)


def target_pairs(pattern: Pattern) -> Pairs:
    """The distinct pairs (target, label): sum over all edges, then transform these."""
    with lasting(pattern.source):
        pairs = _sort_pairs(pattern.target, pattern.label, pattern.num_labels)
        columns = (
            pattern.source_ptr,
            pairs.pair.index_select(0, pattern.by_source),
            inverted(pairs.by_label).index_select(0, pattern.by_source),
        )
        source = pattern.source.index_select(0, pairs.by_label)
        csr = CSR.of(_pointers(pairs.number), source, pattern.size[0], columns)
        return Pairs(pairs.node, pairs.ptr, csr, pairs.by_label)


def label_blocks(pattern: Pattern) -> list[LabelBlock]:
    """One block for each label that has edges."""
    with lasting(pattern.source):
        sources, targets = pattern.source_pairs, pattern.target_pairs
        assert targets.order is not None  # target_pairs sets it
        # Entries by (label, target) and by (label, source), and the permutation between the two.
        column = sources.csr.index.index_select(0, targets.order)
        source_ptr, _, by_source = sources.csr.columns
        perm = inverted(targets.order).index_select(0, by_source)
        row = _pair_of(targets.csr).index_select(0, perm)
        blocks = []
        bounds = zip(sources.ptr.tolist(), targets.ptr.tolist(), strict=True)
        (source_from, target_from), *rest = bounds
        for label, (source_to, target_to) in enumerate(rest):
            rowptr = targets.csr.ptr[target_from : target_to + 1]
            colptr = source_ptr[source_from : source_to + 1]
            first, last = int(rowptr[0]), int(rowptr[-1])
            if last > first:
                entries = slice(first, last)
                columns = colptr - first, row[entries] - target_from, perm[entries] - first
                index, width = column[entries] - source_from, source_to - source_from
                csr = CSR.of(rowptr - first, index, width, columns)
                blocks.append(
                    LabelBlock(
                        label,
                        sources.node[source_from:source_to],
                        targets.node[target_from:target_to],
                        csr,
                        targets.order[entries],
                    )
                )
            source_from, target_from = source_to, target_to
        return blocks


def _sort_pairs(node: Tensor, label: Tensor, num_labels: int) -> _SortedPairs:
    key, inverse, count = torch.unique_consecutive(
        node * num_labels + label, return_inverse=True, return_counts=True
    )
    ptr, order = counting_sort(key % max(num_labels, 1), num_labels)
    pair = inverted(order).to(node.dtype).index_select(0, inverse)
    _, by_label = counting_sort(label, num_labels)
    nodes = (key // max(num_labels, 1)).index_select(0, order)
    return _SortedPairs(nodes, ptr, pair, count.index_select(0, order).to(node.dtype), by_label)


def _pointers(count: Tensor) -> Tensor:
    ptr = count.new_zeros(count.numel() + 1)
    torch.cumsum(count, 0, out=ptr[1:])
    return ptr


def inverted(order: Tensor) -> Tensor:
    """The permutation that undoes one."""
    out = torch.empty_like(order)
    out[order] = torch.arange(order.numel(), dtype=order.dtype, device=order.device)
    return out


def _pair_of(csr: CSR) -> Tensor:
    """(E,) the row of each entry, in row order."""
    rows = torch.arange(csr.ptr.numel() - 1, dtype=csr.index.dtype, device=csr.index.device)
    return rows.repeat_interleave(csr.ptr.diff(), output_size=csr.num_entries)
