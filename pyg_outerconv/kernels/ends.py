"""Attention whose scores are a sum of one number for each end (GAT), along sorted entries.

``score[e, h] = leaky_relu(at_target[row of e, h] + at_source[column of e, h])``. A backend that has
``attend_ends`` makes scores, shares and sums in one pass, as it does of dot products; for others
they are three primitives, of which derivatives of derivatives are made in both cases.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from .backend import BACKENDS, Backend, Request
from .csr import CSR
from .dispatch import pick, request_of
from .mode import mode
from .primitive import Primitive, is_differentiated, operator
from .products import product, sample
from .sddmm import sddmm
from .softmax import softmax_derivative, softmax_of_rows
from .tiles import exact


def _request(*arguments: Any) -> Request:
    ptr, index, *_, at_source, value, _slope = arguments
    return request_of("attend_ends", ptr, index, at_source.size(0), value)


_attend_ends = operator(Backend.attend_ends, _request)
_attend_ends_backward = operator(Backend.attend_ends_backward, lambda *given: _request(*given[:-3]))


def in_one_step(*tensors: Tensor) -> bool:
    """Whether values, scores and sums of these tensors are left to the backend of attention.

    Not on a CPU, where the sums are torch's, unless a backend is asked for that has them itself.
    """
    first, asked = tensors[0], mode().backend
    if first.is_cpu and (asked is None or "attend_ends" not in BACKENDS[asked].primitives):
        return False
    if first.is_meta or torch.is_autocast_enabled(first.device.type):
        return False
    for tensor in tensors:
        if tensor.dtype != first.dtype or tensor.device != first.device:
            return False
    return True


def sums_of_ends(
    csr: CSR, at_target: Tensor, at_source: Tensor, value: Tensor, slope: float
) -> Tensor:
    """The sums of values by the shares of two ends, (R, H, V); zeros for rows without entries.

    Args:
        csr: the places of the E entries.
        at_target: (R, H), the term of rows in the scores.
        at_source: (C, H), that of columns.
        value: (C, H, V).
        slope: that of the leaky ReLU below zero.
    """
    backend = pick("attend", csr, value)
    if "attend_ends" not in BACKENDS[backend].primitives:
        share = shares_of_terms(csr, at_target, at_source, slope)
        return product(csr, share, value, backend)
    out: Tensor = _AttendEnds.apply(at_target, at_source, value, csr, slope, backend)[0]
    return out


def shares_of_terms(csr: CSR, at_target: Tensor, at_source: Tensor, slope: float) -> Tensor:
    """The softmax of the scores of each row, (E, H)."""
    score = leaky_relu(sddmm(csr, at_target, at_source, op="add"), slope)
    return softmax_of_rows(csr.ptr, score, pick("segment_softmax", csr, score))


class _AttendEnds(Primitive):
    """Fused; the backward pass is fused too, unless it is differentiated itself."""

    operands = 3

    @staticmethod
    def forward(
        at_target: Tensor,
        at_source: Tensor,
        value: Tensor,
        csr: CSR,
        slope: float,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        return _attend_ends(csr.ptr, csr.index, at_target, at_source, value, slope, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        at_target, at_source, value, out, logsumexp = ctx.saved_tensors
        csr, slope, backend = ctx.rest
        if is_differentiated():
            return _unfused(csr, at_target, at_source, value, slope, grad, backend)
        both = csr.ptr, csr.index, *csr.columns
        given = at_target, at_source, value, slope, out, logsumexp, grad
        return _attend_ends_backward(*both, *given, backend)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        (at_target, at_source, value), (csr, slope, backend) = primals, ctx.rest
        of_target, of_source, of_value = tangents
        share, bend = _scored(csr, at_target, at_source, slope, backend)
        of_score = bend * sddmm(csr, exact(of_target), exact(of_source), op="add")
        of_share = softmax_derivative(csr.ptr, share, of_score, backend)
        out = product(csr, of_share, exact(value), backend)
        return (out + product(csr, share, exact(of_value), backend)).to(value.dtype), None


def _unfused(
    csr: CSR,
    at_target: Tensor,
    at_source: Tensor,
    value: Tensor,
    slope: float,
    grad: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by primitives that are differentiable themselves; holds tensors of (E, H)."""
    dtype, above = value.dtype, exact(grad)
    share, bend = _scored(csr, at_target, at_source, slope, backend)
    of_share = sample(csr, above, exact(value), backend)
    of_score = bend * softmax_derivative(csr.ptr, share, of_share, backend)
    ones = above.new_ones(1, 1, 1)
    of_target = product(csr, of_score, ones.expand(csr.shape[1], 1, 1), backend).squeeze(2)
    of_source = product(csr.T, of_score, ones.expand(csr.shape[0], 1, 1), backend).squeeze(2)
    of_value = product(csr.T, share, above, backend)
    return of_target.to(dtype), of_source.to(dtype), of_value.to(dtype)


def _scored(
    csr: CSR, at_target: Tensor, at_source: Tensor, slope: float, backend: str
) -> tuple[Tensor, Tensor]:
    """The share of each entry, and the slope of the leaky ReLU at its score, (E, H)."""
    terms = sddmm(csr, exact(at_target), exact(at_source), op="add")
    bend = torch.ones_like(terms).masked_fill(terms <= 0, slope)
    return softmax_of_rows(csr.ptr, terms * bend, backend), bend
