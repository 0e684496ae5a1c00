"""Chunks of equally many nodes, so that sums over blocks of nodes become dense products."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Chunks:
    """Places for sources and targets in chunks of C places; the nodes of a chunk are of one block.

    Attributes:
        size: C.
        count: the number of chunks.
        block: (chunks,) the block of each chunk, ascending; None if there is a single block.
        num_blocks: G.
        source: (M,) the place of each source; None if source m has place m.
        target: (N,) the place of each target; None if target n has place n.
    """

    size: int
    count: int
    block: Tensor | None = None
    num_blocks: int = 1
    source: Tensor | None = None
    target: Tensor | None = None

    def split(self, x: Tensor, place: Tensor | None, fill: float = 0.0) -> Tensor:
        """Move nodes to their places: (nodes, R, F) to (chunks, R, C, F), empty places ``fill``."""
        places = self.count * self.size
        if place is None:
            x = F.pad(x, (0, 0, 0, 0, 0, places - x.size(0)), value=fill)
        else:
            x = x.new_full((places, *x.shape[1:]), fill).index_copy(0, place, x)
        return x.unflatten(0, (self.count, self.size)).transpose(1, 2).contiguous()

    def join(self, x: Tensor, place: Tensor | None, num_nodes: int) -> Tensor:
        """The inverse of :meth:`split`: (chunks, R, C, F) to (nodes, R, F)."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x[:num_nodes] if place is None else x.index_select(0, place)
