"""What heads give each of the edges that a user listed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..basis import Basis
from ..basis.attended import Attended
from ..basis.heads import Heads


def shares_of_edges(basis: Basis, edge_index: Any) -> Tensor | None:
    """(E, H) the values of the edges that were given, then those of edges that the family added.

    Row e adds up what all edges of the basis give that stem from edge e of ``edge_index``; an edge
    that the family left out has zeros. PyG's explainers of attention read it.

    Returns:
        None where edges of the basis stem from none that were given, or values are of a batch.
    """
    heads = basis.heads() if isinstance(basis, Attended) else basis
    if not isinstance(heads, Heads) or heads.batch or heads.pattern.origin is None:
        return None
    if not isinstance(edge_index, Tensor) or edge_index.is_sparse or edge_index.dim() != 2:
        return None
    pattern, value, given = heads.pattern, heads.value, edge_index.size(1)
    origin = heads.pattern.origin.long()
    added = origin < 0
    row = origin.masked_scatter(added, given + added.long().cumsum(0)[added] - 1)
    shares = value.new_zeros(given + int(added.sum()), pattern.num_labels, value.size(1))
    return shares.index_put((row, pattern.label.long()), value, accumulate=True).flatten(1)
