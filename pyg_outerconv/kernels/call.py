"""Helpers with which the primitives check their arguments and pick a backend."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from ..errors import RefusedType, RefusedValue, refusal
from .backend import BACKENDS, Backend, Request
from .differentiable import Later, apply, is_lean
from .dispatch import CHOSEN, choose, forced, log_call, recording
from .index_checks import PLAIN
from .sparsity import BY_COLUMN, Sparsity

View = tuple[Tensor, Tensor, Tensor | None]
"""A sparse matrix or its transpose, as (ptr, index, perm). Values are always in row order: ``perm``
is None for the matrix itself, and the position of each entry in row order for its transpose."""


def views(sparsity: Sparsity, transpose: bool = False) -> tuple[View, Any]:
    """The view of a matrix and of its transpose, exchanged if ``transpose``.

    Forward passes do not read the second view; where possible it holds :class:`Later`, so that
    columns are sorted only for a backward pass.
    """
    by_row: View = (sparsity.rowptr, sparsity.col, None)
    if transpose:
        return (sparsity.colptr, sparsity.row, sparsity.perm), by_row
    if is_lean():
        return by_row, tuple([Later(partial(getattr, sparsity, name)) for name in BY_COLUMN])
    return by_row, (sparsity.colptr, sparsity.row, sparsity.perm)


def request(
    primitive: str, ptr: Tensor, index: Tensor, num_cols: int, x: Tensor, reduction: str = "sum"
) -> Request:
    """The :class:`Request` of a call with an operand ``x`` (rows, H, channels) or (rows, H)."""
    heads, channels = (*x.shape[1:], 1)[:2]
    shape = (ptr.numel() - 1, num_cols)
    return Request(
        primitive,
        x.device.type,
        x.dtype,
        index.dtype,
        shape,
        index.numel(),
        channels,
        heads,
        reduction,
    )


def log_if_recording(
    backend: Backend, primitive: str, ptr: Tensor, index: Tensor, num_cols: int, *rest: Any
) -> None:
    """Log a call if calls are recorded; arguments after ``primitive`` as in :func:`request`."""
    if recording():
        log_call(backend, request(primitive, ptr, index, num_cols, *rest))


def pick(primitive: str, view: View, num_cols: int, x: Tensor, reduction: str = "sum") -> Backend:
    """The backend for a call, as :func:`.dispatch.choose` chooses it; choices are cached."""
    key = (primitive, x.device.type, x.dtype, view[1].dtype, reduction, forced())
    name = CHOSEN.get(key)
    if name is None:
        name = choose(request(primitive, view[0], view[1], num_cols, x, reduction)).name
        CHOSEN[key] = name
    return BACKENDS[name]


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Turn autocast off in the block: the callers of kernels have settled the dtypes already."""
    on = torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else _NOTHING


_NOTHING = nullcontext()


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a kernel may be called directly, not as an operator of torch.

    This is so without a compiler, a tracer, a dispatch mode, and wrapped tensors of ``torch.func``.
    Dispatch to an operator written in Python takes as long as a small product.
    """
    return (
        not torch.compiler.is_compiling()
        and _len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()
        and all(
            tensor is None
            or (
                type(tensor) in PLAIN
                and not is_functorch_wrapped_tensor(tensor)
                and not is_legacy_batchedtensor(tensor)  # of is_grads_batched
            )
            for tensor in tensors
        )
    )


def item_by_item(
    function: Any, info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]
) -> tuple[Tensor, int]:
    """The vmap rule that calls a function once for each item of the batch."""
    outs = []
    for item in range(info.batch_size):
        one = [
            arg.select(dim, item) if isinstance(dim, int) else arg  # for a basis, dim is a pytree
            for arg, dim in zip(args, in_dims, strict=True)
        ]
        outs.append(apply(function, *one))
    return torch.stack(outs), 0


def distinct_views(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors, with each repetition of a tensor replaced by a view of it.

    torch.compile cannot trace an ``autograd.Function`` that gets the same tensor twice.
    """
    out: list[Tensor | None] = []
    for tensor in tensors:
        again = tensor is not None and any(tensor is other for other in out)
        out.append(tensor.view_as(tensor) if tensor is not None and again else tensor)
    return out


def same_dtype(what: str, *tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors, checked to have one dtype; autocast converts tensors of different dtypes.

    Raises:
        TypeError: the dtypes differ.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    first = present[0]
    if torch.is_autocast_enabled(first.device.type):
        short = torch.get_autocast_dtype(first.device.type)
        if any(tensor.dtype != first.dtype for tensor in present):
            return [None if tensor is None else tensor.to(short) for tensor in tensors]
    for tensor in present:
        if tensor.dtype != first.dtype:
            raise RefusedType(
                refusal(f"{what} needs operands of one dtype", first.dtype, tensor.dtype)
            )
    return list(tensors)


def one_value_an_entry(what: str, value: Tensor, num_entries: int) -> Tensor:
    """``value`` (E,) or (E, H), as (E, H).

    Raises:
        ValueError: ``value`` has another shape.
    """
    if value.dim() not in (1, 2) or value.size(0) != num_entries:
        raise RefusedValue(
            refusal(
                f"{what} needs a value for each entry, or for each entry and head",
                f"({num_entries},) or ({num_entries}, H)",
                tuple(value.shape),
            )
        )
    return value.unsqueeze(-1) if value.dim() == 1 else value
