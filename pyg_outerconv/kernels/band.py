"""A band of an R × C matrix, cut into blocks of rows, each with a slab of the columns it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# The most scores that are held at a time. On a CPU 1 MiB in float32, which stays in a cache; other
# devices need more work at a time.
CHUNK_ELEMENTS = {"cpu": 1 << 18}
_OF_OTHER_DEVICES = 1 << 24

_FEWEST_ROWS, _MOST_ROWS = 32, 256


class BandLimits(NamedTuple):
    """Row n attends to the columns ``n + offset + dilation j``, where ``-left <= j <= right``."""

    left: int
    right: int
    offset: int
    dilation: int


class Strip(NamedTuple):
    """The rows and columns of one residue modulo the dilation; between them there is no dilation.

    Row i of ``rows`` attends to the columns i + low to i + high of ``cols``, if these exist.

    Attributes:
        rows: the rows; each attends to at least one column.
        cols: the columns.
        low: the offset of the first column.
        high: the offset of the last column.
    """

    rows: slice
    cols: slice
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
            seeing = slice(rows[begin], rows[end - 1] + 1, step)
            yield Strip(seeing, slice(residue, num_cols, step), low + begin, high + begin)


def rows_of_block(reach: int) -> int:
    """The number B of rows of a block, for rows that attend to ``reach + 1`` columns.

    With B half of that, a third of the products is outside the band. Matrix products of fewer rows
    are slow, and more than _MOST_ROWS are no faster.
    """
    half = 1 << max(reach // 2 - 1, 0).bit_length()
    return min(max(_FEWEST_ROWS, half), _MOST_ROWS)


class Slabs:
    """A strip cut into blocks of B rows; a block reads a slab of ``B + high - low`` columns.

    Slabs overlap. They are views of the columns, which are padded from the beginning of the first
    slab to the end of the last. A chunk is some blocks that are computed together; if it is a
    single block, its slab has only columns that exist.
    """

    def __init__(self, strip: Strip, num_rows: int, num_cols: int, device: torch.device) -> None:
        self.low, self.reach = strip.low, strip.high - strip.low
        self.block = rows_of_block(self.reach)
        self.slab = self.block + self.reach
        self.num_rows, self.num_cols, self.device = num_rows, num_cols, device
        self.num_blocks = -(-num_rows // self.block)
        elements = CHUNK_ELEMENTS.get(device.type, _OF_OTHER_DEVICES)
        self.at_once = max(1, elements // (self.block * self.slab))
        self.length = (self.num_blocks - 1) * self.block + self.slab
        self._within = self._outside_band(torch.arange(self.slab, device=device))

    def chunks(self) -> Iterator[range]:
        """The chunks, as ranges of blocks."""
        for first in range(0, self.num_blocks, self.at_once):
            yield range(first, min(first + self.at_once, self.num_blocks))

    def of_rows(self, x: Tensor) -> Tensor:
        """Cut rows into blocks: (rows, channels) to (blocks, B, channels), padded with zeros."""
        missing = self.num_blocks * self.block - self.num_rows
        return F.pad(x, (0, 0, 0, missing)).unflatten(0, (self.num_blocks, self.block))

    def padded(self, x: Tensor) -> Tensor:
        """Pad (columns, channels) from the beginning of the first slab to the end of the last."""
        return F.pad(x, (0, 0, -self.low, self.length + self.low - self.num_cols))

    def unpadded(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`padded`; columns in no slab become zeros."""
        return F.pad(x[: self.length], (0, 0, self.low, self.num_cols - self.low - self.length))

    def of_columns(self, padded: Tensor, chunk: range) -> Tensor:
        """The slabs of a chunk, (blocks of the chunk, slab, channels), a view of ``padded``."""
        here = padded[self._span(chunk)]
        if len(chunk) == 1:
            return here.unsqueeze(0)
        return here.unfold(0, self.slab, self.block).transpose(1, 2)

    def add(self, total: Tensor, x: Tensor, chunk: range) -> None:
        """The transpose of :meth:`of_columns`: add slabs (blocks, slab, channels) to ``total``."""
        if len(chunk) == 1:
            total[self._span(chunk)] += x[0]
            return
        # Add B columns of all slabs at a time, for these do not overlap.
        size, begin = len(chunk) * self.block, chunk.start * self.block
        for first in range(0, self.slab, self.block):
            piece = x[:, first : first + self.block]
            here = total[begin + first : begin + first + size]
            here.unflatten(0, (len(chunk), self.block))[:, : piece.size(1)] += piece

    def zeros(self, x: Tensor) -> Tensor:
        """Zeros for :meth:`add`, with the channels of ``x``."""
        return x.new_zeros((self.num_blocks * self.block + self.slab, x.size(1)))

    def hidden(self, chunk: range, seen: Tensor | None) -> tuple[Tensor, bool]:
        """The hidden pairs, (blocks or 1, B, slab), and whether a row may have no other pair.

        ``seen`` (columns,) is true for the columns that may be attended to; None for all.
        """
        span = self._span(chunk)
        place = torch.arange(span.start, span.stop, device=self.device) + self.low
        one = len(chunk) == 1
        band = self._within
        if one:
            band = self._outside_band(place - self.low - chunk.start * self.block)
        begin, end = self._reach(chunk)
        whole = begin + self.low >= 0 and end + self.low <= self.num_cols
        if whole and seen is None:
            return band, False
        out = (place < 0) | (place >= self.num_cols)
        if seen is not None:
            out |= ~seen[place.clamp(0, self.num_cols - 1)]
        out = out.unsqueeze(0) if one else out.unfold(0, self.slab, self.block)
        return band | out.unsqueeze(1), True

    def _outside_band(self, place: Tensor) -> Tensor:
        """The pairs outside the band, (1, B, places), for places counted from a slab's start."""
        ahead = place - torch.arange(self.block, device=self.device).unsqueeze(-1)
        return ((ahead < 0) | (ahead > self.reach)).unsqueeze(0)

    def _reach(self, chunk: range) -> tuple[int, int]:
        """The first padded column of the slabs of a chunk, and the end of the last slab."""
        return chunk.start * self.block, (chunk.stop - 1) * self.block + self.slab

    def _span(self, chunk: range) -> slice:
        """The padded columns of a chunk; for a single slab only those that exist."""
        begin, end = self._reach(chunk)
        if len(chunk) == 1:
            begin, end = max(begin, -self.low), min(end, self.num_cols - self.low)
        return slice(begin, end)
