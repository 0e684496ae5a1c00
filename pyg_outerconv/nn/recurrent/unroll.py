"""A cell run over time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import RefusedValue, refusal
from .cell import RecurrentCell, State


def unroll(
    cell: RecurrentCell[State],
    xs: Tensor,
    edge_index: Any,
    state: State | None = None,
    **beside: Any,
) -> tuple[Tensor, State]:
    """Run a cell over a sequence on edges that stay, whose basis is made once.

    Args:
        cell: a recurrent cell.
        xs: (T, *batch, N, P), the inputs of T >= 1 steps.
        edge_index: see :meth:`RecurrentCell.forward`.
        state: that before the first step, zeros if None.
        **beside: ``edge_weight``, ``edge_type``, ``batch``, ``edge_attr`` and ``pos``.

    Returns:
        H of every step, (T, *batch, N, Q), and the last state.

    Raises:
        TypeError, ValueError: see :class:`RecurrentCell`; and ``xs`` has no step.
    """
    if not isinstance(xs, Tensor) or xs.dim() < 3 or xs.size(0) == 0:
        raise RefusedValue(
            refusal(
                "a cell runs over a sequence of steps",
                "(T, *batch, N, P) with T >= 1",
                tuple(xs.shape) if isinstance(xs, Tensor) else type(xs).__name__,
            )
        )
    shared = cell.share(xs[0], edge_index, **beside)
    outputs = []
    for x in xs:
        state = cell.step(x, shared, state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    assert state is not None  # there was a step
    return torch.stack(outputs), state
