"""Chunks: nodes in runs of equal length, so that sums over blocks of them are dense products."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Chunks:
    """Places of sources and targets, of which every C in turn belong to one block of nodes.

    Attributes:
        size: C.
        count: the number of chunks.
        block: (chunks,) the block of each, ascending; None where all are of one.
        num_blocks: G.
        source: (M,) the place of each source; None where it is its number.
        target: (N,) that of each target.
    """

    size: int
    count: int
    block: Tensor | None = None
    num_blocks: int = 1
    source: Tensor | None = None
    target: Tensor | None = None

    def split(self, x: Tensor, place: Tensor | None, fill: float = 0.0) -> Tensor:
        """(nodes, R, F) as (chunks, R, C, F), with ``fill`` where no node has its place."""
        places = self.count * self.size
        if place is None:
            x = F.pad(x, (0, 0, 0, 0, 0, places - x.size(0)), value=fill)
        else:
            x = x.new_full((places, *x.shape[1:]), fill).index_copy(0, place, x)
        return x.unflatten(0, (self.count, self.size)).transpose(1, 2).contiguous()

    def join(self, x: Tensor, place: Tensor | None, num_nodes: int) -> Tensor:
        """(chunks, R, C, F) as (nodes, R, F), which :meth:`split` undoes."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x[:num_nodes] if place is None else x.index_select(0, place)
