"""A band: each target sees sources near its own place, as a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from ..kernels import attend_all, attend_band
from ..kernels.band import rows_of_block
from ..kernels.dense_attention import is_small
from .between import spread_runs
from .dense_rule import ADDS_NO_BIAS, Beside, DenseRule, Pairs
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges, unlabelled_edges


@dataclass(frozen=True, eq=False, repr=False)
class Band(DenseRule):
    r"""One M × N matrix with ones on some of its diagonals.

    .. math:: A_0[m, n] = 1 \iff m = n + o + d\,j, \quad -l \le j \le r

    Without limits it is all pairs; with r = 0 and l without limit the pairs of a causal sequence;
    with l and r numbers a window that slides; with l = r = 0 a rectangular identity.

    Attributes:
        num_sources: M.
        num_targets: N.
        left: l, how many steps back a target sees, or None for no limit.
        right: r, how many steps ahead, or None.
        dilation: d, how far apart steps are.
        offset: o, the source that target 0 has in the middle.

    Raises:
        ValueError: a number of nodes is negative, or the dilation is not positive.
    """

    num_sources: int
    num_targets: int
    left: int | None = None
    right: int | None = None
    dilation: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if min(self.size) < 0:
            raise RefusedValue(refusal("a matrix has a size", "M, N >= 0", self.size))
        if self.dilation < 1:
            raise RefusedValue(refusal("steps of a band lead on", "dilation >= 1", self.dilation))

    @property
    def num_bases(self) -> int:
        """1."""
        return 1

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.num_sources, self.num_targets

    @property
    def is_complete(self) -> bool:
        """Whether every target sees every source."""
        return self.num_edges == self.num_sources * self.num_targets

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
    def num_edges(self) -> int:
        """E: diagonal m − n = c has min(M, N, M − c, N + c) of them."""
        m, n, (first, last) = self.num_sources, self.num_targets, self.steps
        if min(m, n) == 0 or last < first:
            return 0
        # Diagonals become longer up to c = min(0, M − N), and shorter from c = max(0, M − N) on.
        rising = min(last, (min(0, m - n) - self.offset) // self.dilation)
        falling = max(first, rising + 1, -((self.offset - max(0, m - n)) // self.dilation))
        level = min(falling - 1, last) - max(rising, first - 1)
        up = _series(first, rising, n + self.offset, self.dilation)
        return up + level * min(m, n) + _series(falling, last, m - self.offset, -self.dilation)

    @property
    def num_source_pairs(self) -> int:
        """U_in, the number of sources that a target sees."""
        return self.transpose().num_target_pairs

    @property
    def num_target_pairs(self) -> int:
        """U_out, the number of targets that see a source."""
        m, n, (first, last) = self.num_sources, self.num_targets, self.steps
        if min(m, n) == 0 or last < first:
            return 0
        if self.dilation > m:  # so far apart that a target sees one source at most
            return self.num_edges
        begin = -self.offset - self.dilation * last
        end = m - self.offset - self.dilation * first
        return max(0, min(n, end) - max(0, begin))

    # Edges ----------------------------------------------------------------------------------

    def make_edges(self) -> EdgeBasis:
        """For each target the sources on its diagonals, ascending."""
        return self._edges_at(torch.arange(self.num_targets, device=self.on))

    def _edges_at(self, place: Tensor) -> EdgeBasis:
        """The edges that reach targets at some places (N,), ascending for each."""
        first, count = self.seen_from(place, self.num_sources)
        target, within = spread_runs(count)
        source = first[target] + self.dilation * within
        return unlabelled_edges(source, target, (self.num_sources, place.numel()))

    def seen_from(self, place: Tensor, num_sources: int | Tensor) -> tuple[Tensor, Tensor]:
        """The first source that targets at a place (n,) see, and how many they do.

        Args:
            place: integers, where targets are in their sequence.
            num_sources: how many sources there are, or (n,) that there are for each target.
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
            kept={},
        )

    def taken(self) -> range | Tensor | None:
        """See :meth:`.Kind.taken`."""
        if self.left == self.right == 0:
            return range(self.offset, self.offset + self.num_targets)
        return super().taken()

    def narrowed(self, place: range | Tensor) -> EdgeBasis | ImplicitEdges:
        """See :meth:`ImplicitEdges.narrowed`: a band again of targets one after another."""
        if isinstance(place, range):
            offset = self.offset + place.start
            return replace(self, num_targets=len(place), offset=offset, kept={})
        return self._edges_at(place)

    # Attention ------------------------------------------------------------------------------

    def lacks(self, beside: Beside) -> list[str]:
        """See :meth:`DenseRule.lacks`."""
        return [ADDS_NO_BIAS] if beside.bias and not self.is_complete else []

    def pairs(self, beside: Beside) -> Pairs:
        """See :meth:`DenseRule.pairs`: those of blocks where there are limits, else all."""
        every = float(self.num_sources * self.num_targets)
        # torch spells out the shares of all pairs where some are dropped, or where a bias learns.
        spelled = beside.drops or (beside.bias and beside.learns)
        if self.is_complete or self.left is None or self.right is None:
            edges = every if self.is_complete else float(self.num_edges)
            masked = spelled or beside.bias or beside.present
            return Pairs(every if masked else edges, every * masked)
        if not beside.present and is_small(self.num_sources, self.num_targets):
            return Pairs(every, every * beside.drops)
        first, last = self.steps
        reach = max(last - first, 0)
        return Pairs(float(self.num_targets) * (rows_of_block(reach) + reach), 0.0, self.dilation)

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
        """See :meth:`DenseRule.attend`; all pairs are torch's, a window is cut into blocks."""
        if self.is_complete:
            # Edges of all pairs are in the order of a dense matrix.
            if bias is not None:
                bias = bias.reshape(self.num_targets, self.num_sources, query.size(1))
            return attend_all(
                query, key, value, bias, source_mask=present, scale=scale, dropout_p=dropped
            )
        return attend_band(
            query,
            key,
            value,
            left=self.left,
            right=self.right,
            offset=self.offset,
            dilation=self.dilation,
            source_mask=present,
            scale=scale,
            dropout_p=dropped,
        )

    def __repr__(self) -> str:
        return (
            f"Band(size={self.size}, left={self.left}, right={self.right}, "
            f"dilation={self.dilation}, offset={self.offset})"
        )


def _series(first: int, last: int, start: int, step: int) -> int:
    """Σ of start + step·j over first ≤ j ≤ last."""
    count = max(0, last - first + 1)
    return count * (2 * start + step * (first + last)) // 2
