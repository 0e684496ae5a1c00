"""Products of groups of rows with a matrix for each group, as for labels and types of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from .call import distinct_views, item_by_item, same_dtype
from .differentiable import apply, differentiable
from .dispatch import choose
from .grouped_operators import matmul_operator, outer_operator, request_of
from .sparsity import check_indices, check_integers, check_pointers, has_numbers


def grouped_matmul(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    *,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """Multiply rows with the matrix of their group, and add the products to rows of the result.

    ``out[scatter[i]] += x[gather[i]] @ theta[g]`` for ``ptr[g] <= i < ptr[g + 1]``; differentiable
    in ``x`` and ``theta`` any number of times. Each call checks the indices, which waits for a CUDA
    device.

    Args:
        x: (any, P).
        ptr: (G + 1,) group pointers, ascending from 0 to I.
        theta: (G, P, Q).
        gather: (I,) the row of ``x`` in product i, without repetitions within a group; i if None.
        scatter: (I,) the row of the result to which product i is added, without repetitions within
            a group; i if None.
        num_rows: the number of rows of the result; needed with ``scatter``, else I.

    Returns:
        (num_rows, Q), zero in rows to which nothing is added.

    Raises:
        ValueError: the shapes do not fit, pointers do not ascend from 0 to I, an index is out of
            range, or no backend can serve the call.
        TypeError: ``x`` and ``theta`` have different dtypes, or indices are not integers.
    """
    for name, index in (("ptr", ptr), ("gather", gather), ("scatter", scatter)):
        if index is not None:
            check_integers(name, index)
    if not ptr.numel():
        raise RefusedValue(refusal("ptr must begin with 0", "at least one number", "no number"))
    _check_shapes(x, ptr, theta, gather, scatter, num_rows)
    if has_numbers(ptr, gather, scatter):
        count = x.size(0) if gather is None else gather.numel()
        check_pointers("ptr", ptr, count)
        for name, index, rows in (("gather", gather, x.size(0)), ("scatter", scatter, num_rows)):
            if index is not None and rows is not None:
                check_indices(name, index, rows)
    return _multiply(x, ptr.contiguous(), theta, gather, scatter, num_rows)


def known_groups(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """:func:`grouped_matmul` for indices that are known to be valid, which are not checked.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: ``x`` and ``theta`` have different dtypes.
    """
    _check_shapes(x, ptr, theta, gather, scatter, num_rows)
    return _multiply(x, ptr, theta, gather, scatter, num_rows)


def _multiply(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int | None,
) -> Tensor:
    if scatter is None or num_rows is None:
        num_rows = x.size(0) if gather is None else gather.numel()
    x, theta = same_dtype("grouped_matmul", x, theta)  # type: ignore[assignment]
    backend = choose(request_of(x, ptr, theta))
    tensors = distinct_views(x, ptr, theta, gather, scatter)
    return apply(_Grouped, *tensors, num_rows, backend.name)  # type: ignore[no-any-return]


def _check_shapes(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int | None,
) -> None:
    if x.dim() != 2 or theta.dim() != 3 or theta.shape[:2] != (ptr.numel() - 1, x.size(1)):
        raise RefusedValue(
            refusal(
                "grouped_matmul needs a matrix for each group, with as many rows as x has channels",
                f"theta ({ptr.numel() - 1}, {x.size(-1)}, Q)",
                tuple(theta.shape),
            )
        )
    count = x.size(0) if gather is None else gather.numel()
    if scatter is not None and (num_rows is None or scatter.shape != (count,)):
        raise RefusedValue(
            refusal(
                "grouped_matmul needs num_rows and an index for each product to scatter",
                f"scatter ({count},) and num_rows",
                f"scatter {tuple(scatter.shape)} and num_rows {num_rows}",
            )
        )


def grouped_outer(
    x: Tensor,
    ptr: Tensor,
    y: Tensor,
    *,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
) -> Tensor:
    """``out[g] = sum_{i of g} x[gather[i]]^T y[scatter[i]]``, (G, P, Q): the gradient of Θ.

    The arguments are those of :func:`grouped_matmul`, and ``y`` (num_rows, Q) the gradient of its
    result; differentiable in ``x`` and ``y``.

    Raises:
        ValueError: no backend can serve the call.
        TypeError: ``x`` and ``y`` have different dtypes.
    """
    x, y = same_dtype("grouped_outer", x, y)  # type: ignore[assignment]
    backend = choose(request_of(x, ptr, y.unsqueeze(0)))
    return apply(_Outer, x, ptr, y, gather, scatter, backend.name)  # type: ignore[no-any-return]


@differentiable
class _Grouped(torch.autograd.Function):
    """The products of :func:`grouped_matmul`, linear in x and in Θ."""

    @staticmethod
    def forward(
        x: Tensor,
        ptr: Tensor,
        theta: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
        backend: str,
    ) -> Tensor:
        return matmul_operator(x, ptr, theta, gather, scatter, num_rows, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.num_rows, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, theta, gather, scatter = ctx.saved_tensors
        of_x = of_theta = None
        if ctx.needs_input_grad[0]:
            transposed = theta.transpose(1, 2)
            of_x = apply(
                _Grouped,
                *distinct_views(grad, ptr, transposed, scatter, gather),
                x.size(0),
                ctx.backend,
            )
        if ctx.needs_input_grad[2]:
            of_theta = apply(_Outer, *distinct_views(x, ptr, grad, gather, scatter), ctx.backend)
        return of_x, None, of_theta, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        x, ptr, theta, gather, scatter = primals
        rest = (gather, scatter, ctx.num_rows, ctx.backend)
        out: Tensor = apply(_Grouped, tangents[0], ptr, theta, *rest)
        return out + apply(_Grouped, x, ptr, tangents[2], *rest)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        return item_by_item(_Grouped, info, in_dims, args)


@differentiable
class _Outer(torch.autograd.Function):
    """The sums of :func:`grouped_outer`, linear in x and in y."""

    @staticmethod
    def forward(
        x: Tensor,
        ptr: Tensor,
        y: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        backend: str,
    ) -> Tensor:
        return outer_operator(x, ptr, y, gather, scatter, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, ptr, y, gather, scatter = ctx.saved_tensors
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            transposed = grad.transpose(1, 2)
            of_x = apply(
                _Grouped,
                *distinct_views(y, ptr, transposed, scatter, gather),
                x.size(0),
                ctx.backend,
            )
        if ctx.needs_input_grad[2]:
            of_y = apply(
                _Grouped, *distinct_views(x, ptr, grad, gather, scatter), y.size(0), ctx.backend
            )
        return of_x, None, of_y, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        x, ptr, y, gather, scatter = primals
        rest = (gather, scatter, ctx.backend)
        out: Tensor = apply(_Outer, tangents[0], ptr, y, *rest)
        return out + apply(_Outer, x, ptr, tangents[2], *rest)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        return item_by_item(_Outer, info, in_dims, args)
