"""Between the layers of this package and those of torch, weights included."""

from .torch_layers import from_torch

__all__ = ["from_torch"]
