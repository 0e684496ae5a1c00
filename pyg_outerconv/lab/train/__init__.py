"""Classification of nodes and graphs: the loop, the protocols, the run folder and its results."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classifiers import GraphClassifier, NodeClassifier
    from .experiment import Experiment, Interrupted
    from .folder import RunFolder, next_folder
    from .settings import Settings, resolve
    from .splits import Split, check_protocol, make_split
    from .trained import (
        Contribution,
        Predictions,
        Trained,
        contributions,
        load_trained,
    )

__all__ = [
    "Contribution",
    "Experiment",
    "GraphClassifier",
    "Interrupted",
    "NodeClassifier",
    "Predictions",
    "RunFolder",
    "Settings",
    "Split",
    "Trained",
    "check_protocol",
    "contributions",
    "load_trained",
    "make_split",
    "next_folder",
    "resolve",
]

# Names are imported when they are first used, so that the options of commands, which are made from
# settings.py, do not wait for torch.
_NAMES = {
    "classifiers": ("GraphClassifier", "NodeClassifier"),
    "experiment": ("Experiment", "Interrupted"),
    "folder": ("RunFolder", "next_folder"),
    "settings": ("Settings", "resolve"),
    "splits": ("Split", "check_protocol", "make_split"),
    "trained": (
        "Contribution",
        "Predictions",
        "Trained",
        "contributions",
        "load_trained",
    ),
}
_FILES = {name: file for file, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name of ``__all__``, imported at first use."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
