"""Attention to all sources, or to a band of them, without a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from .absent_pairs import can_look, is_transformed, over_all_pairs, over_all_pairs_below
from .band import BandLimits
from .band_attention import BandOptions, banded
from .index_checks import is_exporting
from .operands import agreeing, attention_operands, probability, scale_of
from .pairs_by_edges import by_edges, drawn_seed, is_recorded, mended, seeded, within
from .torch_attention import lowered

_SMALL = 1 << 17  # the most pairs in a mask that stays in a cache


@typed
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

    Equal to :func:`attend` on all N × M entries, computed by
    ``torch.nn.functional.scaled_dot_product_attention``. Its fused kernels hold no tensor of N × M.
    Second derivatives hold tensors of N × M × H, and so does torch with dropout, or with a bias
    that requires gradients.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        bias: (N, M, H), added to the scores; -inf excludes a pair.
        source_mask: (M,) or (M, H) booleans, true for the sources that may be attended to.
        causal: target n attends to source m if m <= n + causal: 0 includes m = n, -1 does not; None
            for no limit.
        scale: the factor of scores; 1/√D if None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets without sources.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the operands have different dtypes.
    """
    query, key, value, source_mask = attention_operands(
        "attend_all", query, key, value, source_mask
    )
    if bias is not None:
        agreeing("attend_all", query, bias)
    (rows, heads, _), cols = query.shape, key.size(0)
    if bias is not None and bias.shape != (rows, cols, heads):
        raise RefusedValue(
            "attend_all needs a bias for each pair and head", (rows, cols, heads), tuple(bias.shape)
        )
    given = source_mask, scale_of(query, scale), probability(dropout_p)
    band = BandLimits(rows + cols, cols if causal is None else causal, 0, 1)

    def product(q: Tensor, k: Tensor, v: Tensor, b: Tensor | None = None) -> Tensor:
        return _attend_all(q, k, v, b, causal, *given)

    return _watched(product, band, query, key, value, bias, *given)


def _attend_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    causal: int | None,
    source_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """:func:`attend_all` of finite operands."""
    (rows, heads, _), cols = query.shape, key.size(0)
    if causal is not None and causal >= cols - 1:
        causal = None
    if 0 in (rows, cols, heads, value.size(2)) or (causal is not None and causal <= -rows):
        return _zeros(query, key, value, bias)
    if causal is not None and causal < 0:
        rest, seeing = None if bias is None else bias[-causal:], query[-causal:]
        out = _attend_all(seeing, key, value, rest, 0, source_mask, scale, dropout_p)
        return F.pad(out, (0, 0, 0, 0, -causal, 0))
    if source_mask is not None and bias is None and causal is not None:
        # A band avoids a mask of all pairs.
        band = BandLimits(rows + cols, causal, 0, 1)
        return banded(query, key, value, source_mask, band, _options(scale, dropout_p))
    mask = None if bias is None else bias.to(query.dtype).permute(2, 0, 1)
    if source_mask is not None:
        mask = _hide(mask, ~source_mask.t().unsqueeze(1), query)
    if causal is None or (mask is None and causal == 0):
        return _lowered(query, key, value, mask, causal is not None, scale, dropout_p)
    if mask is None and causal <= rows:
        # torch's causal mask has no offset: put as many more queries before the first one.
        padded = F.pad(query, (0, 0, 0, 0, causal, 0))
        return _lowered(padded, key, value, None, True, scale, dropout_p)[causal:]
    place = torch.arange(max(rows, cols), device=query.device)
    later = place[:cols] > place[:rows].unsqueeze(-1) + causal
    mask = _hide(mask, later.unsqueeze(0), query)
    return _lowered(query, key, value, mask, False, scale, dropout_p)


@typed
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
    """Scaled dot-product attention within a sliding window.

    Target n attends to the sources ``n + offset + dilation j`` that exist, for integers j with
    ``-left <= j <= right`` (Beltagy et al., *Longformer*, section 3.1: sliding and dilated
    windows). Equal to :func:`attend` on these entries. The work is N × (left + right) × channels;
    only second derivatives hold tensors of the size of the entries. Without limits it is
    :func:`attend_all`.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        left: the number of steps backwards, in units of ``dilation``; None to the first source.
        right: the number of steps forwards; None to the last source.
        offset: the source at j = 0 of target 0.
        dilation: the distance of neighbouring sources of a window.
        source_mask: (M,) or (M, H) booleans, true for the sources that may be attended to.
        scale: the factor of scores; 1/√D if None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).

    Returns:
        (N, H, V); zeros for targets without sources.

    Raises:
        ValueError: the shapes do not fit, or the dilation is below 1.
        TypeError: the operands have different dtypes.
    """
    query, key, value, source_mask = attention_operands(
        "attend_band", query, key, value, source_mask
    )
    if dilation < 1:
        raise RefusedValue("the dilation of attend_band", "1 or more", dilation)
    given = source_mask, scale_of(query, scale), probability(dropout_p)
    (rows, *_), cols = query.shape, key.size(0)
    unlimited = rows + cols + abs(offset)
    limits = unlimited if left is None else left, unlimited if right is None else right
    band = BandLimits(*limits, offset, dilation)

    def product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _attend_band(q, k, v, band, *given)

    return _watched(product, band, query, key, value, None, *given)


