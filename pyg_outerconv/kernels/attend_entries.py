"""The primitive of attention along entries, and the same without those that a bias excludes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .absent_pairs import are_finite
from .backend import BACKENDS, Attention, Backend, Request
from .backends.native import Native
from .capture import unsafe_to_capture
from .csr import CSR
from .dispatch import RECORDERS, log_call, pick, request_of
from .head_copies import HeadCopies, InPasses, Passes, copies_for
from .primitive import Primitive, is_differentiated, is_lean, is_plain, operator
from .products import in_order, of_shared, product, sample
from .sddmm import sddmm
from .softmax import softmax_derivative, softmax_of_rows, sum_of_rows
from .tiles import accumulator, exact


def _request(*arguments: Any) -> Request:
    ptr, index, *_, query, key, _value, _bias, _scale, _ends = arguments
    return request_of("attend", ptr, index, key.size(0), query)


def _like(ptr: Tensor, index: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
    query, value = attention.query, attention.value
    out = value.new_empty((query.size(0), *value.shape[1:]))
    return out, query.new_empty(query.shape[:2], dtype=accumulator(query.dtype))


def _like_gradients(*arguments: Any) -> Any:
    index, (*ends, bias, _scale, _ends) = arguments[1], arguments[5]
    gradients = [x.new_empty(x.shape) for x in ends]
    return *gradients, ends[0].new_empty((0 if bias is None else index.numel(), ends[0].size(1)))


_attend = operator(Backend.attend, _request, like=_like)
_attend_backward = operator(
    Backend.attend_backward, lambda *arguments: _request(*arguments[:-3]), like=_like_gradients
)


def fused(csr: CSR, attention: Attention) -> Tensor:
    """:func:`~.attend.attend` of operands that fit, which multiplies excluded entries by 0."""
    query, key, value, bias, *how = attention
    backend = pick("attend", csr, query)
    if bias is None and _in_passes(backend, query, key, value):
        if RECORDERS:
            log_call(BACKENDS[backend], _request(csr.ptr, csr.index, *attention))
        operands = query.contiguous(), key.contiguous(), value.contiguous()
        entries = copies_for(csr, query.size(1))
        if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
            return InPasses.apply(PRODUCTS, entries, attention.scale, *operands)  # type: ignore[no-any-return]
        return _forward(entries, operands, attention.scale)
    return _Attend.apply(query, key, value, bias, csr, *how, backend)[0]  # type: ignore[no-any-return]


def sums_of_ends(
    csr: CSR, at_target: Tensor, at_source: Tensor, value: Tensor, slope: float
) -> Tensor:
    """The sums of values (C, H, V) by the shares of two ends (GAT), (R, H, V); 0 for empty rows.

    ``score[e, h] = leaky_relu(at_target[row of e, h] + at_source[column of e, h])``, of terms
    (R, H) and (C, H).
    """
    rest = csr, slope, True, pick("attend", csr, value)
    out: Tensor = _Attend.apply(at_target, at_source, value, None, *rest)[0]
    return out


def attend_kept(csr: CSR, attention: Attention, dropout_p: float = 0.0) -> Tensor:
    """:func:`fused` for numbers that are not finite: entries whose bias is -inf are left out.

    ``dropout_p``: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
    """
    outs = []
    for one, entries, bias in _kept(csr, attention.bias):
        query, key, value = (x[:, one] for x in attention[:3])
        of_heads = Attention(query, key, value, bias, attention.scale, attention.ends)
        outs.append(_with_dropout(entries, of_heads, dropout_p))
    return torch.cat(outs, 1)


def _kept(csr: CSR, bias: Tensor | None) -> Iterator[tuple[slice, CSR, Tensor | None]]:
    """Heads with the entries whose bias is not -inf, and that bias."""
    if bias is None:
        yield slice(None), csr, None
        return
    for head in range(bias.size(1)):
        one = slice(head, head + 1)
        entries, place = kept_entries(csr, bias[:, one])
        yield one, entries, bias[:, one].index_select(0, place)


def kept_entries(csr: CSR, bias: Tensor) -> tuple[CSR, Tensor]:
    """The entries whose bias (E, 1) is not -inf, and their places among all entries."""
    kept = (bias != -torch.inf).view(-1)
    count = F.pad(kept.cumsum(0), (1, 0))  # the entries that are kept before each
    place = kept.nonzero().view(-1)
    ptr = count.index_select(0, csr.ptr).to(csr.ptr.dtype)
    col = csr.index.index_select(0, place)
    return CSR.of(ptr, col, csr.shape[1]), place


def _with_dropout(csr: CSR, attention: Attention, dropout_p: float) -> Tensor:
    if not dropout_p:
        return fused(csr, attention)
    backend = pick("attend", csr, attention.query)
    share, _ = _shares(csr, attention, backend)
    out = product(csr, F.dropout(share, dropout_p), exact(attention.value), backend)
    return out.to(attention.value.dtype)


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
        ends: bool,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        return _attend(csr.ptr, csr.index, query, key, value, bias, scale, ends, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (*operands, out, of_rows), (csr, *how, backend) = ctx.saved_tensors, ctx.rest
        attention = Attention(*operands, *how)
        if is_differentiated():
            gradients = _unfused(csr, attention, grad, backend)
        else:
            both = csr.ptr, csr.index, *csr.columns
            gradients = _attend_backward(*both, *attention, out, of_rows, grad, backend)
        return *gradients[:3], None if attention.bias is None else gradients[3]

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        csr, scale, ends, backend = ctx.rest
        query, key, value, bias = primals
        of_query, of_key, of_value, of_bias = tangents
        share, bend = _shares(csr, Attention(query, key, value, bias, scale, ends), backend)
        if bend is not None:
            of_score = bend * sddmm(csr, exact(of_query), exact(of_key), op="add")
        else:
            of_score = sample(csr, exact(of_query) * scale, exact(key), backend)
            of_score = of_score + sample(csr, exact(query) * scale, exact(of_key), backend)
            of_score = of_score if bias is None else of_score + of_bias
        of_share = softmax_derivative(csr.ptr, share, of_score, backend)
        out = product(csr, of_share, exact(value), backend)
        return (out + product(csr, share, exact(of_value), backend)).to(value.dtype), None


def _unfused(
    csr: CSR, attention: Attention, grad: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by primitives that are differentiable themselves; holds tensors of (E, H)."""
    query, key, value, _, scale, _ = attention
    above = exact(grad)
    share, bend = _shares(csr, attention, backend)
    of_share = sample(csr, above, exact(value), backend)
    of_score = softmax_derivative(csr.ptr, share, of_share, backend)
    if bend is not None:
        of_score = bend * of_score
        ptr, _, order = csr.columns
        of_query = sum_of_rows(csr.ptr, of_score, backend)
        of_key = sum_of_rows(ptr, in_order(of_score, order), backend)
    else:
        of_query = product(csr, of_score, exact(key), backend) * scale
        of_key = product(csr.T, of_score, exact(query) * scale, backend)
    of_value = product(csr.T, share, above, backend)
    gradients = [x.to(value.dtype) for x in (of_query, of_key, of_value, of_score)]
    return gradients[0], gradients[1], gradients[2], gradients[3]


