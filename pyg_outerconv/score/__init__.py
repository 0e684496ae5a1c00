"""Content-based values: scores, one a file, their normalisers, and the family that they make.

To add a score, a normaliser or a feature map: one file here with a :class:`Score`,
:class:`Normaliser` or :class:`FeatureMap`; the tests under ``tests/score`` run over every one.
"""

from ..found import import_files
from .additive import Additive
from .attention import Attention
from .bahdanau import Bahdanau
from .bilinear import Bilinear
from .cosine import Cosine
from .dot_product import DotProduct
from .edge_features import EdgeFeatures, EdgeScores, require_edge_features
from .embedded_gaussian import EmbeddedGaussian
from .feature_mapped import FeatureMapped
from .feature_maps import FEATURE_MAPS, FeatureMap, PositiveRandom
from .gatv2 import GATv2
from .gaussian_distance import GaussianDistance
from .key_query import KeyQuery
from .learned_queries import LearnedQueries, QueryModule
from .linear_attention import LinearAttention
from .normalise import (
    L1,
    NORMALISERS,
    Normaliser,
    Sigmoid,
    Softmax,
    SoftmaxPlusOne,
    Unnormalised,
)
from .projection import PerHead, Projection
from .score import SCORES, Dot, Score
from .spec import make_normaliser, make_score
from .supergat import SuperGAT
from .support import Support

__all__ = [
    "FEATURE_MAPS",
    "L1",
    "NORMALISERS",
    "SCORES",
    "Additive",
    "Attention",
    "Bahdanau",
    "Bilinear",
    "Cosine",
    "Dot",
    "DotProduct",
    "EdgeFeatures",
    "EdgeScores",
    "EmbeddedGaussian",
    "FeatureMap",
    "FeatureMapped",
    "GATv2",
    "GaussianDistance",
    "KeyQuery",
    "LearnedQueries",
    "LinearAttention",
    "Normaliser",
    "PerHead",
    "PositiveRandom",
    "Projection",
    "QueryModule",
    "Score",
    "Sigmoid",
    "Softmax",
    "SoftmaxPlusOne",
    "SuperGAT",
    "Support",
    "Unnormalised",
    "make_normaliser",
    "make_score",
    "require_edge_features",
]

import_files(__name__, __path__)
