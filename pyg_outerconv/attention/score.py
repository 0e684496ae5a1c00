"""Scores: functions from features to a number for each edge and head; and the basis f(scores)."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset

from ..basis.attention_basis import AttentionBasis
from ..basis.base import Basis
from ..basis.feature_product import FeatureProduct, pairs_of
from ..basis.implicit_edges import Edges
from ..errors import RefusedType, RefusedValue
from ..graph import Features
from ..graph.checks import check_positive
from ..graph.positions import differences
from ..kernels.index_checks import can_read
from ..kernels.linear_attention import on_edges
from ..registry import Named, Registry
from ..signatures import typed
from .edge_context import EdgeContext, LoopAttributes
from .normalise import L1, Normaliser, Unnormalised
from .projection import Queries, over_batch, same_batch

SCORES: Registry[type[Score]] = Registry("score")
"""All scores by name."""
SIZES = ("heads", "channels")


@dataclass(frozen=True)
class Dot:
    """Scores that are inner products of a query and a key, kept as these two factors.

    ``score[e, h] = scale ⟨query[n, h], key[m, h]⟩ + bias[e, h]`` for e: m → n.

    Attributes:
        query: (N, *batch, H, D).
        key: (M, *batch, H, D).
        scale: factor of the products.
        bias: (E, *batch, H/L) or sizes of 1, in the order of the support's pattern; or None.
        is_positive: whether no product is ever negative.
        exponents: whether query and key are exponents of the factors, and scores known up to a
            factor for each target: ``Σ_d exp(query[n, h, d] + key[m, h, d])``.
        value_type: the dtype of values, where query and key are in a wider one; None for theirs.
    """

    query: Tensor
    key: Tensor
    scale: float = 1.0
    bias: Tensor | None = None
    is_positive: bool = False
    exponents: bool = False
    value_type: torch.dtype | None = None


class Score(Named, torch.nn.Module, registry=SCORES):
    """A function from features to scores (section 4 of *Convolution is outer product*).

    To add a score, define a subclass with a ``name``, which registers it, and :meth:`forward`.

    Attributes:
        name: the name by which layers make it.
        page: its equation and its source in EQUATIONS.md.
        uses_theta: whether scores read the features that the layer's Θ has transformed.
        needs_queries: whether targets must have features.
        up_to_factor: whether scores of a target may be off by a common factor, which L1 cancels.
        reads_beside: which of ``edge_attr`` and ``pos`` the scores read; others are refused.
        takes_any_order: whether edges may come unsorted, because it reads them only by
            ``support.add``, ``dot``, ``entries`` and ``of_given``.
        fill: the attributes that self-loops get which the support adds; None for zeros.

    Args:
        heads: H. Subclasses that are made from text take two more arguments, used or not, before
            their options: ``channels``, D of each head, and ``in_channels``, P of the sources or a
            pair (P, P_q) for sources and queries, -1 to learn it from the first input.

    Raises:
        TypeError, ValueError: a number of heads or channels is not a positive integer.
    """

    name: ClassVar[str]
    page: ClassVar[tuple[str, str]]
    uses_theta: bool = False
    needs_queries: ClassVar[bool] = True
    up_to_factor: bool = False
    reads_beside: tuple[str, ...] = ()
    takes_any_order: ClassVar[bool] = False
    fill: LoopAttributes | None = None

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_positive("a score", heads=heads)
        self.heads = heads

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = typed(cls.__init__, but=SIZES)  # type: ignore[method-assign]

    @classmethod
    def types_in_text(cls) -> dict[str, Any]:
        """All options but the sizes that a layer knows; ``channels`` are those of the text."""
        types = {"channels": int, **super().types_in_text()}
        return {name: hint for name, hint in types.items() if name not in ("heads", "in_channels")}

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        for child in self.children():
            reset(child)

    @abstractmethod
    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class.

        Args:
            source: the features of the sources X (M, *batch, P).
            query: the queries Q = TᵀX (N, *batch, P_q), or :class:`~.projection.PerHead`.
            support: the edges.

        Returns:
            A :class:`Dot` where scores are inner products of both ends, otherwise a tensor
            (E, *batch, H/L) in the order of the support's pattern.
        """

    def values(self, source: Features, theta: Any) -> Tensor | None:
        """The values X_m Θ_h, (M, *batch, H, V), if the score needs them; else None.

        A layer computes them once, for the scores and for the sums of values.
        """
        return None

    def of_sources(self, source: Features, support: EdgeContext) -> Dot | Tensor:
        """The scores where targets have no features; only if ``needs_queries`` is false."""
        raise NotImplementedError(f"{type(self).__name__} needs queries")


