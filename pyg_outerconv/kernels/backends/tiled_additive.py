"""Additive scores and their sums in tiles of entries of bounded size, in buffers for all tiles.

A tile is as large as a cache. Rows are gathered into it and changed in place, so that only random
reads of rows take time; tensors of entries × channels would pass main memory in each operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from ..activation import Activation
from ..backend import Neurons
from ..lasting import lasting
from ..tiles import Tile, accumulator, rows_of, tiles
from .native_csr import times, torch_csr
from .small import add_rows

SumRows = Callable[[Tile, Tensor], Tensor]
"""A function that sums within the rows of a tile: (entries, width) to (rows, width)."""


def score(ptr: Tensor, index: Tensor, layer: Neurons) -> Tensor:
    """Compute the additive score of each entry, (E, H)."""
    a, b, left, right, phi = layer
    work = _Tiles(ptr, index, a, b)
    heads, channels = a.shape[1:]
    out = work.a.new_empty((index.numel(), heads))
    row_factor, column_factor = work.factor(left), work.factor(right)
    ones = work.a.new_ones(channels)
    for tile in work.tiles:
        z = work.sums(tile)
        phi.write(z, out=z)
        work.multiply(z, row_factor, work.rows[tile.entries])
        work.multiply(z, column_factor, index[tile.entries])
        # torch.sum takes twice as long for heads of 16 channels.
        torch.mv(z.view(len(z) * heads, channels), ones, out=out[tile.entries].view(-1))
    return out.to(a.dtype)


def rows_by(sum_rows: SumRows) -> Callable[..., Tensor]:
    """A function :meth:`.Backend.additive_rows` that sums within rows by ``sum_rows``."""

    def rows(ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor, count: int) -> Tensor:
        """Sum the weighted terms of additive scores within rows, (count, R, H, channels)."""
        a, b, _, right, phi = layer
        work = _Tiles(ptr, index, a, b)
        out = work.a.new_zeros((count, *work.a.shape))
        column_factor, buffer = work.factor(right), torch.empty_like(work.row_buffer)
        for tile in work.tiles:
            z = work.sums(tile)
            weight = value[tile.entries].to(z.dtype).unsqueeze(-1)
            for number in range(count):
                # The last derivative may overwrite z.
                into = z if number + 1 == count else buffer[: z.size(0)]
                y = _weighted(phi.after(number), z, weight, into)
                work.multiply(y, column_factor, index[tile.entries])
                out[number, tile.rows] += sum_rows(tile, y)
        return out.view(count, *a.shape).to(a.dtype)

    return rows


def backward(
    ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute all gradients of additive scores in one pass over the entries."""
    a, b, weight, _, own = layer
    assert weight is not None
    phi, work = own.after(1), _Tiles(ptr, index, a, b)

    def passed(of_weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The gradients in both ends for weights of one; adds that in the weight."""
        of_a, of_b = torch.zeros_like(work.a), torch.zeros_like(work.b)
        for tile in work.tiles:
            z = work.sums(tile)
            above = value[tile.entries].to(z.dtype).unsqueeze(-1)
            if of_weight is not None:
                y = _weighted(phi.after(-1), z, above, work.column_buffer[: len(z)])
                of_weight += y.view(len(z), *weight.shape).sum(0)
            y = _weighted(phi, z, above, z)
            for total, place in ((of_a, work.rows), (of_b, index)):
                add_rows(total.numpy(), place[tile.entries].numpy(), y.numpy())
        return of_a, of_b

    of_weight = work.a.new_zeros(weight.shape)
    if phi.name == "leaky_relu":  # phi(z) = z phi'(z), whose sums over entries the ends have
        of_a, of_b = passed(None)
        of_weight = ((work.a * of_a).sum(0) + (work.b * of_b).sum(0)).view_as(weight)
        if not bool(of_weight.isfinite().all()):  # as of numbers of nodes without entries
            passed(of_weight := torch.zeros_like(of_weight))
    else:
        of_a, of_b = passed(of_weight)
    wide = weight.to(work.a.dtype).flatten()
    of_ends = [x.mul_(wide).view_as(end).to(a.dtype) for x, end in ((of_a, a), (of_b, b))]
    return *of_ends, of_weight.to(a.dtype)  # type: ignore[return-value]


def _weighted(phi: Activation, z: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """weight · phi(z) of entries, (entries, H · channels), for weights (entries, H, 1)."""
    shape = *weight.shape[:2], z.size(1) // max(1, weight.size(1))
    if phi.name == "leaky_relu" and phi.order == 1:  # torch's own derivative is one pass
        wide = weight.expand(shape)
        torch.ops.aten.leaky_relu_backward.grad_input(
            wide, z.view(shape), phi.slope, False, grad_input=out.view(shape)
        )
        return out
    phi.write(z, out=out).view(shape).mul_(weight)
    return out


def sum_by_product(tile: Tile, y: Tensor) -> Tensor:
    """Sum within rows by a product with a sparse matrix of ones."""
    places = torch.arange(y.size(0), dtype=tile.ptr.dtype, device=y.device)
    return times(torch_csr(tile.ptr, places, y.new_ones(y.size(0)), y.size(0)), y)


class _Tiles:
    """The tiles of a matrix, and buffers for row and column operands, in the accumulating dtype."""

    def __init__(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> None:
        self.index, self.rows = index, rows_of(ptr, index.numel())
        self.a, self.b = (x.to(accumulator(x.dtype)).flatten(1) for x in (a, b))
        # Two buffers stay in a cache together: 5k nodes and 50k edges then take 40 ms, not 51.
        self.tiles = list(tiles(ptr, index.numel(), 2 * self.a.size(1)))
        # All tiles but the last have the same length.
        longest = self.tiles[0].entries.stop if self.tiles else 0
        self.row_buffer, self.column_buffer = _buffers(self.a, longest)

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


_kept = threading.local()


def _buffers(like: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Two buffers (rows, channels). A thread keeps its last ones on a CPU: fresh memory is slow."""
    count, shape = 2 * rows * like.size(1), (2, rows, like.size(1))
    memory: Tensor | None = getattr(_kept, str(like.dtype), None) if like.is_cpu else None
    if memory is None or not count <= memory.numel() <= 2 * count:
        with lasting():
            memory = torch.empty(count, dtype=like.dtype, device=like.device)
        if like.is_cpu:
            setattr(_kept, str(like.dtype), memory)
    return memory[:count].view(shape).unbind()  # type: ignore[return-value]


def _gathered(x: Tensor, place: Tensor, buffer: Tensor) -> Tensor:
    """Gather rows of ``x`` into a buffer."""
    return torch.index_select(x, 0, place, out=buffer[: place.numel()])
