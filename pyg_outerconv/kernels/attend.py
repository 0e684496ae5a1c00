"""Attention along the entries of a sparse matrix: scores, softmax and sum in one primitive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from .absent_pairs import are_finite, can_look, over_all_pairs
from .backend import Backend, Request
from .dispatch import pick, request_of
from .operands import agreeing, one_value_an_entry, scale_of
from .primitive import Primitive, is_differentiated, operator
from .products import product, sample
from .softmax import softmax_derivative, softmax_of_rows
from .sparsity import Sparsity, View, known_rows
from .tiles import exact


def _request(*arguments: Any) -> Request:
    ptr, index, *_, query, key, _value, _bias, _scale = arguments
    return request_of("attend", ptr, index, key.size(0), query)


_attend = operator(Backend.attend, _request)
_attend_backward = operator(Backend.attend_backward, lambda *given: _request(*given[:-3]))


@typed
def attend(
    sparsity: Sparsity,
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
        sparsity: the places of the E entries of the R × C support.
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
    operands = agreeing("attend", sparsity.rowptr, query, key, value, bias)
    query, key, value, bias = operands  # type: ignore[assignment]
    rows, cols = sparsity.shape
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
        bias = one_value_an_entry("attend", bias, sparsity.num_entries)
        if bias.size(1) not in (1, query.size(1)):
            raise RefusedValue("attend needs a bias for each head", query.size(1), bias.size(1))
        bias = bias.expand(-1, query.size(1))
    scale = scale_of(query, scale)
    if bias is None or not can_look(query, key, value, bias) or are_finite(bias):
        return _fused(sparsity, query, key, value, bias, scale)
    return over_all_pairs(
        lambda q, k, v, b: _fused(sparsity, q, k, v, b, scale),
        lambda q, k, v, b: attend_kept(sparsity, q, k, v, b, scale),
        query,
        key,
        value,
        bias=bias,
    )


def _fused(
    sparsity: Sparsity,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
) -> Tensor:
    view = View(sparsity)
    backend = pick("attend", view, query)
    return _Attend.apply(query, key, value, bias, view, scale, backend)[0]  # type: ignore[no-any-return]


def attend_kept(
    sparsity: Sparsity,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`attend` for numbers that are not finite: entries whose bias is -inf are left out.

    Args:
        sparsity, query, key, value, scale: as in :func:`attend`.
        bias: (E, H) or None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
    """
    outs = [
        _with_dropout(entries, query[:, one], key[:, one], value[:, one], own, scale, dropout_p)
        for one, entries, own, _ in _kept(sparsity, bias)
    ]
    return torch.cat(outs, 1)


def attend_kept_gradients(
    sparsity: Sparsity,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
    grad: Tensor,
) -> list[Tensor]:
    """The gradients of :func:`attend_kept` in query, key, value and bias, zeros without a bias."""
    found = [torch.zeros_like(x) for x in (query, key, value)]
    of_bias = query.new_zeros((sparsity.num_entries, query.size(1)))
    for one, entries, own, place in _kept(sparsity, bias):
        view, (q, k, v) = View(entries), (x[:, one] for x in (query, key, value))
        backend = pick("attend", view, q)
        parts = _unfused(view, q, k, v, own, scale, grad[:, one], backend, dropout_p)
        for whole, part in zip(found, parts, strict=False):
            whole[:, one] = part
        of_bias[place, one] = parts[3]
    return [*found, of_bias]


def _kept(
    sparsity: Sparsity, bias: Tensor | None
) -> Iterator[tuple[slice, Sparsity, Tensor | None, Any]]:
    """Heads with the entries whose bias is not -inf, that bias, and the places of these entries."""
    if bias is None:
        yield slice(None), sparsity, None, slice(None)
        return
    for head in range(bias.size(1)):
        one = slice(head, head + 1)
        entries, place = kept_entries(sparsity, bias[:, one])
        yield one, entries, bias[:, one].index_select(0, place), place


def kept_entries(sparsity: Sparsity, bias: Tensor) -> tuple[Sparsity, Tensor]:
    """The entries whose bias (E, 1) is not -inf, and their places among all entries."""
    kept = (bias != -torch.inf).view(-1)
    count = F.pad(kept.cumsum(0), (1, 0))  # the entries that are kept before each
    place = kept.nonzero().view(-1)
    ptr = count.index_select(0, sparsity.rowptr).to(sparsity.rowptr.dtype)
    col = sparsity.col.index_select(0, place)
    return known_rows(ptr, col, sparsity.shape[1]), place


def _with_dropout(
    sparsity: Sparsity,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    if not dropout_p:
        return _fused(sparsity, query, key, value, bias, scale)
    view = View(sparsity)
    backend = pick("attend", view, query)
    share = _shares(view, query * scale, key, bias, backend)
    return product(view, F.dropout(share, dropout_p), value, backend)


# The derivative --------------------------------------------------------------------------------


class _Attend(Primitive):
    """Fused attention; backward is fused too, unless it is differentiated itself."""

    operands = 4

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        view: View,
        scale: float,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        return _attend(*view.by_row[:2], query, key, value, bias, scale, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, out, logsumexp = ctx.saved_tensors
        view, scale, backend = ctx.rest
        if is_differentiated():
            found = _unfused(view, query, key, value, bias, scale, grad, backend)
        else:
            both = *view.by_row[:2], *view.transposed.by_row
            found = _attend_backward(
                *both, query, key, value, bias, scale, out, logsumexp, grad, backend
            )
        return *found[:3], None if bias is None else found[3]

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        view, scale, backend = ctx.rest
        query, key, value, bias = primals
        return _tangent(view, query, key, value, bias, scale, tangents, backend), None


def _unfused(
    view: View,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    grad: Tensor,
    backend: str,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by primitives that are differentiable themselves; holds tensors of (E, H)."""
    dtype = query.dtype
    query, key, value, grad = (exact(x) for x in (query, key, value, grad))
    query = query * scale
    share = _shares(view, query, key, bias, backend)
    of_share, sent = sample(view, grad, value, backend), share
    if dropout_p:
        drawn = F.dropout(torch.ones_like(share), dropout_p)
        of_share, sent = of_share * drawn, share * drawn
    of_score = softmax_derivative(view.by_row[0], share, of_share, backend)
    return (
        (product(view, of_score, key, backend) * scale).to(dtype),
        product(view.transposed, of_score, query, backend).to(dtype),
        product(view.transposed, sent, grad, backend).to(dtype),
        of_score.to(dtype),
    )


def _tangent(
    view: View,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    tangents: tuple[Any, ...],
    backend: str,
) -> Tensor:
    """The derivative along tangents of query, key, value and bias, by the same primitives."""
    dtype = value.dtype
    query, key, value = (exact(x) for x in (query, key, value))
    of_query, of_key, of_value = (exact(x) for x in tangents[:3])
    of_bias = tangents[3]
    query = query * scale
    share = _shares(view, query, key, bias, backend)
    of_score = sample(view, of_query * scale, key, backend)
    of_score = of_score + sample(view, query, of_key, backend)
    of_share = softmax_derivative(
        view.by_row[0], share, of_score if bias is None else of_score + of_bias, backend
    )
    out = product(view, of_share, value, backend)
    return (out + product(view, share, of_value, backend)).to(dtype)


def _shares(view: View, query: Tensor, key: Tensor, bias: Tensor | None, backend: str) -> Tensor:
    """The softmax of the scores of each row, (E, H), for queries that are already scaled."""
    score = sample(view, query, key, backend)
    score = score if bias is None else score + bias.to(score.dtype)
    return softmax_of_rows(view.by_row[0], score, backend)
