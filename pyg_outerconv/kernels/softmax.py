"""Sums and softmax of values within the rows of a sparse matrix."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import RefusedType
from ..signatures import typed
from .backend import Backend
from .csr import CSR
from .dispatch import pick, request_of
from .edge_lists import spread
from .edge_sums import Listed
from .operands import agreeing, check_order, one_value_an_entry
from .primitive import LinearInEach, Primitive, operator

_segment_sum = operator(
    Backend.segment_sum, lambda ptr, value: request_of("segment_sum", ptr, value, 0, value)
)
_segment_softmax = operator(
    Backend.segment_softmax, lambda ptr, score: request_of("segment_softmax", ptr, score, 0, score)
)


@typed
def segment_softmax(csr: CSR | Listed, score: Tensor) -> Tensor:
    """Softmax over the entries of each row.

    ``out[e, h] = exp(score[e, h]) / sum_{f in the row of e} exp(score[f, h])``; differentiable any
    number of times. A row in which every score is -inf gives zeros.

    Args:
        csr: the places of the E entries; in a :class:`Listed` they are in any order.
        score: (E,) or (E, H), in the order of the entries, which is row order in a
            :class:`CSR`.

    Returns:
        The shares, of the shape of ``score``.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
    """
    places = csr.row if isinstance(csr, Listed) else csr.ptr
    agreeing("segment_softmax", places, score)
    if not score.is_floating_point():
        raise RefusedType("segment_softmax takes scores", "floating point", score.dtype)
    if isinstance(csr, Listed):
        return csr.shares(score)
    check_order("segment_softmax", csr)
    scores = one_value_an_entry("segment_softmax", score, csr.num_entries)
    backend = pick("segment_softmax", csr, scores)
    return softmax_of_rows(csr.ptr, scores, backend).view(score.shape)


def sum_of_rows(ptr: Tensor, value: Tensor, backend: str) -> Tensor:
    """Sum the values of each row: (E, H) to (R, H)."""
    return _Sum.apply(value, ptr, backend)  # type: ignore[no-any-return]


def spread_over_rows(ptr: Tensor, x: Tensor, num_entries: int, backend: str) -> Tensor:
    """Repeat the number of each row for its entries, the transpose of a sum: (R, H) to (E, H)."""
    return _Spread.apply(x, ptr, num_entries, backend)  # type: ignore[no-any-return]


def softmax_of_rows(ptr: Tensor, score: Tensor, backend: str) -> Tensor:
    """:func:`segment_softmax` of scores (E, H), by the backend of that name."""
    return _Softmax.apply(score, ptr, backend)  # type: ignore[no-any-return]


def softmax_derivative(ptr: Tensor, share: Tensor, along: Tensor, backend: str) -> Tensor:
    """Multiply ``along`` (E, H) with the Jacobian matrix of softmax, which is symmetric.

    ``share[e] (along[e] - sum_{f in the row of e} share[f] along[f])``.
    """
    weighted = share * along
    mean = sum_of_rows(ptr, weighted, backend)
    return weighted - share * spread_over_rows(ptr, mean, share.size(0), backend)


class _Sum(LinearInEach, Primitive):
    operands = 1

    @staticmethod
    def forward(value: Tensor, ptr: Tensor, backend: str) -> Tensor:
        return _segment_sum(ptr, value, backend)

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        ctx.num_entries = operands[0].size(0)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        ptr, backend = ctx.rest
        return (spread_over_rows(ptr, grad, ctx.num_entries, backend),)


class _Spread(LinearInEach, Primitive):
    operands = 1
    saves = False

    @staticmethod
    def forward(x: Tensor, ptr: Tensor, num_entries: int, backend: str) -> Tensor:
        return spread(x, ptr, num_entries)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        ptr, _, backend = ctx.rest
        return (sum_of_rows(ptr, grad, backend),)


class _Softmax(Primitive):
    operands = 1

    @staticmethod
    def forward(score: Tensor, ptr: Tensor, backend: str) -> Tensor:
        return _segment_softmax(ptr, score, backend)

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        (share,), (ptr, backend) = ctx.saved_tensors, ctx.rest
        return (softmax_derivative(ptr, share, grad, backend),)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        ptr, backend = ctx.rest
        share = softmax_of_rows(ptr, primals[0], backend)
        return softmax_derivative(ptr, share, tangents[0], backend)
