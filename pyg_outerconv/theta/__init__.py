"""Θ: a matrix for each label, in one of the forms in which it can be held."""

from .dense_theta import DenseTheta
from .forms import ThetaValue, as_theta, full, scaled
from .mixture import Mixture
from .theta import Theta
from .value_output import ValueOutput

__all__ = [
    "DenseTheta",
    "Mixture",
    "Theta",
    "ThetaValue",
    "ValueOutput",
    "as_theta",
    "full",
    "scaled",
]
