"""The root weight: the transformed features of each target, added to the convolution."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph import SparseMatrix
from ..theta import add_product
from .call import Call


def add_root(out: Tensor, call: Call, weight: Tensor, own: bool) -> Tensor:
    """Y + X_t W for features X_t of the targets; Y itself if these are missing in a pair.

    Args:
        out: Y (*batch, N, Q).
        call: the features; without any, target n adds row n of W, and indices pick rows.
        weight: W (P_t, Q).
        own: whether ``out`` may be changed in place.

    Raises:
        TypeError: the dtypes of target features and weight differ.
        ValueError: the weight does not fit the targets.
    """
    target, rows = call.target, weight.size(0)
    if target is None and not call.targets_featureless:
        return out
    if target is None:
        if out.size(-2) != rows:
            raise RefusedValue(
                "without features a root weight has a row for each target", rows, out.size(-2)
            )
        return out + weight
    if isinstance(target, Tensor) and not target.is_floating_point():
        if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < rows:
            raise RefusedValue(
                "indices of targets must be rows of the root weight",
                f"[0, {rows})",
                f"[{int(target.min())}, {int(target.max())}]",
            )
        return out + weight.index_select(0, target)
    if target.size(-1) != rows:
        raise RefusedValue(
            "targets must have a column for each of their channels", rows, target.size(-1)
        )
    if target.dtype != weight.dtype and not torch.is_autocast_enabled(target.device.type):
        raise RefusedType(
            "targets must have the type of the root weight", weight.dtype, target.dtype
        )
    if isinstance(target, SparseMatrix):
        return out + target.times(weight)
    return add_product(out, target, weight, own)
