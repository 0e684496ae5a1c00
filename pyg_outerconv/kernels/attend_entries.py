"""The primitive of attention along entries, and the same without those that a bias excludes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import attend_products
from .absent_pairs import are_finite
from .attend_products import can_attend_products
from .backend import BACKENDS, Backend, Request
from .capture import unsafe_to_capture
from .csr import CSR
from .dispatch import RECORDERS, log_call, pick, request_of
from .head_copies import HeadCopies, copies_for
from .primitive import Primitive, is_differentiated, is_plain, operator, without_autocast
from .products import of_shared, product, sample
from .softmax import softmax_derivative, softmax_of_rows
from .tiles import exact


def _request(*arguments: Any) -> Request:
    ptr, index, *_, query, key, _value, _bias, _scale = arguments
    return request_of("attend", ptr, index, key.size(0), query)


_attend = operator(Backend.attend, _request)
_attend_backward = operator(Backend.attend_backward, lambda *given: _request(*given[:-3]))


def fused(
    csr: CSR,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
) -> Tensor:
    """:func:`~.attend.attend` of operands that fit, which multiplies excluded entries by 0."""
    backend = pick("attend", csr, query)
    if bias is None and can_attend_products(backend, query, key, value):
        entries = copies_for(csr, query.size(1))
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
            return _AttendProducts.apply(query, key, value, entries, scale, backend)  # type: ignore[no-any-return]
        return _AttendProducts.run(query, key, value, entries, scale, backend)
    return _Attend.apply(query, key, value, bias, csr, scale, backend)[0]  # type: ignore[no-any-return]


class _AttendProducts(torch.autograd.Function):
    """Attention by one product for all heads, where plain autograd alone looks on."""

    @staticmethod
    def run(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        entries: HeadCopies,
        scale: float,
        backend: str,
        kept: Tensor | None = None,
    ) -> Tensor:
        """The result; ``kept`` is for the backward pass."""
        if RECORDERS:
            csr = entries.csr
            given = csr.ptr, csr.index, query, key, value, None, scale
            log_call(BACKENDS[backend], _request(*given))
        with without_autocast("cpu"):
            return attend_products.forward(entries, (query, key, value), scale, kept)

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        entries: HeadCopies,
        scale: float,
        backend: str,
    ) -> Tensor:
        kept = query.new_empty(1, entries.num_values)
        out = _AttendProducts.run(query, key, value, entries, scale, backend, kept)
        ctx.save_for_backward(query, key, value, out, kept)
        ctx.rest = entries, scale, backend
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query, key, value, *saved), (entries, scale, backend) = ctx.saved_tensors, ctx.rest
        operands = query, key, value
        if is_differentiated() or not is_plain(grad):
            found = _unfused(entries.csr, *operands, None, scale, grad, backend)[:3]
        else:
            with without_autocast("cpu"):
                read: Any = *saved, grad.contiguous(), scale
                found = attend_products.backward(entries, operands, *read)
        return *found, None, None, None


def attend_kept(
    csr: CSR,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`fused` for numbers that are not finite: entries whose bias is -inf are left out.

    Args:
        csr, query, key, value, scale: as in :func:`~.attend.attend`.
        bias: (E, H) or None.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
    """
    outs = [
        _with_dropout(entries, query[:, one], key[:, one], value[:, one], own, scale, dropout_p)
        for one, entries, own, _ in _kept(csr, bias)
    ]
    return torch.cat(outs, 1)


