"""Products of groups of rows: by one kernel of torch where it has one, else group by group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import tiles
from ..tiles import accumulator, num_products_of
from .native_csr import row_sums

# Of torch 2.10 and later.
_of_all_groups: Any = getattr(F, "grouped_mm", None)

GROUPS = 1023
"""The most groups that torch's kernel takes."""


def is_one_kernel(x: Tensor, number: int, theta_size: torch.Size) -> bool:
    """Whether torch multiplies all groups by one kernel, which reads where they begin on a GPU.

    It does in bfloat16 on an H100 or a B200 (compute capability 9 or 10), if rows begin at
    multiples of 16 bytes. Else it would read the pointers, and multiply group by group, as we do.
    """
    groups, inputs, outputs = theta_size
    return (
        x.is_cuda
        and x.dtype == torch.bfloat16
        and _of_all_groups is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(x.device)[0] in (9, 10)
        and inputs % 8 == outputs % 8 == 0 < min(inputs, outputs)
        and 0 < groups <= GROUPS
        and 0 < number < 2**31
    )


def grouped_matmul(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int,
) -> Tensor:
    """Multiply the rows of each group with its matrix, (num_rows, Q)."""
    if is_one_kernel(x, num_products_of(x, gather, scatter), theta.shape):
        return _by_one_kernel(x, ptr, theta, gather, scatter, num_rows)
    if scatter is None:
        out = x.new_empty((num_rows, theta.size(2)))
    else:  # Rows of several groups are added up, in the accumulating dtype.
        out = x.new_zeros((num_rows, theta.size(2)), dtype=accumulator(x.dtype))
    for group, tile in _tiles(ptr, theta.size(1) + theta.size(2)):
        rows = x[tile] if gather is None else x.index_select(0, gather[tile])
        if scatter is None:
            torch.mm(rows, theta[group], out=out[tile])
        else:
            product = torch.mm(rows, theta[group]).to(out.dtype)
            out.index_add_(0, scatter[tile].long(), product)
    return out.to(x.dtype)


def _by_one_kernel(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int,
) -> Tensor:
    """:func:`grouped_matmul` without a look at the pointers."""
    rows = x if gather is None else x.index_select(0, gather)
    products = _of_all_groups(_aligned(rows), _aligned(theta), offs=ptr[1:].int())
    if scatter is None:
        more = num_rows - rows.size(0)
        return F.pad(products, (0, 0, 0, more)) if more else products
    # Sorted, for torch adds at repeated positions with atomics, in any order.
    place, order = scatter.sort(stable=True)
    bounds = torch.arange(num_rows + 1, dtype=place.dtype, device=place.device)
    ordered = products.index_select(0, order).to(accumulator(x.dtype))
    return row_sums(torch.searchsorted(place, bounds), ordered).to(x.dtype)


def grouped_outer(
    x: Tensor, ptr: Tensor, y: Tensor, gather: Tensor | None, scatter: Tensor | None
) -> Tensor:
    """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
    size = torch.Size((ptr.numel() - 1, x.size(1), y.size(1)))
    if is_one_kernel(x, num_products_of(x, gather, scatter), size):
        left = x if gather is None else x.index_select(0, gather)
        right = y[: left.size(0)] if scatter is None else y.index_select(0, scatter)
        sums = _of_all_groups(_aligned(left).t(), _aligned(right), offs=ptr[1:].int())
        return sums.masked_fill_((ptr.diff() == 0).view(-1, 1, 1), 0.0)  # type: ignore[no-any-return]
    wide = accumulator(x.dtype)
    out = x.new_zeros(size, dtype=wide)
    for group, tile in _tiles(ptr, x.size(1) + y.size(1)):
        left = x[tile] if gather is None else x.index_select(0, gather[tile])
        right = y[tile] if scatter is None else y.index_select(0, scatter[tile])
        out[group].addmm_(left.t().to(wide), right.to(wide))
    return out.to(x.dtype)


def _aligned(x: Tensor) -> Tensor:
    """``x``, or a copy of it that begins at a multiple of 16 bytes."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _tiles(ptr: Tensor, width: int) -> Iterator[tuple[int, slice]]:
    """Split the rows of each group into tiles: the group, and the rows of the tile."""
    step = max(1, tiles.TILE_ELEMENTS // max(1, width))
    bounds = ptr.tolist()
    for group, (start, end) in enumerate(pairwise(bounds)):
        for first in range(start, end, step):
            yield group, slice(first, min(first + step, end))
