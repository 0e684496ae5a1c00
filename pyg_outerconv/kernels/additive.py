"""Additive scores of the entries of a sparse matrix, in one primitive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from ..signatures import typed
from .activation import ACTIVATIONS, Activation
from .backend import BACKENDS, Backend, Request
from .backends.native import Native
from .csr import CSR
from .dispatch import pick, request_of
from .edge_lists import spread
from .index_checks import is_exporting
from .operands import agreeing, check_order
from .primitive import Primitive, is_differentiated, is_plain, operator
from .tiles import exact


@typed
def additive(
    csr: CSR,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    *,
    activation: str = "leaky_relu",
    negative_slope: float = 0.2,
) -> Tensor:
    """The score of each entry of a sparse matrix (R × C), by a layer of neurons.

    ``out[e, h] = sum_p weight[h, p] phi(a[row of e, h, p] + b[column of e, h, p])``. With a leaky
    ReLU these are the scores of GATv2 (Brody et al., *How Attentive are Graph Attention
    Networks?*, equation 7), with tanh those of Bahdanau et al., *Neural Machine Translation by
    Jointly Learning to Align and Translate*, appendix A.1.2; with exp they are products of e^a and
    e^b, which may overflow on their own, and with square distances from -b to a. No tensor of
    entries × channels is held, in derivatives of any order either.

    Args:
        csr: the places of the E entries.
        a: (R, H, P).
        b: (C, H, P).
        weight: (H, P).
        activation: phi, 'leaky_relu', 'tanh', 'exp' or 'square'.
        negative_slope: the slope of 'leaky_relu' below zero.

    Returns:
        (E, H), in row order.

    Raises:
        ValueError: the shapes do not fit, the activation is unknown, or no backend can serve the
            call.
        TypeError: the operands have different dtypes.
    """
    if activation not in ACTIVATIONS:
        raise RefusedValue(unknown("activation of additive", activation, ACTIVATIONS))
    check_order("additive", csr)
    a, b, weight = agreeing("additive", csr.ptr, a, b, weight)  # type: ignore[assignment]
    rows, cols = csr.shape
    fits = (
        a.dim() == b.dim() == 3
        and (a.size(0), b.size(0)) == (rows, cols)
        and a.shape[1:] == b.shape[1:] == weight.shape
    )
    if not fits:
        raise RefusedValue(
            "additive needs a row of a for every row, a row of b for every column, and weights "
            "for every head",
            f"({rows}, H, P), ({cols}, H, P) and (H, P)",
            f"{tuple(a.shape)}, {tuple(b.shape)} and {tuple(weight.shape)}",
        )
    backend = pick("additive", csr, a)
    phi = Activation(activation, float(negative_slope), 0)
    return _score(csr, a, b, weight.unsqueeze(0), None, phi, backend)


# Scores and weighted sums of them --------------------------------------------------------------
#
# With ``z[e, h, p] = a[row of e, h, p] + b[column of e, h, p]`` and phi an activation or one of its
# derivatives,
#
# - ``score[e, h] = sum_p left[row of e, h, p] right[column of e, h, p] phi(z[e, h, p])``,
# - ``rows[r, h, p] = sum_{e of row r} value[e, h] right[column of e, h, p] phi(z[e, h, p])``.
#
# Every derivative of ``score`` and ``rows`` is made of ``score`` and ``rows`` again: with the next
# derivative of phi for ``a`` and ``b``, and of the transposed matrix for ``b`` and ``right``. So no
# derivative holds a tensor of entries × channels.


def _request(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, *_: Any) -> Request:
    return request_of("additive", ptr, index, b.size(0), a)


_additive = operator(Backend.additive, _request, reads=True)
_additive_rows = operator(Backend.additive_rows, _request, reads=True)
_additive_backward = operator(Backend.additive_backward, _request, reads=True)


def _score(
    csr: CSR,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    phi: Activation,
    backend: str,
) -> Tensor:
    """Scores (E, H) of the entries, in row order.

    Args:
        csr: the matrix by row.
        a: (R, H, P).
        b: (C, H, P).
        left: (R, H, P), (1, H, P) for all rows, or None for ones.
        right: (C, H, P), (1, H, P) for all columns, or None for ones.
        phi: the activation, or a derivative of it.
        backend: the name of the backend.
    """
    if phi.vanishes:
        return a.new_zeros((csr.num_entries, a.size(1)))
    return _Score.apply(a, b, left, right, csr, phi, backend)  # type: ignore[no-any-return]


def _rows(
    csr: CSR,
    a: Tensor,
    b: Tensor,
    right: Tensor | None,
    value: Tensor,
    phi: Activation,
    count: int,
    backend: str,
) -> Tensor:
    """Weighted sums within rows, (count, R, H, P), for ``phi`` and its next derivatives.

    The arguments are those of :func:`_score`, and ``value`` (E, H) in the order of the untransposed
    matrix.
    """
    if phi.vanishes:
        return a.new_zeros((count, *a.shape))
    if right is not None and right.size(0) == 1:
        return _scaled(right, _rows(csr, a, b, None, value, phi, count, backend))
    return _Rows.apply(a, b, right, value, csr, phi, count, backend)  # type: ignore[no-any-return]


def _scaled(factor: Tensor, x: Tensor) -> Tensor:
    """factor · x, written over ``x``, which no other code holds, if no derivative is needed."""
    if torch.is_grad_enabled() or not is_plain(factor, x):
        return factor * x
    return x.mul_(factor)


class _Score(Primitive):
    operands = 4

    @staticmethod
    def forward(
        a: Tensor,
        b: Tensor,
        left: Tensor | None,
        right: Tensor | None,
        csr: CSR,
        phi: Activation,
        backend: str,
    ) -> Tensor:
        compiled = torch.compiler.is_compiling() and not is_exporting()
        if compiled and backend == Native.name and _is_plain(csr, a, left, right, phi):
            # A compiler makes one loop of this, which holds neither gathered rows nor their sums.
            rows = torch.arange(csr.shape[0], dtype=csr.index.dtype, device=a.device)
            row = spread(rows, csr.ptr, csr.index.size(0))
            z = exact(a).index_select(0, row) + exact(b).index_select(0, csr.index)
            return (phi.write(z, out=z) * left).sum(-1).to(a.dtype)  # type: ignore[operator]
        return _additive(csr.ptr, csr.index, a, b, left, right, *phi, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, left, right), (csr, phi, backend) = ctx.saved_tensors, ctx.rest
        wanted = ctx.needs_input_grad[:4]
        if wanted == (True, True, True, False) and _in_one_pass(csr, a, left, right, phi, backend):
            given = csr.ptr, csr.index, a, b, left[0], grad, phi.name, phi.slope
            of_a, of_b, of_weight = _additive_backward(*given, backend)
            return of_a, of_b, of_weight.unsqueeze(0), None
        return _score_gradients(csr, a, b, left, right, grad, phi, wanted, backend)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        (a, b, left, right), (csr, phi, backend) = primals, ctx.rest
        of_a, of_b, of_left, of_right = tangents
        out = _score(csr, a, b, _times(left, of_a), right, phi.after(1), backend)
        out = out + _score(csr, a, b, left, _times(right, of_b), phi.after(1), backend)
        if left is not None:
            out = out + _score(csr, a, b, of_left, right, phi, backend)
        if right is not None:
            out = out + _score(csr, a, b, left, of_right, phi, backend)
        return out


class _Rows(Primitive):
    operands = 4
    result_axis = 2

    @staticmethod
    def forward(
        a: Tensor,
        b: Tensor,
        right: Tensor | None,
        value: Tensor,
        csr: CSR,
        phi: Activation,
        count: int,
        backend: str,
    ) -> Tensor:
        value = value if csr.order is None else value.index_select(0, csr.order)
        return _additive_rows(csr.ptr, csr.index, a, b, right, value, *phi, count, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, right, value), (csr, first, count, backend) = ctx.saved_tensors, ctx.rest
        of_a, of_b, of_right, of_value = ctx.needs_input_grad[:4]
        wanted = of_a, of_b, False, of_right
        total: list[Tensor | None] = [None] * 4
        for number in range(count):
            # <above, rows> equals <value, score> with ``above`` as the factor ``left``.
            phi, above = first.after(number), grad[number]
            of_operands = _score_gradients(csr, a, b, above, right, value, phi, wanted, backend)
            of_values = None
            if of_value and csr.order is not None:
                of_values = _score(csr.T, b, a, right, above, phi, backend)
            elif of_value:
                of_values = _score(csr, a, b, above, right, phi, backend)
            found = (*of_operands[:2], of_operands[3], of_values)
            total = [
                one if so_far is None or one is None else so_far + one
                for so_far, one in zip(total, found, strict=True)
            ]
        return tuple(total)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        (a, b, right, value), (csr, phi, *rest) = primals, ctx.rest
        of_a, of_b, of_right, of_value = tangents
        out = of_a * _rows(csr, a, b, right, value, phi.after(1), *rest)
        out = out + _rows(csr, a, b, _times(right, of_b), value, phi.after(1), *rest)
        out = out + _rows(csr, a, b, right, of_value, phi, *rest)
        return out if right is None else out + _rows(csr, a, b, of_right, value, phi, *rest)


def _in_one_pass(
    csr: CSR, a: Tensor, left: Tensor, right: Tensor | None, phi: Activation, backend: str
) -> bool:
    """Whether a backend computes all gradients of plain scores at once, which ends there."""
    own = BACKENDS[backend].additive_backward
    is_own = getattr(own, "__func__", own) is not Backend.additive_backward
    return is_own and _is_plain(csr, a, left, right, phi) and not is_differentiated()


def _is_plain(
    csr: CSR, a: Tensor, left: Tensor | None, right: Tensor | None, phi: Activation
) -> bool:
    """Whether these are scores by one weight for all rows, on a CPU, and no derivative of them."""
    one = left is not None and left.size(0) == 1 and right is None
    return one and phi.order == 0 and csr.order is None and a.is_cpu


def _times(factor: Tensor | None, x: Tensor) -> Tensor:
    return x if factor is None else factor * x


def _score_gradients(
    csr: CSR,
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

    def of_end(
        csr: CSR, x: Tensor, other: Tensor, factor: Tensor | None, other_factor: Tensor | None,
        wants_x: bool, wants_factor: bool,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """The gradients in the operand and the factor of the rows of ``csr``, in one pass."""
        if not (wants_x or wants_factor):
            return None, None
        first, count = phi if wants_factor else phi.after(1), wants_x + wants_factor
        found = _rows(csr, x, other, other_factor, value, first, count, backend)
        of_x = of_factor = None
        if wants_x:
            of_x = found[-1] if factor is None else _scaled(factor, found[-1])
        if wants_factor and factor is not None:
            of_factor = found[0].sum(0, keepdim=True) if factor.size(0) == 1 else found[0]
        return of_x, of_factor

    wants_a, wants_b, wants_left, wants_right = wanted
    of_a, of_left = of_end(csr, a, b, left, right, wants_a, wants_left)
    of_b, of_right = of_end(csr.T, b, a, right, left, wants_b, wants_right)
    return of_a, of_b, of_left, of_right
