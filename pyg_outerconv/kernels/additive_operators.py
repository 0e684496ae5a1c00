"""The operators of additive scores, without derivatives; a compiler sees each as one node.

``run_score`` and ``run_rows`` are the same functions for direct calls. ``additive_sums.py`` defines
the equations and the derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .activation import Activation
from .backend import BACKENDS
from .call import log_if_recording, without_autocast


def run_score(
    ptr: Tensor,
    index: Tensor,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    activation: str,
    slope: float,
    order: int,
    backend: str,
) -> Tensor:
    """Additive scores, (E, H); the equation is that of :meth:`.Backend.additive`."""
    implementation, phi = BACKENDS[backend], Activation(activation, slope, order)
    log_if_recording(implementation, "additive", ptr, index, b.size(0), a)
    factors = [None if x is None else x.contiguous() for x in (left, right)]
    with without_autocast(a.device.type):
        return implementation.additive(
            ptr, index, a.contiguous(), b.contiguous(), factors[0], factors[1], phi
        )


score_operator = torch.library.custom_op("pyg_outerconv::additive", run_score, mutates_args=())


@score_operator.register_fake
def _(
    ptr: Tensor,
    index: Tensor,
    a: Tensor,
    b: Tensor,
    left: Tensor | None,
    right: Tensor | None,
    activation: str,
    slope: float,
    order: int,
    backend: str,
) -> Tensor:
    return a.new_empty((index.numel(), a.size(1)))


def run_rows(
    ptr: Tensor,
    index: Tensor,
    perm: Tensor | None,
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
    """Weighted sums of :meth:`.Backend.additive_rows`, (count, R, H, P); values in row order."""
    implementation, phi = BACKENDS[backend], Activation(activation, slope, order)
    log_if_recording(implementation, "additive", ptr, index, b.size(0), a)
    right = None if right is None else right.contiguous()
    value = value.contiguous() if perm is None else value.index_select(0, perm)
    with without_autocast(a.device.type):
        return implementation.additive_rows(
            ptr, index, a.contiguous(), b.contiguous(), right, value, phi, count
        )


rows_operator = torch.library.custom_op("pyg_outerconv::additive_rows", run_rows, mutates_args=())


@rows_operator.register_fake
def _(
    ptr: Tensor,
    index: Tensor,
    perm: Tensor | None,
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
    return a.new_empty((count, *a.shape))
