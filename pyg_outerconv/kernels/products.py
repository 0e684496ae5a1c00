"""Sparse products and sampled dense products, whose derivatives are made of these two again.

All operands have heads: values (E, H), dense operands (rows, H or 1, channels); see
:class:`~pyg_outerconv.kernels.backend.Backend`. The public functions are in ``spmm.py`` and
``sddmm.py``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor

from .backend import Backend
from .csr import CSR
from .dispatch import pick, request_of
from .primitive import LinearInEach, Primitive, is_lean, operator
from .softmax import sum_of_rows

Values = TypeVar("Values", Tensor, "Tensor | None")

_spmm = operator(
    Backend.spmm, lambda ptr, index, value, x: request_of("spmm", ptr, index, x.size(0), x)
)
_sddmm = operator(
    Backend.sddmm, lambda ptr, index, a, b: request_of("sddmm", ptr, index, b.size(0), a)
)


def product(
    csr: CSR, value: Tensor | None, x: Tensor, backend: str, by_column: Tensor | None = None
) -> Tensor:
    """S x, (R, H, channels), for values (E, H), or None for ones, and x (C, H or 1, channels).

    ``by_column`` (E, H) has the values in the order of the columns, where they are stored so; the
    gradient in x then need not permute them.
    """
    if value is not None and value.size(1) == 1 != x.size(1):
        # One matrix for all heads of x: the heads become channels.
        out: Tensor = _SpMM.apply(value, x.flatten(1).unsqueeze(1), csr, backend, by_column)
        return out.squeeze(1).unflatten(1, x.shape[1:])
    return _SpMM.apply(value, x, csr, backend, by_column)  # type: ignore[no-any-return]


def sample(csr: CSR, a: Tensor, b: Tensor, backend: str) -> Tensor:
    """out[e, h] = <a[row of e, h], b[col of e, h]>, (E, H), of the entries, row by row."""
    if 0 in (a.size(1), b.size(1)):  # none has the one that all heads would share
        a, b = a[:, :0], b[:, :0]
    return _SDDMM.apply(a, b, csr, backend)  # type: ignore[no-any-return]


def in_order(value: Values, order: Tensor | None) -> Values:
    """Bring values (E, H) from row order into the order of a csr with this ``order``."""
    if value is None or order is None:
        return value
    if value.size(1) == 1:  # torch copies rows of a single number one by one: 15 ms for 1M, not 2
        return value.squeeze(1).index_select(0, order).unsqueeze(1)
    return value.index_select(0, order)


def of_shared(grad: Tensor, heads: int) -> Tensor:
    """Sum the gradient over the heads if the operand has a single one, which all share."""
    return grad if grad.size(1) == heads else grad.sum(1, keepdim=True)


class _SpMM(LinearInEach, Primitive):
    operands = 2

    @staticmethod
    def forward(
        value: Tensor | None, x: Tensor, csr: CSR, backend: str, by_column: Tensor | None
    ) -> Tensor:
        ptr, index, order = csr.ptr, csr.index, csr.order
        if order is None or by_column is None:
            by_column = in_order(value, order)
        return _spmm(ptr, index, by_column, x, backend)

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        value, x = operands
        ctx.heads = x.size(1)
        # Only the gradient of values reads x, so that x is not saved without it.
        ctx.save_for_backward(value, x if ctx.needs_input_grad[0] else None)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, x), (csr, backend, by_column) = ctx.saved_tensors, ctx.rest
        of_value = of_x = None
        if ctx.needs_input_grad[1]:
            by_column = by_column if is_lean() else None  # else values may be tangents of others
            of_x = of_shared(product(csr.T, value, grad, backend, by_column), ctx.heads)
        if value is not None and ctx.needs_input_grad[0]:
            # Values are in row order, so the gradient is sampled in the csr by row.
            if csr.order is not None:
                of_value = sample(csr.T, x, grad, backend)
            else:
                of_value = sample(csr, grad, x, backend)
        return of_value, of_x

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        (value, x, csr, backend, by_column), (value_dim, x_dim) = arguments, in_dims[:2]
        if value_dim is None:
            # Fold a batch of x into the channels.
            x = x.movedim(x_dim, -1)
            out = product(csr, value, x.flatten(-2), backend, by_column)
            return out.unflatten(-1, x.shape[-2:]), out.dim()
        # Fold a batch of matrices into the heads.
        value = value.movedim(value_dim, -1)
        if x_dim is not None:
            x = x.movedim(x_dim, 2)
        elif x.size(1) > 1 or value.size(1) > 1:
            x = x.unsqueeze(2).expand(-1, -1, info.batch_size, -1)
        if x.dim() == 4:
            x = x.expand(-1, value.size(1), -1, -1).flatten(1, 2)
        out = product(csr, value.flatten(1), x, backend)
        return out.unflatten(1, value.shape[1:]), 2


class _SDDMM(LinearInEach, Primitive):
    operands = 2

    @staticmethod
    def forward(a: Tensor, b: Tensor, csr: CSR, backend: str) -> Tensor:
        ptr, index = csr.ptr, csr.index
        return _sddmm(ptr, index, a, b, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b), (csr, backend) = ctx.saved_tensors, ctx.rest
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = of_shared(product(csr, grad, b, backend), a.size(1))
        if ctx.needs_input_grad[1]:
            of_b = of_shared(product(csr.T, grad, a, backend), b.size(1))
        return of_a, of_b


# Mixed labels ----------------------------------------------------------------------------------


def mixed_product(
    csr: CSR,
    label: Tensor,
    by_label: tuple[Tensor, Tensor],
    value: Tensor | None,
    coefficient: Tensor,
    x: Tensor,
) -> Tensor:
    """(Σ_k c_k A_k)ᵀ X, (N, ...), for the basis matrices A_k of one pattern N × M, and X (M, ...).

    Holds E mixed values while it runs; autograd would store them until the backward pass.
    Labels are (E,), values (E,) or None for ones, coefficients (K,), and ``by_label`` the entries
    sorted by label: pointers (K + 1,) and positions (E,).
    """
    wide = x.flatten(1).unsqueeze(1)
    value = None if value is None else value.to(x.dtype)
    backend = pick("spmm", csr, wide)
    operands = value, coefficient.to(x.dtype), wide
    out: Tensor = _MixedProduct.apply(*operands, csr, label, *by_label, backend)
    return out.squeeze(1).unflatten(1, x.shape[1:])


def _mixed(value: Tensor | None, coefficient: Tensor, label: Tensor) -> Tensor:
    """The mixed values ``value[e] c[label[e]]``, (E, 1)."""
    factor = coefficient.index_select(0, label)
    return (factor if value is None else value * factor).unsqueeze(1)


class _MixedProduct(Primitive):
    """The product, linear in values, c and X; backward computes the mixed values again."""

    operands = 3
    of_primitives = True

    @staticmethod
    def forward(
        value: Tensor | None,
        coefficient: Tensor,
        x: Tensor,
        csr: CSR,
        label: Tensor,
        label_ptr: Tensor,
        by_label: Tensor,
        backend: str,
    ) -> Tensor:
        return product(csr, _mixed(value, coefficient, label), x, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, coefficient, x), (csr, label, ptr, order, backend) = ctx.saved_tensors, ctx.rest
        wants_value, wants_coefficient, wants_x = ctx.needs_input_grad[:3]
        of_value = of_coefficient = of_x = None
        if wants_x:
            of_x = product(csr.T, _mixed(value, coefficient, label), grad, backend)
        if wants_value or wants_coefficient:
            sampled = sample(csr, grad, x, backend)
            if wants_value:
                of_value = (sampled * coefficient.index_select(0, label).unsqueeze(1)).squeeze(1)
            if wants_coefficient:
                weighted = sampled if value is None else sampled * value.unsqueeze(1)
                sums = sum_of_rows(ptr, in_order(weighted, order), backend)
                of_coefficient = sums.squeeze(1)
        return of_value, of_coefficient, of_x

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        (value, coefficient, x), (csr, label, _, _, backend) = primals, ctx.rest
        of_value, of_coefficient, of_x = tangents
        mixed = _mixed(value, of_coefficient, label)
        if value is not None:
            mixed = mixed + _mixed(of_value, coefficient, label)
        out = product(csr, _mixed(value, coefficient, label), of_x, backend)
        return out + product(csr, mixed, x, backend)
