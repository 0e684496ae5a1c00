"""Node classification: the loop, the protocols, the run folder and its results."""

from .contributions import Contribution, contributions
from .experiment import Experiment, Interrupted
from .model import NodeClassifier
from .predict import Predictions, predict
from .run_folder import RunFolder, next_folder
from .settings import Settings, resolve
from .splits import Split, check_protocol, make_split

__all__ = [
    "Contribution",
    "Experiment",
    "Interrupted",
    "NodeClassifier",
    "Predictions",
    "RunFolder",
    "Settings",
    "Split",
    "check_protocol",
    "contributions",
    "make_split",
    "next_folder",
    "predict",
    "resolve",
]