def _attend_band(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    band: BandLimits,
    source_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """:func:`attend_band` of finite operands."""
    rows, cols, offset = query.size(0), key.size(0), band.offset
    # Limits beyond the first or the last source are no limits.
    first = band.dilation == 1 and band.left >= rows - 1 + offset
    last = band.dilation == 1 and band.right >= cols - 1 - offset
    given = source_mask, scale, dropout_p
    if first and (last or source_mask is None):
        causal = None if last else offset + band.right
        return _attend_all(query, key, value, None, causal, *given)
    if last and source_mask is None:
        # Reversed, it is causal.
        query, key, value = (x.flip(0) for x in (query, key, value))
        causal = cols - rows - offset + band.left
        return _attend_all(query, key, value, None, causal, *given).flip(0)
    if 0 in (rows, cols, query.size(1), value.size(2)):
        return _zeros(query, key, value, None)
    if source_mask is None and is_small(rows, cols):
        mask = _hide(None, ~within(band, rows, cols, query.device), query).unsqueeze(0)
        return _lowered(query, key, value, mask, False, scale, dropout_p)
    return banded(query, key, value, source_mask, band, _options(scale, dropout_p))


def _watched(
    product: Callable[..., Tensor],
    band: BandLimits,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    source_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """``product``, if its operands are finite or none could arrive elsewhere; else by edges.

    Args:
        product: attention, for queries, keys, values, and the bias if there is one.
        band: the pairs that may have an edge.
        query, key, value, bias, source_mask, scale, dropout_p: as in :func:`attend_all`.
    """
    if source_mask is not None:
        # Excluded sources may hold any numbers, including NaN.
        key, value = (x.masked_fill(~source_mask.unsqueeze(-1), 0.0) for x in (key, value))
    given = band, source_mask, scale, dropout_p
    if can_look(query, key, value, bias):
        return over_all_pairs(
            product,
            lambda q, k, v, b=None: by_edges(q, k, v, b, *given),
            query,
            key,
            value,
            bias=bias,
        )
    if is_transformed(query, key, value, bias):
        seed = drawn_seed() if dropout_p > 0 else None

        def of_item(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
            b = None if bias is None else rest[0]
            mask = None if source_mask is None else rest[-1]
            with seeded(seed):
                return by_edges(q, k, v, b, band, mask, scale, dropout_p)

        operands = query, key, value
        return over_all_pairs_below(product, of_item, *operands, bias=bias, mask=source_mask)
    if is_recorded():
        return mended(product, query, key, value, bias, *given)
    return product(*(x for x in (query, key, value, bias) if x is not None))


def is_small(rows: int, cols: int) -> bool:
    """Whether attention within a band uses one mask of all pairs, because blocks would be few."""
    return not is_exporting() and rows * cols <= _SMALL


def _lowered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """torch's attention of (N, H, D), (M, H, D) and (M, H, V), with a mask (H or 1, N or 1, M)."""
    query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    mask = None if mask is None else mask.unsqueeze(0)
    out = lowered(query, key, value, mask, causal, scale, dropout_p)
    return out.squeeze(0).transpose(0, 1)


def _hide(mask: Tensor | None, hidden: Tensor, like: Tensor) -> Tensor:
    """The mask to add to scores, -inf for hidden pairs."""
    mask = like.new_zeros(()) if mask is None else mask
    return torch.where(hidden, -torch.inf, mask)


def _options(scale: float, dropout_p: float) -> BandOptions:
    seed = int(torch.randint(2**62, ()).item()) if dropout_p > 0 else 0
    return BandOptions(scale, dropout_p, seed)


def _zeros(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Zeros (N, H, V), whose gradients are zeros, for targets without sources."""
    zero = query[:0].sum() + key[:0].sum() + value[:0].sum()
    zero = zero if bias is None else zero + bias[:0].sum()
    return query.new_zeros((*query.shape[:2], value.size(2))) + zero
