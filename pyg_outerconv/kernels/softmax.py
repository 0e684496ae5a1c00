"""Sums and softmax of values within the rows of a sparse matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .backend import BACKENDS
from .call import is_plain, log_if_recording, one_value_an_entry, pick, views, without_autocast
from .differentiable import apply, differentiable
from .listed import Listed
from .sparsity import Sparsity


def segment_softmax(sparsity: Sparsity | Listed, score: Tensor) -> Tensor:
    """Softmax over the entries of each row.

    ``out[e, h] = exp(score[e, h]) / sum_{f in the row of e} exp(score[f, h])``; differentiable any
    number of times. A row in which every score is -inf gives zeros.

    Args:
        sparsity: the places of the E entries; in a :class:`Listed` they are in any order.
        score: (E,) or (E, H), in the order of the entries, which is row order in a
            :class:`Sparsity`.

    Returns:
        The shares, of the shape of ``score``.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
    """
    if isinstance(sparsity, Listed):
        return sparsity.shares(score)
    view, _ = views(sparsity)
    scores = one_value_an_entry("segment_softmax", score, sparsity.num_entries)
    backend = pick("segment_softmax", view, sparsity.shape[1], scores)
    return softmax_of_rows(view[0], scores, backend.name).view(score.shape)


def sum_of_rows(ptr: Tensor, value: Tensor, backend: str) -> Tensor:
    """Sum the values of each row: (E, H) to (R, H)."""
    return apply(_Sum, ptr, value, backend)  # type: ignore[no-any-return]


def spread_over_rows(ptr: Tensor, x: Tensor, num_entries: int, backend: str) -> Tensor:
    """Repeat the number of each row for its entries, the transpose of a sum: (R, H) to (E, H)."""
    return apply(_Spread, ptr, x, num_entries, backend)  # type: ignore[no-any-return]


def softmax_of_rows(ptr: Tensor, score: Tensor, backend: str) -> Tensor:
    """:func:`segment_softmax` of scores (E, H), by the backend of that name."""
    return apply(_Softmax, ptr, score, backend)  # type: ignore[no-any-return]


def softmax_derivative(ptr: Tensor, share: Tensor, along: Tensor, backend: str) -> Tensor:
    """Multiply ``along`` (E, H) with the Jacobian matrix of softmax, which is symmetric.

    ``share[e] (along[e] - sum_{f in the row of e} share[f] along[f])``.
    """
    weighted = share * along
    mean = sum_of_rows(ptr, weighted, backend)
    return weighted - share * spread_over_rows(ptr, mean, share.size(0), backend)


# The operators -------------------------------------------------------------------------------


def _run_segment_sum(ptr: Tensor, value: Tensor, backend: str) -> Tensor:
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "segment_sum", ptr, value, 0, value)
    with without_autocast(value.device.type):
        return implementation.segment_sum(ptr, value.contiguous())


_segment_sum = torch.library.custom_op(
    "pyg_outerconv::segment_sum", _run_segment_sum, mutates_args=()
)


@_segment_sum.register_fake
def _(ptr: Tensor, value: Tensor, backend: str) -> Tensor:
    return value.new_empty((ptr.numel() - 1, value.size(1)))


def _run_segment_softmax(ptr: Tensor, score: Tensor, backend: str) -> Tensor:
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "segment_softmax", ptr, score, 0, score)
    with without_autocast(score.device.type):
        return implementation.segment_softmax(ptr, score.contiguous())


_segment_softmax = torch.library.custom_op(
    "pyg_outerconv::segment_softmax", _run_segment_softmax, mutates_args=()
)


@_segment_softmax.register_fake
def _(ptr: Tensor, score: Tensor, backend: str) -> Tensor:
    return torch.empty_like(score, memory_format=torch.contiguous_format)


# Their derivatives ---------------------------------------------------------------------------


def _as_heads(info: Any, x: Tensor, dim: int | None) -> tuple[Tensor, int]:
    """Fold a batch of (rows, H) into the heads, and return the size of the batch."""
    assert dim is not None  # only this argument can be batched
    x = x.movedim(dim, -1)
    return x.flatten(1), info.batch_size


@differentiable
class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ptr: Tensor, value: Tensor, backend: str) -> Tensor:
        run = _run_segment_sum if is_plain(value) else _segment_sum
        return run(ptr, value, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ptr, value, ctx.backend = inputs
        ctx.num_entries = value.size(0)
        ctx.save_for_backward(ptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (ptr,) = ctx.saved_tensors
        return None, spread_over_rows(ptr, grad, ctx.num_entries, ctx.backend), None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return sum_of_rows(primals[0], tangents[1], ctx.backend)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        ptr, value, backend = args
        value, batch = _as_heads(info, value, in_dims[1])
        return sum_of_rows(ptr, value, backend).unflatten(1, (-1, batch)), 2


@differentiable
class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ptr: Tensor, x: Tensor, num_entries: int, backend: str) -> Tensor:
        return torch.repeat_interleave(x, ptr.diff().long(), dim=0, output_size=num_entries)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ptr, _, ctx.num_entries, ctx.backend = inputs
        ctx.save_for_backward(ptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (ptr,) = ctx.saved_tensors
        return None, sum_of_rows(ptr, grad, ctx.backend), None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return spread_over_rows(primals[0], tangents[1], ctx.num_entries, ctx.backend)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        ptr, x, num_entries, backend = args
        x, batch = _as_heads(info, x, in_dims[1])
        return spread_over_rows(ptr, x, num_entries, backend).unflatten(1, (-1, batch)), 2


@differentiable
class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ptr: Tensor, score: Tensor, backend: str) -> Tensor:
        run = _run_segment_softmax if is_plain(score) else _segment_softmax
        return run(ptr, score, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ptr, _, ctx.backend = inputs
        ctx.save_for_backward(ptr, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ptr, share = ctx.saved_tensors
        return None, softmax_derivative(ptr, share, grad, ctx.backend), None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        ptr, score = primals
        return softmax_derivative(
            ptr, softmax_of_rows(ptr, score, ctx.backend), tangents[1], ctx.backend
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        ptr, score, backend = args
        score, batch = _as_heads(info, score, in_dims[1])
        return softmax_of_rows(ptr, score, backend).unflatten(1, (-1, batch)), 2
