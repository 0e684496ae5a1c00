"""The context of a case: sizes, dtype, device, seed, and the folder of the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Results of two ways to do the same agree to this, relative to the largest entry.
TOLERANCE = {
    torch.float64: 1e-8,
    torch.float32: 1e-3,
    torch.float16: 3e-2,
    torch.bfloat16: 1e-1,
}

QUICK_SHARE = 0.2


@dataclass(frozen=True)
class Context:
    """The settings that every case shares.

    Attributes:
        scale: sizes of graphs are multiplied by it.
        quick: whether smaller graphs, fewer points and fewer repeats will do.
        device, dtype: of features and parameters.
        seed: of everything random.
        root: folder of the data, see :func:`pyg_outerconv.data.data_root`.
    """

    scale: float = 1.0
    quick: bool = False
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    root: str | None = None

    @property
    def share(self) -> float:
        """The size of graphs as a share of their full size."""
        return self.scale * (QUICK_SHARE if self.quick else 1.0)

    def size(self, count: int, at_least: int = 1, *, quick: bool = True) -> int:
        """A number of nodes or edges at this scale.

        ``quick`` says whether a quick run takes a part of it; else only ``scale`` counts.
        """
        return max(at_least, round(count * (self.share if quick else self.scale)))

    def generator(self) -> torch.Generator:
        """A fresh source of randomness on the CPU, so that devices see the same graphs."""
        return torch.Generator().manual_seed(self.seed)

    def randn(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Normal values, of the context's type and on its device."""
        return torch.randn(shape, generator=generator).to(self.device, self.dtype)

    @property
    def tolerance(self) -> float:
        """How far two contenders may differ, relative to the largest entry."""
        return TOLERANCE[self.dtype]

    @property
    def item_size(self) -> int:
        """Bytes of one value."""
        return self.dtype.itemsize