def attend_kept_gradients(
    csr: CSR,
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
    of_bias = query.new_zeros((csr.num_entries, query.size(1)))
    for one, entries, own, place in _kept(csr, bias):
        csr, (q, k, v) = entries, (x[:, one] for x in (query, key, value))
        backend = pick("attend", csr, q)
        parts = _unfused(csr, q, k, v, own, scale, grad[:, one], backend, dropout_p)
        for whole, part in zip(found, parts, strict=False):
            whole[:, one] = part
        of_bias[place, one] = parts[3]
    return [*found, of_bias]


def _kept(csr: CSR, bias: Tensor | None) -> Iterator[tuple[slice, CSR, Tensor | None, Any]]:
    """Heads with the entries whose bias is not -inf, that bias, and the places of these entries."""
    if bias is None:
        yield slice(None), csr, None, slice(None)
        return
    for head in range(bias.size(1)):
        one = slice(head, head + 1)
        entries, place = kept_entries(csr, bias[:, one])
        yield one, entries, bias[:, one].index_select(0, place), place


def kept_entries(csr: CSR, bias: Tensor) -> tuple[CSR, Tensor]:
    """The entries whose bias (E, 1) is not -inf, and their places among all entries."""
    kept = (bias != -torch.inf).view(-1)
    count = F.pad(kept.cumsum(0), (1, 0))  # the entries that are kept before each
    place = kept.nonzero().view(-1)
    ptr = count.index_select(0, csr.ptr).to(csr.ptr.dtype)
    col = csr.index.index_select(0, place)
    return CSR.of(ptr, col, csr.shape[1]), place


def _with_dropout(
    csr: CSR,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    if not dropout_p:
        return fused(csr, query, key, value, bias, scale)
    backend = pick("attend", csr, query)
    share = _shares(csr, query * scale, key, bias, backend)
    return product(csr, F.dropout(share, dropout_p), value, backend)


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
        csr: CSR,
        scale: float,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        return _attend(csr.ptr, csr.index, query, key, value, bias, scale, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, out, logsumexp = ctx.saved_tensors
        csr, scale, backend = ctx.rest
        if is_differentiated():
            found = _unfused(csr, query, key, value, bias, scale, grad, backend)
        else:
            both = csr.ptr, csr.index, *csr.columns
            found = _attend_backward(
                *both, query, key, value, bias, scale, out, logsumexp, grad, backend
            )
        return *found[:3], None if bias is None else found[3]

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        csr, scale, backend = ctx.rest
        query, key, value, bias = primals
        return _tangent(csr, query, key, value, bias, scale, tangents, backend), None


def _unfused(
    csr: CSR,
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
    share = _shares(csr, query, key, bias, backend)
    of_share, sent = sample(csr, grad, value, backend), share
    if dropout_p:
        drawn = F.dropout(torch.ones_like(share), dropout_p)
        of_share, sent = of_share * drawn, share * drawn
    of_score = softmax_derivative(csr.ptr, share, of_share, backend)
    return (
        (product(csr, of_score, key, backend) * scale).to(dtype),
        product(csr.T, of_score, query, backend).to(dtype),
        product(csr.T, sent, grad, backend).to(dtype),
        of_score.to(dtype),
    )


def _tangent(
    csr: CSR,
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
    share = _shares(csr, query, key, bias, backend)
    of_score = sample(csr, of_query * scale, key, backend)
    of_score = of_score + sample(csr, query, of_key, backend)
    of_share = softmax_derivative(
        csr.ptr, share, of_score if bias is None else of_score + of_bias, backend
    )
    out = product(csr, of_share, value, backend)
    return (out + product(csr, share, of_value, backend)).to(dtype)


def _shares(csr: CSR, query: Tensor, key: Tensor, bias: Tensor | None, backend: str) -> Tensor:
    """The softmax of the scores of each row, (E, H), for queries that are already scaled."""
    score = sample(csr, query, key, backend)
    score = score if bias is None else score + bias.to(score.dtype)
    return softmax_of_rows(csr.ptr, score, backend)


# Products without the entries that a bias excludes ------------------------------------------------
#
# They serve calls that a compiler or a tracer records, where numbers cannot be looked at: an
# operator looks when the recorded graph runs. Derivatives of the two are made of these two again.


def kept_product(
    csr: CSR, value: Tensor, x: Tensor, bias: Tensor, backend: str | None = None
) -> Tensor:
    """S x, (R, H, channels), where entries with a bias of -inf are none, whatever they hold.

    Args:
        csr: the places of the entries of S.
        value: (E, H), in the order of the rows of S, also where ``csr`` is its transpose.
        x: (C, H or 1, channels), of the same dtype.
        bias: (E, H), in the order of ``value``; it gets no gradient.
        backend: the name of the backend, or None to pick one.
    """
    how = csr, backend or pick("spmm", csr, x)
    return _KeptProduct.apply(value, x, bias.detach(), *how)  # type: ignore[no-any-return]


def kept_sample(csr: CSR, a: Tensor, b: Tensor, bias: Tensor, backend: str | None = None) -> Tensor:
    """⟨a[row of e, h], b[col of e, h]⟩, (E, H), and 0 at entries with a bias of -inf.

    Args:
        csr: the places of the entries, row by row.
        a: (R, H or 1, channels).
        b: (C, H or 1, channels), of the same dtype.
        bias: (E, H); it gets no gradient.
        backend: the name of the backend, or None to pick one.
    """
    how = csr, backend or pick("sddmm", csr, a)
    return _KeptSample.apply(a, b, bias.detach(), *how)  # type: ignore[no-any-return]


class _KeptProduct(Primitive):
    operands = 3

    @staticmethod
    def forward(value: Tensor, x: Tensor, bias: Tensor, csr: CSR, backend: str) -> Tensor:
        out: Tensor = _kept_product(csr.ptr, csr.index, csr.order, value, x, bias, backend)
        return out

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, x, bias), (csr, backend) = ctx.saved_tensors, ctx.rest
        of_value = of_x = None
        if ctx.needs_input_grad[1]:
            of_x = of_shared(kept_product(csr.T, value, grad, bias, backend), x.size(1))
        if ctx.needs_input_grad[0]:  # sampled in the order of the values, which are by row
            rows, a, b = (csr, grad, x) if csr.order is None else (csr.T, x, grad)
            of_value = kept_sample(rows, a, b, bias, backend)
        return of_value, of_x, None

    # Neither has a tangent: forward mode is not recorded.


class _KeptSample(Primitive):
    operands = 3

    @staticmethod
    def forward(a: Tensor, b: Tensor, bias: Tensor, csr: CSR, backend: str) -> Tensor:
        return sample(csr, a, b, backend).masked_fill(bias == -torch.inf, 0.0)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, bias), (csr, backend) = ctx.saved_tensors, ctx.rest
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = of_shared(kept_product(csr, grad, b, bias, backend), a.size(1))
        if ctx.needs_input_grad[1]:
            of_b = of_shared(kept_product(csr.T, grad, a, bias, backend), b.size(1))
        return of_a, of_b, None


def _run(
    ptr: Tensor,
    index: Tensor,
    order: Tensor | None,
    value: Tensor,
    x: Tensor,
    bias: Tensor,
    backend: str,
) -> Tensor:
    """The product by all entries, with values of 0, if x is finite; else by those that are kept."""
    csr = CSR.of(ptr, index, x.size(0))
    if order is not None:
        value, bias = value.index_select(0, order), bias.index_select(0, order)
    if are_finite(x):
        return product(csr, value.masked_fill(bias == -torch.inf, 0.0), x, backend).contiguous()
    outs = []
    for head in range(bias.size(1)):
        one = slice(head, head + 1)
        entries, place = kept_entries(csr, bias[:, one])
        own = x[:, one] if x.size(1) > 1 else x
        outs.append(product(entries, value[:, one].index_select(0, place), own, backend))
    return torch.cat(outs, 1).contiguous()


_kept_product = torch.library.custom_op(
    "pyg_outerconv::kept_product", _run, mutates_args=(), **unsafe_to_capture()
)


_kept_product.register_fake(
    lambda ptr, index, order, value, x, *_: x.new_empty(ptr.numel() - 1, value.size(1), x.size(2))
)
