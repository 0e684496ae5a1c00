"""Grouped products as operators of torch, which call the chosen backend."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import BACKENDS, Request
from .call import without_autocast
from .dispatch import log_call, recording


def request_of(x: Tensor, ptr: Tensor, theta: Tensor) -> Request:
    """The :class:`Request` of a call."""
    shape = (theta.size(0), x.size(0))
    return Request(
        "grouped_matmul", x.device.type, x.dtype, ptr.dtype, shape, x.size(0), theta.size(2)
    )


@torch.library.custom_op("pyg_outerconv::grouped_matmul", mutates_args=())
def matmul_operator(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int,
    backend: str,
) -> Tensor:
    """Multiply the rows of each group with its matrix, without derivatives: (num_rows, Q)."""
    implementation = BACKENDS[backend]
    if recording():
        log_call(implementation, request_of(x, ptr, theta))
    with without_autocast(x.device.type):
        return implementation.grouped_matmul(
            x.contiguous(), ptr, theta.contiguous(), _flat(gather), _flat(scatter), num_rows
        )


@matmul_operator.register_fake
def _(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    num_rows: int,
    backend: str,
) -> Tensor:
    return x.new_empty((num_rows, theta.size(2)))


@torch.library.custom_op("pyg_outerconv::grouped_outer", mutates_args=())
def outer_operator(
    x: Tensor,
    ptr: Tensor,
    y: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    backend: str,
) -> Tensor:
    """Sum the outer products of each group, without derivatives: (G, P, Q)."""
    implementation = BACKENDS[backend]
    with without_autocast(x.device.type):
        return implementation.grouped_outer(
            x.contiguous(), ptr, y.contiguous(), _flat(gather), _flat(scatter)
        )


@outer_operator.register_fake
def _(
    x: Tensor,
    ptr: Tensor,
    y: Tensor,
    gather: Tensor | None,
    scatter: Tensor | None,
    backend: str,
) -> Tensor:
    return x.new_empty((ptr.numel() - 1, x.size(1), y.size(1)))


def _flat(index: Tensor | None) -> Tensor | None:
    return None if index is None else index.contiguous()
