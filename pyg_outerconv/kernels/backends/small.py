"""The backend for few entries, which may be in any order: scipy's product in coordinates."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..backend import Backend
from ..edge_lists import scipy_tools
from ..tiles import rows_of

TILE = 2**18
"""Numbers of messages that the gradient of values holds at a time; they fit into a cache."""


class Small(Backend):
    """Sums of a sparse matrix in coordinates, entry by entry in one thread, without messages.

    Sums over few edges take it where these are not sorted (:mod:`~pyg_outerconv.kernels.edge_sums`
    says how few). Sorted rows are served by backends of higher priority, unless it is asked for by
    name. 16-bit dtypes would be rounded at every step.
    """

    name = "small"
    priority = 1
    devices = frozenset({"cpu"})
    dtypes = frozenset({torch.float32, torch.float64})
    primitives = frozenset({"spmm", "sddmm"})
    reductions = frozenset({"sum"})
    deterministic = devices
    tolerance = 1e-5

    def missing(self) -> list[str]:
        if coo_product() is None:
            return ["this version of scipy has no coo_matmat_dense"]
        return []

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        ends, num_rows = torch.stack([index, rows_of(ptr).to(index.dtype)]), ptr.numel() - 1
        heads = x.size(1) if value is None else value.size(1)
        out = x.new_empty((num_rows, heads, x.size(2)))
        for head in range(heads):
            of_head = None if value is None else value[:, head]
            sent = x[:, head if x.size(1) > 1 else 0]
            out[:, head] = listed_product(ends, of_head, sent, num_rows)
        return out

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        rows = rows_of(ptr)
        return value.new_zeros((ptr.numel() - 1, value.size(1))).index_add_(0, rows, value)

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        rows, heads = rows_of(ptr), max(a.size(1), b.size(1))
        out = a.new_empty((index.numel(), heads))
        for head in range(heads):
            of_row, of_column = (x[:, head if x.size(1) > 1 else 0] for x in (a, b))
            out[:, head] = listed_dots(of_row, of_column, rows, index)
        return out


def listed_product(
    ends: Tensor, value: Tensor | None, x: Tensor, num_rows: int, transposed: bool = False
) -> Tensor:
    """:func:`~pyg_outerconv.kernels.edge_sums.edge_sums`, without derivatives."""
    source, target = ends.numpy()
    if transposed:
        source, target = target, source
    dense = x.detach().contiguous().numpy()
    count, channels = source.size, dense.shape[1]
    out = np.zeros((num_rows, channels), dense.dtype)
    data = np.ones(count, dense.dtype) if value is None else value.detach().contiguous().numpy()
    coo_product()(count, channels, target, source, data, dense.reshape(-1), out.reshape(-1))
    if value is not None and np.count_nonzero(data) != count:
        _add_zeros(target, source, data, dense, out)
    return torch.from_numpy(out)


def listed_sums(values: Any, row: Any, count: int) -> Any:
    """The sums (R, *) of the arrays (E, *) that have each row, given the row (E,) of each."""
    out = np.zeros((count, *values.shape[1:]), values.dtype)
    add_rows(out, row, values)
    return out


def add_rows(out: Any, row: Any, values: Any) -> None:
    """Add contiguous arrays (E, *) to ``out`` (R, *) in place, given the row (E,) of each."""
    if coo_product() is None:
        np.add.at(out, row, values)
        return
    entries = row, np.arange(row.size, dtype=row.dtype), np.ones(row.size, values.dtype)
    width = math.prod(values.shape[1:])
    coo_product()(row.size, width, *entries, values.reshape(-1), out.reshape(-1))


def listed_dots(x: Tensor, y: Tensor, at_x: Tensor, at_y: Tensor) -> Tensor:
    """⟨x[at_x[e]], y[at_y[e]]⟩ for each edge, (E,), in tiles that fit into a cache."""
    count, step = at_x.numel(), max(1, TILE // max(1, x.size(1)))
    parts = [
        (x.index_select(0, at_x[i : i + step]) * y.index_select(0, at_y[i : i + step])).sum(-1)
        for i in range(0, max(1, count), step)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _add_zeros(target: Any, source: Any, data: Any, dense: Any, out: Any) -> None:
    """Add 0 times NaN or infinity, which is NaN: scipy's product leaves entries of 0 out."""
    wild = ~np.isfinite(dense).all(1)
    lost = np.flatnonzero((data == 0) & wild[source])
    with np.errstate(invalid="ignore"):
        np.add.at(out, target[lost], 0.0 * dense[source[lost]])


@cache
def coo_product() -> Any:
    """scipy's product of a matrix in coordinates with a dense one; None if it is missing."""
    return getattr(scipy_tools(), "coo_matmat_dense", None)
