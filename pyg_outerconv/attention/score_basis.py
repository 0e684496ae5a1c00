"""From scores to a basis: terms of positions, and f over the edges of a support."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..basis.attention_basis import AttentionBasis
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.feature_product import FeatureProduct, pairs_of
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedValue
from ..graph import Features
from ..graph.positions import differences
from ..kernels.index_checks import can_read
from ..kernels.linear_attention import on_edges
from .edge_context import EdgeContext
from .ends import over_batch
from .normalise import L1, Normaliser, Unnormalised
from .score import Dot, Score


def _as_factors(
    over: EdgeBasis | ImplicitEdges,
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
    """The scores plus the terms of the positions of both ends.

    Where a term is -inf there is no edge, whatever the score: numbers that are no products become
    the bias of products of 0, whose contractions leave out edges with a bias of -inf.
    """
    if not terms:
        return scores
    relative = differences(support.positions, support.pattern.index)
    added = sum(term(relative).expand(-1, heads) for term in terms)
    like = scores.query if isinstance(scores, Dot) else scores
    batch = like.shape[1:-2] if isinstance(scores, Dot) else like.shape[1:-1]
    term = over_batch(support.own_heads(added), batch).to(like.dtype)
    if isinstance(scores, Tensor):
        hidden, found = term.detach() == -torch.inf, scores + term
        if can_read(hidden) and not bool(hidden.any()):
            return found
        sources, targets = support.size
        key, query = (found.new_zeros((count, *batch, heads, 1)) for count in (sources, targets))
        return Dot(query, key, bias=found.masked_fill(hidden, -torch.inf), value_type=dtype)
    return replace(scores, bias=term if scores.bias is None else scores.bias + term)


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
        found = _as_factors(support.basis, scores, scale, normalise, present, dtype)
        if found is not None:
            return found
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
    found = on_edges(support.csr, support.fold(scores.query), support.fold(key))
    return support.unfold(found, key.size(-2), tuple(key.shape[1:-2]))


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
