"""Records of a run: versions, facts of the data, and checks of what its files hold."""

from __future__ import annotations

import math
import platform
from typing import Any

import torch
import torch_geometric

from ... import __version__
from ...errors import RefusedValue
from ..data import Dataset
from .loop import CURVES
from .model import OURS, PEER
from .settings import Settings


def versions() -> dict[str, str]:
    """Versions of the package, torch, PyG and Python."""
    return {
        "pyg_outerconv": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """The folder of a dataset, or its source, its fingerprint and its sizes."""
    return {
        "root": None if dataset.root is None else str(dataset.root),
        "source": None if dataset.source is None else dataset.source.as_dict(),
        "fingerprint": dataset.fingerprint,
        "num_nodes": dataset.num_nodes,
        "num_edges": dataset.num_edges,
        "num_classes": dataset.num_classes,
    }


CHECKPOINT = {
    "format": int,
    "settings": dict,
    "seed": int,
    "parameters": dict,
    "in_channels": int,
    "num_classes": int,
    "fingerprint": str,
    "test_metric": float,
    "best_epoch": int,
}
STATE = {
    "model": str,
    "seed": int,
    "epoch": int,
    "seconds": float,
    "parameters": dict,
    "optimizer": dict,
    "history": dict,
    "best": dict,
    "random": dict,
}
_RECORD = {
    "model": str,
    "seed": int,
    "test_metric": float,
    "majority": float,
    "val_metric": float,
    "val_loss": float,
    "best_epoch": int,
    "epochs": int,
    "seconds": float,
    "history": dict,
}


def has_parts(content: Any, parts: dict[str, type]) -> bool:
    """Whether a dictionary has exactly these parts, each of its type."""
    return (
        isinstance(content, dict)
        and set(content) == set(parts)
        and all(_is(content[part], kind) for part, kind in parts.items())
    )


def check_records(runs: Any, settings: Settings, origin: str) -> list[dict[str, Any]]:
    """The records of finished seeds, if they can be of a run with these settings."""
    if not isinstance(runs, list):
        raise RefusedValue(f"{origin} must hold runs", "a list", type(runs).__name__)
    seen = set()
    for number, run in enumerate(runs):
        if not (has_parts(run, _RECORD) and _is_possible(run, settings)):
            raise RefusedValue(
                f"{origin} must have a record for each seed, as training writes it",
                f"{', '.join(_RECORD)} within their ranges",
                f"something else as number {number}",
            )
        if (run["model"], run["seed"]) in seen:
            raise RefusedValue(
                f"{origin} has a seed once", "one record", f"two of seed {run['seed']}"
            )
        seen.add((run["model"], run["seed"]))
    return runs


def is_history(history: Any, epochs: int) -> bool:
    """Whether these are the learning curves of so many evaluated epochs."""
    return (
        isinstance(history, dict)
        and set(history) == set(CURVES)
        and all(
            isinstance(values, list)
            and len(values) == epochs
            and all(_is(value, float) and math.isfinite(value) for value in values)
            for values in history.values()
        )
    )


def _is_possible(run: dict[str, Any], settings: Settings) -> bool:
    shares = (run["test_metric"], run["majority"], run["val_metric"])
    if not 1 <= run["best_epoch"] <= run["epochs"] <= settings.epochs:
        return False
    evaluated = settings.evaluated(run["epochs"])
    if run["best_epoch"] not in evaluated:
        return False
    place = evaluated.index(run["best_epoch"])
    return (
        run["model"] in (OURS, PEER)
        and run["seed"] in settings.seeds_of(run["model"] == PEER)
        and all(0 <= share <= 1 for share in shares)
        and run["seconds"] >= 0
        and math.isfinite(run["seconds"])
        and is_history(run["history"], len(evaluated))
        and run["val_loss"] == run["history"]["val_loss"][place]
        and run["val_metric"] == run["history"]["val_metric"][place]
    )


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
