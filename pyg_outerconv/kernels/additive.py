"""Additive scores of the entries of a sparse matrix, in one primitive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from ..signatures import typed
from .activation import ACTIVATIONS, Activation
from .backend import Backend, Neurons, Request, defines
from .backends.native import Native
from .csr import CSR
from .dispatch import pick, request_of
from .edge_lists import spread
from .index_checks import is_exporting
from .operands import agreeing, check_order
from .primitive import Primitive, is_differentiated, is_plain, operator
from .products import in_order
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
    return _score(csr, Neurons(a, b, weight.unsqueeze(0), None, phi), backend)


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


def _score(csr: CSR, layer: Neurons, backend: str) -> Tensor:
    """Scores (E, H) of the entries, in row order, of a matrix by row."""
    if layer.phi.vanishes:
        return layer.a.new_zeros((csr.num_entries, layer.a.size(1)))
    return _Score.apply(*layer[:4], csr, layer.phi, backend)  # type: ignore[no-any-return]


def _rows(csr: CSR, layer: Neurons, value: Tensor, count: int, backend: str) -> Tensor:
    """Weighted sums within rows, (count, R, H, P), for phi and its next derivatives.

    ``left`` is not read, and ``value`` (E, H) is in the order of the untransposed matrix.
    """
    a, b, _, right, phi = layer
    if phi.vanishes:
        return a.new_zeros((count, *a.shape))
    if right is not None and right.size(0) == 1:
        return _scaled(right, _rows(csr, layer._replace(right=None), value, count, backend))
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
        layer = Neurons(a, b, left, right, phi)
        if compiled and backend == Native.name and _is_plain(csr, layer):
            # A compiler makes one loop of this, which holds neither gathered rows nor their sums.
            rows = torch.arange(csr.shape[0], dtype=csr.index.dtype, device=a.device)
            row = spread(rows, csr.ptr, csr.index.size(0))
            z = exact(a).index_select(0, row) + exact(b).index_select(0, csr.index)
            return (phi.write(z, out=z) * left).sum(-1).to(a.dtype)  # type: ignore[operator]
        return _additive(csr.ptr, csr.index, a, b, left, right, *phi, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, left, right), (csr, phi, backend) = ctx.saved_tensors, ctx.rest
        layer, wanted = Neurons(a, b, left, right, phi), ctx.needs_input_grad[:4]
        if wanted == (True, True, True, False) and _in_one_pass(csr, layer, backend):
            gradients = _additive_backward(csr.ptr, csr.index, *layer[:4], *phi, grad, backend)
            return *gradients, None
        return _score_gradients(csr, layer, grad, wanted, backend)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        (a, b, left, right), (csr, phi, backend) = primals, ctx.rest
        of_a, of_b, of_left, of_right = tangents
        here, after = Neurons(a, b, left, right, phi), Neurons(a, b, left, right, phi.after(1))
        out = _score(csr, after._replace(left=_times(left, of_a)), backend)
        out = out + _score(csr, after._replace(right=_times(right, of_b)), backend)
        if left is not None:
            out = out + _score(csr, here._replace(left=of_left), backend)
        if right is not None:
            out = out + _score(csr, here._replace(right=of_right), backend)
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
        value = in_order(value, csr.order)
        return _additive_rows(csr.ptr, csr.index, a, b, None, right, *phi, value, count, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, right, value), (csr, first, count, backend) = ctx.saved_tensors, ctx.rest
        of_a, of_b, of_right, of_value = ctx.needs_input_grad[:4]
        wanted = of_a, of_b, False, of_right
        total: list[Tensor | None] = [None] * 4
        for number in range(count):
            # <above, rows> equals <value, score> with ``above`` as the factor ``left``.
            layer = Neurons(a, b, grad[number], right, first.after(number))
            of_operands = _score_gradients(csr, layer, value, wanted, backend)
            of_values = None
            if of_value and csr.order is not None:
                of_values = _score(csr.T, layer.turned(), backend)
            elif of_value:
                of_values = _score(csr, layer, backend)
            gradients = (*of_operands[:2], of_operands[3], of_values)
            total = [
                one if so_far is None or one is None else so_far + one
                for so_far, one in zip(total, gradients, strict=True)
            ]
        return tuple(total)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        (a, b, right, value), (csr, phi, *rest) = primals, ctx.rest
        of_a, of_b, of_right, of_value = tangents
        here, after = Neurons(a, b, None, right, phi), Neurons(a, b, None, right, phi.after(1))
        out = of_a * _rows(csr, after, value, *rest)
        out = out + _rows(csr, after._replace(right=_times(right, of_b)), value, *rest)
        out = out + _rows(csr, here, of_value, *rest)
        return (
            out if right is None else out + _rows(csr, here._replace(right=of_right), value, *rest)
        )


def _in_one_pass(csr: CSR, layer: Neurons, backend: str) -> bool:
    """Whether a backend computes all gradients of plain scores at once, which ends there."""
    own = defines(backend, Backend.additive_backward)
    return own and _is_plain(csr, layer) and not is_differentiated()


def _is_plain(csr: CSR, layer: Neurons) -> bool:
    """Whether these are scores by one weight for all rows, on a CPU, and no derivative of them."""
    one = layer.left is not None and layer.left.size(0) == 1 and layer.right is None
    return one and layer.phi.order == 0 and csr.order is None and layer.a.is_cpu


def _times(factor: Tensor | None, x: Tensor) -> Tensor:
    return x if factor is None else factor * x


def _score_gradients(
    csr: CSR, layer: Neurons, value: Tensor, wanted: tuple[bool, ...], backend: str
) -> tuple[Tensor | None, ...]:
    """The gradients of ``sum_eh value score`` in a, b, left and right; None where not wanted."""

    def of_end(
        csr: CSR, layer: Neurons, wants_x: bool, wants_factor: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients in the operand and the factor of the rows of ``csr``, in one pass."""
        if not (wants_x or wants_factor):
            return None, None
        factor, phi = layer.left, layer.phi if wants_factor else layer.phi.after(1)
        sums = _rows(csr, layer._replace(phi=phi), value, wants_x + wants_factor, backend)
        of_x = of_factor = None
        if wants_x:
            of_x = sums[-1] if factor is None else _scaled(factor, sums[-1])
        if wants_factor and factor is not None:
            of_factor = sums[0].sum(0, keepdim=True) if factor.size(0) == 1 else sums[0]
        return of_x, of_factor

    wants_a, wants_b, wants_left, wants_right = wanted
    of_a, of_left = of_end(csr, layer, wants_a, wants_left)
    of_b, of_right = of_end(csr.T, layer.turned(), wants_b, wants_right)
    return of_a, of_b, of_left, of_right
