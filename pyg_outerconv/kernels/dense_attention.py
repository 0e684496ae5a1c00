"""Attention of all sources, or of a band of them, without a sparse matrix."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue, refusal
from .attention_operands import checked, lowered, probability, scale_of
from .band import BandLimits
from .band_attention import Options
from .band_function import banded

_SMALL = 1 << 17  # pairs of a mask that stays in a cache


def attend_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    source_mask: Tensor | None = None,
    causal: int | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention of every target to every source (Vaswani et al., equation 1).

    Equal to :func:`attend` on all N × M entries; lowered to
    ``torch.nn.functional.scaled_dot_product_attention``. Its fused kernels hold nothing of the
    size N × M. Second derivatives hold N × M × H, and so does torch with dropout, or with a
    bias that is learned.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        bias: (N, M, H) added to the scores; -inf takes an entry out.
        source_mask: (M,) or (M, H) booleans, the sources that can be seen.
        causal: target n sees source m where m <= n + causal: 0 with itself, -1 strictly before
            itself; None is no limit.
        scale: 1/√D if None.
        dropout_p: the probability with which a share is zeroed; others grow by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets that see nothing.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands are of different types.
    """
    query, key, value, source_mask = checked("attend_all", query, key, value, source_mask)
    (rows, heads, _), cols = query.shape, key.size(0)
    if bias is not None and bias.shape != (rows, cols, heads):
        raise RefusedValue(
            refusal(
                "attend_all needs a bias for each pair and head",
                (rows, cols, heads),
                tuple(bias.shape),
            )
        )
    dropout_p, scale = probability(dropout_p), scale_of(query, scale)
    if causal is not None and causal >= cols - 1:
        causal = None
    if 0 in (rows, cols, heads, value.size(2)) or (causal is not None and causal <= -rows):
        return _zeros(query, key, value, bias)
    if causal is not None and causal < 0:
        rest = None if bias is None else bias[-causal:]
        seeing = attend_all(
            query[-causal:],
            key,
            value,
            rest,
            source_mask=source_mask,
            causal=0,
            scale=scale,
            dropout_p=dropout_p,
        )
        return F.pad(seeing, (0, 0, 0, 0, -causal, 0))
    if source_mask is not None and bias is None and causal is not None:
        # A mask of all pairs would be held otherwise.
        band = BandLimits(rows + cols, causal, 0, 1)
        return banded(query, key, value, source_mask, band, _options(scale, dropout_p))
    mask = None if bias is None else bias.to(query.dtype).permute(2, 0, 1)
    if source_mask is not None:
        # What nothing sees may be anything, NaN too.
        key, value = (x.masked_fill(~source_mask.unsqueeze(-1), 0.0) for x in (key, value))
        hidden = ~source_mask.t().unsqueeze(1)
        mask = _hide(mask, hidden, query)
    if causal is None or (mask is None and causal == 0):
        return _lowered(query, key, value, mask, causal is not None, scale, dropout_p)
    if mask is None and causal <= rows:
        # torch's mask begins at the first query: so many more of them before it.
        padded = F.pad(query, (0, 0, 0, 0, causal, 0))
        return _lowered(padded, key, value, None, True, scale, dropout_p)[causal:]
    place = torch.arange(max(rows, cols), device=query.device)
    later = place[:cols] > place[:rows].unsqueeze(-1) + causal
    mask = _hide(mask, later.unsqueeze(0), query)
    return _lowered(query, key, value, mask, False, scale, dropout_p)


