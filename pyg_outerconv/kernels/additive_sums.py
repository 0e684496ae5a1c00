"""Additive scores and weighted sums of them within rows, differentiable any number of times.

With ``z[e, h, p] = a[row of e, h, p] + b[column of e, h, p]`` and phi an activation or one of its
derivatives,

- ``score[e, h] = sum_p left[row of e, h, p] right[column of e, h, p] phi(z[e, h, p])``,
- ``rows[r, h, p] = sum_{e of row r} value[e, h] right[column of e, h, p] phi(z[e, h, p])``.

Every derivative of ``score`` and ``rows`` is made of ``score`` and ``rows`` again: with the next
derivative of phi for ``a`` and ``b``, and of the transposed matrix for ``b`` and ``right``. So no
derivative holds a tensor of entries × channels. Custom operators and vmap are as in
``products.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .activation import Activation
from .additive_operators import rows_operator, run_rows, run_score, score_operator
from .call import View, distinct_views, is_plain
from .differentiable import apply, differentiable


def score(
    view: View,
    transposed_view: View,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    phi: Activation,
    backend: str,
) -> Tensor:
    """Scores (E, H) of the entries, in row order; the equation is at the top of this module.

    Args:
        view: the matrix by row.
        transposed_view: its transpose.
        a: (R, H, P).
        b: (C, H, P).
        left: (R, H, P), (1, H, P) for all rows, or None for ones.
        right: (C, H, P), (1, H, P) for all columns, or None for ones.
        phi: the activation, or a derivative of it.
        backend: the name of the backend.
    """
    if phi.vanishes:
        return a.new_zeros((view[1].numel(), a.size(1)))
    tensors = distinct_views(*view[:2], *transposed_view, a, b, left, right)
    return apply(_Score, *tensors, *phi, backend)  # type: ignore[no-any-return]


def rows(
    view: View,
    transposed_view: View,
    a: Tensor,
    b: Tensor,
    right: Tensor | None,
    value: Tensor,
    phi: Activation,
    count: int,
    backend: str,
) -> Tensor:
    """Weighted sums within rows, (count, R, H, P); the equation is at the top of this module.

    Args:
        view: the matrix, or its transpose.
        transposed_view: the transpose of ``view``.
        a: (R, H, P).
        b: (C, H, P).
        right: (C, H, P), (1, H, P) for all columns, or None for ones.
        value: (E, H) in the order of the untransposed matrix.
        phi: the activation, or a derivative of it.
        count: the sums are computed for ``phi`` and its next ``count - 1`` derivatives.
        backend: the name of the backend.
    """
    if phi.vanishes:
        return a.new_zeros((count, *a.shape))
    if right is not None and right.size(0) == 1:
        return _scaled(right, rows(view, transposed_view, a, b, None, value, phi, count, backend))
    tensors = distinct_views(*view, *transposed_view, a, b, right, value)
    return apply(_Rows, *tensors, *phi, count, backend)  # type: ignore[no-any-return]


def _scaled(factor: Tensor, x: Tensor) -> Tensor:
    """factor · x, written over ``x``, which no other code holds, if no derivative is needed."""
    if torch.is_grad_enabled() or not is_plain(factor, x):
        return factor * x
    return x.mul_(factor)


def _as_heads(info: Any, x: Tensor | None, dim: int | None) -> Tensor | None:
    """Fold a batch of (rows, H, ...) into the heads; a tensor without a batch is expanded."""
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
        run = run_score if is_plain(a, b, left, right) else score_operator
        return run(ptr, index, a, b, left, right, activation, slope, order, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, activation, slope, order, ctx.backend = inputs
        ctx.phi = Activation(activation, slope, order)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ptr, index, ptr_t, index_t, perm_t, a, b, left, right = ctx.saved_tensors
        view, transposed_view = (ptr, index, None), (ptr_t, index_t, perm_t)
        wanted = ctx.needs_input_grad[5:9]
        grads = _score_gradients(
            view, transposed_view, a, b, left, right, grad, ctx.phi, wanted, ctx.backend
        )
        return None, None, None, None, None, *grads, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        ptr, index, ptr_t, index_t, perm_t, a, b, left, right = primals
        operands = (ptr, index, None), (ptr_t, index_t, perm_t), a, b
        phi, backend = ctx.phi, ctx.backend
        of_a, of_b, of_left, of_right = tangents[5:]
        out = score(*operands, _times(left, of_a), right, phi.after(1), backend)
        out = out + score(*operands, left, _times(right, of_b), phi.after(1), backend)
        if left is not None:
            out = out + score(*operands, of_left, right, phi, backend)
        if right is not None:
            out = out + score(*operands, left, of_right, phi, backend)
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
        run = run_rows if is_plain(a, b, right, value) else rows_operator
        return run(ptr, index, perm, a, b, right, value, activation, slope, order, count, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, activation, slope, order, ctx.count, ctx.backend = inputs
        ctx.phi = Activation(activation, slope, order)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *both, a, b, right, value = ctx.saved_tensors
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        of_a, of_b, of_right, of_value = ctx.needs_input_grad[6:10]
        total: list[Tensor | None] = [None] * 4
        for number in range(ctx.count):
            # <above, rows> equals <value, score> with ``above`` as the factor ``left``.
            phi, above = ctx.phi.after(number), grad[number]
            of_operands = _score_gradients(
                view,
                transposed_view,
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
            if of_value and view[2] is None:
                of_values = score(view, transposed_view, a, b, above, right, phi, ctx.backend)
            elif of_value:
                of_values = score(transposed_view, view, b, a, right, above, phi, ctx.backend)
            found = (*of_operands[:2], of_operands[3], of_values)
            total = [
                one if so_far is None or one is None else so_far + one
                for so_far, one in zip(total, found, strict=True)
            ]
        return None, None, None, None, None, None, *total, None, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        *both, a, b, right, value = primals
        operands, rest = (tuple(both[:3]), tuple(both[3:]), a, b), (ctx.count, ctx.backend)
        of_a, of_b, of_right, of_value = tangents[6:]
        phi, next_phi = ctx.phi, ctx.phi.after(1)
        out = of_a * rows(*operands, right, value, next_phi, *rest)
        out = out + rows(*operands, _times(right, of_b), value, next_phi, *rest)
        out = out + rows(*operands, right, of_value, phi, *rest)
        return out if right is None else out + rows(*operands, of_right, value, phi, *rest)

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


def _score_gradients(
    view: View,
    transposed_view: View,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    value: Tensor,
    phi: Activation,
    wanted: tuple[bool, ...],
    backend: str,
) -> tuple[Tensor | None, ...]:
    """The gradients of ``sum_eh value score`` in a, b, left and right; None where not wanted."""
    wants_a, wants_b, wants_left, wants_right = wanted
    of_a, of_left = _operand_gradients(
        view, transposed_view, a, b, left, right, value, phi, wants_a, wants_left, backend
    )
    of_b, of_right = _operand_gradients(
        transposed_view, view, b, a, right, left, value, phi, wants_b, wants_right, backend
    )
    return of_a, of_b, of_left, of_right


def _operand_gradients(
    view: View,
    transposed_view: View,
    operand: Tensor,
    other: Tensor,
    factor: Tensor | None,
    other_factor: Tensor | None,
    value: Tensor,
    phi: Activation,
    wants_operand: bool,
    wants_factor: bool,
    backend: str,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients in the operand and the factor of the rows of ``view``, in one pass.

    ``other`` and ``other_factor`` are those of the columns. A gradient not wanted is None.
    """
    count = wants_operand + wants_factor
    if not count:
        return None, None
    first = phi if wants_factor else phi.after(1)
    found = rows(view, transposed_view, operand, other, other_factor, value, first, count, backend)
    of_operand = of_factor = None
    if wants_operand:
        of_operand = found[-1] if factor is None else _scaled(factor, found[-1])
    if wants_factor and factor is not None:
        is_shared = factor.size(0) == 1
        of_factor = found[0].sum(0, keepdim=True) if is_shared else found[0]
    return of_operand, of_factor
