"""Renumbering nodes, so that neighbours lie near each other in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedValue, refusal

if TYPE_CHECKING:
    from .base import Basis
    from .edges import EdgeBasis


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
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if basis.size[0] != basis.size[1]:
        raise RefusedValue(
            refusal(
                "renumbering needs one set of nodes, at both ends",
                "M = N",
                f"M = {basis.size[0]}, N = {basis.size[1]}",
            )
        )
    source, target = (end.cpu().numpy() for end in _ends(basis))
    ones = np.ones(2 * source.size, dtype=np.int8)
    ends = (np.concatenate([source, target]), np.concatenate([target, source]))
    matrix = coo_matrix((ones, ends), shape=basis.size).tocsr()
    order = np.arange(0)
    if matrix.shape[0]:  # scipy takes no empty matrix
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    nodes = torch.from_numpy(order.astype(np.int64)).to(basis.device)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    renumbered = basis.with_edges(lambda edges: edges.renumbered(place), same_nodes=True)
    return Reordered(renumbered, nodes, place)


def _ends(basis: Basis) -> tuple[Tensor, Tensor]:
    """Sources and targets of all explicit edges that the basis is made of."""
    index = [torch.empty((2, 0), dtype=torch.int64, device=basis.device)]

    def note(edges: EdgeBasis) -> EdgeBasis:
        index.append(edges.index.long())
        return edges

    basis.with_edges(note, same_nodes=True)
    source, target = torch.cat(index, dim=1)
    return source, target
