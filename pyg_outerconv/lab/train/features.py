"""The features that a run trains on, stored sparse or dense."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from ...errors import RefusedValue
from ...nn import predicted_share, sparse_pays
from ..data import Dataset
from .settings import Settings


@dataclass(frozen=True)
class FeatureChoice:
    """How a run stores features X (N, P), and why.

    Attributes:
        kept: ``'sparse'`` or ``'dense'``.
        shape: (N, P).
        num_entries: number of non-zeros of X.
        because: why ``'auto'`` stores them dense; empty otherwise.
    """

    kept: str
    shape: tuple[int, int]
    num_entries: int
    because: str = ""

    def __str__(self) -> str:
        count = max(1, self.shape[0] * self.shape[1])
        reason = self.because
        if self.kept == "sparse":
            predicted = 100 * predicted_share(self.num_entries, self.shape)
            reason = f"X·Θ is predicted to take {predicted:.2g} % of the time of a dense product"
        percent = float(f"{100 * self.num_entries / count:.2g}")
        density = f"{percent:g} % non-zero"
        return f"features: {density}, stored {self.kept}" + (f": {reason}" if reason else "")


def features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """Dense X (N, P) as float, rows normalised if the settings say so; None without features."""
    data = dataset.data
    if not _has_features(dataset):
        return None
    x: Tensor = data.x.float()
    if settings.normalize_features:
        x = NormalizeFeatures()(Data(x=x)).x
    return x.to(settings.device)


def kept_features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """X (N, P) as :func:`features` makes it, in CSR where the settings store it sparse."""
    choice, x = choose_features(dataset, settings), features(dataset, settings)
    if choice is None or x is None or choice.kept == "dense":
        return x
    with warnings.catch_warnings():  # torch says once that this layout may change
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def choose_features(dataset: Dataset, settings: Settings) -> FeatureChoice | None:
    """How the settings store the features; None for a graph without features.

    ``'auto'`` stores them sparse where :func:`sparse_pays` predicts a gain, and torch has sparse
    kernels for the device. The choice counts non-zeros and measures no time, so that equal settings
    give equal numbers.
    """
    if dataset.mapped is not None:  # whose features are not read
        return None
    if not _has_features(dataset):
        if settings.features == "sparse":
            raise RefusedValue(
                "features='sparse' needs a graph with features",
                "features='auto' or 'dense'",
                f"{dataset.entry.name}, whose nodes have none",
            )
        return None
    x: Tensor = dataset.data.x
    shape, num_entries = (x.size(0), x.size(1)), int(torch.count_nonzero(x))
    kept, because = settings.features, ""
    if kept == "auto":
        kept = "dense"
        if settings.device.split(":")[0] not in ("cpu", "cuda"):
            because = f"torch has no sparse kernels on {settings.device}"
        elif predicted_share(num_entries, shape) >= 1:
            because = "X·Θ would take longer with sparse features"
        elif not sparse_pays(num_entries, shape):
            because = f"{shape[0]} × {shape[1]} numbers are too few for a sparse product to pay"
        else:
            kept = "sparse"
    return FeatureChoice(kept, shape, num_entries, because)


def settle_features(dataset: Dataset, settings: Settings) -> Settings:
    """The settings with ``features='auto'`` replaced by the choice for this graph."""
    choice = choose_features(dataset, settings)
    return replace(settings, features="dense" if choice is None else choice.kept)


def _has_features(dataset: Dataset) -> bool:
    return dataset.data.get("x") is not None and dataset.data.x.numel() > 0
