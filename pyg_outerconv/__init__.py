"""Every convolution is Y = Σ_k A_kᵀ X Θ_k: a basis A from the data, a parameter Θ of fixed size."""

from .basis import Basis, EdgeBasis, Pattern, parse_family
from .kernels import backends, record, use_backend
from .nn import OuterConv

__version__ = "0.1.0"

__all__ = [
    "Basis",
    "EdgeBasis",
    "OuterConv",
    "Pattern",
    "__version__",
    "backends",
    "parse_family",
    "record",
    "use_backend",
]
