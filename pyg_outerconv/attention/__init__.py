"""What makes values of attention: scores, one a file, normalisers, queries, and positions.

To add a score, a normaliser or a feature map: one file here with a :class:`Score`,
:class:`Normaliser` or :class:`FeatureMap`; the tests under ``tests/attention`` run over every one.
"""

from ..found import import_files
from .added_positions import AddedPositions, LearnedPositions
from .additive import Additive
from .edge_context import EdgeContext
from .edge_features import EdgeFeatures, EdgeScores, require_edge_features
from .feature_maps import FEATURE_MAPS, FeatureMap, FeatureMapped, PositiveRandom
from .graph_positions import GraphPositions
from .neurons import Bahdanau, GATv2
from .normalise import L1, NORMALISERS, Normaliser, Sigmoid, Softmax, SoftmaxPlusOne, Unnormalised
from .products import Bilinear, DotProduct, EmbeddedGaussian, KeyQuery, SuperGAT
from .projection import PerHead, Projection
from .queries import LearnedQueries, QueryModule
from .score import SCORES, Dot, Score
from .similarity import Cosine, GaussianDistance
from .sinusoidal import Rotary, SinusoidalPositions, sinusoidal
from .spec import make_normaliser, make_score
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
    "EdgeScores",
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
    "Unnormalised",
    "make_normaliser",
    "make_score",
    "require_edge_features",
    "sinusoidal",
]

import_files(__name__, __path__)
