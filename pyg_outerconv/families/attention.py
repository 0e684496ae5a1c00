"""Attention: the family whose values are computed from features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..attention import IndexTerm
from ..attention.edge_context import EdgeContext, exact_type
from ..attention.normalise import L1, NORMALISERS, Normaliser, make_normaliser
from ..attention.projection import PerHead, Queries
from ..attention.queries import Content, stand_alone, with_positions
from ..attention.score import (
    SCORES,
    Score,
    basis_of,
    check_scores,
    make_score,
    read_by,
    type_of_values,
    with_terms,
)
from ..attention.sums import Additive
from ..basis.additive_attention import AdditiveAttentionBasis
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import Edges
from ..basis.multi_head_edges import is_listed
from ..equations import row
from ..errors import RefusedType, RefusedValue, unknown
from ..graph import Features
from ..graph.checks import check_positive
from ..graph.graph import Graph
from ..graph.structure import Structure
from ..kernels.attend_ends import can_attend_ends, in_one_step
from ..kernels.edge_sums import are_few
from ..memo import Memo
from ..theta import Theta, ThetaValue
from .content_family import (
    Heads,
    check_heads,
    kept_symmetries,
    place_of_queries,
    queries,
    structure_of_queries,
    with_graph,
)
from .family import Channels, Family
from .options import check_options
from .support.support import cached_support

COMBINATIONS = ("concat", "mean", "sum")


def value_width(combine: str, out_channels: int, heads: int) -> int:
    """The channels of the values of a head: Q, or Q/H of heads side by side."""
    if combine != "concat":
        return out_channels
    if out_channels % heads:
        rule = "heads side by side share out_channels evenly"
        expected = f"out_channels a multiple of {heads}, or combine=mean"
        raise RefusedValue(rule, expected, out_channels)
    return out_channels // heads


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

    Score and normaliser may be texts that name them. Each layer makes modules of its own, when it
    knows its channels (:meth:`sized`):

    >>> named = Attention("key-query(bias=True)", Causal(), "softmax", heads=2, combine="concat")
    >>> OuterConv(16, 32, named).family.score.channels
    16

    Args:
        score (Score or str): the scores.
        support (Family): the edges: one label for all heads, or a number of labels that divides H.
        normalise (Normaliser or str): f.
        align (Family or Module, optional): T, whose Tᵀ X are the queries, or a module that makes
            queries, such as :class:`LearnedQueries`; None for the identity.
        terms (tuple, optional): modules that add a number for relative positions, or for
            attributes of edges, to every score.
        heads (int, optional): H, which is K, of a score that is named. (default: that of the score)
        combine (str, optional): how a layer puts heads together: ``'sum'``, each with a Θ_h of the
            layer's form; ``'concat'``: heads of Q/H channels side by side; or the ``'mean'`` of
            heads of Q channels. (default: ``'sum'``)
        dropout (float, optional): the share of attention weights that training drops.
            (default: that of f)
        channels (int, optional): D of keys and queries. (default: the channels of a value)

    Raises:
        ValueError: the labels of the support do not divide the heads, a name is unknown, or an
            option is out of range.
    """

    equation = "A_h = f(X L_h X^T T) on the edges of a support"

    heads: int = field(default=0, kw_only=True)
    score: Any  # a Score, or its name, as f
    support: Family
    normalise: Any
    combine: str = field(default="sum", kw_only=True)
    dropout: float = field(default=0.0, kw_only=True)
    channels: int | None = field(default=None, kw_only=True)
    align: Family | torch.nn.Module | None = None
    terms: tuple[Any, ...] = ()

    support_cache: Memo = field(
        default_factory=lambda: Memo(4), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        kinds: dict[str, tuple[Any, str]] = {
            "score": ((Score, str), "Score such as KeyQuery(heads, channels)"),
            "support": (Family, "Family such as Hops()"),
            "normalise": ((Normaliser, str), "Normaliser such as Softmax()"),
        }
        for name, (kind, like) in kinds.items():
            option = getattr(self, name)
            if not isinstance(option, kind):
                raise RefusedType(f"attention needs its {name}", f"a {like}", repr(option))
        if not isinstance(self.terms, tuple | list):
            raise RefusedType(
                "terms are a sequence of modules",
                "a tuple such as (ALiBi(heads),)",
                repr(self.terms),
            )
        object.__setattr__(self, "terms", tuple(self.terms))
        check_options(self)
        self._check_heads()
        if isinstance(self.align, Family):
            check_heads("an alignment", self.align.num_bases, self.heads)
        self._nest()
        self._check_names()
        self._check_factor()
        for term in self.terms:
            if not isinstance(term, IndexTerm):
                raise RefusedType(
                    "terms add numbers of positions", "modules with heads", repr(term)
                )
            check_heads("a term", term.heads, self.heads)

    def _check_heads(self) -> None:
        """Settle H, which the labels of the support divide."""
        own = self.score.heads if isinstance(self.score, Score) else self.heads
        if isinstance(self.score, Score) and not self.heads:
            object.__setattr__(self, "heads", own)
        check_positive(type(self).__name__, heads=self.heads)
        if own != self.heads:
            raise RefusedValue("a score has the heads of its layer", self.heads, own)
        labels = self.support.num_bases
        if self.heads % labels:
            rule = "the labels of a support divide the heads"
            raise RefusedValue(rule, f"a multiple of {labels} heads", self.heads)

    def _check_names(self) -> None:
        """Refuse names and numbers that no layer could make modules of."""
        if isinstance(self.score, str):
            SCORES.read(self.score)
        if self.combine not in COMBINATIONS:
            raise RefusedValue(unknown("combine", self.combine, COMBINATIONS))
        if not 0 <= self.dropout < 1:
            raise RefusedValue("dropout is a share of attention weights", "[0, 1)", self.dropout)
        if isinstance(self.normalise, str):
            NORMALISERS.read(self.normalise)
        elif self.dropout not in (0, self.normalise.dropout):
            raise RefusedValue("a normaliser has a dropout of its own", 0, self.dropout)
        if self.channels is not None:
            check_positive(type(self).__name__, channels=self.channels)

    def _check_factor(self) -> None:
        if self._has_names:  # which are asked again when they are made
            return
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

    @property
    def _has_names(self) -> bool:
        """Whether the score or f is a name, of which no module is made yet."""
        return isinstance(self.score, str) or isinstance(self.normalise, str)

    @property
    def _scoring(self) -> Score | type[Score]:
        """The score, or the class that it names."""
        return SCORES.kind_in(self.score) if isinstance(self.score, str) else self.score

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"head {head} of {self._scoring.name}" for head in range(self.heads))

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether the support needs no edges."""
        return self.support.takes_nodes_alone

    @property
    def symmetries(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of its support and alignment; none if positions are read, which may be an order."""
        return () if self._reads_positions else kept_symmetries(self.support, self.align)

    @property
    def reads_theta(self) -> bool:  # type: ignore[override]
        """Whether scores read the values X Θ of the layer."""
        return self._scoring.uses_theta

    @property
    def _reads_of_edges(self) -> set[str]:
        """What the score and the terms read beside the features."""
        return {*self._scoring.reads_beside, *map(read_by, self.terms)}

    @property
    def _reads_positions(self) -> bool:
        return "pos" in self._reads_of_edges

    @property
    def reads_beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """The features; and what scores, terms, the support and the alignment read."""
        return tuple(sorted(self._reads_of_edges.union(super().reads_beside)))

    def set_self_loops(self, add: bool) -> Attention:
        """The same recipe with or without added self-loops in the support."""
        return replace(self, support=self.support.set_self_loops(add))

    # For a layer of known channels ----------------------------------------------------------------

    def combinations(self) -> list[tuple[str, int]]:
        """Heads side by side, their mean, or a sum."""
        return [(self.combine, self.heads)]

    def averaged(self, heads: int = 0) -> Family:
        """The same heads, or as many others, whose mean is taken in the place of all beside."""
        if isinstance(self.score, Score):
            return self
        combine = "mean" if self.combine == "concat" else self.combine
        return replace(self, combine=combine, heads=heads or self.heads)

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Attention:
        """The attention of a layer of these channels, whose modules are its own."""
        if not self._has_names:
            return self
        if out_channels < 1:
            rule = f"{type(self).__name__} makes values for a layer of known out_channels"
            raise RefusedValue(rule, "out_channels >= 1", out_channels)
        value = value_width(self.combine, out_channels, self.heads)
        own = self.reads_theta and not (shares and self.combine != "sum")
        return self.with_modules(in_channels, value, **({"own": True} if own else {}))

    def with_modules(self, in_channels: Channels, value_channels: int, **options: Any) -> Attention:
        """The same attention with modules for what has a name.

        Args:
            in_channels: P, or those of both ends.
            value_channels: V of each head.
            **options: of the score; those in its text take precedence.

        Raises:
            ValueError: an option does not fit the score.
        """
        channels = self.channels or value_channels
        sizes = self.heads, channels, in_channels, value_channels
        score, normalise = make_score(self.score, *sizes, **options), self.normalise
        if isinstance(normalise, str):
            normalise = make_normaliser(normalise, dropout=self.dropout)
        kept = {"combine": self.combine, "dropout": self.dropout}
        return Attention(score, self.support, normalise, self.align, self.terms, **kept)  # type: ignore[arg-type]

    # The matrices ---------------------------------------------------------------------------------

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The matrices A_h for the features of a structure.

        Raises:
            ValueError: there are no features, or their shapes do not fit.
        """
        if self._has_names:
            rule = f"{type(self).__name__} makes its basis in a layer, which knows the channels"
            raise RefusedValue(rule, f"OuterConv(in_channels, out_channels, {self})", "no layer")
        content, asked = self.content_of(structure, content)
        support, align, input_structure = self.support, self.align, structure
        if align is not None:
            ordered = support.takes_nodes_alone and "permutation-equivariant" not in support.laws
            options = ordered, self._reads_positions
            structure = structure_of_queries(structure, support, align, content, asked, *options)
        # Features of nodes are no features of queries of another number or order.
        seen = content if structure is input_structure else None
        over = self._edges_of(structure, content.source, seen)
        return self._of_content(over, structure, content, asked)

    def _edges_of(self, structure: Structure, x: Features, content: Content | None) -> Edges:
        """The support; made anew where that is faster: of few edges, which stay unsorted."""
        if isinstance(structure, Graph) and isinstance(x, Tensor):
            few = are_few(structure.edge_index.size(1), x)
            if few and self.support.is_quick and self._takes_any_order:
                return self.support.basis_with(structure, None, content).edges()
        return cached_support(self.support, structure, self.support_cache, content)

    def basis_over(self, over: Edges, structure: Any, content: Content) -> Basis:
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
        counts = [None if x is None else x.shape[0] for x in (content.source, targets)]
        ends = zip(counts, over.size, strict=True)  # a compiler cannot look for a size in a tuple
        if any(count is not None and count != end for count, end in ends):
            raise RefusedValue("a support has the sources and the queries", counts, over.size)
        if self.align is not None and self._reads_positions and stand_alone(structure):
            place = place_of_queries(structure, self.align, content, asked)
            structure = with_positions(structure, structure, place, self.align)
        return self._of_content(over, structure, content, asked)

    def _of_content(
        self,
        over: Edges,
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
        of_ends = self._of_ends(over, content)
        if of_ends is not None:
            return of_ends
        listed = self._takes_any_order and isinstance(content.source, Tensor)
        listed = listed and isinstance(over, EdgeBasis) and is_listed(over.pattern, content.source)
        exact, of_theta = exact_type(content.source), (content.theta, content.values)
        how = listed, self._cancels_factors, self.normalise.is_softmax
        arguments, fill = (over, structure, *of_theta), self.score.fill
        support = EdgeContext(*arguments, exact, content.present, *how, fill=fill)
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

    def at_once(
        self, x: Features, theta: ThetaValue
    ) -> tuple[Tensor, Tensor, Tensor, float] | None:
        """What an :class:`.AdditiveAttentionBasis` takes of Θ and of the score, else None.

        Values, scores and sums of values may then be one step, with one dense product. This is so
        for the softmax of additive scores (GAT) that nodes with features x, sources and targets at
        once, give each other by the values of their heads.
        """
        score, f = self.score, self.normalise
        if not isinstance(score, Additive) or self.align is not None or self.terms:
            return None
        ends = score.ends
        if score.edge is not None or ends.source is not None or ends.target is not None:
            return None
        if not f.is_softmax or f.temperature != 1.0 or (f.dropout and f.dropped):
            return None
        if not isinstance(x, Tensor) or x.dim() != 2 or not isinstance(theta, Theta):
            return None
        if theta.heads is None or theta.bias is not None:
            return None
        if theta.value.shape != (self.heads, x.size(1), ends.channels):
            return None
        operands = theta.value, score.att_source, score.att_target
        if not (can_attend_ends(x, *operands) or in_one_step(x, *operands)):
            return None
        return *operands, score.negative_slope

    def _of_ends(self, over: Edges, content: Content) -> Basis | None:
        """The basis of which values, scores and sums are made in one step, see :meth:`at_once`."""
        if torch.compiler.is_compiling():  # a compiler traces scores
            return None
        if not content.is_single or content.present is not None or content.values is not None:
            return None
        if not isinstance(over, EdgeBasis) or over.pattern.num_labels != 1:
            return None
        x = content.source
        operands = self.at_once(x, content.theta)
        if operands is None or over.size != (x.size(0), x.size(0)):
            return None
        return AdditiveAttentionBasis(over, x, *operands)

    def _sees_sources_alone(self, content: Content) -> bool:
        """Whether targets have no features and the score needs none."""
        alone = content.target is None and content.source is not None and self.align is None
        return alone and not self.score.needs_queries
