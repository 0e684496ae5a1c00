"""Selection and concatenation of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import RefusedIndex
from ...kernels.primitive import is_plain
from ..sparse_features import SparseFeatures, dense_of, features_of
from ..sparse_patterns import picked_rows, sliced_rows, stacked_columns, stacked_rows
from .products import alias, transpose
from .storage import fill
from .table import rule_for

_TORCH = torch._C._VariableFunctions  # PyG puts functions of its own in place of some of these


@rule_for(Tensor.__getitem__)
def getitem(x: Any, item: Any) -> Any:
    """x[rows], x[rows, columns]; a single row is a dense vector."""
    if not isinstance(x, SparseFeatures):
        return NotImplemented
    parts = _two(item)
    if parts is None:
        return NotImplemented
    rows, columns = parts
    out = _select(x, rows)
    everything = isinstance(columns, slice) and columns == slice(None)
    if out is NotImplemented or everything:
        return out
    if not isinstance(out, SparseFeatures):
        return out[columns]
    picked = _select(transpose(out), columns)
    return transpose(picked) if isinstance(picked, SparseFeatures) else picked


def _two(item: Any) -> tuple[Any, Any] | None:
    """What selects rows and columns, one after the other; None where they are not independent."""
    parts = list(item) if isinstance(item, tuple) else [item]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or any(part is None or isinstance(part, bool) for part in parts):
        return None
    for place in dots:
        parts[place : place + 1] = [slice(None)] * (3 - len(parts))
    parts += [slice(None)] * (2 - len(parts))
    if len(parts) != 2 or not any(isinstance(part, slice) for part in parts):
        return None
    lists = [part for part in parts if not isinstance(part, slice | int | np.integer)]
    sizes = [part.dim() if isinstance(part, Tensor) else np.ndim(part) for part in lists]
    return (parts[0], parts[1]) if all(size < 2 for size in sizes) else None


def _select(x: SparseFeatures, rows: Any) -> Any:
    """The rows of a slice, an integer, integers or booleans; NotImplemented for anything else."""
    count = x.sparsity.shape[0]
    if isinstance(rows, slice):
        start, stop, step = rows.indices(count)
        if step != 1:
            return pick(x, torch.arange(count, device=x.value.device)[rows])
        return _slice(x, start, max(start, stop))
    if isinstance(rows, int | np.integer):
        return _row(x, int(rows))
    if isinstance(rows, list | np.ndarray | range):
        rows = torch.as_tensor(np.asarray(rows, dtype=np.int64 if not len(rows) else None))
    if not isinstance(rows, Tensor) or isinstance(rows, SparseFeatures):
        return NotImplemented
    if rows.dtype in (torch.bool, torch.uint8):
        if rows.shape != (count,):
            rule = "a mask of rows has a boolean for each"
            raise RefusedIndex(rule, f"shape ({count},)", tuple(rows.shape))
        return pick(x, rows.nonzero().squeeze(1)) if is_plain(rows) else NotImplemented
    if rows.is_floating_point() or rows.dim() > 1 or not is_plain(rows):
        return NotImplemented
    if rows.dim() == 0:
        return _row(x, int(rows))
    rows = rows.to(x.value.device).long()
    return pick(x, torch.where(rows < 0, rows + count, rows))


def pick(x: SparseFeatures, index: Tensor) -> Any:
    """The rows ``index``, a copy as in a dense tensor."""
    if not is_plain(x.sparsity.rowptr, index) or index.is_meta:
        return NotImplemented
    pattern, entry = picked_rows(x.sparsity, index.to(x.value.device))
    return features_of(type(x.matrix)(pattern, x.value.index_select(0, entry)))


def _slice(x: SparseFeatures, start: int, stop: int) -> Any:
    """The rows from ``start`` to ``stop``; as in a dense tensor a view, with the same values."""
    if not is_plain(x.sparsity.rowptr):
        return NotImplemented
    pattern, entries = sliced_rows(x.sparsity, start, stop)
    return features_of(type(x.matrix)(pattern, x.value[entries]), is_copy=x.is_copy)


def _row(x: SparseFeatures, row: int) -> Any:
    """One row, a dense vector (P,)."""
    count = x.sparsity.shape[0]
    if not -count <= row < count:
        raise RefusedIndex("a row of sparse features lies in range", f"[-{count}, {count})", row)
    row %= count
    part = _slice(x, row, row + 1)
    return part if part is NotImplemented else dense_of(part)[0]


@rule_for(torch.index_select, _TORCH.index_select, Tensor.index_select)
def index_select(input: Any, dim: int, index: Tensor, *, out: Any = None) -> Any:
    """Rows or columns by their numbers."""
    if not isinstance(input, SparseFeatures) or index.dim() > 1 or not -2 <= dim < 2:
        return NotImplemented
    if out is not None and not isinstance(out, SparseFeatures):
        return NotImplemented
    index = index.reshape(-1)
    found = pick(input if dim % 2 == 0 else transpose(input), index)
    if found is NotImplemented or dim % 2 == 0:
        return found if out is None or found is NotImplemented else fill(out, found)
    found = features_of(transpose(found).matrix)
    return found if out is None else fill(out, found)


@rule_for(torch.narrow, Tensor.narrow)
def narrow(input: SparseFeatures, dim: int, start: Any, length: int) -> Any:
    """Neighbouring rows or columns."""
    if not -2 <= dim < 2:
        return NotImplemented
    count = input.sparsity.shape[dim]
    start = int(start) + (count if int(start) < 0 else 0)
    if not 0 <= start <= start + length <= count:
        rule = "what is narrowed to lies in range"
        raise RefusedIndex(rule, f"within [0, {count})", f"{length} from {start}")
    if dim % 2 == 0:
        return _slice(input, start, start + length)
    found = _slice(transpose(input), start, start + length)
    return found if found is NotImplemented else transpose(found)


@rule_for(torch.select, _TORCH.select, Tensor.select)
def select(input: SparseFeatures, dim: int, index: int) -> Any:
    """One row or column, a dense vector."""
    if not -2 <= dim < 2:
        return NotImplemented
    return _row(input if dim % 2 == 0 else transpose(input), int(index))


@rule_for(torch.split, Tensor.split, torch.split_with_sizes, Tensor.split_with_sizes)
def split(tensor: Any, split_size_or_sections: Any = None, dim: int = 0, **kwargs: Any) -> Any:
    """Parts of so many rows or columns, or of these numbers of them."""
    sizes = kwargs.get("split_size", kwargs.get("split_sizes", split_size_or_sections))
    if not -2 <= dim < 2:
        return NotImplemented
    count = tensor.sparsity.shape[dim]
    if isinstance(sizes, int):
        if sizes <= 0:
            return NotImplemented
        sizes = [min(sizes, count - first) for first in range(0, max(count, 1), sizes)]
    if sum(sizes) != count:
        return NotImplemented
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [narrow(tensor, dim, first, n) for first, n in zip(ends, sizes, strict=False)]
    return NotImplemented if any(part is NotImplemented for part in parts) else tuple(parts)


@rule_for(torch.squeeze, Tensor.squeeze)
def squeeze(input: SparseFeatures, *dims: Any, **kwargs: Any) -> Any:
    """The features themselves where neither size is 1."""
    return NotImplemented if 1 in input.sparsity.shape else alias(input)


# Concatenation -----------------------------------------------------------------------------------


@rule_for(torch.cat, torch.concat, torch.concatenate)
def cat(tensors: Sequence[Any], dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
    """Sparse features below or beside each other; among dense matrices the result is dense."""
    parts = list(tensors)
    if out is not None and isinstance(out, SparseFeatures):  # allocated like the first of them
        parts = [SparseFeatures.of(part) for part in parts]
    dim = kwargs.get("axis", dim)
    if not all(isinstance(part, SparseFeatures) for part in parts) or not -2 <= dim < 2:
        return NotImplemented
    if out is not None and not isinstance(out, SparseFeatures):
        return NotImplemented
    across = 1 - dim % 2
    if len({part.sparsity.shape[across] for part in parts}) > 1:
        return NotImplemented  # torch says what is wrong
    if not is_plain(*[part.sparsity.rowptr for part in parts]):
        return NotImplemented
    value = torch.cat([part.value for part in parts])
    patterns = [part.sparsity for part in parts]
    if across == 1:
        pattern = stacked_rows(patterns)
    else:
        pattern, entry = stacked_columns(patterns)
        value = value.index_select(0, entry)
    found = features_of(type(parts[0].matrix)(pattern, value))
    return found if out is None else fill(out, found)


@rule_for(torch.vstack, torch.row_stack)
def vstack(tensors: Sequence[Any], *, out: Any = None) -> Any:
    """Sparse features below each other."""
    return cat(tensors, 0, out=out)


@rule_for(torch.hstack)
def hstack(tensors: Sequence[Any], *, out: Any = None) -> Any:
    """Sparse features beside each other."""
    return cat(tensors, 1, out=out)
