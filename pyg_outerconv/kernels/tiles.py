"""Tiles of entries of bounded size, for backends that gather rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# The most numbers in a gathered tile: 4 MiB in float32, about the size of a cache.
TILE_ELEMENTS = 1 << 20


class Tile(NamedTuple):
    """Consecutive entries of a sparse matrix.

    Attributes:
        entries: the positions of the entries.
        rows: the rows of these entries; the first and the last row may have more entries in other
            tiles.
        ptr: (rows + 1,) where the entries of each row begin in the tile.
    """

    entries: slice
    rows: slice
    ptr: Tensor


def tiles(ptr: Tensor, num_entries: int, width: int) -> Iterator[Tile]:
    """Split E entries in row order into tiles of at most ``TILE_ELEMENTS / width`` entries."""
    step = max(1, TILE_ELEMENTS // max(1, width))
    starts = range(0, num_entries, step)
    if len(starts) == 0:
        return
    # The row of entry e is the last whose pointer is at most e.
    edges = torch.tensor([*starts, num_entries - 1], dtype=ptr.dtype, device=ptr.device)
    row = (torch.searchsorted(ptr, edges, right=True) - 1).tolist()
    for number, start in enumerate(starts):
        end = min(start + step, num_entries)
        first = row[number]
        last = row[-1]
        if number + 1 < len(starts):
            # The row of entry end - 1 is that of entry end, or one before.
            last = row[number + 1]
        local = ptr[first : last + 2].clamp(start, end) - start
        yield Tile(slice(start, end), slice(first, last + 1), local)


def rows_of(ptr: Tensor, num_entries: int | None = None) -> Tensor:
    """The row of each entry, (E,), given row pointers (R + 1,): [0, 2, 3] to [0, 0, 1].

    E is read from a device where it is not given.
    """
    rows = torch.arange(ptr.numel() - 1, device=ptr.device)
    return rows.repeat_interleave(ptr.diff(), output_size=num_entries)


def repeated(x: Tensor, ptr: Tensor, num_entries: int) -> Tensor:
    """Repeat the row of x (R, *) for the entries of each row, (E, *), given pointers (R + 1,)."""
    return x.repeat_interleave(ptr.diff().long(), dim=0, output_size=num_entries)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums of ``dtype`` are accumulated."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def exact(x: Tensor) -> Tensor:
    """``x`` in the dtype in which its sums are accumulated."""
    return x.to(accumulator(x.dtype))
