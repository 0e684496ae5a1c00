"""The origin of a run's numbers: versions of the software, and facts of the data."""

from __future__ import annotations

import platform
from typing import Any

import torch
import torch_geometric

from .. import __version__
from ..data import Dataset


def versions() -> dict[str, str]:
    """Versions of the package, torch, PyG and Python."""
    return {
        "pyg_outerconv": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """The folder of a dataset, its fingerprint and its sizes."""
    return {
        "root": None if dataset.root is None else str(dataset.root),
        "fingerprint": dataset.fingerprint,
        "num_nodes": dataset.data.num_nodes,
        "num_edges": dataset.data.num_edges,
        "num_classes": dataset.num_classes,
    }
