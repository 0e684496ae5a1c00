"""Products of features as a basis: matrices of rank D, stored as two factors (linear attention)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..graph.positions import places
from ..kernels import sddmm, spmm
from ..kernels.linear_attention import Chunks, collect, of_all, on_edges, spread
from ..memo import cached_property
from ..theta import Theta
from .band import Band, band_within
from .base import Basis, Leaf
from .edges import EdgeBasis
from .implicit_edges import Edges
from .multi_head_edges import MultiHeadEdges, by_label, item, of_item
from .same_block import SameBlock

_SMALLEST, _LARGEST = 32, 128  # bounds on the number of places of a chunk


@dataclass(frozen=True, eq=False, repr=False)
class FeatureProduct(Basis):
    r"""A_h[m, n] = ⟨key[m, h], query[n, h]⟩, for all pairs, pairs within blocks, or causal pairs.

    Without ``causal`` each A_h is the product of an M × D and a D × N matrix, through D latent
    nodes (per block), and its contraction costs O((M + N) D). The causal form is a sum over
    prefixes, computed by a scan. Neither stores an entry for each pair; :meth:`edges` does.

    ``normalised`` divides by the sum over the inputs of a target, which for features φ ≥ 0 is the
    linear attention of *Transformers are RNNs* (equations 5 and 12). A target whose sum is zero,
    such as one without inputs, gets zeros.

    Attributes:
        key: φ(k), (M, *batch, H, D).
        query: φ(q), (N, *batch, H, D).
        normalised: whether values are divided by their sum over inputs.
        causal: ``None``; ``'inclusive'``, m ≤ n; or ``'strict'``, m < n; positions count from 0, or
            from the first node of each block.
        source_block: (M,) integers >= 0, the block of each source, or None for a single block.
        target_block: (N,) the block of each target, or None.
        target_place: (N,) the distinct position of each target in its sequence; None for 0, 1, 2, …
            within each block.
        exponents: whether key and query are the logarithms of the factors, only for a normalised
            causal basis; see :meth:`of_exponents` for others.
        value_type: the dtype of values, where factors are in a wider one; None for theirs.
    """

    hides_edges: ClassVar[bool] = True
    has_heads: ClassVar[bool] = True

    key: Tensor
    query: Tensor
    normalised: bool = True
    causal: str | None = None
    source_block: Tensor | None = None
    target_block: Tensor | None = None
    target_place: Tensor | None = None
    exponents: bool = False
    value_type: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.causal == "strict":  # the first targets see nothing, whatever their query holds
            alone = self._are_first().view(-1, *(1,) * (self.query.dim() - 1))
            object.__setattr__(self, "query", self.query.masked_fill(alone, 0.0))

    def _are_first(self) -> Tensor:
        """(N,) whether a target has the first place of its block."""
        if self.target_place is not None:
            return self.target_place <= 0
        if self.target_block is not None:
            return places(self.target_block) == 0
        return torch.arange(self.size[1], device=self.device) == 0

    @classmethod
    def of_exponents(cls, key: Tensor, query: Tensor, *options: Any, **named: Any) -> Self:
        """The normalised basis of the factors e^key and e^query, without overflow.

        A key of -inf masks a source. If targets see all sources of their block, the factors are
        divided by the largest one in each dimension; see ``kernels/linear_attention.py``.
        """
        basis = cls(key, query, *options, **named)
        if basis.causal is not None:
            return replace(basis, exponents=True)
        source, target = basis.source_block, basis.target_block
        blocks = None if source is None or target is None else (source, target)
        query, key = of_all(query, key, blocks, basis.num_blocks)
        return replace(basis, key=key, query=query, target_place=None)

    @property
    def num_bases(self) -> int:
        return self.key.size(-2)

    @property
    def size(self) -> tuple[int, int]:
        return self.key.size(0), self.query.size(0)

    @property
    def num_channels(self) -> int:
        """Number of latent nodes of each block and head, D."""
        return self.key.size(-1)

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions of the factors."""
        return tuple(self.key.shape[1:-2])

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of values: that of the factors, if no other is set."""
        return self.value_type or self.key.dtype

    # Support --------------------------------------------------------------------------------

    def over(self) -> Edges:
        """The pairs of the support, as edges of value 1; a rule if possible."""
        right = {None: None, "inclusive": 0, "strict": -1}[self.causal]
        band, place = Band(*self.size, None, right, on=self.device), self.target_place
        if self.source_block is None or self.target_block is None:
            if place is None or self.causal is None:
                return band
            sources, targets = (place.new_zeros(count) for count in self.size)
            return band_within(band, sources, targets, place)
        if self.causal is None:
            return SameBlock(self.source_block, self.target_block)
        return band_within(band, self.source_block, self.target_block, place)

    @cached_property
    def num_blocks(self) -> int:
        """Number of blocks: the largest block index plus one; 1 without blocks."""
        if self.source_block is None or self.target_block is None:
            return 1
        ends = [end.max() for end in (self.source_block, self.target_block) if end.numel()]
        return int(torch.stack(ends).max()) + 1 if ends else 1

    @cached_property
    def _chunks(self) -> dict[int, Chunks]:
        """Chunks by their size."""
        return {}

    def chunks(self, width: int) -> Chunks | None:
        """The chunks for values of ``width`` channels V; None for one block that is not causal.

        The size of a chunk is about √(D V), for which products within a chunk and products with its
        state are equally expensive, and at most the number of nodes of a block.
        """
        if self.source_block is None and self.causal is None:
            return None
        most = -(-max(self.size) // self.num_blocks)
        wanted = isqrt(self.num_channels * max(width, 1))
        size = max(1, min(max(_SMALLEST, min(wanted, _LARGEST)), most))
        size = 1 << (size - 1).bit_length() if self.exponents else size  # halved repeatedly
        if size not in self._chunks:
            self._chunks[size] = self._chunks_of(size)
        return self._chunks[size]

    def _chunks_of(self, size: int) -> Chunks:
        """Chunks of ``size`` places, each within one block."""
        if self.source_block is None or self.target_block is None:
            return Chunks(size, max(1, -(-max(self.size) // size)), target=self.target_place)
        count, blocks = self.num_blocks, (self.source_block.long(), self.target_block.long())
        longest = torch.stack([end.bincount(minlength=count) for end in blocks]).amax(0)
        several = (longest + size - 1) // size
        begin = (several.cumsum(0) - several) * size
        own = self.target_place
        within = places(blocks[0]), places(blocks[1]) if own is None else own
        place = [begin.index_select(0, end) + at for end, at in zip(blocks, within, strict=True)]
        block = torch.arange(count, device=begin.device).repeat_interleave(several)
        return Chunks(size, block.numel(), block, count, *place)

    # Edges ----------------------------------------------------------------------------------

    def _of_pairs(self) -> MultiHeadEdges:
        """The values of all pairs and heads, E·H numbers."""
        pattern = self.over().edges().pattern
        query, key = (by_label(part, 1) for part in (self.query, self.key))
        of_edges = on_edges if self.exponents else sddmm
        value = of_edges(pattern.by_both, query, key)
        if self.normalised:
            total = spmm(pattern.by_both, value, value.new_ones(self.size[0], 1)).squeeze(-1)
            value = divided(value, total.index_select(0, pattern.target))
        value = value.to(self.dtype)
        return MultiHeadEdges(pattern, value.unflatten(1, (*self.batch, self.num_bases)))

    def edges(self) -> EdgeBasis:
        """One edge for every pair and head."""
        return self._of_pairs().edges()

    def transpose(self) -> Basis:
        """The transpose: factors exchanged, after normalising the queries; lazy if causal."""
        if self.causal is not None:
            return super().transpose()
        return FeatureProduct(
            self._shares() if self.normalised else self.query,
            self.key,
            normalised=False,
            source_block=self.target_block,
            target_block=self.source_block,
            value_type=self.value_type,
        )

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """The basis itself as a leaf: orders can contract factors."""
        return [(self, theta)]

    def _shares(self) -> Tensor:
        """Queries divided by their normalising sums, (N, *batch, H, D)."""
        query, key = self.query.flatten(1, -2), self.key.flatten(1, -2)
        chunks = self.chunks(1)
        latent = collect(key, key.new_ones(*key.shape[:2], 1), chunks)
        return divided(query, spread(query, latent, chunks)).view_as(self.query)


@item.register
def _(basis: FeatureProduct, *index: int) -> FeatureProduct:
    place = of_item(basis, index)
    return replace(basis, key=basis.key[place], query=basis.query[place])


def pairs_of(
    over: Edges,
) -> tuple[str | None, Tensor | None, Tensor | None] | None:
    """``causal`` and both blocks of a :class:`FeatureProduct` over a support, or None."""
    if isinstance(over, SameBlock):
        ends = over.source_block, over.target_block
        # A negative block is none.
        return None if any(end.numel() and int(end.min()) < 0 for end in ends) else (None, *ends)
    if not isinstance(over, Band) or over.left is not None or over.dilation != 1:
        return None
    if over.right is None:
        return None, None, None
    causal = {0: "inclusive", -1: "strict"}.get(over.right + over.offset)
    return None if causal is None else (causal, None, None)


def divided(x: Tensor, total: Tensor) -> Tensor:
    """``x / total``, with zeros where the total is zero, and without NaN in any derivative.

    Where it is zero nothing is seen, so that no gradient comes from there, whatever it is.
    """
    none = total == 0
    return (x / total.masked_fill(none, 1.0)).masked_fill(none, 0.0)
