"""Attention: the family whose values are computed from features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..attention import IndexTerm
from ..attention.edge_context import EdgeContext, exact_type
from ..attention.normalise import L1, Normaliser
from ..attention.projection import PerHead, Queries
from ..attention.queries import stand_alone, with_positions
from ..attention.score import Score, basis_of, check_scores, type_of_values, with_terms
from ..attention.sums import Additive
from ..basis.additive_attention import AdditiveAttentionBasis
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..basis.multi_head_edges import is_listed
from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..graph import Features
from ..graph.graph import Graph
from ..graph.structure import Content, Structure
from ..kernels.attend_ends import can_attend_ends
from ..kernels.edge_sums import are_few
from ..kernels.index_checks import surely
from ..memo import Memo
from ..theta import Theta
from .content_family import (
    Heads,
    check_heads,
    kept_symmetries,
    place_of_queries,
    queries,
    structure_of_queries,
    with_graph,
)
from .family import Family
from .support.support import cached_support


@row(
    "Alignment",
    "X, or the targets' own features of a pair",
    "Andreoli, section 4: T = I, self-attention",
    option="`None`",
)
@row(
    "Values",
    "labels of both kinds in one layer",
    "Andreoli, section 4.2, last item",
    option="`Stack(Grid(…), Attention(…))` in an `OuterConv`",
)
@dataclass(frozen=True)
class Attention(Heads):
    r"""Matrices computed from the features of the nodes.

    .. math:: A_h = f\left(X \Lambda_h X^{\top} T\right)

    on the edges of a support, over which f normalises: equation 6 of the `"Convolution is outer
    product" <https://arxiv.org/abs/1905.01289>`_ paper (section 4). The queries are TᵀX (N, P_q),
    and K is the number H of heads.

    It may stand beside families of structure: ``Stack(GCN(), Attention(...))`` has labels of both
    kinds in one layer. Its modules become modules of the layer.
    :class:`~pyg_outerconv.nn.AttentionConv` makes one from names.

    >>> from pyg_outerconv import OuterConv
    >>> from pyg_outerconv.families import Causal
    >>> from pyg_outerconv.attention import KeyQuery, Softmax
    >>> family = Attention(KeyQuery(heads=2, channels=8), Causal(), Softmax())
    >>> OuterConv(16, 32, family)(torch.randn(10, 16), None).shape
    torch.Size([10, 32])

    Args:
        score (Score): the scores, and the number of heads, which is K.
        support (Family): the edges: one label for all heads, or a number of labels that divides H.
        normalise (Normaliser): f.
        align (Family or Module, optional): T, whose Tᵀ X are the queries, or a module that makes
            queries, such as :class:`LearnedQueries`; None for the identity.
        terms (tuple, optional): modules that add a number for relative positions to every score.

    Raises:
        ValueError: the labels of the support do not divide the heads.
    """

    equation = "A_h = f(X L_h X^T T) on the edges of a support"

    score: Score
    support: Family
    normalise: Normaliser
    align: Family | torch.nn.Module | None = None
    terms: tuple[Any, ...] = ()

    held: Memo = field(default_factory=lambda: Memo(4), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {
            "score": (Score, " such as KeyQuery(heads, channels)"),
            "support": (Family, " such as Hops()"),
            "normalise": (Normaliser, " such as Softmax()"),
        }
        for name, (kind, like) in kinds.items():
            given = getattr(self, name)
            if not isinstance(given, kind):
                raise RefusedType(
                    f"attention needs its {name}", f"a {kind.__name__}{like}", repr(given)
                )
        if not isinstance(self.terms, tuple | list):
            raise RefusedType(
                "terms are a sequence of modules",
                "a tuple such as (ALiBi(heads),)",
                repr(self.terms),
            )
        object.__setattr__(self, "terms", tuple(self.terms))
        labels = self.support.num_bases
        if self.score.heads % labels:
            raise RefusedValue(
                "the labels of a support divide the heads",
                f"a multiple of {labels} heads",
                self.score.heads,
            )
        self._check_align()
        self._check_factor()
        for term in self.terms:
            if not isinstance(term, IndexTerm):
                raise RefusedType(
                    "terms add numbers of positions", "modules with heads", repr(term)
                )
            check_heads("a term", term.heads, self.score.heads)

    def _check_factor(self) -> None:
        if self.score.up_to_factor and not self._cancels_factors:
            raise RefusedValue(
                f"scores of {self.score.name!r} are known up to a factor, which L1 cancels",
                "bounded=False, or normalise='l1' without terms",
                f"{self.normalise} and {len(self.terms)} terms",
            )

    @property
    def _cancels_factors(self) -> bool:
        """Whether a factor of all scores of a target changes nothing."""
        return isinstance(self.normalise, L1) and not self.terms

    def _check_align(self) -> None:
        align = self.align
        if isinstance(align, Family):
            check_heads("an alignment", align.num_bases, self.score.heads)
        elif align is not None and not isinstance(align, torch.nn.Module):
            raise RefusedType("an alignment makes queries", "a Family or a module", repr(align))

    @property
    def heads(self) -> int:  # type: ignore[override]
        """H."""
        return self.score.heads

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"head {head} of {self.score.name}" for head in range(self.num_bases))

    @property
    def symmetries(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of its support and alignment; none if positions are read, which may be an order."""
        return () if self._reads_positions else kept_symmetries(self.support, self.align)

    @property
    def reads_theta(self) -> bool:  # type: ignore[override]
        """Whether scores read the values X Θ of the layer."""
        return self.score.uses_theta

    @property
    def _reads_positions(self) -> bool:
        return bool(self.terms) or "pos" in self.score.reads_beside

    @property
    def reads_beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """The features; and what scores, terms, the support and the alignment read."""
        read = {*self.score.reads_beside, *(("pos",) if self.terms else ())}
        return tuple(sorted(read.union(super().reads_beside)))

    def set_self_loops(self, add: bool) -> Attention:
        """The same recipe with or without added self-loops in the support."""
        return replace(self, support=self.support.set_self_loops(add))

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The matrices A_h for the features of a structure.

        Raises:
            ValueError: there are no features, or their shapes do not fit.
        """
        content, over = structure.content, None
        if content is not None and content.only_sums:
            over = self._edges_of(structure, content.source)
            found = self.at_once(content, over)
            if found is not None:
                return found
            structure = structure.with_content(self._with_values(content))
        content, asked = self.content_of(structure)
        support, align = self.support, self.align
        if align is not None:
            ordered = support.takes_nodes_alone and "permutation-equivariant" not in support.laws
            options = ordered, self._reads_positions
            structure = structure_of_queries(structure, support, align, content, asked, *options)
        over = self._edges_of(structure, content.source) if over is None else over
        return self._of_content(over, structure, content, asked)

    def _edges_of(self, structure: Structure, x: Features) -> EdgeBasis | ImplicitEdges:
        """The support; made anew where that is faster: of few edges, which stay unsorted."""
        if isinstance(structure, Graph) and isinstance(x, Tensor):
            few = are_few(structure.edge_index.size(1), x)
            if few and self.support.is_quick and self._takes_any_order:
                return self.support.basis_on(structure).edges()
        return cached_support(self.support, structure, self.held)

    def basis_over(
        self, over: EdgeBasis | ImplicitEdges, structure: Any, content: Content
    ) -> Basis:
        """The matrices A_h on the edges ``over``, in place of those of the support.

        Raises:
            ValueError: the number of labels does not divide H, or numbers of nodes disagree.
        """
        if self.num_bases % over.num_bases:
            raise RefusedValue(
                "heads share the labels of a support", self.num_bases, over.num_bases
            )
        content = with_graph(content, structure)
        asked = queries(self.align, structure, content)
        targets = None if self._sees_sources_alone(content) else asked
        known = [None if x is None else x.shape[0] for x in (content.source, targets)]
        ends = zip(known, over.size, strict=True)  # a compiler cannot look for a size in a tuple
        if any(count is not None and count != end for count, end in ends):
            raise RefusedValue("a support has the sources and the queries", known, over.size)
        if content.only_sums:
            found = self.at_once(content, over)
            if found is not None:
                return found
            content = self._with_values(content)
        if self.align is not None and self._reads_positions and stand_alone(structure):
            place = place_of_queries(structure, self.align, content, asked)
            structure = with_positions(structure, structure, place, self.align)
        return self._of_content(over, structure, content, asked)

    def _of_content(
        self,
        over: EdgeBasis | ImplicitEdges,
        structure: Any,
        content: Content,
        asked: Queries,
    ) -> Basis:
        if isinstance(asked, PerHead):
            check_heads("what makes queries of each head", asked.value.size(-2), self.num_bases)
        if over.dtype is not None:
            raise RefusedValue(
                "a support has edges without values, which come from the scores",
                "edges without weights, such as those of Hops()",
                repr(over),
            )
        listed = self._lists(over, content.source)
        exact, of_theta = exact_type(content.source), (content.theta, content.values)
        cancels = self._cancels_factors, self.normalise.is_softmax
        support = EdgeContext(over, structure, *of_theta, exact, content.present, listed, *cancels)
        if self._sees_sources_alone(content):
            scores = self.score.of_sources(content.source, support)
        else:
            scores = self.score(content.source, asked, support)
        check_scores(self.score, scores, support)
        dtype = type_of_values(content.source, self.score)
        scores = with_terms(support, scores, self.terms, self.score.heads, dtype)
        return basis_of(support, scores, self.normalise, dtype)

    @property
    def _takes_any_order(self) -> bool:
        """Whether neither the score, f nor the terms need sorted edges."""
        return self.score.takes_any_order and self.normalise.is_softmax and not self.terms

    def sums_at_once(self, content: Content) -> bool:
        """Whether values, scores and sums of values may be one step, with one dense product.

        This is so for the softmax of additive scores (GAT) that the nodes give each other by the
        values of their heads.
        """
        score, f, x, theta = self.score, self.normalise, content.source, content.theta
        if not isinstance(score, Additive) or self.align is not None or self.terms:
            return False
        own = score.edge is not None or score.ends.source is not None
        if own or score.ends.target is not None or content.target is not x:
            return False
        if not f.is_softmax or f.temperature != 1.0 or (f.dropout and f.dropped):
            return False
        if not isinstance(x, Tensor) or x.dim() != 2 or not isinstance(theta, Theta):
            return False
        fits = theta.heads is not None and theta.bias is None
        fits = fits and theta.inner.shape == (score.heads, 1, x.size(1), score.ends.channels)
        return fits and can_attend_ends(x, theta.value, score.att_source, score.att_target)

    def at_once(self, content: Content, over: EdgeBasis | ImplicitEdges) -> Basis | None:
        """The basis that adds up values without making scores, where :meth:`sums_at_once` holds.

        None if there is no such basis on this support.
        """
        if not isinstance(over, EdgeBasis) or over.dtype is not None:
            return None
        x, score, pattern = content.source, self.score, over.pattern
        fits = pattern.num_labels == 1 and pattern.size == (x.size(0), x.size(0))
        if not fits or surely(pattern.num_edges == 0):
            return None
        assert isinstance(score, Additive)  # as sums_at_once says
        given = content.theta.value, score.att_source, score.att_target, score.negative_slope
        return AdditiveAttentionBasis(over, x, *given)

    def _with_values(self, content: Content) -> Content:
        """The content with the values of the heads, for shares that are made one by one."""
        values = self.score.values(content.source, content.theta)
        return replace(content, values=values, only_sums=False)

    def _lists(self, over: EdgeBasis | ImplicitEdges, x: Features) -> bool:
        """Whether the edges of a support are few and may stay unsorted."""
        if not self._takes_any_order or not isinstance(x, Tensor):
            return False
        return isinstance(over, EdgeBasis) and is_listed(over.pattern, x)

    def _sees_sources_alone(self, content: Content) -> bool:
        """Whether targets have no features and the score needs none."""
        alone = content.target is None and content.source is not None and self.align is None
        return alone and not self.score.needs_queries
