"""Cliques: targets see the sources of their own block, as a rule."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .. import kernels
from ..errors import RefusedType, RefusedValue, refusal
from ..kernels.lasting import lasting
from .between import as_list, spread_runs
from .dense_rule import ADDS_NO_BIAS, Beside, DenseRule, Pairs
from .edges import EdgeBasis
from .implicit_edges import unlabelled_edges
from .kind import TensorMap


@dataclass(frozen=True, eq=False, repr=False)
class SameBlock(DenseRule):
    r"""One M × N matrix with ones where source and target are of one block.

    .. math:: A_0[m, n] = 1 \iff s_m = t_n \ge 0

    The graphs of a batch, the windows of an image, the members of sets and those who ask them.

    Attributes:
        source_block: s (M,), the block of each source; a negative number is no block.
        target_block: t (N,), that of each target.
        counts: of edges and pairs, once they were asked for.
        sorted_once: the blocks by size, once they were asked for.

    Raises:
        TypeError: blocks are no integers.
        ValueError: they are no lists, or in two places.
    """

    source_block: Tensor
    target_block: Tensor
    on: torch.device = field(init=False)
    counts: dict[str, int] = field(default_factory=dict, init=False)
    sorted_once: list[kernels.NodeBlocks] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name in ("source_block", "target_block"):
            block = getattr(self, name)
            if not isinstance(block, Tensor) or block.is_floating_point() or block.is_complex():
                got = getattr(block, "dtype", type(block).__name__)
                raise RefusedType(refusal(f"{name} numbers blocks", "integers", got))
            if block.dim() != 1:
                raise RefusedValue(
                    refusal(f"{name} has one block for each node", "a list", tuple(block.shape))
                )
        ends = self.source_block.device, self.target_block.device
        if ends[0] != ends[1]:
            raise RefusedValue(refusal("blocks of both ends are in one place", *ends))
        object.__setattr__(self, "on", ends[0])

    @staticmethod
    def of_graphs(source_graph: Tensor, target_graph: Tensor) -> SameBlock:
        """Nodes that see those of their own graph.

        The numbers are copied: a basis that is kept by the tensors it was made of must not hold
        them, or none of them would ever be freed.
        """
        same = target_graph is source_graph
        source = source_graph.clone()
        return SameBlock(source, source if same else target_graph.clone())

    @property
    def num_bases(self) -> int:
        """1."""
        return 1

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.source_block.numel(), self.target_block.numel()

    # Counts ---------------------------------------------------------------------------------

    def _count(self, what: str) -> int:
        # No cached property: up to Python 3.11 it has a lock, which a compiler cannot enter.
        if not self.counts:
            seen, seeing = self._runs()[2], self.transpose()._runs()[2]
            self.counts["edges"] = int(seen.sum())
            self.counts["sources"] = int((seeing > 0).sum())
            self.counts["targets"] = int((seen > 0).sum())
        return self.counts[what]

    @property
    def num_edges(self) -> int:
        """E, over blocks the number of sources times that of targets."""
        return self._count("edges")

    @property
    def num_source_pairs(self) -> int:
        """U_in, the number of sources whose block has targets."""
        return self._count("sources")

    @property
    def num_target_pairs(self) -> int:
        """U_out, the number of targets whose block has sources."""
        return self._count("targets")

    @property
    def sorted_blocks(self) -> kernels.NodeBlocks:
        """The blocks by size, for kernels that take those of one size together; sorted once."""
        if not self.sorted_once:
            with lasting(self.source_block):
                # No block is -1 at one end and -2 at the other, which never meet.
                source, target = self.source_block.long(), self.target_block.long()
                source, target = (
                    source.masked_fill(source < 0, -1),
                    target.masked_fill(target < 0, -2),
                )
                self.sorted_once.append(kernels.blocks_of(source, target))
        return self.sorted_once[0]

    # Edges ----------------------------------------------------------------------------------

    def _runs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sources by block (M,), where the block of each target begins there, and its length."""
        block, order = self.source_block.long().sort(stable=True)
        wanted = self.target_block.long()
        begin = torch.searchsorted(block, wanted)
        count = torch.searchsorted(block, wanted, right=True) - begin
        return order, begin, count.masked_fill(wanted < 0, 0)

    def make_edges(self) -> EdgeBasis:
        """For each target the sources of its block, ascending."""
        order, begin, count = self._runs()
        target, within = spread_runs(count)
        return unlabelled_edges(order[begin[target] + within], target, self.size)

    def transpose(self) -> SameBlock:
        """The transposed matrix: the ends exchanged."""
        return SameBlock(self.target_block, self.source_block)

    def map(self, index_map: TensorMap, value_map: TensorMap) -> SameBlock:
        """See :meth:`Basis.map`."""
        source, target = index_map(self.source_block), index_map(self.target_block)
        same = source is self.source_block and target is self.target_block
        return self if same else SameBlock(source, target)

    def narrowed(self, place: range | Tensor) -> SameBlock:
        """See :meth:`ImplicitEdges.narrowed`: cliques again."""
        at = as_list(place, self.on)
        return SameBlock(self.source_block, self.target_block.index_select(0, at))

    # Attention ------------------------------------------------------------------------------

    @property
    def is_sorted(self) -> bool:
        """See :attr:`DenseRule.is_sorted`: whether blocks are sorted."""
        return bool(self.sorted_once)

    def lacks(self, beside: Beside) -> list[str]:
        """See :meth:`DenseRule.lacks`."""
        reasons = [ADDS_NO_BIAS] if beside.bias else []
        if beside.present:
            reasons.append("sees all sources of a clique, and some are not present")
        return reasons

    def pairs(self, beside: Beside) -> Pairs:
        """See :meth:`DenseRule.pairs`: no others than the edges."""
        edges = float(self.num_edges)
        return Pairs(edges, edges * (beside.drops or (beside.bias and beside.learns)))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        present: Tensor | None,
        scale: float,
        dropped: float,
    ) -> Tensor:
        """See :meth:`DenseRule.attend`; cliques of one size go to torch together."""
        blocks = self.sorted_blocks
        return kernels.attend_blocks(query, key, value, blocks, scale=scale, dropout_p=dropped)

    def __repr__(self) -> str:
        return f"SameBlock(size={self.size}, device={str(self.on)!r})"
