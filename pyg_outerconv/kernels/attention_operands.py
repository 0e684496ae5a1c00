"""Checks of the operands of attention without a sparse matrix, and its call of torch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .call import same_dtype
from .torch_attention import torch_attention


def checked(
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
            refusal(
                f"{what} needs queries of targets, and keys and values of sources",
                "(N, H, D), (M, H, D) and (M, H, V)",
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
            )
        )
    query, key, value = same_dtype(what, query, key, value)  # type: ignore[assignment]
    if source_mask is None:
        return query, key, value, None
    if source_mask.dtype != torch.bool:
        raise RefusedType(refusal(f"the source_mask of {what}", torch.bool, source_mask.dtype))
    mask = source_mask.unsqueeze(-1) if source_mask.dim() == 1 else source_mask
    if mask.dim() != 2 or mask.size(0) != key.size(0) or mask.size(1) not in (1, key.size(1)):
        raise RefusedValue(
            refusal(
                f"the source_mask of {what} needs a number for each source, or source and head",
                f"({key.size(0)},) or ({key.size(0)}, {key.size(1)})",
                tuple(source_mask.shape),
            )
        )
    return query, key, value, mask.expand(-1, key.size(1))


def probability(dropout_p: float) -> float:
    """``dropout_p`` as a float.

    Raises:
        ValueError: it is not from 0 to 1.
    """
    if not 0.0 <= dropout_p <= 1.0:
        raise RefusedValue(refusal("dropout_p is a probability", "0 to 1", dropout_p))
    return float(dropout_p)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale of scores, 1/√D if ``scale`` is None."""
    return 1.0 / math.sqrt(max(query.size(2), 1)) if scale is None else float(scale)


def lowered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """torch's attention, (..., H, N, V), for (..., H, N, D), (..., H, M, D) and (..., H, M, V).

    ``mask`` is added to the scores; targets whose row of it is -inf get zeros.
    """
    channels = value.size(-1)
    width = max(query.size(-1), channels)
    # Fused kernels require equally many channels.
    query, key, value = (
        x if x.size(-1) == width else F.pad(x, (0, width - x.size(-1))) for x in (query, key, value)
    )
    empty = None
    if mask is not None:
        empty = (mask == -torch.inf).all(-1, keepdim=True)
        mask = mask.masked_fill(empty, 0.0)
    out = torch_attention(query, key, value, mask, causal, scale, dropout_p)
    out = out if empty is None else out.masked_fill(empty, 0.0)
    return out[..., :channels]
