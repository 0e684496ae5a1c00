"""What makes values of attention: scores, one a file, normalisers, queries, and positions.

To add a score, a normaliser or a feature map: one file here with a :class:`Score`,
:class:`Normaliser` or :class:`FeatureMap`; the tests under ``tests/attention`` run over every one.
"""

from ..found import import_files
from .added import AddedPositions
from .additive import Additive
from .alibi import ALiBi
from .bahdanau import Bahdanau
from .bilinear import Bilinear
from .cosine import Cosine
from .dot_product import DotProduct
from .edge_context import EdgeContext
from .edge_features import EdgeFeatures, EdgeScores, require_edge_features
from .embedded_gaussian import EmbeddedGaussian
from .feature_mapped import FeatureMapped
from .feature_maps import FEATURE_MAPS, FeatureMap, PositiveRandom
from .gatv2 import GATv2
from .gaussian_distance import GaussianDistance
from .graph_positions import GraphPositions
from .key_query import KeyQuery
from .learned import LearnedPositions
from .learned_queries import LearnedQueries, QueryModule
from .normalise import L1, NORMALISERS, Normaliser, Sigmoid, Softmax, SoftmaxPlusOne, Unnormalised
from .projection import PerHead, Projection
from .relative import RelativeBias
from .rotary import Rotary
from .score import SCORES, Dot, Score
from .sinusoidal import SinusoidalPositions, sinusoidal
from .spec import make_normaliser, make_score
from .supergat import SuperGAT
from .term import IndexTerm

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
