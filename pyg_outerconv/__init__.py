"""Every convolution is Y = Σ_k A_kᵀ X Θ_k: a basis A from the data, a parameter Θ of fixed size."""

from .basis import (
    Basis,
    Cells,
    EdgeBasis,
    Grid,
    Pattern,
    Pool,
    clear_caches,
    flatten_grid,
    parse_family,
    unflatten_grid,
)
from .kernels import backends, record, use_backend
from .nn import AttentionConv, OuterConv, compose, fuse

__version__ = "0.1.0"

__all__ = [
    "AttentionConv",
    "Basis",
    "Cells",
    "EdgeBasis",
    "Grid",
    "OuterConv",
    "Pattern",
    "Pool",
    "__version__",
    "backends",
    "clear_caches",
    "compose",
    "flatten_grid",
    "fuse",
    "parse_family",
    "record",
    "unflatten_grid",
    "use_backend",
]
