"""Checks of the operands of primitives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from .csr import CSR


def agreeing(what: str, index: Tensor | None, *tensors: Tensor | None) -> list[Tensor | None]:
    """The operands, checked to be dense, of one dtype, on one device; autocast converts dtypes.

    ``index``: indices, on whose device the operands must be, or None.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    first = present[0]
    device, dtype = first.device if index is None else index.device, first.dtype
    # Dynamo refuses sparse tensors itself, and to ask for a layout in a backward pass.
    same, asks = True, not torch.compiler.is_dynamo_compiling()
    for tensor in present:
        if tensor.device != device:
            raise RefusedValue(f"{what} needs operands on one device", device, tensor.device)
        if asks and tensor.layout is not torch.strided:
            raise RefusedType(f"{what} needs dense operands", torch.strided, tensor.layout)
        same = same and tensor.dtype == dtype
    if same:
        return list(tensors)
    if torch.is_autocast_enabled(device.type):
        short = torch.get_autocast_dtype(device.type)
        return [None if tensor is None else tensor.to(short) for tensor in tensors]
    other = next(tensor.dtype for tensor in present if tensor.dtype != dtype)
    raise RefusedType(f"{what} needs operands of one dtype", dtype, other)


def check_order(what: str, csr: CSR) -> None:
    """Refuse a transpose, the values of whose entries are in another order."""
    if csr.order is not None:
        rule = f"{what} returns a value for each entry, by row, and takes no transpose"
        raise RefusedValue(rule, "CSR(ptr, index, num_columns)", "its T")


def one_value_an_entry(what: str, value: Tensor, num_entries: int) -> Tensor:
    """``value`` (E,) or (E, H), as (E, H)."""
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
    """Queries, keys and values of one dtype, and the mask of sources, (M, H) or (M, 1), or None."""
    query, key, value = agreeing(what, source_mask, query, key, value)  # type: ignore[assignment]
    if not query.is_floating_point():
        rule = f"{what} computes with floating point numbers"
        raise RefusedType(rule, "torch.float32", query.dtype)
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
    return query, key, value, mask


def probability(dropout_p: float) -> float:
    """``dropout_p`` as a float."""
    if not 0.0 <= dropout_p <= 1.0:
        raise RefusedValue("dropout_p is a probability", "0 to 1", dropout_p)
    return float(dropout_p)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale of scores, 1/√D if ``scale`` is None."""
    return 1.0 / math.sqrt(max(query.size(2), 1)) if scale is None else float(scale)
