"""Products and samples of a sparse matrix without the entries that a bias of -inf excludes.

They serve calls that a compiler or a tracer records, where numbers cannot be looked at: an operator
looks when the recorded graph runs. The derivatives of the two are made of these two again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .absent_pairs import are_finite
from .attend_entries import kept_entries
from .csr import CSR
from .dispatch import pick
from .primitive import Primitive
from .products import product, sample


def kept_product(
    csr: CSR, value: Tensor, x: Tensor, bias: Tensor, backend: str | None = None
) -> Tensor:
    """S x, (R, H, channels), where entries with a bias of -inf are none, whatever they hold.

    Args:
        csr: the places of the entries of S.
        value: (E, H), in the order of the rows of S, also where ``csr`` is its transpose.
        x: (C, H or 1, channels), of the same dtype.
        bias: (E, H), in the order of ``value``; it gets no gradient.
        backend: the name of the backend, or None to pick one.
    """
    how = csr, backend or pick("spmm", csr, x)
    return _KeptProduct.apply(value, x, bias.detach(), *how)  # type: ignore[no-any-return]


def kept_sample(csr: CSR, a: Tensor, b: Tensor, bias: Tensor, backend: str | None = None) -> Tensor:
    """⟨a[row of e, h], b[col of e, h]⟩, (E, H), and 0 at entries with a bias of -inf.

    Args:
        csr: the places of the entries, row by row.
        a: (R, H or 1, channels).
        b: (C, H or 1, channels), of the same dtype.
        bias: (E, H); it gets no gradient.
        backend: the name of the backend, or None to pick one.
    """
    how = csr, backend or pick("sddmm", csr, a)
    return _KeptSample.apply(a, b, bias.detach(), *how)  # type: ignore[no-any-return]


def _like(grad: Tensor, operand: Tensor) -> Tensor:
    """The gradient of an operand; that of a single head, which all share, is the sum over heads."""
    return grad if grad.size(1) == operand.size(1) else grad.sum(1, keepdim=True)


class _KeptProduct(Primitive):
    operands = 3

    @staticmethod
    def forward(value: Tensor, x: Tensor, bias: Tensor, csr: CSR, backend: str) -> Tensor:
        out: Tensor = _kept_product(csr.ptr, csr.index, csr.order, value, x, bias, backend)
        return out

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, x, bias), (csr, backend) = ctx.saved_tensors, ctx.rest
        of_value = of_x = None
        if ctx.needs_input_grad[1]:
            of_x = _like(kept_product(csr.T, value, grad, bias, backend), x)
        if ctx.needs_input_grad[0]:  # sampled in the order of the values, which are by row
            rows, a, b = (csr, grad, x) if csr.order is None else (csr.T, x, grad)
            of_value = kept_sample(rows, a, b, bias, backend)
        return of_value, of_x, None

    # Neither has a tangent: forward mode is not recorded.


class _KeptSample(Primitive):
    operands = 3

    @staticmethod
    def forward(a: Tensor, b: Tensor, bias: Tensor, csr: CSR, backend: str) -> Tensor:
        return sample(csr, a, b, backend).masked_fill(bias == -torch.inf, 0.0)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, bias), (csr, backend) = ctx.saved_tensors, ctx.rest
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = _like(kept_product(csr, grad, b, bias, backend), a)
        if ctx.needs_input_grad[1]:
            of_b = _like(kept_product(csr.T, grad, a, bias, backend), b)
        return of_a, of_b, None


def _run(
    ptr: Tensor,
    index: Tensor,
    order: Tensor | None,
    value: Tensor,
    x: Tensor,
    bias: Tensor,
    backend: str,
) -> Tensor:
    """The product by all entries, with values of 0, if x is finite; else by those that are kept."""
    csr = CSR.of(ptr, index, x.size(0))
    if order is not None:
        value, bias = value.index_select(0, order), bias.index_select(0, order)
    if are_finite(x):
        return product(csr, value.masked_fill(bias == -torch.inf, 0.0), x, backend).contiguous()
    outs = []
    for head in range(bias.size(1)):
        one = slice(head, head + 1)
        entries, place = kept_entries(csr, bias[:, one])
        own = x[:, one] if x.size(1) > 1 else x
        outs.append(product(entries, value[:, one].index_select(0, place), own, backend))
    return torch.cat(outs, 1).contiguous()


_kept_product = torch.library.custom_op("pyg_outerconv::kept_product", _run, mutates_args=())


@_kept_product.register_fake
def _size(
    ptr: Tensor,
    index: Tensor,
    order: Tensor | None,
    value: Tensor,
    x: Tensor,
    bias: Tensor,
    backend: str,
) -> Tensor:
    return x.new_empty(ptr.numel() - 1, value.size(1), x.size(2))
