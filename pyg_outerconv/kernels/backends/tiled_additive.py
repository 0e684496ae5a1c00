"""Additive scores and their sums in tiles of entries of bounded size, in buffers for all tiles.

A tile is as large as a cache. Rows are gathered into it and changed in place, so that only random
reads of rows take time; tensors of entries × channels would pass main memory in each operation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..activation import Activation
from ..tiles import Tile, accumulator, rows_of, tiles
from .native_csr import times, torch_csr

SumRows = Callable[[Tile, Tensor], Tensor]
"""A function that sums within the rows of a tile: (entries, width) to (rows, width)."""


def score(
    ptr: Tensor,
    index: Tensor,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    activation: str,
    slope: float,
    order: int,
) -> Tensor:
    """Compute the additive score of each entry, (E, H)."""
    phi, work = Activation(activation, slope, order), _Tiles(ptr, index, a, b)
    out = work.a.new_empty((index.numel(), a.size(1)))
    row_factor, column_factor = work.factor(left), work.factor(right)
    for tile in work.tiles:
        z = work.sums(tile)
        phi.write(z, out=z)
        work.multiply(z, row_factor, work.rows[tile.entries])
        work.multiply(z, column_factor, index[tile.entries])
        torch.sum(z.view(z.size(0), *a.shape[1:]), -1, out=out[tile.entries])
    return out.to(a.dtype)


def rows_by(sum_rows: SumRows) -> Callable[..., Tensor]:
    """A function :meth:`.Backend.additive_rows` that sums within rows by ``sum_rows``."""

    def rows(
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        right: Tensor | None,
        value: Tensor,
        activation: str,
        slope: float,
        order: int,
        count: int,
    ) -> Tensor:
        """Sum the weighted terms of additive scores within rows, (count, R, H, channels)."""
        phi, work = Activation(activation, slope, order), _Tiles(ptr, index, a, b)
        out = work.a.new_zeros((count, *work.a.shape))
        column_factor, buffer = work.factor(right), torch.empty_like(work.row_buffer)
        for tile in work.tiles:
            z = work.sums(tile)
            weight = value[tile.entries].to(z.dtype).unsqueeze(-1)
            for number in range(count):
                # The last derivative may overwrite z.
                into = z if number + 1 == count else buffer[: z.size(0)]
                y = phi.after(number).write(z, out=into)
                y.view(y.size(0), *a.shape[1:]).mul_(weight)
                work.multiply(y, column_factor, index[tile.entries])
                out[number, tile.rows] += sum_rows(tile, y)
        return out.view(count, *a.shape).to(a.dtype)

    return rows


def sum_by_product(tile: Tile, y: Tensor) -> Tensor:
    """Sum within rows by a product with a sparse matrix of ones."""
    places = torch.arange(y.size(0), dtype=tile.ptr.dtype, device=y.device)
    return times(torch_csr(tile.ptr, places, y.new_ones(y.size(0)), y.size(0)), y)


class _Tiles:
    """The tiles of a matrix, and buffers for row and column operands, in the accumulating dtype."""

    def __init__(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> None:
        self.index, self.rows = index, rows_of(ptr)
        self.a, self.b = (x.to(accumulator(x.dtype)).flatten(1) for x in (a, b))
        # Two buffers stay in a cache together: 5k nodes and 50k edges then take 40 ms, not 51.
        self.tiles = list(tiles(ptr, index.numel(), 2 * self.a.size(1)))
        # All tiles but the last have the same length.
        longest = self.tiles[0].entries.stop if self.tiles else 0
        self.row_buffer, self.column_buffer = (
            self.a.new_empty((longest, self.a.size(1))) for _ in range(2)
        )

    def factor(self, x: Tensor | None) -> Tensor | None:
        """A factor (nodes or 1, H, channels) in the accumulating dtype, flat; or None."""
        return None if x is None else x.to(self.a.dtype).flatten(1)

    def sums(self, tile: Tile) -> Tensor:
        """a[row of e] + b[column of e] for the entries of a tile, in the row buffer."""
        out = _gathered(self.a, self.rows[tile.entries], self.row_buffer)
        return out.add_(_gathered(self.b, self.index[tile.entries], self.column_buffer))

    def multiply(self, y: Tensor, factor: Tensor | None, place: Tensor) -> None:
        """Multiply in place with the factor of each entry's node, or with the shared factor."""
        if factor is not None:
            y.mul_(factor if factor.size(0) == 1 else _gathered(factor, place, self.column_buffer))


def _gathered(x: Tensor, place: Tensor, buffer: Tensor) -> Tensor:
    """Gather rows of ``x`` into a buffer."""
    return torch.index_select(x, 0, place, out=buffer[: place.numel()])
