"""Blocks as a rule: each target sees the sources of its own block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..errors import RefusedType, RefusedValue
from ..kernels.lasting import lasting
from ..memo import cached_property
from ..signatures import typed
from .edges import EdgeBasis
from .implicit_edges import ADDS_NO_BIAS, DenseRule, ExtraOperands, PairCounts, unlabelled_edges
from .subpattern import as_list, spread_runs


@typed
@dataclass(frozen=True, eq=False, repr=False)
class SameBlock(DenseRule):
    r"""One M × N matrix with ones where source and target belong to the same block.

    .. math:: A_0[m, n] = 1 \iff s_m = t_n \ge 0

    Blocks are the graphs of a batch, the windows of an image, or sets with their queries.

    Attributes:
        source_block: s (M,), the block of each source; negative for a source without a block.
        target_block: t (N,), the block of each target.

    Raises:
        TypeError: blocks are not integers.
        ValueError: blocks are not vectors, or on different devices.
    """

    source_block: Tensor
    target_block: Tensor
    on: torch.device = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("source_block", "target_block"):
            block = getattr(self, name)
            if not isinstance(block, Tensor) or block.is_floating_point() or block.is_complex():
                got = getattr(block, "dtype", type(block).__name__)
                raise RefusedType(f"{name} numbers blocks", "integers", got)
            if block.dim() != 1:
                raise RefusedValue(
                    f"{name} has one block for each node", "a vector", tuple(block.shape)
                )
        ends = self.source_block.device, self.target_block.device
        if ends[0] != ends[1]:
            raise RefusedValue("blocks of sources and targets are on one device", *ends)
        object.__setattr__(self, "on", ends[0])

    @staticmethod
    def of_graphs(source_graph: Tensor, target_graph: Tensor) -> SameBlock:
        """The blocks of a batch: each node sees the nodes of its own graph.

        The tensors are copied: a cache entry keyed by them must not keep them alive.
        """
        same = target_graph is source_graph
        source = source_graph.clone()
        return SameBlock(source, source if same else target_graph.clone())

    @property
    def size(self) -> tuple[int, int]:
        return self.source_block.numel(), self.target_block.numel()

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        seen, seeing = self._runs()[2], self.transpose()._runs()[2]
        return int(seen.sum()), int((seeing > 0).sum()), int((seen > 0).sum())

    @cached_property
    def sorted_blocks(self) -> kernels.NodeBlocks:
        """The blocks sorted by size, for kernels that process equal sizes together."""
        with lasting(self.source_block):
            # Sources without a block get -1 and targets -2, so that they never match.
            source, target = self.source_block.long(), self.target_block.long()
            return kernels.blocks_of(
                source.masked_fill(source < 0, -1), target.masked_fill(target < 0, -2)
            )

    # Edges ----------------------------------------------------------------------------------

    def _runs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sources sorted by block (M,); start and length of each target's block in these."""
        block, order = self.source_block.long().sort(stable=True)
        wanted = self.target_block.long()
        begin = torch.searchsorted(block, wanted)
        count = torch.searchsorted(block, wanted, right=True) - begin
        return order, begin, count.masked_fill(wanted < 0, 0)

    def make_edges(self) -> EdgeBasis:
        order, begin, count = self._runs()
        target, within = spread_runs(count)
        return unlabelled_edges(order[begin[target] + within], target, self.size)

    def transpose(self) -> SameBlock:
        """The transposed matrix, with sources and targets exchanged."""
        return SameBlock(self.target_block, self.source_block)

    def narrowed(self, place: range | Tensor) -> SameBlock:
        """The columns of some targets (N',), as a rule."""
        at = as_list(place, self.on)
        return SameBlock(self.source_block, self.target_block.index_select(0, at))

    # Attention ------------------------------------------------------------------------------

    @property
    def is_sorted(self) -> bool:
        """Whether the blocks have been sorted."""
        return "sorted_blocks" in vars(self)

    def lacks(self, beside: ExtraOperands) -> list[str]:
        reasons = [ADDS_NO_BIAS] if beside.bias else []
        if beside.present:
            reasons.append("attends to all sources of a block, and some are not present")
        return reasons

    def pairs(self, beside: ExtraOperands) -> PairCounts:
        """The pairs that attention computes: the edges alone."""
        edges = float(self.num_edges)
        return PairCounts(edges, edges * (beside.drops or (beside.bias and beside.learns)))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, **options: Any
    ) -> Tensor:
        """Attention within blocks; those of one size are computed together by torch."""
        del options["source_mask"]  # as `lacks` says, there is none
        return kernels.attend_blocks(query, key, value, self.sorted_blocks, **options)
