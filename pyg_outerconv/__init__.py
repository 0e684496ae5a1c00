"""Every convolution is Y = Σ_k A_kᵀ X Θ_k: a basis A from the data, a parameter Θ of fixed size."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .basis import Basis, EdgeBasis, Pattern
    from .families import Grid, Pool, parse_family
    from .graph import Cells, flatten_grid, unflatten_grid
    from .kernels import record, use_backend
    from .kernels.dispatch import backends
    from .memo import clear_caches
    from .nn import AttentionConv, OuterConv
    from .nn.compose import compose
    from .transforms import ToSparseFeatures

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
    "ToSparseFeatures",
    "__version__",
    "backends",
    "clear_caches",
    "compose",
    "flatten_grid",
    "parse_family",
    "record",
    "unflatten_grid",
    "use_backend",
]

# Names are imported when they are first used, so that `outerconv --help` does not wait for torch.
_NAMES = {
    "basis": ("Basis", "EdgeBasis", "Pattern"),
    "families": ("Grid", "Pool", "parse_family"),
    "graph": ("Cells", "flatten_grid", "unflatten_grid"),
    "kernels": ("record", "use_backend"),
    "kernels.dispatch": ("backends",),
    "memo": ("clear_caches",),
    "transforms": ("ToSparseFeatures",),
    "nn": ("AttentionConv", "OuterConv", "compose"),
}
_FILES = {name: file for file, names in _NAMES.items() for name in names}
_FOLDERS = (
    *_NAMES,
    "attention",
    "contract",
    "errors",
    "lab",
    "plot",
    "testing",
    "theta",
)


def __getattr__(name: str) -> Any:
    """A name of ``__all__``, or a folder such as ``pyg_outerconv.nn``, imported at first use."""
    if name in _FILES:
        attribute = getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
    elif name in _FOLDERS:
        attribute = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *_FILES, *_FOLDERS})
