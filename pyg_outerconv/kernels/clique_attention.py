"""Attention within blocks of nodes: graphs of a batch, windows of an image, sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .attention_operands import checked, lowered, probability, scale_of

# Blocks of all sizes are padded to the largest while that makes this many times the pairs.
_LITTLE = 1.5


class Alike(NamedTuple):
    """Blocks of about one size, padded to the largest of them.

    Attributes:
        targets: (blocks, T) the targets of each block; the last one stands for missing ones.
        sources: (blocks, S) likewise.
        missing: (blocks, S) booleans, None where no source is missing.
    """

    targets: Tensor
    sources: Tensor
    missing: Tensor | None


class Blocks(NamedTuple):
    """Blocks, sorted by size; see :func:`blocks_of`.

    Attributes:
        alike: the blocks that have sources and targets.
        place: (N,) where the result of each target is, when those of ``alike`` are concatenated;
            past their end for targets that see nothing.
        num_sources: M.
    """

    alike: tuple[Alike, ...]
    place: Tensor
    num_sources: int


def blocks_of(source_block: Tensor, target_block: Tensor) -> Blocks:
    """Sort M sources and N targets into blocks: target n sees source m where blocks are equal.

    Args:
        source_block: (M,) whole numbers.
        target_block: (N,) whole numbers, on the same device.

    Raises:
        ValueError: these are no vectors.
        TypeError: they are not of whole numbers.
    """
    for name, block in (("source_block", source_block), ("target_block", target_block)):
        if block.dim() != 1:
            raise RefusedValue(refusal(f"{name} is a vector", "(nodes,)", tuple(block.shape)))
        if block.is_floating_point() or block.is_complex() or block.dtype == torch.bool:
            raise RefusedType(refusal(f"{name} has whole numbers", "an integer type", block.dtype))
    names, number = torch.unique(
        torch.cat([source_block.long(), target_block.long()]), return_inverse=True
    )
    ends = number.split([source_block.numel(), target_block.numel()])
    sources, targets = (_Sorted(end, names.numel()) for end in ends)
    place = target_block.new_full(target_block.shape, -1, dtype=torch.int64)
    alike, total = [], 0
    for blocks in _by_size(sources.count, targets.count):
        rows, real_rows = targets.padded(blocks)
        cols, real_cols = sources.padded(blocks)
        position = torch.arange(total, total + rows.numel(), device=rows.device).view_as(rows)
        place[rows[real_rows]] = position[real_rows]
        total += rows.numel()
        alike.append(Alike(rows, cols, None if bool(real_cols.all()) else ~real_cols))
    place[place < 0] = total
    return Blocks(tuple(alike), place, source_block.numel())


def attend_cliques(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: Blocks,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention within blocks (Vaswani et al., equation 1).

    Equal to :func:`attend` on the entries of all pairs of a block. Blocks of one size go through
    ``scaled_dot_product_attention`` together, without padding; those of a similar size are padded.
    Derivatives are those of :func:`attend_all`.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        blocks: which target sees which source, of :func:`blocks_of`.
        scale: 1/√D if None.
        dropout_p: the probability with which a share is zeroed; others grow by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets whose block has no source.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands are of different types.
    """
    query, key, value, _ = checked("attend_cliques", query, key, value, None)
    sizes = blocks.place.numel(), blocks.num_sources
    if (query.size(0), key.size(0)) != sizes:
        raise RefusedValue(
            refusal(
                "attend_cliques needs as many targets and sources as the blocks have",
                sizes,
                (query.size(0), key.size(0)),
            )
        )
    scale, dropout_p = scale_of(query, scale), probability(dropout_p)
    # The last row is of those that see nothing.
    nothing = query[:0].sum() + key[:0].sum() + value[:0].sum()
    found = []
    if 0 not in value.shape:
        found = [_of(one, query, key, value, scale, dropout_p) for one in blocks.alike]
    empty = value.new_zeros((1, *value.shape[1:])) + nothing
    if not found:
        return empty.expand(query.size(0), -1, -1).clone()
    return torch.cat([*found, empty]).index_select(0, blocks.place)


def _of(
    one: Alike, query: Tensor, key: Tensor, value: Tensor, scale: float, dropout_p: float
) -> Tensor:
    """(blocks × T, H, V)."""
    query, key, value = (
        x.index_select(0, place.flatten()).unflatten(0, place.shape).transpose(1, 2)
        for x, place in ((query, one.targets), (key, one.sources), (value, one.sources))
    )
    mask = None
    if one.missing is not None:
        mask = query.new_zeros(one.missing.shape).masked_fill_(one.missing, -torch.inf)
        mask = mask[:, None, None]
    return lowered(query, key, value, mask, False, scale, dropout_p).transpose(1, 2).flatten(0, 1)


class _Sorted:
    """Nodes in the order of their blocks."""

    def __init__(self, block: Tensor, num_blocks: int) -> None:
        self.count = torch.bincount(block, minlength=num_blocks)
        self.order = block.argsort(stable=True)
        self.first = self.count.cumsum(0) - self.count

    def padded(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """(blocks, longest) nodes, the last of each repeated; and which are no repetitions."""
        count = self.count[blocks].unsqueeze(-1)
        number = torch.arange(int(count.max()), device=blocks.device)
        place = self.first[blocks].unsqueeze(-1) + torch.minimum(number, count - 1)
        return self.order[place], number < count


def _by_size(num_sources: Tensor, num_targets: Tensor) -> Iterator[Tensor]:
    """Sets of blocks of similar sizes; blocks without sources or without targets are in none."""
    blocks = ((num_sources > 0) & (num_targets > 0)).nonzero().view(-1)
    if blocks.numel() == 0:
        return
    sources, targets = num_sources[blocks], num_targets[blocks]
    padded = blocks.numel() * int(sources.max()) * int(targets.max())
    if padded <= _LITTLE * int((sources * targets).sum()):
        yield blocks
        return
    # By powers of two, of sources and of targets.
    kind = torch.stack([x.double().log2().ceil().long() for x in (sources, targets)])
    _, kind = torch.unique(kind, dim=1, return_inverse=True)
    for number in range(int(kind.max()) + 1):
        yield blocks[kind == number]
