"""Checks of the operands of primitives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue


def same_dtype(what: str, *tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors, checked to have one dtype; autocast converts tensors of different dtypes.

    Raises:
        TypeError: the dtypes differ.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    first = present[0]
    if torch.is_autocast_enabled(first.device.type):
        short = torch.get_autocast_dtype(first.device.type)
        if any(tensor.dtype != first.dtype for tensor in present):
            return [None if tensor is None else tensor.to(short) for tensor in tensors]
    for tensor in present:
        if tensor.dtype != first.dtype:
            raise RefusedType(f"{what} needs operands of one dtype", first.dtype, tensor.dtype)
    return list(tensors)


def one_value_an_entry(what: str, value: Tensor, num_entries: int) -> Tensor:
    """``value`` (E,) or (E, H), as (E, H).

    Raises:
        ValueError: ``value`` has another shape.
    """
    if value.dim() not in (1, 2) or value.size(0) != num_entries:
        raise RefusedValue(
            f"{what} needs a value for each entry, or for each entry and head",
            f"({num_entries},) or ({num_entries}, H)",
            tuple(value.shape),
        )
    return value.unsqueeze(-1) if value.dim() == 1 else value


def attention_operands(
    what: str, query: Tensor, key: Tensor, value: Tensor, source_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys and values of one dtype, and the mask of sources as (M, H) or None.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands have different dtypes, or the mask is not boolean.
    """
    fits = (
        query.dim() == key.dim() == value.dim() == 3
        and query.shape[1:] == key.shape[1:]
        and key.shape[:2] == value.shape[:2]
    )
    if not fits:
        raise RefusedValue(
            f"{what} needs queries of targets, and keys and values of sources",
            "(N, H, D), (M, H, D) and (M, H, V)",
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
        )
    query, key, value = same_dtype(what, query, key, value)  # type: ignore[assignment]
    if source_mask is None:
        return query, key, value, None
    if source_mask.dtype != torch.bool:
        raise RefusedType(f"the source_mask of {what}", torch.bool, source_mask.dtype)
    mask = source_mask.unsqueeze(-1) if source_mask.dim() == 1 else source_mask
    if mask.dim() != 2 or mask.size(0) != key.size(0) or mask.size(1) not in (1, key.size(1)):
        raise RefusedValue(
            f"the source_mask of {what} needs a number for each source, or source and head",
            f"({key.size(0)},) or ({key.size(0)}, {key.size(1)})",
            tuple(source_mask.shape),
        )
    return query, key, value, mask.expand(-1, key.size(1))


def probability(dropout_p: float) -> float:
    """``dropout_p`` as a float.

    Raises:
        ValueError: it is not from 0 to 1.
    """
    if not 0.0 <= dropout_p <= 1.0:
        raise RefusedValue("dropout_p is a probability", "0 to 1", dropout_p)
    return float(dropout_p)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale of scores, 1/√D if ``scale`` is None."""
    return 1.0 / math.sqrt(max(query.size(2), 1)) if scale is None else float(scale)
