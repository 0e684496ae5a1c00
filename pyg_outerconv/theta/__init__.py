"""The parameter Θ, a matrix for each label: as one tensor, a mixture, or values and outputs."""

from .forms import DenseTheta, Mixture, ThetaValue, as_theta, full, scaled
from .parts import ThetaParts
from .theta import Theta
from .value_output import ValueOutput

__all__ = [
    "DenseTheta",
    "Mixture",
    "Theta",
    "ThetaParts",
    "ThetaValue",
    "ValueOutput",
    "as_theta",
    "full",
    "scaled",
]
