"""Attention along the entries of a sparse matrix: scores, softmax and sum in one primitive."""

from __future__ import annotations

from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from .absent_pairs import are_finite
from .attend_entries import fused
from .csr import CSR
from .operands import agreeing, check_order, one_value_an_entry, scale_of
from .pairs_by_edges import over_pairs


@typed
def attend(
    csr: CSR,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention in which row r attends to the columns of its entries.

    ``score[e, h] = scale <query[row of e, h, :], key[col of e, h, :]> + bias[e, h]``,
    ``out[r, h, :] = sum_{e in row r} softmax_r(score)[e, h] value[col of e, h, :]``
    (Vaswani et al., *Attention Is All You Need*, equation 1, on a sparse support). No tensor of
    entries × channels is held; differentiable in all tensors any number of times.

    Args:
        csr: the places of the E entries of the R × C support.
        query: (R, H, D).
        key: (C, H, D).
        value: (C, H, V).
        bias: (E, H) or (E,), added to the scores, in row order; -inf excludes an entry.
        scale: the factor of scores; 1/√D if None.

    Returns:
        (R, H, V); zeros for rows without entries, or whose entries are all excluded.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: the operands have different dtypes.
    """
    check_order("attend", csr)
    operands = agreeing("attend", csr.ptr, query, key, value, bias)
    query, key, value, bias = operands  # type: ignore[assignment]
    rows, cols = csr.shape
    fits = (
        query.dim() == key.dim() == value.dim() == 3
        and query.shape[1:] == key.shape[1:]
        and (query.size(0), key.size(0)) == (rows, cols)
        and key.shape[:2] == value.shape[:2]
    )
    if not fits:
        raise RefusedValue(
            "attend needs queries for rows, keys and values for columns",
            f"({rows}, H, D), ({cols}, H, D) and ({cols}, H, V)",
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
        )
    if bias is not None:
        bias = one_value_an_entry("attend", bias, csr.num_entries)
        if bias.size(1) not in (1, query.size(1)):
            raise RefusedValue("attend needs a bias for each head", query.size(1), bias.size(1))
        bias = bias.expand(-1, query.size(1))
    scale = scale_of(query, scale)
    if bias is None or are_finite(bias):
        return fused(csr, query, key, value, bias, scale)

    def product(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return fused(csr, q, k, v, b, scale)

    return over_pairs(product, csr, query, key, value, bias, None, scale, 0.0)
