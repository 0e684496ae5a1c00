"""Attention to all sources, to a band of them, or within blocks of nodes, without a sparse matrix.

Each is a list of tiles (:mod:`.attention_tiles`), of which all pairs are computed: one tile of all
pairs, blocks of rows of a band with the columns that they read, or blocks of nodes of similar size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..signatures import typed
from .absent_pairs import gradients_of
from .attend import (
    BandLimits,
    NodeBlocks,
    PaddedBlocks,
    Softmax,
    is_recorded,
    over_pairs,
    within,
)
from .attention_tiles import Options, Tiles, attend_tiles
from .index_checks import has_numbers, is_exporting
from .operands import agreeing, attention_operands, probability, scale_of
from .primitive import within_operator, without_autocast
from .tiles import exact

_SMALL = 1 << 17  # the most pairs in a mask that stays in a cache
_FEWEST_ROWS, _MOST_ROWS = 32, 256
# The sources of the tiles of a band are listed at most about so many times at once.
_MOST_COPIES = 4
# All blocks of nodes are padded to the largest if that makes at most this many times the pairs.
_MOST_PADDING = 1.5


@typed
def attend_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    source_mask: Tensor | None = None,
    causal: int | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention of every target to every source (Vaswani et al., equation 1).

    Equal to :func:`attend` on all N × M entries, computed by
    ``torch.nn.functional.scaled_dot_product_attention``. Its fused kernels hold no tensor of N × M.
    Second derivatives hold tensors of N × M × H, and so do dropout, and the backward pass of a bias
    that requires gradients.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        bias: (N, M, H), added to the scores; -inf excludes a pair.
        source_mask: (M,) or (M, H) booleans, true for the sources that may be attended to.
        causal: target n attends to source m if m <= n + causal: 0 includes m = n, -1 does not; None
            for no limit.
        scale: the factor of scores; 1/√D if None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets without sources.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands have different dtypes.
    """
    *ends, source_mask = attention_operands("attend_all", query, key, value, source_mask)
    query, key, value = ends
    if bias is not None:
        agreeing("attend_all", query, bias)
    (rows, heads, _), cols = query.shape, key.size(0)
    if bias is not None and bias.shape != (rows, cols, heads):
        raise RefusedValue(
            "attend_all needs a bias for each pair and head", (rows, cols, heads), tuple(bias.shape)
        )
    softmax = Softmax(source_mask, scale_of(query, scale), probability(dropout_p))
    band = BandLimits(rows + cols, cols if causal is None else causal, 0, 1)
    product = partial(_attend_all, causal, softmax)
    return over_pairs(product, band, query, *_present(key, value, source_mask), bias, softmax)


