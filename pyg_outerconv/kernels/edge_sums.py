"""Sums over edges that are in no order, of graphs so small that sorting them costs more."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import BACKENDS, Request
from .dispatch import RECORDERS, forced, note

MOST = 2**15
"""The numbers that messages may be at most, edges times channels: those of a cache."""

_EXACT = (torch.float32, torch.float64)  # sums of short types are rounded at every step


def is_small(num_edges: int, x: Tensor) -> bool:
    """Whether :func:`edge_sums` may run: messages are few, and nothing wants to see a kernel."""
    return (
        num_edges * (x.numel() // max(1, x.size(0))) <= MOST
        and x.is_cpu
        and x.dtype in _EXACT
        and forced() is None
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._is_tracing()  # which would keep the numbers of this graph
    )


def edge_sums(
    source: Tensor, target: Tensor, value: Tensor | None, x: Tensor, num_rows: int
) -> Tensor:
    """``out[n] = sum_{e: target[e] = n} value[e] x[source[e]]``, by torch's own operators.

    Args:
        source, target: (E,) int64.
        value: (E,) of the type of ``x``, or None for ones.
        x: (rows, channels); see :func:`is_small`.
        num_rows: N.

    Returns:
        (N, channels), zero where no edge arrives; differentiable any number of times.
    """
    if RECORDERS:
        shape = (num_rows, x.size(0))
        size = source.numel(), x.size(1)
        note(BACKENDS["native"], Request("spmm", "cpu", x.dtype, source.dtype, shape, *size))
    return add_up(source, target, value, x, num_rows)


def add_up(
    source: Tensor, target: Tensor, value: Tensor | None, x: Tensor, num_rows: int
) -> Tensor:
    """:func:`edge_sums` of x (rows, *, P) and values (E, *), of which no recorder hears."""
    sent = x.index_select(0, source)
    if value is not None:
        sent = sent * value.unsqueeze(-1)
    return sent.new_zeros((num_rows, *sent.shape[1:])).index_add_(0, target, sent)
