"""Every convolution is Y = Σ_k A_kᵀ X Θ_k: a basis A from the data, a parameter Θ of fixed size."""

from importlib import import_module
from typing import Any

from .backend_table import backends
from .basis import Basis, EdgeBasis, Pattern
from .cache import clear_caches
from .families import Grid, Pool, parse_family
from .graph import Cells, flatten_grid, unflatten_grid
from .kernels import record, use_backend
from .nn import AttentionConv, OuterConv, compose, fuse, share_bases

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
    "share_bases",
    "unflatten_grid",
    "use_backend",
]

# Folders for users that nothing above has imported.
_LAZY = ("attention", "data", "graph", "plot", "testing")


def __getattr__(name: str) -> Any:
    """``pyg_outerconv.nn.convert`` and its like, without an import of their own."""
    if name in _LAZY:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
