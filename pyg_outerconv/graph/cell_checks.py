"""Checks of the shape of a grid and of the coordinates of its cells."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal

KEY_LIMIT = 2**62  # bound on cell numbers, so that they fit into int64


def is_count(value: Any) -> bool:
    """Whether a value is an integer; bool does not count as one."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape of a grid as a tuple of ints.

    Raises:
        ValueError: it is not a nonempty list of nonnegative integers.
    """
    if (
        not isinstance(shape, tuple | list)
        or not shape
        or not all(is_count(count) and int(count) >= 0 for count in shape)
    ):
        raise RefusedValue(
            refusal("a grid's shape lists the number of cells on each axis", ">= 0 each", shape)
        )
    return tuple(int(count) for count in shape)


def check_unlisted(shape: tuple[int, ...] | None, batch: Tensor | None) -> None:
    """Refuse cells without coordinates unless they are all cells of a shape, without a batch."""
    if shape is None:
        raise RefusedValue(refusal("cells need an index or a shape", "a shape", "neither"))
    if batch is not None:
        raise RefusedValue(refusal("batch needs listed cells", "an index", "a shape alone"))


def check_cell_index(index: Any, shape: tuple[int, ...] | None) -> Tensor:
    """The coordinates (n, D) of cells as int64.

    Raises:
        TypeError: they are not a tensor of integers.
        ValueError: the tensor has another shape, or a coordinate is out of bounds.
    """
    if not isinstance(index, Tensor):
        got = type(index).__name__
        raise RefusedType(refusal("coordinates of cells are integers", "a tensor of integers", got))
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise RefusedType(refusal("coordinates of cells are integers", "torch.int64", index.dtype))
    if index.dim() != 2 or index.size(1) == 0:
        raise RefusedValue(
            refusal("cells have one coordinate per axis", "shape (n, D)", tuple(index.shape))
        )
    if shape is not None and index.size(1) != len(shape):
        raise RefusedValue(
            refusal("cells have one coordinate per axis of the shape", len(shape), index.size(1))
        )
    index = index.long()
    if shape is None and index.numel():
        for end in (int(index.min()), int(index.max())):
            if abs(end) >= KEY_LIMIT // 2:
                raise RefusedValue(
                    refusal("coordinates of cells are bounded", f"within ±{KEY_LIMIT // 2}", end)
                )
    if shape is not None and index.numel():
        bounds = torch.tensor(shape, device=index.device)
        wrong = ((index < 0) | (index >= bounds)).any(1).nonzero()
        if len(wrong):
            at = tuple(index[int(wrong[0])].tolist())
            raise RefusedValue(refusal("every cell lies within the shape", f"below {shape}", at))
    return index
