"""Receptive fields: the inputs that reach some outputs, without computing products or powers."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from ..graph.choice import Nodes, check_nodes

if TYPE_CHECKING:
    from .base import Basis

MOST_LAYERS = 100_000


def receptive_field(basis: Basis, targets: int | Nodes, reach: int = 1) -> Tensor:
    """The sources of edges of any label into ``targets``, edges of value 0 included.

    Sets of nodes are followed back through products and powers, factor by factor. Once a set
    repeats, further layers cost nothing; if none repeats within 100,000 layers, a greater reach is
    refused.

    Raises:
        TypeError: ``targets`` are not indices or a mask, or ``reach`` is not an integer.
        ValueError: a target is repeated; or ``reach`` is negative, not 1 although M ≠ N, or too
            large.
        IndexError: a target is out of range.
    """
    if not isinstance(reach, Integral) or isinstance(reach, bool):
        raise RefusedType(refusal("reach is a number of layers", "an integer", repr(reach)))
    nodes: Any = targets
    if isinstance(targets, int) and not isinstance(targets, bool):
        nodes = [targets]
    chosen = check_nodes("targets", nodes, basis.size[1], basis.device)
    if reach < 0 or (reach != 1 and basis.size[0] != basis.size[1]):
        raise RefusedValue(
            refusal(
                "several layers need a basis on one set of nodes",
                "reach = 1, or M = N and reach >= 0",
                f"reach={reach}, size {basis.size}",
            )
        )
    seen = torch.zeros(basis.size[1], dtype=torch.bool, device=basis.device)
    seen[slice(None) if chosen is None else chosen] = True
    return _layers_back(basis, seen, reach).nonzero().view(-1)


def _layers_back(basis: Basis, seen: Tensor, reach: int) -> Tensor:
    """The set ``seen`` (N,) followed back by ``reach`` layers, in few steps once sets repeat.

    From the first repetition on the sets are periodic (period 1 if constant). Repetitions are found
    by comparison with one earlier set (Brent, *An improved Monte Carlo factorization algorithm*,
    1980).
    """
    step, mark, marked, repeats = 0, seen, 0, False
    while step < reach:
        if step == MOST_LAYERS and not repeats:
            raise RefusedValue(
                refusal(
                    f"the sets of sources do not repeat within {MOST_LAYERS} layers",
                    f"reach <= {MOST_LAYERS}",
                    reach,
                )
            )
        seen, step = basis.reached(seen, range(basis.num_bases)), step + 1
        if not repeats and torch.equal(seen, mark):
            repeats, reach = True, step + (reach - step) % (step - marked)
        elif step >= 2 * marked:
            mark, marked = seen, step
    return seen
