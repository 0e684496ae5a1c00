"""Renumbering of nodes, so that neighbours are close in memory."""

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
    """A basis on renumbered nodes, and the permutations between old and new numbers.

    ``conv(x[nodes], basis)[place]`` equals ``conv(x, …)`` on the original basis.

    Attributes:
        basis: the basis on renumbered nodes.
        nodes: (N,) the old number of each node.
        place: (N,) the new number of each old node.
    """

    basis: Basis
    nodes: Tensor
    place: Tensor


def reorder(basis: Basis) -> Reordered:
    """Renumber the nodes of a square basis by the reverse Cuthill–McKee algorithm.

    Neighbours get close numbers (George & Liu, *Computer Solution of Large Sparse Positive Definite
    Systems*, section 4.3), so that products read X from a processor cache. The edges of all labels
    are used together, as undirected edges.

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
    if matrix.shape[0]:  # scipy refuses an empty matrix
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    nodes = torch.from_numpy(order.astype(np.int64)).to(basis.device)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    renumbered = basis.with_edges(lambda edges: edges.renumbered(place), same_nodes=True)
    return Reordered(renumbered, nodes, place)


def _ends(basis: Basis) -> tuple[Tensor, Tensor]:
    """Sources and targets of all edge sets within the basis."""
    index = [torch.empty((2, 0), dtype=torch.int64, device=basis.device)]

    def note(edges: EdgeBasis) -> EdgeBasis:
        index.append(edges.index.long())
        return edges

    basis.with_edges(note, same_nodes=True)
    source, target = torch.cat(index, dim=1)
    return source, target
