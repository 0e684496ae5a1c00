"""Bands: each target sees the sources near its own position, as a rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..graph.positions import graphs_of, places
from ..graph.structure import Structure
from ..kernels import attend_all, attend_band
from ..kernels.dense_attention import is_small, rows_of_block
from ..kernels.index_checks import is_exporting
from ..signatures import typed
from .base import Basis
from .edges import EdgeBasis
from .implicit_edges import (
    ADDS_NO_BIAS,
    DenseRule,
    Edges,
    ExtraOperands,
    PairCounts,
    unlabelled_edges,
)
from .subpattern import spread_runs


@typed
@dataclass(frozen=True, eq=False, repr=False)
class Band(DenseRule):
    r"""One M × N matrix with ones on some of its diagonals.

    .. math:: A_0[m, n] = 1 \iff m = n + o + d\,j, \quad -l \le j \le r

    Without limits it has all pairs; with r = 0 and l unlimited, the pairs of a causal sequence;
    with finite l and r, those of a sliding window; with l = r = 0 it is a rectangular identity.

    Attributes:
        num_sources: M.
        num_targets: N.
        left: l, the number of steps that a target sees back, or None for no limit.
        right: r, the number of steps ahead, or None for no limit.
        dilation: d, the distance between steps.
        offset: o, the source in the middle of target 0's window.

    Raises:
        ValueError: a number of nodes is negative, or the dilation is not positive.
    """

    num_sources: int = field(repr=False)
    num_targets: int = field(repr=False)
    left: int | None = None
    right: int | None = None
    dilation: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if min(self.size) < 0:
            raise RefusedValue("a matrix has a size", "M, N >= 0", self.size)
        if self.dilation < 1:
            raise RefusedValue("a band has a positive dilation", "dilation >= 1", self.dilation)

    @property
    def size(self) -> tuple[int, int]:
        return self.num_sources, self.num_targets

    @property
    def is_complete(self) -> bool:
        """Whether every target sees every source; in what is exported, at any size."""
        if self.left is self.right is None and self.dilation == 1:
            return True
        return not is_exporting() and self.num_edges == self.num_sources * self.num_targets

    @property
    def sees_all_before(self) -> bool:
        """Whether sources put in front of all others are seen by every target."""
        reaches = self.right is None or self.offset + self.right >= -1
        return self.left is None and self.dilation == 1 and reaches

    # Counts ---------------------------------------------------------------------------------

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last j whose diagonal meets the matrix; last < first if none does."""
        d, o = self.dilation, self.offset
        first, last = -((self.num_targets - 1 + o) // d), (self.num_sources - 1 - o) // d
        if self.left is not None:
            first = max(first, -self.left)
        return first, last if self.right is None else min(last, self.right)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The diagonal m − n = c has min(M, N, M − c, N + c) edges."""
        m, n, d, (first, last) = *self.size, self.dilation, self.steps
        if min(m, n) == 0 or last < first:
            return 0, 0, 0
        # Diagonals grow up to c = min(0, M − N), and shrink from c = max(0, M − N) on.
        rising = min(last, (min(0, m - n) - self.offset) // d)
        falling = max(first, rising + 1, -((self.offset - max(0, m - n)) // d))
        level = min(falling - 1, last) - max(rising, first - 1)
        edges = _series(first, rising, n + self.offset, d)
        edges += level * min(m, n) + _series(falling, last, m - self.offset, -d)
        begin, end = self.offset + d * first, self.offset + d * last  # source - target
        return edges, _seen(m, begin, n + end, n, d, edges), _seen(n, -end, m - begin, m, d, edges)

    # Edges ----------------------------------------------------------------------------------

    def make_edges(self) -> EdgeBasis:
        return self._edges_at(torch.arange(self.num_targets, device=self.on))

    def _edges_at(self, place: Tensor) -> EdgeBasis:
        """The edges into targets at the positions ``place`` (N,), sorted by target, then source."""
        first, count = self.seen_from(place, self.num_sources)
        target, within = spread_runs(count)
        source = first[target] + self.dilation * within
        return unlabelled_edges(source, target, (self.num_sources, place.numel()))

    def seen_from(self, place: Tensor, num_sources: int | Tensor) -> tuple[Tensor, Tensor]:
        """The first source that targets at the positions ``place`` (n,) see, and their number.

        Args:
            place: integers, the positions of targets in their sequence.
            num_sources: the number of sources, or (n,) one for each target.
        """
        middle = place + self.offset
        first = -(middle // self.dilation)
        last = (num_sources - 1 - middle) // self.dilation
        if self.left is not None:
            first = first.clamp(min=-self.left)
        if self.right is not None:
            last = last.clamp(max=self.right)
        return middle + self.dilation * first, (last - first + 1).clamp(min=0)

    def transpose(self) -> Band:
        """The transposed matrix: a band with left and right, and the sign of o, exchanged."""
        return replace(
            self,
            num_sources=self.num_targets,
            num_targets=self.num_sources,
            left=self.right,
            right=self.left,
            offset=-self.offset,
        )

    def narrowed(self, place: range | Tensor) -> Edges:
        """The columns of some targets (N',), as a band if the targets are consecutive."""
        if isinstance(place, range):
            offset = self.offset + place.start
            return replace(self, num_targets=len(place), offset=offset)
        return self._edges_at(place)

    # Attention ------------------------------------------------------------------------------

    def lacks(self, beside: ExtraOperands) -> list[str]:
        return [ADDS_NO_BIAS] if beside.bias and not self.is_complete else []

    def pairs(self, beside: ExtraOperands) -> PairCounts:
        """The pairs that attention computes: those of blocks for a limited band, else all pairs."""
        every = float(self.num_sources * self.num_targets)
        # torch stores the weights of all pairs under dropout, or if a bias requires gradients.
        stored = beside.drops or (beside.bias and beside.learns)
        if self.is_complete or self.left is None or self.right is None:
            edges = every if self.is_complete else float(self.num_edges)
            masked = stored or beside.bias or beside.present
            return PairCounts(every if masked else edges, every * masked)
        if not beside.present and is_small(self.num_sources, self.num_targets):
            return PairCounts(every, every * beside.drops)
        first, last = self.steps
        reach = max(last - first, 0)
        return PairCounts(
            float(self.num_targets) * (rows_of_block(reach) + reach), 0.0, self.dilation
        )

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, **options: Any
    ) -> Tensor:
        """Attention over the band: by torch for all pairs, by blocks for a window."""
        if self.is_complete:
            # The edges of a complete band are in the order of a dense matrix.
            if bias is not None:
                bias = bias.reshape(self.num_targets, self.num_sources, query.size(1))
            return attend_all(query, key, value, bias, **options)
        window = {name: getattr(self, name) for name in ("left", "right", "offset", "dilation")}
        return attend_band(query, key, value, **window, **options)


def _series(first: int, last: int, start: int, step: int) -> int:
    """Σ_j (start + step·j) for first ≤ j ≤ last."""
    count = max(0, last - first + 1)
    return count * (2 * start + step * (first + last)) // 2


def _seen(count: int, begin: int, end: int, others: int, dilation: int, edges: int) -> int:
    """How many nodes from ``begin`` to ``end`` there are; one an edge where no two steps fit."""
    return edges if dilation > others else max(0, min(count, end) - max(0, begin))


def sequence(structure: Structure, left: int | None, right: int | None, dilation: int = 1) -> Basis:
    """A :class:`Band` over nodes in the order of their numbers, within each graph of a batch."""
    sources, targets = structure.size
    band = Band(sources, targets, left, right, dilation, on=structure.device)
    graphs = graphs_of(structure)
    return band if graphs is None else band_within(band, *graphs)


def band_within(
    band: Band, source_graph: Tensor, target_graph: Tensor, target_place: Tensor | None = None
) -> EdgeBasis:
    """The edges of a band within each graph, whose positions count from its first nodes."""
    graph, order = source_graph.long().sort(stable=True)
    wanted = target_graph.long()
    begin = torch.searchsorted(graph, wanted)
    there = torch.searchsorted(graph, wanted, right=True) - begin
    place = places(wanted) if target_place is None else target_place
    first, count = band.seen_from(place, there)
    target, within = spread_runs(count)
    place = (begin + first)[target] + band.dilation * within
    return unlabelled_edges(order[place], target, band.size)
