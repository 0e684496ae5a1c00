"""Scores, normalisers, queries and positions: what the values of attention are computed from.

A subclass of :class:`Score`, :class:`Normaliser` or :class:`FeatureMap` in a file here is found by
its ``name``, and by the tests under ``tests/attention``.
"""

from ..registry import import_files
from .edge_context import EdgeContext
from .feature_maps import FEATURE_MAPS, FeatureMap, FeatureMapped, PositiveRandom
from .normalise import (
    L1,
    NORMALISERS,
    Normaliser,
    Sigmoid,
    Softmax,
    SoftmaxPlusOne,
    Unnormalised,
    make_normaliser,
)
from .positions import (
    AddedPositions,
    GraphPositions,
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
    sinusoidal,
)
from .products import Bilinear, Cosine, DotProduct, EmbeddedGaussian, GaussianDistance, KeyQuery
from .projection import EdgeFeatures, PerHead, Projection
from .queries import LearnedQueries, QueryModule
from .score import SCORES, Dot, Score, make_score
from .sums import Additive, Bahdanau, GATv2, SuperGAT, SuperGATMixed
from .terms import ALiBi, EdgeBias, IndexTerm, RelativeBias

__all__ = [
    "FEATURE_MAPS",
    "L1",
    "NORMALISERS",
    "SCORES",
    "ALiBi",
    "AddedPositions",
    "Additive",
    "Bahdanau",
    "Bilinear",
    "Cosine",
    "Dot",
    "DotProduct",
    "EdgeBias",
    "EdgeContext",
    "EdgeFeatures",
    "EmbeddedGaussian",
    "FeatureMap",
    "FeatureMapped",
    "GATv2",
    "GaussianDistance",
    "GraphPositions",
    "IndexTerm",
    "KeyQuery",
    "LearnedPositions",
    "LearnedQueries",
    "Normaliser",
    "PerHead",
    "PositiveRandom",
    "Projection",
    "QueryModule",
    "RelativeBias",
    "Rotary",
    "Score",
    "Sigmoid",
    "SinusoidalPositions",
    "Softmax",
    "SoftmaxPlusOne",
    "SuperGAT",
    "SuperGATMixed",
    "Unnormalised",
    "make_normaliser",
    "make_score",
    "sinusoidal",
]

import_files(__name__, __path__)
