"""A matrix product for each group of rows, in bounded tiles of gathered rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from .. import tiles
from ..tiles import accumulator


def matmul(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int,
) -> Tensor:
    """See :meth:`Backend.grouped_matmul`."""
    if scatter is None:
        out = x.new_empty((num_rows, theta.size(2)))
    else:  # Groups add up, so in the type for sums.
        out = x.new_zeros((num_rows, theta.size(2)), dtype=accumulator(x.dtype))
    for group, tile in _tiles(ptr, theta.size(1) + theta.size(2)):
        rows = x[tile] if gather is None else x.index_select(0, gather[tile])
        if scatter is None:
            torch.mm(rows, theta[group], out=out[tile])
        else:
            product = torch.mm(rows, theta[group]).to(out.dtype)
            out.index_add_(0, scatter[tile].long(), product)
    return out.to(x.dtype)


def outer(
    x: Tensor, ptr: Tensor, y: Tensor, gather: Tensor | None, scatter: Tensor | None
) -> Tensor:
    """See :meth:`Backend.grouped_outer`."""
    wide = accumulator(x.dtype)
    out = x.new_zeros((ptr.numel() - 1, x.size(1), y.size(1)), dtype=wide)
    for group, tile in _tiles(ptr, x.size(1) + y.size(1)):
        left = x[tile] if gather is None else x.index_select(0, gather[tile])
        right = y[tile] if scatter is None else y.index_select(0, scatter[tile])
        out[group].addmm_(left.t().to(wide), right.to(wide))
    return out.to(x.dtype)


def _tiles(ptr: Tensor, width: int) -> Iterator[tuple[int, slice]]:
    step = max(1, tiles.TILE_ELEMENTS // max(1, width))
    bounds = ptr.tolist()
    for group, (start, end) in enumerate(pairwise(bounds)):
        for first in range(start, end, step):
            yield group, slice(first, min(first + step, end))
