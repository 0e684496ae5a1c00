"""What the cells of a grid must be like: shapes, and coordinates within them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal

KEY_LIMIT = 2**62  # of the numbers of cells, so that these fit into an integer


def is_count(value: Any) -> bool:
    """Whether it is meant as a number of cells; a switch is no number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape of a grid as integers; anything else is refused."""
    if (
        not isinstance(shape, tuple | list)
        or not shape
        or not all(is_count(count) and int(count) >= 0 for count in shape)
    ):
        raise RefusedValue(
            refusal("the shape of a grid has a number of cells for each axis", ">= 0 each", shape)
        )
    return tuple(int(count) for count in shape)


def check_unlisted(shape: tuple[int, ...] | None, batch: Tensor | None) -> None:
    """Refuse cells without a list that are not all cells of one grid."""
    if shape is None:
        raise RefusedValue(refusal("cells are listed, or all of a shape", "a shape", "neither"))
    if batch is not None:
        raise RefusedValue(
            refusal("a batch numbers the grids of listed cells", "an index", "a shape alone")
        )


def check_cell_index(index: Any, shape: tuple[int, ...] | None) -> Tensor:
    """The coordinates (n, D) of cells as int64; refused if they are none, or out of bounds."""
    if not isinstance(index, Tensor):
        got = type(index).__name__
        raise RefusedType(refusal("cells are at whole coordinates", "a tensor of integers", got))
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise RefusedType(refusal("cells are at whole coordinates", "torch.int64", index.dtype))
    if index.dim() != 2 or index.size(1) == 0:
        raise RefusedValue(
            refusal("cells have a coordinate on each axis", "shape (n, D)", tuple(index.shape))
        )
    if shape is not None and index.size(1) != len(shape):
        raise RefusedValue(
            refusal("cells have a coordinate on each axis of the shape", len(shape), index.size(1))
        )
    index = index.long()
    if shape is None and index.numel():
        for end in (int(index.min()), int(index.max())):
            if abs(end) >= KEY_LIMIT // 2:
                raise RefusedValue(
                    refusal("cells are where integers reach", f"within {KEY_LIMIT // 2}", end)
                )
    if shape is not None and index.numel():
        bounds = torch.tensor(shape, device=index.device)
        wrong = ((index < 0) | (index >= bounds)).any(1).nonzero()
        if len(wrong):
            at = tuple(index[int(wrong[0])].tolist())
            raise RefusedValue(refusal("every cell lies in the shape", f"below {shape}", at))
    return index
