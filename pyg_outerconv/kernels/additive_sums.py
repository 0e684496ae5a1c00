"""Additive scores and their weighted sums over rows: each is made of the other's derivatives.

With ``z[e, h, c] = a[row of e, h, c] + b[column of e, h, c]`` and phi the derivative of some order
of an activation,

- ``score[e, h] = sum_c left[row of e, h, c] right[column of e, h, c] phi(z[e, h, c])``,
- ``rows[r, h, c] = sum_{e of row r} value[e, h] right[column of e, h, c] phi(z[e, h, c])``.

Every derivative of the two is one of the two again, at the next order where it is in ``a`` or
``b``, and of the transposed matrix where it is in ``b`` or ``right``. So derivatives of any order
hold no entries × channels tensor. Custom operators and vmap are as in ``products.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .activation import Activation
from .additive_operators import rows_here, rows_operator, score_here, score_operator
from .call import View, distinct_views, is_plain
from .differentiable import apply, differentiable


def score(
    near: View,
    far: View,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    phi: Activation,
    backend: str,
) -> Tensor:
    """Scores (E, H) of the view by row, ``near``, in row order.

    ``left`` (R or 1, H, C) and ``right`` (columns or 1, H, C); None is ones.
    """
    if phi.vanishes:
        return a.new_zeros((near[1].numel(), a.size(1)))
    tensors = distinct_views(*near[:2], far[0], far[1], far[2], a, b, left, right)
    return apply(_Score, *tensors, *phi, backend)  # type: ignore[no-any-return]


def rows(
    near: View,
    far: View,
    a: Tensor,
    b: Tensor,
    right: Tensor | None,
    value: Tensor,
    phi: Activation,
    count: int,
    backend: str,
) -> Tensor:
    """(count, R, H, C): sums over the rows of ``near``, for phi and the orders that follow it.

    ``right`` (columns or 1, H, C), None is ones; ``value`` (E, H) in row order whatever the view.
    """
    if phi.vanishes:
        return a.new_zeros((count, *a.shape))
    if right is not None and right.size(0) == 1:
        return _scaled(right, rows(near, far, a, b, None, value, phi, count, backend))
    tensors = distinct_views(*near, *far, a, b, right, value)
    return apply(_Rows, *tensors, *phi, count, backend)  # type: ignore[no-any-return]


def _scaled(factor: Tensor, x: Tensor) -> Tensor:
    """factor x; in the place of ``x``, which nothing else holds, where no derivative needs it."""
    if torch.is_grad_enabled() or not is_plain(factor, x):
        return factor * x
    return x.mul_(factor)


def _as_heads(info: Any, x: Tensor | None, dim: int | None) -> Tensor | None:
    """A batch of (rows, H, ...) as more heads."""
    if x is None:
        return None
    x = x.unsqueeze(2) if dim is None else x.movedim(dim, 2)
    return x.expand(*x.shape[:2], info.batch_size, *x.shape[3:]).flatten(1, 2)


@differentiable
class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor,
        a: Tensor,
        b: Tensor,
        left: Tensor | None,
        right: Tensor | None,
        activation: str,
        slope: float,
        order: int,
        backend: str,
    ) -> Tensor:
        run = score_here if is_plain(a, b, left, right) else score_operator
        return run(ptr, index, a, b, left, right, activation, slope, order, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, activation, slope, order, ctx.backend = inputs
        ctx.phi = Activation(activation, slope, order)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ptr, index, *far, a, b, left, right = ctx.saved_tensors
        view: View = (ptr, index, None)
        wanted = ctx.needs_input_grad[5:9]
        grads = _of_score(view, tuple(far), a, b, left, right, grad, ctx.phi, wanted, ctx.backend)
        return None, None, None, None, None, *grads, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        ptr, index, *far, a, b, left, right = primals
        ends, phi, backend = ((ptr, index, None), tuple(far), a, b), ctx.phi, ctx.backend
        of_a, of_b, of_left, of_right = tangents[5:]
        out = score(*ends, _times(left, of_a), right, phi.after(1), backend)
        out = out + score(*ends, left, _times(right, of_b), phi.after(1), backend)
        if left is not None:
            out = out + score(*ends, of_left, right, phi, backend)
        if right is not None:
            out = out + score(*ends, left, of_right, phi, backend)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *both, a, b, left, right, activation, slope, order, backend = args
        operands = [
            _as_heads(info, x, dim)
            for x, dim in zip((a, b, left, right), in_dims[5:9], strict=True)
        ]
        out: Tensor = apply(_Score, *both, *operands, activation, slope, order, backend)
        return out.unflatten(1, (-1, info.batch_size)), 2


@differentiable
class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor | None,
        a: Tensor,
        b: Tensor,
        right: Tensor | None,
        value: Tensor,
        activation: str,
        slope: float,
        order: int,
        count: int,
        backend: str,
    ) -> Tensor:
        run = rows_here if is_plain(a, b, right, value) else rows_operator
        return run(ptr, index, perm, a, b, right, value, activation, slope, order, count, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, activation, slope, order, ctx.count, ctx.backend = inputs
        ctx.phi = Activation(activation, slope, order)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *both, a, b, right, value = ctx.saved_tensors
        near, far = tuple(both[:3]), tuple(both[3:])
        of_a, of_b, of_right, of_value = ctx.needs_input_grad[6:10]
        total: list[Tensor | None] = [None] * 4
        for number in range(ctx.count):
            # Above times the sums is value times the scores with ``above`` as the factor of rows.
            phi, above = ctx.phi.after(number), grad[number]
            of_ends = _of_score(
                near,
                far,
                a,
                b,
                above,
                right,
                value,
                phi,
                (of_a, of_b, False, of_right),
                ctx.backend,
            )
            of_values = None
            if of_value and near[2] is None:
                of_values = score(near, far, a, b, above, right, phi, ctx.backend)
            elif of_value:
                of_values = score(far, near, b, a, right, above, phi, ctx.backend)
            found = (*of_ends[:2], of_ends[3], of_values)
            total = [
                one if so_far is None or one is None else so_far + one
                for so_far, one in zip(total, found, strict=True)
            ]
        return None, None, None, None, None, None, *total, None, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        *both, a, b, right, value = primals
        ends, rest = (tuple(both[:3]), tuple(both[3:]), a, b), (ctx.count, ctx.backend)
        of_a, of_b, of_right, of_value = tangents[6:]
        phi, next_phi = ctx.phi, ctx.phi.after(1)
        out = of_a * rows(*ends, right, value, next_phi, *rest)
        out = out + rows(*ends, _times(right, of_b), value, next_phi, *rest)
        out = out + rows(*ends, right, of_value, phi, *rest)
        return out if right is None else out + rows(*ends, of_right, value, phi, *rest)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *both, a, b, right, value, activation, slope, order, count, backend = args
        operands = [
            _as_heads(info, x, dim)
            for x, dim in zip((a, b, right, value), in_dims[6:10], strict=True)
        ]
        out: Tensor = apply(_Rows, *both, *operands, activation, slope, order, count, backend)
        return out.unflatten(2, (-1, info.batch_size)), 3


def _times(factor: Tensor | None, x: Tensor) -> Tensor:
    return x if factor is None else factor * x


def _of_score(
    near: View,
    far: View,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    value: Tensor,
    phi: Activation,
    wanted: tuple[bool, ...],
    backend: str,
) -> tuple[Tensor | None, ...]:
    """The gradients of ``sum value score`` in a, b, left, right, those that are wanted."""
    of_a, of_b, of_left, of_right = wanted
    in_a, in_left = _of_end(near, far, a, b, left, right, value, phi, of_a, of_left, backend)
    in_b, in_right = _of_end(far, near, b, a, right, left, value, phi, of_b, of_right, backend)
    return in_a, in_b, in_left, in_right


def _of_end(
    near: View,
    far: View,
    mine: Tensor,
    other: Tensor,
    factor: Tensor | None,
    other_factor: Tensor | None,
    value: Tensor,
    phi: Activation,
    of_mine: bool,
    of_factor: bool,
    backend: str,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients in what the rows of ``near`` hold and in its factor, by one pass for both."""
    if not (of_mine or of_factor):
        return None, None
    first = phi if of_factor else phi.after(1)
    found = rows(near, far, mine, other, other_factor, value, first, of_mine + of_factor, backend)
    in_mine = in_factor = None
    if of_mine:
        in_mine = found[-1] if factor is None else _scaled(factor, found[-1])
    if of_factor and factor is not None:
        one = factor.size(0) == 1
        in_factor = found[0].sum(0, keepdim=True) if one else found[0]
    return in_mine, in_factor
