"""Bases in two factors: products of features under L1 or without a normaliser."""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.feature_product import FeatureProduct
from ..basis.feature_product_edges import FeatureProductSupport
from ..basis.implicit_edges import ImplicitEdges
from .normalise import L1, Normaliser, Unnormalised
from .score import Dot


def as_factors(
    over: EdgeBasis | ImplicitEdges, scores: Dot, normalise: Normaliser, present: Tensor | None
) -> FeatureProduct | None:
    """The basis as a product of features of keys and queries, or None if it has no such form.

    It has one if f is the identity, or L1 of products that are never negative, and the support is
    all pairs, a causal sequence, or all pairs within blocks.

    Args:
        over: the support.
        scores: the products, divided by the temperature.
        normalise: f.
        present: (M, *batch) booleans, the sources that exist, or None for all.
    """
    normalised = isinstance(normalise, L1)
    fits = normalised and scores.is_positive and scores.scale > 0
    fits = fits or isinstance(normalise, Unnormalised)
    if not fits or scores.bias is not None or normalise.dropped:
        return None
    pairs = FeatureProductSupport.of(over)
    if pairs is None:
        return None
    wide = torch.promote_types(scores.key.dtype, scores.query.dtype)  # autocast shortens one
    key, query = scores.key.to(wide), scores.query.to(wide)
    if scores.scale != 1.0 and not normalised:
        query = query * scores.scale
    if present is not None:
        nothing = -torch.inf if scores.exponents else 0.0
        key = key.masked_fill(~present[..., None, None], nothing)
    make = FeatureProduct.of_exponents if scores.exponents else FeatureProduct
    return make(key, query, normalised, pairs.causal, pairs.source_block, pairs.target_block)
