"""The features that a run trains on, and whether they are kept sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from ..data import Dataset
from ..errors import RefusedValue, refusal
from ..families import GCN, Directed, parse_family
from ..nn import predicted_share, sparse_pays
from .settings import Settings


@dataclass(frozen=True)
class FeatureChoice:
    """Whether a run stores the features X (N, P) as a sparse matrix, and why.

    Attributes:
        kept: ``'sparse'`` or ``'dense'``.
        shape: (N, P).
        num_entries: number of non-zeros.
        because: why they are dense although their density alone speaks for sparse; empty otherwise.
    """

    kept: str
    shape: tuple[int, int]
    num_entries: int
    because: str = ""

    def __str__(self) -> str:
        count = max(1, self.shape[0] * self.shape[1])
        share = predicted_share(self.num_entries, self.shape)
        return (
            f"features: {100 * self.num_entries / count:.2g} % non-zero, kept {self.kept}"
            f"{self.because} (as a sparse product, X·Θ is predicted to take "
            f"{100 * share:.2g} % of the time of a dense one)"
        )


def features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """X (N, P) as float, dense, rows normalised if asked for; None where there are none."""
    data = dataset.data
    if not _has_features(dataset):
        return None
    x: Tensor = data.x.float()
    if settings.normalize_features:
        x = NormalizeFeatures()(Data(x=x)).x
    return x.to(settings.device)


def kept_features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """X as :func:`features`, in CSR where these settings keep it sparse.

    Raises:
        ValueError: sparse features are asked for, and there are none.
    """
    choice, x = choose_features(dataset, settings), features(dataset, settings)
    return x.to_sparse_csr() if choice and x is not None and choice.kept == "sparse" else x


def choose_features(dataset: Dataset, settings: Settings) -> FeatureChoice | None:
    """What is asked for; of ``'auto'`` what the density makes of it. None without features.

    Where torch has no sparse kernels that is dense, and so it is beside a peer that takes no sparse
    features: both models get the same. The choice is by counting, never by a clock, so that equal
    settings give equal numbers.

    Raises:
        ValueError: sparse features are asked for, and there are none, or the peer takes none.
    """
    if not _has_features(dataset):
        if settings.features == "sparse":
            raise RefusedValue(
                refusal(
                    "features='sparse' needs a graph with features",
                    "features='auto' or 'dense'",
                    f"{dataset.entry.name}, whose nodes have none",
                )
            )
        return None
    x: Tensor = dataset.data.x
    shape, num_entries = (x.size(0), x.size(1)), int(torch.count_nonzero(x))
    kept, because = settings.features, ""
    alone = not settings.peer or peer_takes_sparse(settings)
    if kept == "sparse" and not alone:
        raise RefusedValue(
            refusal(
                "both models get the same features, and PyG's layer takes no sparse ones",
                "features='auto' or 'dense', or no --peer",
                f"features='sparse' and {settings.family}",
            )
        )
    if kept == "auto":
        kernels = settings.device.split(":")[0] in ("cpu", "cuda")
        kept = "sparse" if kernels and sparse_pays(num_entries, shape) else "dense"
        if kept == "sparse" and not alone:
            kept, because = "dense", " because PyG's layer takes no sparse ones"
        elif kept == "dense" and not kernels:
            because = f" because torch has no sparse kernels on {settings.device}"
        elif kept == "dense" and predicted_share(num_entries, shape) < 1.0:
            because = f" because {shape[0]} × {shape[1]} numbers are too few for sparse ones to pay"
    elif kept == "dense" and predicted_share(num_entries, shape) < 1.0:
        because = " as the settings say"
    return FeatureChoice(kept, shape, num_entries, because)


def peer_takes_sparse(settings: Settings) -> bool:
    """Whether PyG's layer for the family multiplies X with its weights before anything else."""
    return isinstance(parse_family(settings.family), GCN | Directed)


def settle_features(dataset: Dataset, settings: Settings) -> Settings:
    """The settings with ``features='auto'`` replaced by what it comes to for this graph."""
    choice = choose_features(dataset, settings)
    return replace(settings, features="dense" if choice is None else choice.kept)


def _has_features(dataset: Dataset) -> bool:
    return dataset.data.get("x") is not None and dataset.data.x.numel() > 0
