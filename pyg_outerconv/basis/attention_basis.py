"""Attention as a basis: matrices whose values are attention weights, computed lazily."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..kernels import CSR, attend, sddmm, spmm
from ..kernels.absent_pairs import (
    are_finite,
    can_look,
    is_transformed,
    over_all_pairs,
    over_all_pairs_below,
)
from ..kernels.attend import is_recorded
from ..kernels.attend_entries import kept_entries, kept_sample
from ..kernels.edge_sums import Listed
from ..kernels.tiles import exact
from ..memo import cached_property
from .base import Basis
from .edges import EdgeBasis
from .implicit_edges import Edges
from .multi_head_edges import (
    MultiHeadEdges,
    by_head,
    by_label,
    for_heads,
    is_listed,
    item,
    listed_edges,
    same_dtype,
)
from .pattern import Pattern


class Normalise(Protocol):
    """The normaliser f, from scores (E, H) of the entries of a matrix to values, row by row."""

    @property
    def is_softmax(self) -> bool:
        """Whether f is the softmax over the entries of a row, possibly followed by dropout."""
        ...

    @property
    def dropped(self) -> float:
        """The dropout probability in effect; 0 outside training."""
        ...

    def __call__(self, csr: CSR | Listed, score: Tensor) -> Tensor:
        """Normalise scores (E, H) to values (E, H)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class AttentionBasis(Basis):
    """A_h[m, n] = f(factor ⟨query[n, h], key[m, h]⟩ + bias[e, h]) on the edges of a support.

    Equation 6 of *Convolution is outer product* with a factorised Λ. Nothing is computed before the
    contraction: for a softmax, one primitive computes scores, softmax and sums, or torch's own
    attention if the support is a rule that it can follow.

    Attributes:
        over: the support, edges of L labels with H/L heads each; see
            :class:`MultiHeadEdges`.
        query: (N, *batch, H, D).
        key: (M, *batch, H, D).
        normalise: the normaliser f.
        factor: the factor of the dot products.
        bias: (E, *batch, H/L), broadcast along sizes of 1, in the pattern's order; or None.
        present: (M,) or (M, *batch) booleans, the sources that may be attended to, or None for
            all.
        value_type: the dtype of values, where queries and keys are in a wider one; None for theirs.
    """

    is_leaf: ClassVar[bool] = True
    has_heads: ClassVar[bool] = True

    over: Edges
    query: Tensor
    key: Tensor
    normalise: Normalise
    factor: float = 1.0
    bias: Tensor | None = None
    present: Tensor | None = None
    value_type: torch.dtype | None = None

    @property
    def num_bases(self) -> int:
        return self.query.size(-2)

    @property
    def size(self) -> tuple[int, int]:
        return self.over.size

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions of queries and keys."""
        return tuple(self.query.shape[1:-2])

    @property
    def num_labels(self) -> int:
        """Number of labels of the support, L."""
        return self.over.num_bases

    @property
    def num_edges(self) -> int:
        """Number of edges E of the support, which H/L heads share; makes no edges."""
        return self.over.num_edges

    @property
    def has_edges(self) -> bool:
        """Whether the edges of the support exist already."""
        return self.over.has_edges

    @property
    def pattern(self) -> Pattern:
        """The pattern of the support, whose edges are made if it is a rule."""
        return self.over.edges().pattern

    def plan_key(self) -> tuple[Hashable, ...]:
        shares = self.normalise.is_softmax, self.normalise.dropped > 0
        beside = self.bias is not None, self.present is not None
        of_values = self.dtype, self.device, self.learns
        return self.query.shape[1:], *shares, *beside, *of_values, *self.over.plan_key()

    @property
    def dtype(self) -> torch.dtype:
        return self.value_type or self.query.dtype

    def seen_sources(self) -> Tensor:
        """(M, *batch) booleans: the sources that may be attended to."""
        shape, present = (self.size[0], *self.batch), self.present
        if present is None:
            return torch.ones(shape, dtype=torch.bool, device=self.device)
        return present.view(*present.shape, *(1,) * (len(shape) - present.dim())).expand(shape)

    def edge_bias(self, batch: tuple[int, ...] | None = None, masked: bool = True) -> Tensor | None:
        """(E, B·H/L) the bias added to scores, or None."""
        bias, heads = self.bias, self.num_bases // self.num_labels
        if self.present is not None and masked:
            there = self.seen_sources().index_select(0, self.pattern.source).unsqueeze(-1)
            none = torch.zeros((), dtype=self.query.dtype, device=self.device)
            bias = (none if bias is None else bias).masked_fill(~there, -torch.inf)
        if bias is None:
            return None
        bias, batch = bias.expand(self.num_edges, *self.batch, heads), batch or self.batch
        if not self.batch:
            bias = bias.view(self.num_edges, *(1,) * len(batch), heads).expand(-1, *batch, -1)
        return bias.flatten(1)

    def scores(self) -> Tensor:
        """(E, B·H/L) the scores, in float32 at least; no tensor of E × D numbers is made."""
        query, key = (by_label(exact(x), self.num_labels) for x in (self.query, self.key))
        matrix, query, bias = self.pattern.by_both, query * self.factor, self.edge_bias()
        if bias is None:
            return sddmm(matrix, query, key)
        if is_recorded():
            score = kept_sample(matrix, query, key, bias)
        else:
            score = sddmm(matrix, query, key)
        # Nor does a gradient come to what has no edge, as it would through a sum.
        return (score + bias.to(score.dtype)).masked_fill(bias == -torch.inf, -torch.inf)

    @cached_property
    def _exact(self) -> MultiHeadEdges:
        """The values in float32 at least; dropout is drawn once."""
        pattern = self.pattern
        if self._is_listed:
            entries = listed_edges(pattern)
            score = entries.dot(self.query * self.factor, self.key)
            return MultiHeadEdges.of_list(pattern, self.normalise(entries, score))
        value = self.normalise(pattern.by_both, self.scores())
        shape = (self.num_edges, *self.batch, self.num_bases // self.num_labels)
        return MultiHeadEdges(pattern, value.view(shape))

    @cached_property
    def _rounded(self) -> MultiHeadEdges:
        exact = self._exact
        if exact.dtype == self.dtype:
            return exact
        return MultiHeadEdges(exact.pattern, exact.value.to(self.dtype))

    @property
    def _is_listed(self) -> bool:
        """Whether the edges need no sorting: they are few, with a softmax and no bias or mask."""
        plain = self.normalise.is_softmax and self.bias is None and self.present is None
        edges = self.over
        return plain and isinstance(edges, EdgeBasis) and is_listed(edges.pattern, self.key)

    def heads(self) -> MultiHeadEdges:
        """The attention weights of all edges and heads, computed at the first call."""
        return self._rounded

    # Propagation by heads ------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether f is the softmax without dropout, as the primitive computes it."""
        return self.normalise.is_softmax and not self.normalise.dropped

    def attend(self, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head, (M, *batch, H, C) to (N, *batch, H, C), in one primitive.

        Only for a plain softmax, see :attr:`is_plain`. The backward pass recomputes the attention
        weights, except for edge lists small enough to need no sorting.
        """
        if self._is_listed and is_listed(self.pattern, x):
            return self.times(x)
        return self.attend_by(partial(attend, self.pattern.by_both, scale=self.factor), x)

    def attend_by(self, kernel: Callable[..., Tensor], x: Tensor, masked: bool = True) -> Tensor:
        """:meth:`attend` by a kernel of queries, keys, values and bias.

        Args:
            kernel: takes three tensors (nodes·L, B·H/L, channels) in one dtype, and a bias
                (E, B·H/L) or None.
            x: (M, *batch, H, C).
            masked: whether the bias is -inf for sources that are not present.
        """
        batch, dtype = tuple(x.shape[1:-2]), torch.promote_types(self.dtype, x.dtype)
        query, key = self.with_batch(batch, self.query, self.key)
        query, key, x = (by_label(part, self.num_labels) for part in same_dtype(query, key, x))
        bias = self.edge_bias(batch, masked)
        out = kernel(query, key, x, None if bias is None else bias.to(query.dtype))
        return by_head(out, self.num_labels, self.num_bases, batch).to(dtype)

    def times(self, x: Tensor) -> Tensor:
        """The result of :meth:`attend` for any f, by a value for each edge and head."""
        bias = self.edge_bias(tuple(x.shape[1:-2]))
        ways, operands = (
            (lambda q, k, x, b: self._exact.times(x), self._kept),
            (self.query, self.key, x),
        )
        if bias is not None and is_transformed(*operands, bias):
            out = over_all_pairs_below(*ways, *operands, bias=bias)
        elif bias is not None and is_recorded():
            out = self._exact.times(x, bias)
        elif bias is None or not can_look(*operands, bias) or are_finite(bias):
            out = self._exact.times(x)
        else:
            out = over_all_pairs(*ways, *operands, bias=bias)
        return out.to(torch.promote_types(self.dtype, x.dtype))

    def _kept(self, query: Tensor, key: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        """The sums of :meth:`times`, without edges whose bias (E, B·H/L) is -inf."""
        batch, matrix = tuple(x.shape[1:-2]), self.pattern.by_both
        ends = (exact(part) for part in (*self.with_batch(batch, query, key), x))
        query, key, x = (by_label(part, self.num_labels) for part in same_dtype(*ends))
        outs = []
        for head in range(bias.size(1)):
            one = slice(head, head + 1)
            entries, place = kept_entries(matrix, bias[:, one])
            own = bias[:, one].index_select(0, place).to(query.dtype)
            score = sddmm(entries, query[:, one] * self.factor, key[:, one]) + own
            outs.append(spmm(entries, self.normalise(entries, score), x[:, one]))
        return by_head(torch.cat(outs, 1), self.num_labels, self.num_bases, batch)

    def with_batch(self, batch: tuple[int, ...], *parts: Tensor) -> Sequence[Tensor]:
        """Queries or keys (n, *own batch, H, D) expanded to the batch of X, (n, *batch, H, D)."""
        if self.batch == batch:
            return parts
        ones = (1,) * len(batch)
        wide = [part.view(part.size(0), *ones, *part.shape[-2:]) for part in parts]
        return [part.expand(part.size(0), *batch, *part.shape[-2:]) for part in wide]

    def propagate(self, x: Tensor) -> Tensor:
        """H_h = A_hᵀ X, (N, H, *batch, P), in one primitive if f is a plain softmax."""
        wide = for_heads(x, self.num_bases, self.batch)
        return (self.attend(wide) if self.is_plain else self.times(wide)).movedim(-2, 1)

    def edges(self) -> EdgeBasis:
        return self.heads().edges()


@item.register
def _(basis: AttentionBasis, *index: int) -> Basis:
    return item(basis.heads(), *index)
