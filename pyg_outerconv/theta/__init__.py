"""The parameter Θ, a matrix for each label: as one tensor, a mixture, or values and outputs."""

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
