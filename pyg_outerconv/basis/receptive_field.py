"""The sources that reach some targets along edges, in one or several layers over a basis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.choice import Nodes, check_nodes
from .base import Basis
from .edges import EdgeBasis
from .registry import makes

MOST_LAYERS = 100_000


@makes("reached")
@singledispatch
def reached(basis: Basis, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    """(M,) booleans: sources of edges with a label in ``labels`` into targets ``seen`` (N,).

    With ``transposed``, from seen sources (M,) to the targets (N,) of their edges.
    """
    return reached(basis.simpler(), seen, labels, transposed)


@reached.register
def _(basis: EdgeBasis, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    pattern = basis.pattern
    starts, ends = pattern.source, pattern.target
    starts, ends = (ends, starts) if transposed else (starts, ends)
    counts = torch.zeros(pattern.num_labels, dtype=torch.bool, device=pattern.device)
    counts[list(labels)] = True
    used = seen.index_select(0, ends) & counts.index_select(0, pattern.label)
    out = seen.new_zeros(basis.size[transposed])
    out[starts[used].long()] = True
    return out


@makes("receptive_field")
def receptive_field(basis: Basis, targets: int | Nodes, reach: int) -> Tensor:
    """The sources, ascending, that reach some targets by edges of any label, even of value 0.

    Sets of nodes are followed back through products and powers, factor by factor.

    Args:
        targets: one index, distinct indices (a tuple is a list of indices, not the coordinates
            of a cell), a mask (N,), or None for all.
        reach: the number of layers over this basis; more than one needs M = N, rows and columns
            being the same nodes. The computation stops early once the set of sources repeats;
            if it takes more than 100,000 layers to repeat, a greater reach is refused.
    """
    if not isinstance(reach, Integral) or isinstance(reach, bool):
        raise RefusedType("reach is a number of layers", "an integer", repr(reach))
    is_one = isinstance(targets, int) and not isinstance(targets, bool)
    nodes: Any = [targets] if is_one else targets
    chosen = check_nodes("targets", nodes, basis.size[1], basis.device)
    if reach < 0 or (reach != 1 and basis.size[0] != basis.size[1]):
        raise RefusedValue(
            "several layers need a basis on one set of nodes",
            "reach = 1, or M = N and reach >= 0",
            f"reach={reach}, size {basis.size}",
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
                f"the sets of sources do not repeat within {MOST_LAYERS} layers",
                f"reach <= {MOST_LAYERS}",
                reach,
            )
        seen, step = reached(basis, seen, range(basis.num_bases)), step + 1
        if not repeats and torch.equal(seen, mark):
            repeats, reach = True, step + (reach - step) % (step - marked)
        elif step >= 2 * marked:
            mark, marked = seen, step
    return seen