def _attend_all(
    causal: int | None,
    softmax: Softmax,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """:func:`attend_all` of finite operands."""
    (rows, heads, _), cols, source_mask = query.shape, key.size(0), softmax.source_mask
    if causal is not None and causal >= cols - 1:
        causal = None
    if 0 in (rows, cols, heads, value.size(2)) or (causal is not None and causal <= -rows):
        return _zeros(rows, query, key, value, bias)
    if causal is not None and causal < 0:
        rest, seeing = None if bias is None else bias[-causal:], query[-causal:]
        out = _attend_all(0, softmax, seeing, key, value, rest)
        return F.pad(out, (0, 0, 0, 0, -causal, 0))
    if source_mask is not None and bias is None and causal is not None:
        # A band avoids a mask of all pairs.
        band = BandLimits(rows + cols, causal, 0, 1)
        return _in_band(band, softmax, query, key, value)
    before, hidden = 0, None
    if causal and bias is None and causal <= rows:
        # torch's causal mask has no offset: put as many more queries before the first one.
        before = causal
        query = F.pad(query, (0, 0, 0, 0, causal, 0))
    elif causal is not None and (bias is not None or causal):
        hidden = ~within(BandLimits(rows + cols, causal, 0, 1), rows, cols, query.device)
    tile = Tiles(slice(None), slice(None), (rows + before, cols), hidden)
    is_causal = causal is not None and hidden is None
    options = Options(softmax.scale, softmax.dropout_p, is_causal)
    bias = None if bias is None else bias.to(query.dtype).permute(2, 0, 1).unsqueeze(0)
    absent = None if source_mask is None else ~source_mask
    out = attend_tiles([tile], query, key, value, options, absent, bias)
    return out[before:] if before else out


@typed
def attend_band(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    left: int | None,
    right: int | None,
    offset: int = 0,
    dilation: int = 1,
    source_mask: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention within a sliding window.

    Target n attends to the sources ``n + offset + dilation j`` that exist, for integers j with
    ``-left <= j <= right`` (Beltagy et al., *Longformer*, section 3.1: sliding and dilated
    windows). Equal to :func:`attend` on these entries. The work is N × (left + right) × channels;
    only second derivatives hold tensors of the size of the entries. Without limits it is
    :func:`attend_all`.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        left: the number of steps backwards, in units of ``dilation``; None to the first source.
        right: the number of steps forwards; None to the last source.
        offset: the source at j = 0 of target 0.
        dilation: the distance of neighbouring sources of a window.
        source_mask: (M,) or (M, H) booleans, true for the sources that may be attended to.
        scale: the factor of scores; 1/√D if None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets without sources.

    Raises:
        ValueError: the shapes do not fit, or the dilation is below 1.
        TypeError: the operands have different dtypes.
    """
    *ends, source_mask = attention_operands("attend_band", query, key, value, source_mask)
    query, key, value = ends
    if dilation < 1:
        raise RefusedValue("the dilation of attend_band", "1 or more", dilation)
    softmax = Softmax(source_mask, scale_of(query, scale), probability(dropout_p))
    unlimited = query.size(0) + key.size(0) + abs(offset)
    limits = unlimited if left is None else left, unlimited if right is None else right
    band = BandLimits(*limits, offset, dilation)
    product = partial(_attend_band, band, softmax)
    return over_pairs(product, band, query, *_present(key, value, source_mask), None, softmax)


def _attend_band(
    band: BandLimits, softmax: Softmax, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """:func:`attend_band` of finite operands."""
    rows, cols, offset, source_mask = query.size(0), key.size(0), band.offset, softmax.source_mask
    # Limits beyond the first or the last source are no limits.
    first = band.dilation == 1 and band.left >= rows - 1 + offset
    last = band.dilation == 1 and band.right >= cols - 1 - offset
    if first and (last or source_mask is None):
        causal = None if last else offset + band.right
        return _attend_all(causal, softmax, query, key, value)
    if last and source_mask is None:
        # Reversed, it is causal.
        causal = cols - rows - offset + band.left
        return _attend_all(causal, softmax, *(x.flip(0) for x in (query, key, value))).flip(0)
    if 0 in (rows, cols, query.size(1), value.size(2)):
        return _zeros(rows, query, key, value)
    if source_mask is None and is_small(rows, cols):
        hidden = ~within(band, rows, cols, query.device)
        tile = Tiles(slice(None), slice(None), (rows, cols), hidden, all_see=False)
        return attend_tiles([tile], query, key, value, Options(*softmax[1:]))
    return _in_band(band, softmax, query, key, value)


def is_small(rows: int, cols: int) -> bool:
    """Whether attention within a band uses one mask of all pairs, because blocks would be few."""
    return not is_exporting() and rows * cols <= _SMALL


def _present(key: Tensor, value: Tensor, source_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Keys and values without those of excluded sources, which may hold any numbers, or NaN."""
    if source_mask is None:
        return key, value
    absent = ~source_mask.unsqueeze(-1)
    return key.masked_fill(absent, 0.0), value.masked_fill(absent, 0.0)


def _zeros(rows: int, *operands: Tensor | None) -> Tensor:
    """Zeros (rows, H, V), whose gradients are zeros, for targets without sources."""
    query, _, value, *_ = operands
    assert query is not None
    assert value is not None
    zero = sum((x[:0].sum() for x in operands if x is not None), query.new_zeros(()))
    return query.new_zeros((rows, query.size(1), value.size(2))) + zero


def _placed(out: Tensor, place: Tensor, *operands: Tensor) -> Tensor:
    """The rows of ``out`` at the places (N,); the place after the last one has zeros."""
    return torch.cat([out, _zeros(1, *operands).to(out.dtype)]).index_select(0, place)


# Bands -------------------------------------------------------------------------------------------


class Strip(NamedTuple):
    """The rows and columns of one residue modulo the dilation; between them there is no dilation.

    Row i of ``rows`` attends to the columns i + low to i + high of ``cols``, if these exist.

    Attributes:
        rows: the rows; each attends to at least one column.
        cols: the columns.
        low: the offset of the first column.
        high: the offset of the last column.
    """

    rows: range
    cols: range
    low: int
    high: int


def strips(band: BandLimits, num_rows: int, num_cols: int) -> Iterator[Strip]:
    """Split a band into strips without dilation; rows without columns are left out."""
    step = band.dilation
    for first in range(min(step, num_rows)):
        shift, residue = divmod(first + band.offset, step)
        rows, cols = range(first, num_rows, step), range(residue, num_cols, step)
        low = max(shift - band.left, 1 - len(rows))
        high = min(shift + band.right, len(cols) - 1)
        begin, end = max(0, -high), min(len(rows), len(cols) - low)
        if low <= high and begin < end:
            yield Strip(rows[begin:end], cols, low + begin, high + begin)


def rows_of_block(reach: int) -> int:
    """The number B of rows of a block, for rows that attend to ``reach + 1`` columns.

    With B half of that, a third of the products is outside the band. Matrix products of fewer rows
    are slow, and more than _MOST_ROWS are no faster.
    """
    half = 1 << max(reach // 2 - 1, 0).bit_length()
    return min(max(_FEWEST_ROWS, half), _MOST_ROWS)


def _tiles_of(strip: Strip, device: torch.device) -> Iterator[Tiles]:
    """A strip cut into blocks of B rows, each with the columns that it reads.

    Blocks that read all of their columns, which are many, are a few lists of tiles; those at an end
    of the rows or columns have a tile each.
    """
    rows, cols, low, reach = *strip[:3], strip.high - strip.low
    size = rows_of_block(reach)
    slab, count = size + reach, -(-len(rows) // size)
    # Whole blocks: low + size b >= 0, low + size b + slab <= columns, and size (b + 1) <= rows.
    first = min(max(0, -(low // size)), count)
    last = max(first, min((len(cols) - low - slab) // size + 1, len(rows) // size))
    most = max(1, _MOST_COPIES * len(cols) // slab)
    runs = [(b, b + 1) for b in range(first)]
    runs += [(b, min(b + most, last)) for b in range(first, last, most)]
    runs += [(b, b + 1) for b in range(last, count)]
    for begin, end in runs:
        own = rows[begin * size : end * size]
        start, stop = low + begin * size, low + (end - 1) * size + slab
        seen = cols[max(start, 0) : min(stop, len(cols))]
        shape = (size, slab) if first <= begin < last else (len(own), len(seen))
        column = torch.arange(shape[1], device=device) + max(-start, 0)
        ahead = column - torch.arange(shape[0], device=device).unsqueeze(-1)
        yield Tiles(_slice(own), _slice(seen), shape, (ahead < 0) | (ahead > reach))


def _slice(part: range) -> slice:
    return slice(part.start, part.stop, part.step)


def _in_band(
    band: BandLimits, softmax: Softmax, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Attention within a band, (N, H, V), in float32 at least; one operator where it is recorded.

    A compiler that saw the tiles would be tied to the sizes that it saw.
    """
    drops = softmax.dropout_p > 0
    if is_recorded():
        drawn = torch.randint(2**62, ()) if drops else None
        limits: Any = [int(x) for x in band] if torch.jit.is_tracing() else list(band)
        return _recorded_band(query, key, value, limits, drawn, *softmax)  # type: ignore[no-any-return]
    seed = int(torch.randint(2**62, ())) if drops else None
    return _by_strips(band, softmax, seed, query, key, value)


def _by_strips(
    band: BandLimits, softmax: Softmax, seed: int | None, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    rows, cols, dtype = query.size(0), key.size(0), query.dtype
    parts = list(strips(band, rows, cols))
    if not parts:
        return _zeros(rows, query, key, value)
    source_mask, scale, dropout_p = softmax
    tiles = [tile for strip in parts for tile in _tiles_of(strip, query.device)]
    absent = None if source_mask is None else ~source_mask
    ends = exact(query), exact(key), exact(value)
    options = Options(scale, dropout_p, seed=seed)
    out = attend_tiles(tiles, *ends, options, absent).to(dtype)
    if [strip.rows for strip in parts] == [range(rows)]:
        return out
    order = torch.cat([torch.arange(*_slice(strip.rows).indices(rows)) for strip in parts])
    place = torch.full((rows,), order.numel()).index_copy_(0, order, torch.arange(order.numel()))
    return _placed(out, place.to(query.device), query, key, value)


def _run_band(
    query: Tensor, key: Tensor, value: Tensor, band: Any, seed: Tensor | None, *softmax: Any
) -> Tensor:
    settings = BandLimits(*band), Softmax(*softmax), None if seed is None else int(seed)
    with without_autocast(query.device.type):
        return _by_strips(*settings, query, key, value).contiguous()


def _run_band_backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    ends, how = arguments[:3], arguments[3:]
    with within_operator():
        gradients = gradients_of(lambda *ends: _run_band(*ends, *how), (True,) * 3)(*ends, grad)
    return gradients[0].contiguous(), gradients[1].contiguous(), gradients[2].contiguous()


_OF_BAND = (
    "Tensor query, Tensor key, Tensor value, SymInt[] band, Tensor? seed, Tensor? source_mask, "
    "float scale, float dropout_p"
)
_recorded_band = torch.library.custom_op(
    "pyg_outerconv::band_attention", _run_band, mutates_args=(), schema=f"({_OF_BAND}) -> Tensor"
)
_recorded_band_backward = torch.library.custom_op(
    "pyg_outerconv::band_attention_backward",
    _run_band_backward,
    mutates_args=(),
    schema=f"(Tensor grad, {_OF_BAND}) -> (Tensor, Tensor, Tensor)",
)


@_recorded_band.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty((*query.shape[:2], value.size(2)))


@_recorded_band_backward.register_fake
def _(grad: Tensor, *ends: Any) -> tuple[Tensor, ...]:
    return tuple([x.new_empty(x.shape) for x in ends[:3]])


def _keep_band(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *ends, ctx.band, seed, source_mask, ctx.scale, ctx.dropout_p = inputs
    ctx.save_for_backward(*ends, seed, source_mask)


def _of_band(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *ends, seed, source_mask = ctx.saved_tensors
    how = ctx.band, seed, source_mask, ctx.scale, ctx.dropout_p
    return *_recorded_band_backward(grad, *ends, *how), *(None,) * len(how)


_recorded_band.register_autograd(_of_band, setup_context=_keep_band)


# Blocks ------------------------------------------------------------------------------------------


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
    softmax = Softmax(None, scale_of(query, scale), probability(dropout_p))
    product = partial(_in_blocks, blocks, softmax)
    return over_pairs(product, blocks, query, key, value, None, softmax)


def _in_blocks(
    blocks: NodeBlocks, softmax: Softmax, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """:func:`attend_blocks` of finite operands."""
    if not blocks.padded or 0 in value.shape:
        return _zeros(query.size(0), query, key, value)
    tiles = [
        Tiles(rows, cols, (rows.size(1), cols.size(1)), missing=missing)
        for rows, cols, missing in blocks.padded
    ]
    out = attend_tiles(tiles, query, key, value, Options(*softmax[1:]))
    return _placed(out, blocks.place, query, key, value)


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
