"""Classification of nodes and graphs: the loop, the protocols, the run folder and its results."""

from ..settings import Settings, resolve
from .classifiers import NodeClassifier
from .experiment import Experiment, Interrupted
from .folder import RunFolder, next_folder
from .splits import Split, check_protocol, make_split
from .trained import Contribution, Predictions, Trained, contributions, load_trained

__all__ = [
    "Contribution",
    "Experiment",
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
