"""Attended: matrices whose values are shares of attention, computed where they are needed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from ..kernels import Sparsity, attend, sddmm
from ..kernels.listed import Listed
from ..kernels.tiles import exact
from .base import Basis
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .kind import Shape, TensorMap
from .multi_head_edges import (
    MultiHeadEdges,
    by_head,
    by_label,
    for_heads,
    is_listed,
    listed_edges,
    same_dtype,
)
from .pattern import Pattern

if TYPE_CHECKING:
    from ..theta import Theta
    from .kind import Leaf


class Normalise(Protocol):
    """What f is: scores (E, H) of the entries of a matrix to their values, row by row."""

    @property
    def is_softmax(self) -> bool:
        """Whether it is the softmax over the entries of a row, and nothing else but dropout."""
        ...

    @property
    def dropped(self) -> float:
        """The share of values that it drops now; 0 outside training."""
        ...

    def __call__(self, sparsity: Sparsity | Listed, score: Tensor) -> Tensor:
        """The values (E, H)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class AttentionBasis(Basis):
    """A_h[m, n] = f(factor ⟨query[n, h], key[m, h]⟩ + bias[e, h]) on the edges of a support.

    Equation 6 of *Convolution is outer product* with a factorised Λ. Nothing is computed until the
    basis is contracted: with a softmax, score, softmax and sum are then one primitive, or torch's
    own attention where the support is a rule that it knows.

    Attributes:
        over: the support: where the edges are, of L labels with H/L heads each; see
            :class:`MultiHeadEdges`.
        query: (N, *batch, H, D).
        key: (M, *batch, H, D).
        normalise: f.
        factor: of the products.
        bias: (E, *batch, H/L) or with sizes of 1, in the pattern's order, or None.
        present: (M,) or (M, *batch) booleans, the sources that edges may come from, or None for
            all.

    Raises:
        ValueError: the shapes do not fit, or the support has values.
    """

    is_leaf: ClassVar[bool] = True
    has_heads: ClassVar[bool] = True

    over: EdgeBasis | ImplicitEdges
    query: Tensor
    key: Tensor
    normalise: Normalise
    factor: float = 1.0
    bias: Tensor | None = None
    present: Tensor | None = None
    kept: dict[str, MultiHeadEdges] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sources, targets = self.over.size
        fits = (
            self.query.dim() == self.key.dim() >= 3
            and self.query.shape[1:] == self.key.shape[1:]
            and (self.key.size(0), self.query.size(0)) == (sources, targets)
        )
        if not fits:
            raise RefusedValue(
                refusal(
                    "a score needs queries of targets and keys of sources",
                    f"({targets}, *batch, H, D) and ({sources}, *batch, H, D)",
                    f"{tuple(self.query.shape)} and {tuple(self.key.shape)}",
                )
            )
        if self.over.dtype is not None:
            raise RefusedValue(
                refusal(
                    "a support says where edges are, and scores say their values",
                    "edges without weights",
                    repr(self.over),
                )
            )
        if self.num_bases % self.over.num_bases:
            raise RefusedValue(
                refusal(
                    "heads share the labels of a support evenly",
                    f"heads that {self.over.num_bases} labels divide",
                    self.num_bases,
                )
            )

    @property
    def num_bases(self) -> int:
        """H."""
        return self.query.size(-2)

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.over.size

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes of the batch that content is of."""
        return tuple(self.query.shape[1:-2])

    @property
    def num_labels(self) -> int:
        """L, the labels of the support."""
        return self.over.num_bases

    @property
    def num_edges(self) -> int:
        """E, each counted once for the H/L heads that share it, without making edges."""
        return self.over.num_edges

    @property
    def has_edges(self) -> bool:
        """Whether the edges of the support are made."""
        return self.over.has_edges

    @property
    def pattern(self) -> Pattern:
        """The edges, which a rule makes now."""
        return self.over.edges().pattern

    def shape_class(self) -> Hashable:
        """See :meth:`Basis.shape_class`."""
        shares = self.normalise.is_softmax, self.normalise.dropped > 0
        beside = self.bias is not None, self.present is not None
        return tuple(self.query.shape[1:]), shares, beside, self.over.shape_class()

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.query.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the values."""
        return self.query.dtype

    @property
    def learns(self) -> bool:
        """Whether the content requires a gradient."""
        given = (self.query, self.key, self.bias)
        return any(part is not None and part.requires_grad for part in given)

    def seen_sources(self) -> Tensor:
        """(M, *batch) booleans: the sources that edges may come from."""
        shape, given = (self.size[0], *self.batch), self.present
        if given is None:
            return torch.ones(shape, dtype=torch.bool, device=self.device)
        return given.view(*given.shape, *(1,) * (len(shape) - given.dim())).expand(shape)

    def edge_bias(self, batch: tuple[int, ...] | None = None) -> Tensor | None:
        """(E, B·H/L) what is added to scores, -inf for sources that are not present.

        ``batch`` is that of X, where the basis has none.
        """
        bias, heads = self.bias, self.num_bases // self.num_labels
        if self.present is not None:
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
        """(E, B·H/L) before f, in float32 at least; holds no tensor of edges × channels."""
        query, key = (by_label(exact(x), self.num_labels) for x in (self.query, self.key))
        score = sddmm(self.pattern.by_both, query * self.factor, key)
        bias = self.edge_bias()
        return score if bias is None else score + bias.to(score.dtype)

    def exact_heads(self) -> MultiHeadEdges:
        """The values, in float32 at least, computed at the first call; dropout is drawn once."""
        if "exact" not in self.kept:
            pattern = self.pattern
            if self._is_listed:
                entries = listed_edges(pattern)
                score = entries.dot(self.query * self.factor, self.key)
                shares = self.normalise(entries, score)
                self.kept["exact"] = MultiHeadEdges.of_list(pattern, shares)
                return self.kept["exact"]
            value = self.normalise(pattern.by_both, self.scores())
            shape = (self.num_edges, *self.batch, self.num_bases // self.num_labels)
            self.kept["exact"] = MultiHeadEdges(pattern, value.view(shape))
        return self.kept["exact"]

    @property
    def _is_listed(self) -> bool:
        """Whether edges need not be sorted: they are few, and have nothing but a softmax."""
        plain = self.normalise.is_softmax and self.bias is None and self.present is None
        edges = self.over
        return plain and isinstance(edges, EdgeBasis) and is_listed(edges.pattern, self.key)

    def heads(self) -> MultiHeadEdges:
        """:meth:`exact_heads`, of the type of the basis."""
        if "heads" not in self.kept:
            found = self.exact_heads()
            same = found.dtype == self.dtype
            self.kept["heads"] = (
                found if same else MultiHeadEdges(found.pattern, found.value.to(self.query.dtype))
            )
        return self.kept["heads"]

    def shares(self) -> MultiHeadEdges:
        """See :meth:`heads`."""
        return self.heads()

    # What heads propagate ----------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether f is the softmax, and drops nothing: what the primitive computes."""
        return self.normalise.is_softmax and not self.normalise.dropped

    def attend(self, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head, (M, *batch, H, C) to (N, *batch, H, C), in one primitive.

        Of a plain softmax alone, see :attr:`is_plain`. The backward pass computes shares again,
        but for edges so few that they need not be sorted.
        """
        if self._is_listed and is_listed(self.pattern, x):
            return self.times(x)
        batch = tuple(x.shape[1:-2])
        query, key = self.with_batch(batch)
        query, key, x = (by_label(part, self.num_labels) for part in same_dtype(query, key, x))
        bias = self.edge_bias(batch)
        bias = None if bias is None else bias.to(query.dtype)
        out = attend(self.pattern.by_both, query, key, x, bias, scale=self.factor)
        return by_head(out, self.num_labels, self.num_bases, batch)

    def times(self, x: Tensor) -> Tensor:
        """What :meth:`attend` gives, of any f: by a number for each edge and head."""
        found = self.exact_heads().times(x)
        return found.to(torch.promote_types(self.query.dtype, x.dtype))

    def with_batch(self, batch: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Queries and keys (nodes, *batch, H, D) for every item of a batch of X."""
        if self.batch == batch:
            return self.query, self.key
        ones = (1,) * len(batch)
        both = []
        for part in (self.query, self.key):
            wide = part.view(part.size(0), *ones, *part.shape[-2:])
            both.append(wide.expand(part.size(0), *batch, *part.shape[-2:]))
        return both[0], both[1]

    def propagate(self, x: Tensor) -> Tensor:
        """See :meth:`.Kind.propagate`: in one primitive where it knows f."""
        wide = for_heads(x, self.num_bases, self.batch)
        return (self.attend(wide) if self.is_plain else self.times(wide)).movedim(-2, 1)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """See :meth:`.Kind.products`."""
        return [(self, shape, learns)]

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Itself where inputs are added up, its edges where they are counted or compared."""
        return [(self if reduce == "sum" else self.edges(), theta)]

    def item(self, *index: int) -> MultiHeadEdges:
        """See :meth:`MultiHeadEdges.item`."""
        return self.heads().item(*index)

    def edges(self) -> EdgeBasis:
        """See :meth:`MultiHeadEdges.edges`."""
        return self.heads().edges()

    def map(self, index_map: TensorMap, value_map: TensorMap) -> AttentionBasis:
        """See :meth:`Basis.map`."""
        over = self.over.map(index_map, value_map)
        bias = None if self.bias is None else value_map(self.bias)
        present = None if self.present is None else index_map(self.present)
        return replace(
            self,
            over=over,
            query=value_map(self.query),
            key=value_map(self.key),
            bias=bias,
            present=present,
            kept={},
        )

    def __repr__(self) -> str:
        batch = f", batch={self.batch}" if self.batch else ""
        return f"AttentionBasis({self._head()}{batch}, f={self.normalise}, over={self.over!r})"
