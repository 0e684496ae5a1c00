"""The support of a product of features: all pairs, pairs within blocks, or causal pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal, unknown
from ..kernels.chunks import Chunks
from .band import Band, band_within, places
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .same_block import SameBlock

ORDERS_OF_TIME = ("inclusive", "strict")


class FeatureProductSupport(NamedTuple):
    """The support of a :class:`FeatureProduct`, with the attributes of the same names.

    Attributes:
        size: (M, N).
        causal: ``None``, ``'inclusive'`` or ``'strict'``.
        source_block: (M,) the block of each source, or None for a single block.
        target_block: (N,) the block of each target, or None.
        target_place: (N,) the position of each target in its sequence; None for input order.
    """

    size: tuple[int, int]
    causal: str | None = None
    source_block: Tensor | None = None
    target_block: Tensor | None = None
    target_place: Tensor | None = None

    @classmethod
    def of(cls, over: EdgeBasis | ImplicitEdges) -> FeatureProductSupport | None:
        """Read a basis as such a support; None if it is none."""
        if isinstance(over, SameBlock):
            ends = over.source_block, over.target_block
            if any(end.numel() and int(end.min()) < 0 for end in ends):
                return None  # some nodes have no block
            return cls(over.size, None, *ends)
        if not isinstance(over, Band) or over.left is not None or over.dilation != 1:
            return None
        if over.right is None:
            return cls(over.size)
        causal = {0: "inclusive", -1: "strict"}.get(over.right + over.offset)
        return None if causal is None else cls(over.size, causal)

    def check(self) -> None:
        """Check ``causal`` and the blocks.

        Raises:
            ValueError: ``causal`` is unknown, or the blocks do not fit the nodes.
            TypeError: blocks are not integers.
        """
        if self.causal not in (None, *ORDERS_OF_TIME):
            raise RefusedValue(unknown("order of time", self.causal, ORDERS_OF_TIME))
        blocks = (self.source_block, self.target_block)
        given = blocks[0] is not None or blocks[1] is not None
        for what, block, count in zip(("source", "target"), blocks, self.size, strict=True):
            if given and (block is None or block.shape != (count,)):
                got = None if block is None else tuple(block.shape)
                raise RefusedValue(refusal(f"blocks number every {what}", (count,), got))
            if block is not None and (block.is_floating_point() or block.dtype == torch.bool):
                raise RefusedType(refusal("blocks are numbered", "integers", block.dtype))

    def count_blocks(self) -> int:
        """Number of blocks: the largest block index plus one; 1 without blocks."""
        if self.source_block is None or self.target_block is None:
            return 1
        ends = [end.max() for end in (self.source_block, self.target_block) if end.numel()]
        return int(torch.stack(ends).max()) + 1 if ends else 1

    def pairs(self, device: torch.device) -> EdgeBasis | ImplicitEdges:
        """Edges of value 1 for all pairs, as a rule if possible."""
        right = {None: None, "inclusive": 0, "strict": -1}[self.causal]
        band = Band(*self.size, None, right, on=device)
        if self.source_block is None or self.target_block is None:
            if self.target_place is None or self.causal is None:
                return band
            one = [self.target_place.new_zeros(count) for count in self.size]
            return band_within(band, one[0], one[1], self.target_place)
        if self.causal is None:
            return SameBlock(self.source_block, self.target_block)
        return band_within(band, self.source_block, self.target_block, self.target_place)

    def chunks(self, size: int, count: int) -> Chunks:
        """Chunks of ``size`` places, each within one of ``count`` blocks."""
        if self.source_block is None or self.target_block is None:
            return Chunks(size, max(1, -(-max(self.size) // size)), target=self.target_place)
        blocks = (self.source_block.long(), self.target_block.long())
        longest = torch.stack([end.bincount(minlength=count) for end in blocks]).amax(0)
        several = (longest + size - 1) // size
        begin = (several.cumsum(0) - several) * size
        own = self.target_place
        within = places(blocks[0]), places(blocks[1]) if own is None else own
        place = [begin.index_select(0, end) + at for end, at in zip(blocks, within, strict=True)]
        block = torch.arange(count, device=begin.device).repeat_interleave(several)
        return Chunks(size, block.numel(), block, count, *place)
