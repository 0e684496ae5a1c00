"""Subpatterns: the edges between some nodes of a pattern, or into some targets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.edge_lists import pointers
from .pattern import Pattern


def between(
    pattern: Pattern, sources: Tensor | None, targets: Tensor | None
) -> tuple[Pattern, Tensor]:
    """The edges between ``sources`` and ``targets``, renumbered by position in these; None for all.

    Nothing is sorted if both ascend.

    Returns:
        The pattern of these edges, and the position of each edge in the old pattern.
    """
    has_rows_alone = pattern.listed is None and "order" not in vars(pattern)  # see of_rows()
    if targets is not None and (has_rows_alone or 2 * targets.numel() <= pattern.size[1]):
        return _of_rows(pattern, sources, targets)
    source, target = pattern.source.long(), pattern.target.long()
    size = list(pattern.size)
    keep = torch.ones_like(source, dtype=torch.bool)
    if sources is not None:
        source, size[0] = _places(sources, size[0]).index_select(0, source), sources.numel()
        keep = source >= 0
    if targets is not None:
        target, size[1] = _places(targets, size[1]).index_select(0, target), targets.numel()
        keep = keep & (target >= 0)
    kept = keep.nonzero().view(-1)
    ascends = all(nodes is None or bool((nodes.diff() > 0).all()) for nodes in (sources, targets))
    if ascends and "by_source" not in vars(pattern) and pattern.listed is None:
        ends = (source.index_select(0, kept), target.index_select(0, kept))
        return _of_sorted(pattern, ends, kept, (size[0], size[1])), kept
    if ascends:
        return subset(pattern, keep, source, target, (size[0], size[1])), kept
    made = Pattern.build(
        torch.stack([source.index_select(0, kept), target.index_select(0, kept)]),
        pattern.label.index_select(0, kept),
        size=(size[0], size[1]),
        num_labels=pattern.num_labels,
        origin=None if pattern.origin is None else pattern.origin.index_select(0, kept),
    )
    return made, kept.index_select(0, made.order)


def _of_rows(pattern: Pattern, sources: Tensor | None, targets: Tensor) -> tuple[Pattern, Tensor]:
    """:func:`between` for few targets: only their edges are read."""
    nodes, ptr = targets.long(), pattern.target_ptr
    first = ptr.index_select(0, nodes).long()
    target, within = spread_runs(ptr.index_select(0, nodes + 1).long() - first)
    chosen = first[target] + within
    source, count = pattern.source.index_select(0, chosen).long(), pattern.size[0]
    if sources is not None:
        source, count = _places(sources, count).index_select(0, source), sources.numel()
        kept = (source >= 0).nonzero().view(-1)
        source, target, chosen = (x.index_select(0, kept) for x in (source, target, chosen))
    return _of_sorted(pattern, (source, target), chosen, (count, targets.numel())), chosen


def _of_sorted(
    pattern: Pattern, ends: tuple[Tensor, Tensor], chosen: Tensor, size: tuple[int, int]
) -> Pattern:
    """Some edges of a pattern, in its order, with new ends; not sorted by source yet."""
    dtype = pattern.source.dtype
    source, target = (end.to(dtype) for end in ends)
    has_labels = pattern.num_labels != 1
    label = pattern.label.index_select(0, chosen) if has_labels else torch.zeros_like(source)
    made = Pattern.of_sorted(
        source, target, label.to(dtype), size=size, num_labels=pattern.num_labels
    )
    if pattern.origin is not None:
        vars(made)["origin"] = pattern.origin.index_select(0, chosen)
    return made


def of_rows(
    ptr: Tensor, source: Tensor, label: Tensor | None, *, size: tuple[int, int], num_labels: int
) -> Pattern:
    """A pattern over tensors in rows of targets, which may be mapped to files; nothing is read.

    It has no order of an edge list: what asks for one fails at once, instead of reading the file.

    Args:
        ptr: (N + 1,) the edges into target n are ``ptr[n]:ptr[n + 1]``.
        source: (E,) their sources.
        label: (E,) their labels, ascending within a target; None for label 0.
        size: (M, N).
        num_labels: K.
    """
    parts = {"source": source, "target_ptr": ptr, "origin": None}
    parts |= {} if label is None else {"label": label}
    return Pattern.of_parts(size=size, num_labels=num_labels, **parts)


def subset(
    pattern: Pattern, keep: Tensor, source: Tensor, target: Tensor, size: tuple[int, int]
) -> Pattern:
    """A subset of the edges on renumbered nodes, if their order stays; nothing is sorted.

    Args:
        pattern: the E edges.
        keep: (E,) booleans.
        source, target: (E,) the new numbers, ascending with the old ones.
        size: (M, N) of the result.
    """
    kept = keep.nonzero().view(-1)
    by_source = pattern.by_source[keep.index_select(0, pattern.by_source)]
    dtype = pattern.source.dtype
    source, target = (end.index_select(0, kept).to(dtype) for end in (source, target))
    return Pattern.of_parts(
        size=size,
        num_labels=pattern.num_labels,
        source=source,
        target=target,
        label=pattern.label.index_select(0, kept),
        order=torch.arange(kept.numel(), dtype=dtype, device=kept.device),
        origin=None if pattern.origin is None else pattern.origin.index_select(0, kept),
        target_ptr=pointers(target, size[1]),
        source_ptr=pointers(source, size[0]),
        by_source=(keep.cumsum(0) - 1).index_select(0, by_source).to(dtype),
    )


def reaching(pattern: Pattern, targets: Tensor) -> Pattern:
    """The edges into ``targets`` (N',), which are renumbered and may be repeated."""
    first, end = (
        torch.searchsorted(pattern.target.long(), targets, right=right) for right in (False, True)
    )
    target, within = spread_runs(end - first)
    chosen = first[target] + within
    source, label = (x.index_select(0, chosen) for x in (pattern.source.long(), pattern.label))
    return Pattern.of_list(
        torch.stack([source, target]),
        label,
        size=(pattern.size[0], targets.numel()),
        num_labels=pattern.num_labels,
        origin=None if pattern.origin is None else pattern.origin.index_select(0, chosen),
    )


def spread_runs(count: Tensor) -> tuple[Tensor, Tensor]:
    """The target of each edge (E,) and its place in the target's run, for ``count`` (N,) edges."""
    target = torch.arange(count.numel(), device=count.device).repeat_interleave(count)
    begin = count.cumsum(0) - count
    return target, torch.arange(target.numel(), device=count.device) - begin[target]


def as_list(place: range | Tensor, device: torch.device) -> Tensor:
    """A range or a tensor of integers as a tensor (N,)."""
    if isinstance(place, Tensor):
        return place
    return torch.arange(place.start, place.stop, device=device)


def _places(nodes: Tensor, count: int) -> Tensor:
    """(count,) the position of each node in ``nodes``, −1 for the others."""
    out = torch.full((count,), -1, device=nodes.device)
    out[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return out
