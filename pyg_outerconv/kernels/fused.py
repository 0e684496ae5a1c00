"""Propagate and transform in one step, as an operator without derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import BACKENDS, Request
from .dispatch import log_call

PRIMITIVE = "spmm_theta"


def fused_request(ptr: Tensor, index: Tensor, num_cols: int, theta: Tensor) -> Request:
    """The :class:`Request` of a call, with the output channels as its channels."""
    shape = (ptr.numel() - 1, num_cols)
    return Request(
        PRIMITIVE,
        theta.device.type,
        theta.dtype,
        index.dtype,
        shape,
        index.numel(),
        theta.size(2),
    )


@torch.library.custom_op("pyg_outerconv::spmm_theta", mutates_args=())
def spmm_theta(
    ptr: Tensor,
    index: Tensor,
    label: Tensor,
    value: Tensor | None,
    x: Tensor,
    theta: Tensor,
    backend: str,
) -> Tensor:
    """``out[r] = sum_{e of row r} value[e] x[index[e]] theta[label[e]]``, (R, Q).

    :mod:`pyg_outerconv.contract.orders.fused` defines the derivatives; the arguments are those of
    :meth:`.Backend.spmm_theta`.
    """
    implementation = BACKENDS[backend]
    log_call(implementation, fused_request(ptr, index, x.size(0), theta))
    value = None if value is None else value.contiguous()
    with torch.autocast(x.device.type, enabled=False):
        return implementation.spmm_theta(
            ptr, index, label.contiguous(), value, x.contiguous(), theta.contiguous()
        )


@spmm_theta.register_fake
def _(
    ptr: Tensor,
    index: Tensor,
    label: Tensor,
    value: Tensor | None,
    x: Tensor,
    theta: Tensor,
    backend: str,
) -> Tensor:
    return x.new_empty((ptr.numel() - 1, theta.size(2)))
