"""Classification of nodes and graphs: the loop, the protocols, the run folder and its results."""

from .classifiers import GraphClassifier, NodeClassifier
from .contributions import Contribution, contributions
from .experiment import Experiment, Interrupted
from .lock import next_folder
from .predict import Predictions, predict
from .run_folder import RunFolder
from .settings import Settings, resolve
from .splits import Split, check_protocol, make_split
from .trained import Trained, load_trained

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
    "predict",
    "resolve",
]
