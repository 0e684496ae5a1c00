"""Subpatterns: the edges between some nodes of a pattern, or into some targets."""

from __future__ import annotations

import torch
from torch import Tensor

from .pattern import Pattern


def between(
    pattern: Pattern, sources: Tensor | None, targets: Tensor | None
) -> tuple[Pattern, Tensor]:
    """The edges between ``sources`` and ``targets``, renumbered by position in these; None for all.

    Nothing is sorted; of other targets no edge is read.

    Returns:
        The pattern of these edges, and the position of each edge in the old pattern.
    """
    num_sources, num_targets = pattern.size
    if targets is None:
        source, target = pattern.source.long(), pattern.target
        chosen = torch.arange(pattern.num_edges, device=pattern.device)
    else:
        source, target, chosen = _edges_into(pattern, targets)
        num_targets = targets.numel()
    if sources is not None:
        source, num_sources = _places(sources, num_sources).index_select(0, source), sources.numel()
        kept = (source >= 0).nonzero().view(-1)
        source, target, chosen = (x.index_select(0, kept) for x in (source, target, chosen))
    return subset(pattern, chosen, source, target, (num_sources, num_targets)), chosen


def _edges_into(pattern: Pattern, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Source, place of the target in ``targets`` (N',), and position of each edge into these."""
    nodes, ptr = targets.long(), pattern.target_ptr
    first = ptr.index_select(0, nodes).long()
    target, within = spread_runs(ptr.index_select(0, nodes + 1).long() - first)
    chosen = first[target] + within
    return pattern.source.index_select(0, chosen).long(), target, chosen


def subset(
    pattern: Pattern, chosen: Tensor, source: Tensor, target: Tensor, size: tuple[int, int]
) -> Pattern:
    """Some edges on renumbered nodes; nothing is sorted.

    Args:
        pattern: the E edges.
        chosen: (E',) the positions of the edges, of which those of one target ascend.
        source, target: (E',) the new numbers of their ends; targets ascend.
        size: (M, N) of the result.
    """
    dtype = pattern.source.dtype
    source, target = source.to(dtype), target.to(dtype)
    has_labels = pattern.num_labels != 1
    label = pattern.label.index_select(0, chosen) if has_labels else torch.zeros_like(source)
    subpattern = Pattern.of_sorted(
        source, target, label.to(dtype), size=size, num_labels=pattern.num_labels
    )
    if pattern.origin is not None:
        vars(subpattern)["origin"] = pattern.origin.index_select(0, chosen)
    return subpattern


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


def reaching(pattern: Pattern, targets: Tensor) -> Pattern:
    """The edges into ``targets`` (N',), which are renumbered and may be repeated."""
    source, target, chosen = _edges_into(pattern, targets)
    return Pattern.of_list(
        torch.stack([source, target]),
        pattern.label.index_select(0, chosen),
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
