"""Renumbering nodes, so that neighbours lie near each other in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from ..errors import RefusedValue, refusal
from .algebra import Composed, Derived, Repeated, Restricted, Stacked
from .edges import EdgeBasis
from .eye import Eye
from .pattern import Pattern
from .polynomial import Polynomial

if TYPE_CHECKING:
    from .base import Basis


class Reordered(NamedTuple):
    """A basis on renumbered nodes, and the way there and back.

    ``conv(x[nodes], basis)[place]`` is ``conv(x, …)`` on the basis that was renumbered.

    Attributes:
        basis: with nodes in their new order.
        nodes: (N,) the old number of each node.
        place: (N,) the new number of each old node.
    """

    basis: Basis
    nodes: Tensor
    place: Tensor


def reorder(basis: Basis) -> Reordered:
    """Renumber the nodes of a basis of one set of nodes by the reverse Cuthill–McKee algorithm.

    It keeps the numbers of neighbours close (George & Liu, *Computer Solution of Large Sparse
    Positive Definite Systems*, section 4.3), so that products read X from a cache. It looks at all
    labels at once, and at edges as if they ran both ways.

    Raises:
        ValueError: M ≠ N.
    """
    if basis.size[0] != basis.size[1]:
        raise RefusedValue(
            refusal(
                "renumbering needs one set of nodes, at both ends",
                "M = N",
                f"M = {basis.size[0]}, N = {basis.size[1]}",
            )
        )
    source, target = (end.cpu().numpy() for end in _skeleton(basis))
    ones = np.ones(2 * source.size, dtype=np.int8)
    ends = (np.concatenate([source, target]), np.concatenate([target, source]))
    matrix = coo_matrix((ones, ends), shape=basis.size).tocsr()
    order = np.arange(0)
    if matrix.shape[0]:  # scipy takes no empty matrix
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    nodes = torch.from_numpy(order.astype(np.int64)).to(basis.device)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    return Reordered(renumber(basis, place), nodes, place)


def renumber(basis: Basis, place: Tensor) -> Basis:
    """The basis in which node n is called ``place[n]``; lazy ones stay lazy."""
    if isinstance(basis, Stacked):
        return Stacked(tuple(renumber(part, place) for part in basis.parts))
    if _is_chain(basis):
        return Composed(renumber(basis.first, place), renumber(basis.second, place))
    if isinstance(basis, Derived) and not isinstance(basis, Repeated | Restricted):
        return replace(basis, base=renumber(basis.base, place))
    if isinstance(basis, Polynomial):
        operator = renumber(basis.operator, place)
        assert isinstance(operator, EdgeBasis)
        return Polynomial(operator, basis.recurrence, basis.num_terms)
    if isinstance(basis, Eye):
        return basis
    edges = basis.edges()
    pattern = edges.pattern
    moved = Pattern.build(
        place.index_select(0, pattern.index.flatten()).view(2, -1),
        pattern.label,
        size=pattern.size,
        num_labels=pattern.num_labels,
        origin=pattern.origin,
    )
    value = None if edges.value is None else moved.sort_values(edges.value)
    # Sorted edges are numbered as the user gave them, not as the old pattern had them.
    return EdgeBasis(replace(moved, order=pattern.order.index_select(0, moved.order)), value)


def _skeleton(basis: Basis) -> tuple[Tensor, Tensor]:
    """Sources and targets of all explicit edges that the basis is made of."""
    if isinstance(basis, Stacked):
        ends = [_skeleton(part) for part in basis.parts]
        return torch.cat([e[0] for e in ends]), torch.cat([e[1] for e in ends])
    if _is_chain(basis):
        ends = [_skeleton(part) for part in (basis.first, basis.second)]
        return torch.cat([e[0] for e in ends]), torch.cat([e[1] for e in ends])
    if isinstance(basis, Derived) and not isinstance(basis, Repeated | Restricted):
        return _skeleton(basis.base)
    if isinstance(basis, Polynomial):
        return _skeleton(basis.operator)
    if isinstance(basis, Eye):
        none = torch.empty(0, dtype=torch.int64, device=basis.device)
        return none, none
    pattern = basis.edges().pattern
    return pattern.source.long(), pattern.target.long()


def _is_chain(basis: Basis) -> TypeGuard[Composed]:
    """Whether it is a product of square matrices, whose middle can be renumbered as its ends."""
    return isinstance(basis, Composed) and basis.first.size[0] == basis.first.size[1]
