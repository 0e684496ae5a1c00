"""The layer, and the forms of its parameter."""

from ..contract import SparseFeatures, predicted_share, sparse_pays
from .dropout import dropout_features
from .outer_conv import OuterConv
from .theta import FORMS, Theta
from .theta_forms import make_theta

__all__ = [
    "FORMS",
    "OuterConv",
    "SparseFeatures",
    "Theta",
    "dropout_features",
    "make_theta",
    "predicted_share",
    "sparse_pays",
]
