"""Attention within blocks of nodes: graphs of a batch, windows of an image, sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..signatures import typed
from .absent_pairs import can_look, is_transformed, over_all_pairs, over_all_pairs_below
from .attend_entries import attend_kept
from .csr import CSR
from .index_checks import has_numbers
from .operands import agreeing, attention_operands, probability, scale_of
from .pairs_by_edges import drawn_seed, seeded
from .torch_attention import lowered

# All blocks are padded to the largest if that makes at most this many times the pairs.
_MOST_PADDING = 1.5


class PaddedBlocks(NamedTuple):
    """Some blocks of similar size, padded to the largest of them.

    Attributes:
        targets: (blocks, T) the targets of each block; the last target is repeated as padding.
        sources: (blocks, S) the sources of each block, padded likewise.
        missing: (blocks, S) booleans, true where a source is padding; None if none is.
    """

    targets: Tensor
    sources: Tensor
    missing: Tensor | None


class NodeBlocks(NamedTuple):
    """A partition of M sources and N targets into blocks, from :func:`blocks_of`.

    Attributes:
        padded: the blocks that have sources and targets, grouped by size.
        place: (N,) the position of each target's result in the concatenated results of
            ``padded``; the position after the last one for targets without sources.
        num_sources: M.
    """

    padded: tuple[PaddedBlocks, ...]
    place: Tensor
    num_sources: int


@typed
def blocks_of(source_block: Tensor, target_block: Tensor) -> NodeBlocks:
    """Group M sources and N targets by block; target n attends to source m if blocks are equal.

    Args:
        source_block: (M,) the block of each source, integers.
        target_block: (N,) the block of each target, integers on the same device.

    Raises:
        ValueError: they do not have one dimension.
        TypeError: they do not hold integers.
    """
    for name, block in (("source_block", source_block), ("target_block", target_block)):
        if block.dim() != 1:
            raise RefusedValue(f"{name} is a vector", "(nodes,)", tuple(block.shape))
        if block.is_floating_point() or block.is_complex() or block.dtype == torch.bool:
            raise RefusedType(f"{name} holds integers", "an integer dtype", block.dtype)
    if source_block.device != target_block.device:
        rule = "blocks of sources and targets are on one device"
        raise RefusedValue(rule, source_block.device, target_block.device)
    if not has_numbers(source_block, target_block):
        raise RefusedValue("blocks are made of numbers", "tensors with values", "meta or fake ones")
    names, number = torch.unique(
        torch.cat([source_block.long(), target_block.long()]), return_inverse=True
    )
    both = number.split([source_block.numel(), target_block.numel()])
    sources, targets = (_NodesByBlock(block, names.numel()) for block in both)
    place = target_block.new_full(target_block.shape, -1, dtype=torch.int64)
    padded, total = [], 0
    for blocks in _by_size(sources.count, targets.count):
        rows, real_rows = targets.padded(blocks)
        cols, real_cols = sources.padded(blocks)
        position = torch.arange(total, total + rows.numel(), device=rows.device).view_as(rows)
        place[rows[real_rows]] = position[real_rows]
        total += rows.numel()
        padded.append(PaddedBlocks(rows, cols, None if bool(real_cols.all()) else ~real_cols))
    place[place < 0] = total
    return NodeBlocks(tuple(padded), place, source_block.numel())


@typed
def attend_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: NodeBlocks,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention within blocks of nodes (Vaswani et al., equation 1).

    Equal to :func:`attend` on the entries of all pairs of source and target in one block. Blocks of
    one size go through ``scaled_dot_product_attention`` together, without padding; blocks of
    similar size are padded. The derivatives are as in :func:`attend_all`.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        blocks: the blocks, from :func:`blocks_of`.
        scale: the factor of scores; 1/√D if None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets whose block has no source.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands have different dtypes.
    """
    query, key, value, _ = attention_operands("attend_blocks", query, key, value, None)
    agreeing("attend_blocks", blocks.place, query)
    sizes = blocks.place.numel(), blocks.num_sources
    if (query.size(0), key.size(0)) != sizes:
        raise RefusedValue(
            "attend_blocks needs as many targets and sources as the blocks have",
            sizes,
            (query.size(0), key.size(0)),
        )
    given = blocks, scale_of(query, scale), probability(dropout_p)
    if is_transformed(query, key, value):
        seed = drawn_seed() if dropout_p > 0 else None

        def of_item(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with seeded(seed):
                return _by_edges(q, k, v, *given)

        product = lambda q, k, v: _in_blocks(q, k, v, *given)  # noqa: E731
        return over_all_pairs_below(product, of_item, query, key, value)
    if not can_look(query, key, value):
        return _in_blocks(query, key, value, *given)
    return over_all_pairs(
        lambda q, k, v: _in_blocks(q, k, v, *given),
        lambda q, k, v: _by_edges(q, k, v, *given),
        query,
        key,
        value,
    )


def _by_edges(
    query: Tensor, key: Tensor, value: Tensor, blocks: NodeBlocks, scale: float, dropout_p: float
) -> Tensor:
    """:func:`attend_blocks` without a product of a target and a source of another block."""
    sources, counts = [blocks.place[:0]], [blocks.place[:0]]
    for part in blocks.padded:
        targets, here = part.targets.size(1), torch.ones_like(part.sources, dtype=torch.bool)
        seen = (here if part.missing is None else ~part.missing).unsqueeze(1)
        seen = seen.expand(-1, targets, -1)  # (blocks, T, S)
        sources.append(part.sources.unsqueeze(1).expand(seen.shape)[seen])
        counts.append(seen.sum(-1).flatten())
    nothing = counts[0].new_zeros(1)  # of the row of targets without sources, the last one
    ptr = F.pad(torch.cat([*counts, nothing]).cumsum(0), (1, 0))
    entries = CSR.of(ptr, torch.cat(sources), blocks.num_sources)
    asking = [*(part.targets.flatten() for part in blocks.padded), nothing + query.size(0)]
    rows = F.pad(query, (0, 0, 0, 0, 0, 1)).index_select(0, torch.cat(asking))
    out = attend_kept(entries, rows, key, value, None, scale, dropout_p)
    return out.index_select(0, blocks.place)


def _in_blocks(
    query: Tensor, key: Tensor, value: Tensor, blocks: NodeBlocks, scale: float, dropout_p: float
) -> Tensor:
    """:func:`attend_blocks` of finite operands."""
    # Zero, but part of the graph of autograd, so that gradients are zeros where nothing is seen.
    zero = query[:0].sum() + key[:0].sum() + value[:0].sum()
    outs = []
    if 0 not in value.shape:
        outs = [_attend_padded(part, query, key, value, scale, dropout_p) for part in blocks.padded]
    empty = value.new_zeros((1, *value.shape[1:])) + zero  # the row of targets without sources
    if not outs:
        return empty.expand(query.size(0), -1, -1).clone()
    return torch.cat([*outs, empty]).index_select(0, blocks.place)


def _attend_padded(
    part: PaddedBlocks, query: Tensor, key: Tensor, value: Tensor, scale: float, dropout_p: float
) -> Tensor:
    """The attention of the targets of padded blocks, (blocks × T, H, V)."""
    query, key, value = (
        x.index_select(0, place.flatten()).unflatten(0, place.shape).transpose(1, 2)
        for x, place in ((query, part.targets), (key, part.sources), (value, part.sources))
    )
    mask = None
    if part.missing is not None:
        mask = query.new_zeros(part.missing.shape).masked_fill_(part.missing, -torch.inf)
        mask = mask[:, None, None]
    out = lowered(query, key, value, mask, False, scale, dropout_p)
    if not can_look(query, key, value):
        out = out + _of_queries(query, key, value)
    return out.transpose(1, 2).flatten(0, 1)


def _of_queries(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """NaN where a query is not finite, else 0: (*, T, V), with such gradients of all it sees.

    torch's product on a CPU takes a row of scores that are NaN for one that sees nothing, and
    gives 0.
    """
    of_sources = [torch.where(x.isfinite(), 0.0 * x, 0.0).sum(-2, True) for x in (key, value)]
    return (0.0 * query).sum(-1, True) * (of_sources[0].sum(-1, True) + of_sources[1])


class _NodesByBlock:
    """Nodes sorted by block, with the number of nodes of each block."""

    def __init__(self, block: Tensor, num_blocks: int) -> None:
        self.count = torch.bincount(block, minlength=num_blocks)
        self.order = block.argsort(stable=True)
        self.first = self.count.cumsum(0) - self.count

    def padded(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes of some blocks, (blocks, T), padded with the last node; and which are real."""
        count = self.count[blocks].unsqueeze(-1)
        number = torch.arange(int(count.max()), device=blocks.device)
        place = self.first[blocks].unsqueeze(-1) + torch.minimum(number, count - 1)
        return self.order[place], number < count


def _by_size(num_sources: Tensor, num_targets: Tensor) -> Iterator[Tensor]:
    """Group blocks of similar size; blocks without sources or without targets are left out."""
    blocks = ((num_sources > 0) & (num_targets > 0)).nonzero().view(-1)
    if blocks.numel() == 0:
        return
    sources, targets = num_sources[blocks], num_targets[blocks]
    padded = blocks.numel() * int(sources.max()) * int(targets.max())
    if padded <= _MOST_PADDING * int((sources * targets).sum()):
        yield blocks
        return
    # Blocks whose numbers of sources and of targets have equal powers of two.
    kind = torch.stack([x.double().log2().ceil().long() for x in (sources, targets)])
    _, kind = torch.unique(kind, dim=1, return_inverse=True)
    for number in range(int(kind.max()) + 1):
        yield blocks[kind == number]