def _shares(csr: CSR, attention: Attention, backend: str) -> tuple[Tensor, Tensor | None]:
    """The softmax of scores (E, H), at least in float32; the slope of the leaky ReLU of ends."""
    query, key, _, bias, scale, ends = attention
    bend = None
    if ends:
        score = sddmm(csr, exact(query), exact(key), op="add")
        bend = torch.ones_like(score).masked_fill(score <= 0, scale)
        score = score * bend
    else:
        score = sample(csr, exact(query) * scale, exact(key), backend)
        score = score if bias is None else score + bias.to(score.dtype)
    return softmax_of_rows(csr.ptr, score, backend), bend


# One product for all heads, on a CPU --------------------------------------------------------------


def _in_passes(backend: str, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether :data:`PRODUCTS` serve a call: plain tensors on a CPU, not short ones."""
    fits = query.is_cpu and query.dtype in (torch.float32, torch.float64)
    fits = fits and query.numel() > 0 and value.numel() > 0
    fits = fits and not torch.is_autocast_enabled("cpu")
    return fits and backend == Native.name and is_lean() and is_plain(query, key, value)


def _forward(
    entries: HeadCopies, operands: Sequence[Tensor], scale: float, kept: Tensor | None = None
) -> Tensor:
    """The result; ``kept`` gets the shares, (1, E·H)."""
    query, key, value = operands
    score = entries.sampled(query, key)
    score = torch.mul(score, scale, out=score if kept is None else kept[0])
    return entries.times(entries.shares(score), value)


def _backward(
    entries: HeadCopies,
    operands: Sequence[Tensor],
    out: Tensor,
    kept: Tensor,
    grad: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in queries, keys and values."""
    (query, key, value), (share,) = operands, kept
    of_value = entries.times(share, grad, transposed=True)
    of_score = entries.sampled(grad, value)
    entries.at((grad * out).sum(-1), entries.row, of_score, Tensor.sub_)
    of_score.mul_(share).mul_(scale)
    of_key = entries.times(of_score, query, transposed=True)
    return entries.times(of_score, key), of_key, of_value


def _by_primitives(csr: CSR, operands: Sequence[Tensor], scale: float) -> Tensor:
    query, key, value = operands
    backend = pick("attend", csr, query)
    share, _ = _shares(csr, Attention(query, key, value, None, scale, False), backend)
    return product(csr, share, value, backend)


PRODUCTS = Passes(
    "sums_of_products",
    ("query", "key", "value"),
    1,
    _forward,
    _backward,
    lambda query, key, value: (query.size(0), *value.shape[1:]),
    _by_primitives,
)


# Products without the entries that a bias excludes ------------------------------------------------
#
# They serve calls that a compiler or a tracer records, where numbers cannot be looked at: an
# operator looks when the recorded graph runs. Derivatives of the two are made of these two again.


def kept_product(
    csr: CSR, value: Tensor, x: Tensor, bias: Tensor, backend: str | None = None
) -> Tensor:
    """S x, (R, H, channels), where entries with a bias of -inf are none, whatever they hold.

    Values and bias, which gets no gradient, are (E, H) in the order of the rows of S, also where
    ``csr`` is its transpose; x is (C, H or 1, channels).
    """
    how = csr, backend or pick("spmm", csr, x)
    return _KeptProduct.apply(value, x, bias.detach(), *how)  # type: ignore[no-any-return]


def kept_sample(csr: CSR, a: Tensor, b: Tensor, bias: Tensor, backend: str | None = None) -> Tensor:
    """⟨a[row of e, h], b[col of e, h]⟩, (E, H), and 0 at entries with a bias of -inf.

    a is (R, H or 1, channels), b (C, H or 1, channels), and the bias (E, H) gets no gradient.
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
    value, bias = in_order(value, order), in_order(bias, order)
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
