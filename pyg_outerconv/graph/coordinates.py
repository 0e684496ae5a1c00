"""Coordinates: positions as they are given, checked, and as whole numbers for tables."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .checks import holds


def as_coordinates(position: Tensor, axes: int | None = None) -> Tensor:
    """Positions (n,) or (n, D) as (n, D), a view.

    Args:
        position: integers or floating point.
        axes: D, or None for any.

    Raises:
        TypeError: it is no tensor of numbers.
        ValueError: it has another shape.
    """
    if not isinstance(position, Tensor) or position.dtype == torch.bool or position.is_complex():
        got = getattr(position, "dtype", type(position).__name__)
        raise RefusedType(refusal("positions are numbers", "integers or floating point", got))
    columns = position.unsqueeze(1) if position.dim() == 1 else position
    if columns.dim() != 2 or axes not in (None, columns.size(1)) or columns.size(1) == 0:
        wanted = "(n,) or (n, D)" if axes is None else f"(n, {axes})" if axes > 1 else "(n,)"
        raise RefusedValue(
            refusal("positions have a number on each axis", wanted, tuple(position.shape))
        )
    return columns


def as_whole(position: Tensor) -> Tensor:
    """Positions as int64, where they are whole numbers.

    Raises:
        ValueError: one is not.
    """
    if not position.is_floating_point():
        return position.long()
    whole = position.detach().round()
    if not torch.compiler.is_compiling() and not holds((whole == position.detach()).all()):
        away = (whole - position.detach()).abs().nan_to_num(1.0).argmax()
        raise RefusedValue(
            refusal(
                "tables have entries for whole numbers",
                "positions without fractions",
                float(position.detach().flatten()[away]),
            )
        )
    return whole.long()


def exact_type(*types: torch.dtype) -> torch.dtype:
    """The type to compute angles and distances in: the widest of some, and float32 at least."""
    widest = torch.float32
    for one in types:
        widest = torch.promote_types(widest, one)
    return widest
