"""Scores of the entries of a sparse matrix: dot products or sums of row and column operands."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import RefusedValue, unknown
from ..signatures import typed
from .csr import CSR
from .dispatch import pick
from .edge_lists import spread
from .operands import agreeing, check_order
from .primitive import Primitive
from .products import in_order, sample
from .softmax import sum_of_rows

OPERATIONS = ("dot", "add")


@typed
def sddmm(csr: CSR, a: Tensor, b: Tensor, *, op: str = "dot") -> Tensor:
    """The score of each entry of a sparse matrix (R × C), from its row and its column.

    ``'dot'``: ``out[e, h] = <a[row of e, h, :], b[col of e, h, :]>``;
    ``'add'``: ``out[e, h] = a[row of e, h] + b[col of e, h]``. Entries are in row order;
    differentiable in ``a`` and ``b`` any number of times.

    Args:
        csr: the places of the E entries.
        a: (R, channels) or (R, H, channels); for ``'add'`` (R,) or (R, H).
        b: (C, channels) or (C, H, channels); for ``'add'`` (C,) or (C, H). For ``'dot'``, one of
            the two may have a single head, which is used for all.
        op: 'dot' or 'add'.

    Returns:
        (E,), or (E, H) where the operands have heads.

    Raises:
        ValueError: the shapes do not fit, the operation is unknown, or no backend can serve the
            call.
        TypeError: ``a`` and ``b`` have different dtypes.
    """
    if op not in OPERATIONS:
        raise RefusedValue(unknown("op of sddmm", op, OPERATIONS))
    check_order("sddmm", csr)
    a, b = agreeing("sddmm", csr.ptr, a, b)  # type: ignore[assignment]
    rows, cols = csr.shape
    dims = (2, 3) if op == "dot" else (1, 2)
    heads = [x.size(1) if x.dim() == dims[1] else 1 for x in (a, b)]
    fits = (
        a.dim() == b.dim()
        and a.dim() in dims
        and (a.size(0), b.size(0)) == (rows, cols)
        and (op == "add" or a.size(-1) == b.size(-1))
        and (heads[0] == heads[1] or (op == "dot" and 1 in heads))
    )
    if not fits:
        channels = ", channels" if op == "dot" else ""
        raise RefusedValue(
            "sddmm needs a row of a for every row, and a row of b for every column",
            f"({rows}, [H]{channels}) and ({cols}, [H]{channels})",
            f"{tuple(a.shape)} and {tuple(b.shape)}",
        )
    plain = a.dim() == dims[0]
    if plain:
        a, b = a.unsqueeze(1), b.unsqueeze(1)
    backend = pick("sddmm", csr, a)
    out = sample(csr, a, b, backend) if op == "dot" else _Add.apply(a, b, csr, backend)
    return out.squeeze(1) if plain else out


class _Add(Primitive):
    """out[e, h] = a[row of e, h] + b[col of e, h]; torch gathers, whatever the backend."""

    operands = 2
    saves = False

    @staticmethod
    def forward(a: Tensor, b: Tensor, csr: CSR, backend: str) -> Tensor:
        ptr, index = csr.ptr, csr.index
        rows = spread(a, ptr, index.numel())
        return rows + b.index_select(0, index)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        csr, backend = ctx.rest
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = sum_of_rows(csr.ptr, grad, backend)
        if ctx.needs_input_grad[1]:
            ptr, _, order = csr.columns
            of_b = sum_of_rows(ptr, in_order(grad, order), backend)
        return of_a, of_b

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return _Add.apply(*tangents, *ctx.rest)  # type: ignore[no-any-return]
