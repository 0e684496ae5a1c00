"""Between the layers of this package and those of torch and PyG, weights included."""

from .pyg_layers import from_pyg
from .torch_layers import from_torch, to_torch

__all__ = ["from_pyg", "from_torch", "to_torch"]
