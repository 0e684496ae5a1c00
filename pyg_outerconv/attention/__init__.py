"""Scores, normalisers, queries and positions: what the values of attention are computed from.

A subclass of :class:`Score`, :class:`Normaliser` or :class:`FeatureMap` in a file here is found by
its ``name``, and by the tests under ``tests/attention``.
"""

from ..registry import import_files
from .added_positions import AddedPositions, LearnedPositions
from .additive import Additive
from .edge_context import EdgeContext
from .edge_features import EdgeFeatures
from .feature_maps import FEATURE_MAPS, FeatureMap, FeatureMapped, PositiveRandom
from .graph_positions import GraphPositions
from .neurons import Bahdanau, GATv2
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
from .products import Bilinear, DotProduct, EmbeddedGaussian, KeyQuery
from .projection import PerHead, Projection
from .queries import LearnedQueries, QueryModule
from .score import SCORES, Dot, Score, make_score
from .similarity import Cosine, GaussianDistance
from .sinusoidal import Rotary, SinusoidalPositions, sinusoidal
from .super_gat import SuperGAT, SuperGATMixed
from .terms import ALiBi, IndexTerm, RelativeBias

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