def attend_band(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    left: int | None,
    right: int | None,
    offset: int = 0,
    dilation: int = 1,
    source_mask: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention within a window: target n sees ``n + offset + dilation j``.

    For every whole j with ``-left <= j <= right`` where there is such a source (Beltagy et al.,
    *Longformer*, section 3.1: sliding and dilated windows). Equal to :func:`attend` on these
    entries. Work is N × (left + right) × channels; nothing of the size of the entries is held, but
    in second derivatives. Without limits it is :func:`attend_all`.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        left: how far back, in steps of ``dilation``; None is to the first source.
        right: how far ahead; None is to the last source.
        offset: where the window of the first target is.
        dilation: the distance of neighbouring places of a window.
        source_mask: (M,) or (M, H) booleans, the sources that can be seen.
        scale: 1/√D if None.
        dropout_p: the probability with which a share is zeroed; others grow by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets that see nothing.

    Raises:
        ValueError: the shapes do not fit, or the dilation is below 1.
        TypeError: the operands are of different types.
    """
    query, key, value, source_mask = checked("attend_band", query, key, value, source_mask)
    if dilation < 1:
        raise RefusedValue(refusal("the dilation of attend_band", "1 or more", dilation))
    dropout_p, scale = probability(dropout_p), scale_of(query, scale)
    rows, cols = query.size(0), key.size(0)
    # Limits beyond the ends are none.
    if dilation == 1 and left is not None and left >= rows - 1 + offset:
        left = None
    if dilation == 1 and right is not None and right >= cols - 1 - offset:
        right = None
    if dilation == 1 and left is None and (right is None or source_mask is None):
        causal = None if right is None else offset + right
        return attend_all(
            query,
            key,
            value,
            source_mask=source_mask,
            causal=causal,
            scale=scale,
            dropout_p=dropout_p,
        )
    if dilation == 1 and left is not None and right is None and source_mask is None:
        # The same from the end to the beginning.
        turned = (x.flip(0) for x in (query, key, value))
        causal = cols - rows - offset + left
        return attend_all(*turned, causal=causal, scale=scale, dropout_p=dropout_p).flip(0)
    far = rows + cols + abs(offset)
    band = BandLimits(
        far if left is None else left, far if right is None else right, offset, dilation
    )
    if 0 in (rows, cols, query.size(1), value.size(2)):
        return _zeros(query, key, value, None)
    if source_mask is None and is_small(rows, cols):
        mask = _hide(None, ~_within(band, rows, cols, query.device), query).unsqueeze(0)
        return _lowered(query, key, value, mask, False, scale, dropout_p)
    return banded(query, key, value, source_mask, band, _options(scale, dropout_p))


def is_small(rows: int, cols: int) -> bool:
    """Whether a band is one mask for all heads, not blocks of each: there would be few of them."""
    return rows * cols <= _SMALL


def _within(band: BandLimits, rows: int, cols: int, device: torch.device) -> Tensor:
    """(N, M) booleans: who sees whom."""
    place = torch.arange(max(rows, cols), device=device)
    away = place[:cols] - place[:rows].unsqueeze(-1) - band.offset
    first, last = -band.left * band.dilation, band.right * band.dilation
    return (away >= first) & (away <= last) & (away % band.dilation == 0)


def _lowered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """The same of (N, H, D), (M, H, D) and (M, H, V), with a mask (H or 1, N or 1, M)."""
    query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    mask = None if mask is None else mask.unsqueeze(0)
    out = lowered(query, key, value, mask, causal, scale, dropout_p)
    return out.squeeze(0).transpose(0, 1)


def _hide(mask: Tensor | None, hidden: Tensor, like: Tensor) -> Tensor:
    """A mask to be added, with -inf where something is hidden."""
    mask = like.new_zeros(()) if mask is None else mask
    return torch.where(hidden, -torch.inf, mask)


def _options(scale: float, dropout_p: float) -> Options:
    seed = int(torch.randint(2**62, ()).item()) if dropout_p > 0 else 0
    return Options(scale, dropout_p, seed)


def _zeros(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Where nothing is seen: zeros that still have gradients, of zeros."""
    nothing = query[:0].sum() + key[:0].sum() + value[:0].sum()
    nothing = nothing if bias is None else nothing + bias[:0].sum()
    return query.new_zeros((*query.shape[:2], value.size(2))) + nothing
