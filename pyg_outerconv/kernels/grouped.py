"""Products of groups of rows with a matrix for each group, as for labels and types of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from .backend import Backend, Groups, Request
from .dispatch import choose
from .index_checks import check_indices, check_integers, check_pointers, has_numbers
from .operands import agreeing
from .primitive import LinearInEach, Primitive, operator


@typed
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
        num_rows: the number of rows of the result; needed with ``scatter``, else I by default,
            and at least I.

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
            if index.device != ptr.device:
                rule = f"{name} of grouped_matmul is on the device of ptr"
                raise RefusedValue(rule, ptr.device, index.device)
    if not ptr.numel():
        raise RefusedValue("ptr must begin with 0", "at least one number", "no number")
    groups = _groups(x, ptr.contiguous(), theta, gather, scatter, num_rows)
    count = groups.num_products(x)
    if scatter is None and num_rows not in (None, count):
        if num_rows < count:
            raise RefusedValue("grouped_matmul has a row for each product", count, num_rows)
        places = torch.arange(count, dtype=ptr.dtype, device=ptr.device)
        groups = groups._replace(scatter=places, num_rows=num_rows)
    if has_numbers(ptr, gather, scatter):
        check_pointers("ptr", ptr, count)
        for name, index, rows in (("gather", gather, x.size(0)), ("scatter", scatter, num_rows)):
            if index is not None and rows is not None:
                check_indices(name, index, rows)
    return _multiply(x, theta, groups)


def known_groups(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """:func:`grouped_matmul` for indices that are known to be valid, which are not checked."""
    return _multiply(x, theta, _groups(x, ptr, theta, gather, scatter, num_rows))


def _multiply(x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
    x, theta = agreeing("grouped_matmul", groups.ptr, x, theta)  # type: ignore[assignment]
    backend = choose(_request(x, theta, *groups))
    return _Grouped.apply(x, theta, *groups, backend.name)  # type: ignore[no-any-return]


def _groups(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int | None,
) -> Groups:
    """The groups, whose shapes fit operands of these shapes."""
    if x.dim() != 2 or theta.dim() != 3 or theta.shape[:2] != (ptr.numel() - 1, x.size(1)):
        raise RefusedValue(
            "grouped_matmul needs a matrix for each group, with as many rows as x has channels",
            f"theta ({ptr.numel() - 1}, {x.size(-1)}, Q)",
            tuple(theta.shape),
        )
    count = x.size(0) if gather is None else gather.numel()
    if scatter is not None and (num_rows is None or scatter.shape != (count,)):
        raise RefusedValue(
            "grouped_matmul needs num_rows and an index for each product to scatter",
            f"scatter ({count},) and num_rows",
            f"scatter {tuple(scatter.shape)} and num_rows {num_rows}",
        )
    return Groups(ptr, gather, scatter, count if scatter is None or num_rows is None else num_rows)


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
    """
    x, y = agreeing("grouped_outer", ptr, x, y)  # type: ignore[assignment]
    groups = Groups(ptr, gather, scatter, y.size(0))
    backend = choose(_request(x, y.unsqueeze(0), *groups))
    return _Outer.apply(x, y, *groups, backend.name)  # type: ignore[no-any-return]


def _request(x: Tensor, theta: Tensor, ptr: Tensor, *_: Any) -> Request:
    kinds, shape = (x.device.type, x.dtype, ptr.dtype), (theta.size(0), x.size(0))
    return Request("grouped_matmul", *kinds, shape, x.size(0), theta.size(2))


_matmul = operator(Backend.grouped_matmul, _request, reads=True)
_outer = operator(Backend.grouped_outer, reads=True)


class _Grouped(LinearInEach, Primitive):
    """The products of :func:`grouped_matmul`, linear in x and in Θ.

    After the operands come the fields of :class:`.Groups`, and the name of a backend.
    """

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(
        x: Tensor,
        theta: Tensor,
        ptr: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
        backend: str,
    ) -> Tensor:
        return _matmul(x, theta, ptr, gather, scatter, num_rows, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, theta), (*groups, backend) = ctx.saved_tensors, ctx.rest
        of_x = of_theta = None
        if ctx.needs_input_grad[0]:
            back = *Groups(*groups).turned(x.size(0)), backend
            of_x = _Grouped.apply(grad, theta.transpose(1, 2), *back)
        if ctx.needs_input_grad[1]:
            of_theta = _Outer.apply(x, grad, *groups, backend)
        return of_x, of_theta


class _Outer(LinearInEach, Primitive):
    """The sums of :func:`grouped_outer`, linear in x and in y."""

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        ptr: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
        backend: str,
    ) -> Tensor:
        return _outer(x, y, ptr, gather, scatter, num_rows, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, y), (*groups, backend) = ctx.saved_tensors, ctx.rest
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            back = *Groups(*groups).turned(x.size(0)), backend
            of_x = _Grouped.apply(y, grad.transpose(1, 2), *back)
        if ctx.needs_input_grad[1]:
            of_y = _Grouped.apply(x, grad, *groups, backend)
        return of_x, of_y