def check_scores(score: Score, scores: Any, support: EdgeContext) -> None:
    """Refuse scores of another shape than those of the edges, or of the two ends, must have."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # sizes are not known there
        return
    name, heads = type(score).__name__, score.heads
    if isinstance(scores, Dot):
        sources, targets = support.size
        for end, count, x in (("key", sources, scores.key), ("query", targets, scores.query)):
            if x.dim() < 3 or (x.size(0), x.size(-2)) != (count, heads):
                rule = f"the {end} of the Dot of {name} is a vector for each node and head"
                expected = f"shape ({count}, *batch, {heads}, D)"
                raise RefusedValue(rule, expected, tuple(x.shape))
        same_batch(scores.key, scores.query)
        return
    rule = f"scores of {name} are a number for each edge and head"
    if not isinstance(scores, Tensor):
        raise RefusedType(rule, "a tensor, or a Dot", type(scores).__name__)
    edges, columns = support.num_edges, heads // support.num_labels
    shape = scores.shape
    if len(shape) < 2 or (shape[0], shape[-1]) != (edges, columns):
        raise RefusedValue(rule, f"shape ({edges}, *batch, {columns})", tuple(shape))


@partial(typed, but=("spec",))
def make_score(
    spec: Score | str,
    heads: int,
    channels: int | None = None,
    in_channels: int | tuple[int, int] = -1,
    value_channels: int | None = None,
    **options: Any,
) -> Score:
    """The score that a text names, with its options; a score is returned as it is.

    ``"key-query"``, ``"key-query(bias=True)"``, ``"cosine(learned=False, beta=2.0)"``.

    Args:
        spec: the text, or a score.
        heads: H.
        channels: D of each head, unless the text has ``channels=...``.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        value_channels: D, in place of ``channels``, for scores that read the values X Θ.
        **options: further options; options in the text take precedence.

    Raises:
        TypeError: ``spec`` is neither a score nor text.
        ValueError: the text is not a name with named options, the score is unknown, or it has no
            such option.
    """
    if isinstance(spec, Score):
        return spec
    kind, _, written = SCORES.read(spec)
    if kind.uses_theta and not written.get("own", False):
        channels = value_channels or channels
    channels = written.pop("channels", channels)
    sizes = heads, channels, in_channels
    takes = inspect.signature(kind)
    try:
        takes.bind_partial(*sizes)
    except TypeError as error:
        rule = f"the score {kind.name!r}, where text names it, takes sizes before its options"
        expected = "__init__(self, heads, channels, in_channels, ...), used or not"
        raise RefusedValue(rule, expected, f"({', '.join(takes.parameters)})") from error
    score: Score = SCORES.build(kind, sizes, {**options, **written})
    return score


def _as_factors(
    over: Edges,
    scores: Dot,
    scale: float,
    normalise: Normaliser,
    present: Tensor | None,
    dtype: torch.dtype | None,
) -> FeatureProduct | None:
    """The basis as a product of features of keys and queries, or None if it has no such form.

    It has one if f is the identity, or L1 of products that are never negative, and the support is
    all pairs, a causal sequence, or all pairs within blocks.
    """
    normalised = isinstance(normalise, L1)
    fits = normalised and scores.is_positive and scale > 0
    fits = fits or isinstance(normalise, Unnormalised)
    if not fits or scores.bias is not None or normalise.dropped:
        return None
    pairs = pairs_of(over)
    if pairs is None:
        return None
    wide = torch.promote_types(scores.key.dtype, scores.query.dtype)  # autocast shortens one
    key, query = scores.key.to(wide), scores.query.to(wide)
    if scale != 1.0 and not normalised:
        query = query * scale
    key = present_keys(key, present, scores.exponents)
    make = FeatureProduct.of_exponents if scores.exponents else FeatureProduct
    return make(key, query, normalised, *pairs, value_type=dtype)


def with_terms(
    support: EdgeContext,
    scores: Dot | Tensor,
    terms: tuple[Any, ...],
    heads: int,
    dtype: torch.dtype | None,
) -> Dot | Tensor:
    """The scores plus the terms of the positions of both ends, or of the attributes of edges.

    Where a term is -inf there is no edge, whatever the score: numbers that are no products become
    the bias of products of 0, whose contractions leave out edges with a bias of -inf.
    """
    if not terms:
        return scores
    inputs: dict[str, Tensor] = {}
    reads = [read_by(term) for term in terms]
    if "pos" in reads:
        inputs["pos"] = differences(support.positions, support.pattern.index)
    if "edge_attr" in reads:
        inputs["edge_attr"] = support.edge_attr
    pairs = zip(terms, reads, strict=True)
    added = sum(term(inputs[name]).expand(-1, heads) for term, name in pairs)
    like = scores.query if isinstance(scores, Dot) else scores
    batch = like.shape[1:-2] if isinstance(scores, Dot) else like.shape[1:-1]
    term = over_batch(support.own_heads(added), batch).to(like.dtype)
    if isinstance(scores, Tensor):
        hidden, total = term.detach() == -torch.inf, scores + term
        if can_read(hidden) and not bool(hidden.any()):
            return total
        sources, targets = support.size
        key, query = (total.new_zeros((count, *batch, heads, 1)) for count in (sources, targets))
        return Dot(query, key, bias=total.masked_fill(hidden, -torch.inf), value_type=dtype)
    return replace(scores, bias=term if scores.bias is None else scores.bias + term)


def read_by(term: Any) -> str:
    """What a term reads: ``pos``, or ``edge_attr``."""
    return getattr(term, "reads", "pos")


def basis_of(
    support: EdgeContext, scores: Dot | Tensor, normalise: Normaliser, dtype: torch.dtype | None
) -> Basis:
    """The basis f(scores), without absent sources; products may stay unevaluated.

    Args:
        support: the edges.
        scores: (E, *batch, H/L) in the support's order, or a :class:`Dot`.
        normalise: f.
        dtype: the dtype of the values, or None for that of the scores.
    """
    factor = 1.0 / normalise.temperature
    if isinstance(scores, Dot):
        scale, present = scores.scale * factor, support.present
        feature_product = _as_factors(support.basis, scores, scale, normalise, present, dtype)
        if feature_product is not None:
            return feature_product
        if not scores.exponents:
            there = _of_batch(present, scores.key.shape[1:-2])
            bias = scores.bias if scores.bias is None or factor == 1.0 else scores.bias * factor
            how = normalise, scale, bias, there, scores.value_type
            return AttentionBasis(support.basis, scores.query, scores.key, *how)
        scores = _of_exponents(support, scores)
    scores = scores * factor if factor != 1.0 else scores
    there = _of_batch(support.present, scores.shape[1:-1])
    if there is not None:
        there = there.index_select(0, support.sources).unsqueeze(-1)
        scores = scores.masked_fill(~there, -torch.inf)
    value = normalise(support.entries, scores.flatten(1)).view(scores.shape)
    return support.heads(value if dtype is None else value.to(dtype))


def _of_exponents(support: EdgeContext, scores: Dot) -> Tensor:
    """Scores (E, *batch, H/L) from products of exponentials."""
    key = present_keys(scores.key, support.present, exponents=True)
    products = on_edges(support.csr, support.fold(scores.query), support.fold(key))
    return support.unfold(products, key.size(-2), tuple(key.shape[1:-2]))


def type_of_values(x: Features, score: Score) -> torch.dtype | None:
    """float16 or bfloat16, if features or autocast use it, else None; scores are in float32."""
    like = x if x is not None and x.is_floating_point() else next(score.parameters(), None)
    if like is None:
        return None
    dtype, device = like.dtype, like.device.type
    if dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return dtype if dtype in (torch.float16, torch.bfloat16) else None


def present_keys(key: Tensor, present: Tensor | None, exponents: bool) -> Tensor:
    """Keys (M, *batch, H, D), or their exponents, whose products are zero for absent sources."""
    there = _of_batch(present, key.shape[1:-2])
    if there is None:
        return key
    return key.masked_fill(~there[..., None, None], -torch.inf if exponents else 0.0)


def _of_batch(present: Tensor | None, batch: tuple[int, ...]) -> Tensor | None:
    """The mask (M, *batch) of present sources; a mask (M,) is expanded over the batch."""
    if present is None or present.shape[1:] == batch:
        return present
    if present.dim() > 1:
        rule = "sources are there or not for each item of x"
        raise RefusedValue(rule, batch, tuple(present.shape[1:]))
    return present.view(-1, *(1,) * len(batch)).expand(-1, *batch)
