"""The parameter Θ, a matrix for each label: as one tensor, a mixture, or values and outputs."""

from .forms import DenseTheta, Mixture, ThetaValue, as_theta, full, scaled
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
