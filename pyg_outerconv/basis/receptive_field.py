"""Receptive fields: which inputs reach some outputs, without making products or powers."""

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
    """The sources from which an edge of any label runs to ``targets``; a weight of 0 counts.

    Sets of nodes go back through products and powers, factor by factor. Layers beyond those after
    which the set settles, or repeats itself, cost nothing; where it does neither within 100,000, a
    greater reach is refused.

    Raises:
        TypeError, ValueError, IndexError: ``targets`` are no targets; or ``reach`` is not 1, and
            M ≠ N, or too many layers; see above.
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
                "a basis is applied several times where it has one set of nodes",
                "reach = 1, or M = N and reach >= 0",
                f"reach={reach}, size {basis.size}",
            )
        )
    seen = torch.zeros(basis.size[1], dtype=torch.bool, device=basis.device)
    seen[slice(None) if chosen is None else chosen] = True
    return _layers_back(basis, seen, reach).nonzero().view(-1)


def _layers_back(basis: Basis, seen: Tensor, reach: int) -> Tensor:
    """``seen`` (N,) as many layers back, by no more steps than it takes until the set repeats.

    A set that was there before comes back with the same period ever after (1 where it settles).
    It is compared with one earlier set, ever later ones (Brent, *An improved Monte Carlo
    factorization algorithm*, 1980).
    """
    step, mark, marked, repeats = 0, seen, 0, False
    while step < reach:
        if step == MOST_LAYERS and not repeats:
            raise RefusedValue(
                refusal(
                    f"the sources seen neither settle nor repeat within {MOST_LAYERS} layers",
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
