"""Products of a sparse and a dense matrix, reduced by sum, mean, max or min."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from ..signatures import typed
from .backend import REDUCTIONS, Backend, Request, defines
from .csr import CSR
from .dispatch import pick, request_of
from .operands import agreeing, one_value_an_entry
from .primitive import LinearInEach, Primitive, operator
from .products import in_order, of_shared, product


@typed
def spmm(
    csr: CSR,
    value: Tensor | None,
    x: Tensor,
    *,
    aggr: str = "sum",
) -> Tensor:
    """Multiply a sparse matrix S (R × C) with a dense one.

    ``out[r, :] = reduce_c S[r, c] x[c, :]`` over the entries of row r; differentiable in ``value``
    and ``x``, any number of times. Rows without entries give zeros.

    Args:
        csr: the places of the E entries of S; ``csr.T`` multiplies with Sᵀ.
        value: the values, (E,), or (E, H) for H matrices with these entries, in the order of the
            rows of S, also where its transpose is given; None for ones.
        x: (C, channels), shared by all H matrices, or (C, H, channels).
        aggr: 'sum'; 'mean', the sum divided by the number of entries of the row; 'max' or 'min',
            whose gradient goes to the first of equal products.

    Returns:
        (R, channels), or (R, H, channels) if ``value`` or ``x`` has heads.

    Raises:
        ValueError: the shapes do not fit, the reduction is unknown, or no backend can serve the
            call.
        TypeError: ``value`` and ``x`` have different dtypes.
    """
    value, x = agreeing("spmm", csr.ptr, value, x)  # type: ignore[assignment]
    cols = csr.shape[1]
    if aggr not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", aggr, REDUCTIONS))
    if x.dim() not in (2, 3) or x.size(0) != cols:
        raise RefusedValue(
            "spmm needs x that fits the matrix",
            f"({cols}, channels) or ({cols}, H, channels)",
            tuple(x.shape),
        )
    plain = x.dim() == 2 and (value is None or value.dim() == 1)
    x = x.unsqueeze(1) if x.dim() == 2 else x
    if value is not None:
        value = one_value_an_entry("spmm", value, csr.num_entries)
        if x.size(1) > 1 and value.size(1) not in (1, x.size(1)):
            raise RefusedValue(
                "spmm needs as many heads of values as of x", x.size(1), value.size(1)
            )
    out = reduce_rows(csr, value, x, aggr)
    return out.squeeze(1) if plain else out


def reduce_rows(
    csr: CSR,
    value: Tensor | None,
    x: Tensor,
    aggr: str = "sum",
    by_column: Tensor | None = None,
) -> Tensor:
    """:func:`spmm` for operands that fit, (E, H) and (C, H, channels): (R, H, channels).

    ``by_column``: as in :func:`.product`.
    """
    backend = pick("spmm", csr, x, aggr)
    if aggr in ("max", "min"):
        return _extreme(csr, value, x, backend, largest=aggr == "max")
    out = product(csr, value, x, backend, by_column)
    if aggr == "mean":
        count = csr.ptr.diff().clamp(min=1).to(out.dtype)
        out = out / count.view(-1, 1, 1)
    return out


# Max and min: a kernel finds the entry, torch gathers the value --------------------------------

_spmm_arg = operator(
    Backend.spmm_arg,
    lambda ptr, index, value, x, largest: request_of(
        "spmm", ptr, index, x.size(0), x, "max" if largest else "min"
    ),
    direct=False,  # torch finds the entries with gradients enabled, which hooks would notice
)


def _extreme(csr: CSR, value: Tensor | None, x: Tensor, backend: str, *, largest: bool) -> Tensor:
    """out[r, h, c] = max (or min) over the entries e of row r of value[e, h] x[index[e], h, c].

    Rows without entries give zeros. The gradient goes to the first of equal products.
    """
    ptr, index, order = csr.ptr, csr.index, csr.order
    if value is not None and value.size(1) == 1 and x.size(1) > 1:
        value = value.expand(-1, x.size(1))
    in_place, value = value, in_order(value, order)
    (arg,) = _Arguments.apply(value, x, ptr, index, largest, backend)
    if index.numel() == 0:
        zero = x[:0].sum() if value is None else x[:0].sum() + value.sum()
        return x.new_zeros(arg.shape) + zero  # zeros with gradients of zero
    if defines(backend, Backend.chosen):
        # Entries by their position among the values, which a matrix and its transpose share.
        place = arg if order is None else torch.where(arg < 0, arg, order[arg.clamp(min=0)].long())
        arg = place.to(index.dtype)
        return _Chosen.apply(in_place, x, csr, arg, backend)  # type: ignore[no-any-return]
    has_entry, entry = arg >= 0, arg.clamp(min=0)
    # Gather from flat tensors: their gradients need no tensor of entries × channels, and are summed
    # in a fixed order on CUDA too.
    head, channel = (torch.arange(n, device=x.device) for n in arg.shape[1:])
    of_head = head.unsqueeze(-1) if x.size(1) > 1 else 0
    place = (index.long()[entry] * x.size(1) + of_head) * x.size(2) + channel
    # Mask each factor, so that rows without entries get no gradient from entry 0, which they look
    # up: not even NaN, of zero times infinity.
    chosen = torch.where(has_entry, x.flatten()[place], 0.0)
    if value is not None:
        weight = value.flatten()[entry * value.size(1) + head.unsqueeze(-1)]
        chosen = chosen * torch.where(has_entry, weight, 0.0)
    return chosen


class _Arguments(Primitive):
    """The position of the largest or least product of each row: no derivative, but a vmap rule.

    It returns a tuple, because torch.compile cannot trace a single tensor without a derivative.
    """

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(
        value: Tensor | None, x: Tensor, ptr: Tensor, index: Tensor, largest: bool, backend: str
    ) -> tuple[Tensor]:
        return (_spmm_arg(ptr, index, value, x, largest, backend),)

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[None]:
        return (None,)


# The chosen entries: a product, and the two that are its gradients, whose own are these again --

_chosen = operator(
    Backend.chosen,
    lambda index, arg, value, x: Request(
        "spmm",
        x.device.type,
        x.dtype,
        index.dtype,
        (arg.size(0), x.size(0)),
        index.numel(),
        x.size(2),
        arg.size(1),
        "max",
    ),
)
_chosen_sum = operator(
    Backend.chosen_sum,
    lambda ptr, index, perm, arg, value, x: request_of("spmm", ptr, index, x.size(0), x, "max"),
)
_chosen_sample = operator(
    Backend.chosen_sample,
    lambda ptr, index, perm, arg, a, b: request_of("spmm", ptr, index, b.size(0), b, "max"),
)


class _Chosen(LinearInEach, Primitive):
    """``out[r, h, c] = value[e, h] x[column of e, h, c]`` for the entry e = ``arg[r, h, c]``.

    Values, and the entries in ``arg``, are in the order of the rows of the untransposed matrix.
    """

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(value: Tensor | None, x: Tensor, csr: CSR, arg: Tensor, backend: str) -> Tensor:
        index = csr.index
        if csr.order is not None:  # the column of each entry, in the order of the values
            index = torch.empty_like(index).index_copy_(0, csr.order.long(), index)
        return _chosen(index, arg, value, x, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, x), rest = ctx.saved_tensors, ctx.rest
        of_value = of_x = None
        if value is not None and ctx.needs_input_grad[0]:
            of_value = _ChosenSample.apply(grad, x, *rest)
        if ctx.needs_input_grad[1]:
            of_x = of_shared(_ChosenSum.apply(value, grad, *rest), x.size(1))
        return of_value, of_x


class _ChosenSum(LinearInEach, Primitive):
    """``out[c, h, p] = sum value[e, h] a[row of e, h, p]`` of the entries that chose column c."""

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(value: Tensor | None, a: Tensor, csr: CSR, arg: Tensor, backend: str) -> Tensor:
        return _chosen_sum(*csr.columns, arg, value, a, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value, a), rest = ctx.saved_tensors, ctx.rest
        of_value = of_a = None
        if value is not None and ctx.needs_input_grad[0]:
            of_value = _ChosenSample.apply(a, grad, *rest)
        if ctx.needs_input_grad[1]:
            of_a = _Chosen.apply(value, grad, *rest)
        return of_value, of_a


class _ChosenSample(LinearInEach, Primitive):
    """``out[e, h] = sum_p a[row of e, h, p] x[column of e, h, p]`` where e is the chosen entry."""

    operands = 2
    batch_axis = None

    @staticmethod
    def forward(a: Tensor, x: Tensor, csr: CSR, arg: Tensor, backend: str) -> Tensor:
        return _chosen_sample(csr.ptr, csr.index, csr.order, arg, a, x, backend)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, x), rest = ctx.saved_tensors, ctx.rest
        of_a = of_x = None
        if ctx.needs_input_grad[0]:
            of_a = _Chosen.apply(grad, x, *rest)
        if ctx.needs_input_grad[1]:
            of_x = of_shared(_ChosenSum.apply(grad, a, *rest), x.size(1))
        return of_a, of_x


# Propagate and transform in one step -----------------------------------------------------------


def fused_request(ptr: Tensor, index: Tensor, num_cols: int, theta: Tensor) -> Request:
    """The :class:`Request` of a call of :func:`spmm_theta`, with Q as its channels."""
    shape, kinds = (ptr.numel() - 1, num_cols), (theta.device.type, theta.dtype, index.dtype)
    return Request("spmm_theta", *kinds, shape, index.numel(), theta.size(2))


# Its derivatives are in ``pyg_outerconv.contract.orders.fused``.
spmm_theta = operator(
    Backend.spmm_theta,
    lambda ptr, index, label, value, x, theta: fused_request(ptr, index, x.size(0), theta),
)
