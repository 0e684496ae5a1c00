"""Classes from a checkpoint."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ..data import Dataset, entry, load
from ..errors import RefusedValue, refusal
from .contender import check_device, on_backend, ours
from .loop import accuracy
from .model import NodeClassifier
from .run_folder import FORMAT, RunFolder
from .settings import Settings, settings_from
from .splits import check_protocol, make_split

_PARTS = {
    "format": int,
    "settings": dict,
    "seed": int,
    "parameters": dict,
    "in_channels": int,
    "num_classes": int,
    "fingerprint": str,
    "test_accuracy": float,
    "best_epoch": int,
}


@dataclass(frozen=True)
class Predictions:
    """What a checkpoint says of every node.

    Attributes:
        classes: (N,) the most probable class; ``probability`` (N,) is what it gets.
        test_accuracy: on the test nodes of the seed that the checkpoint is of.
        recorded: the test accuracy that training recorded for it.
    """

    settings: Settings
    seed: int
    classes: Tensor
    probability: Tensor
    test_accuracy: float
    recorded: float

    def write(self, file: IO[str]) -> None:
        """As CSV: node, class, probability."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("node", "class", "probability"))
        for node, (label, share) in enumerate(
            zip(self.classes.tolist(), self.probability.tolist(), strict=True)
        ):
            writer.writerow((node, label, f"{share:.6f}"))


def predict(
    folder: str | Path, root: str | Path | None = None, device: str | None = None
) -> Predictions:
    """Classify every node with the checkpoint of a run.

    Args:
        folder: the run folder.
        root: where data is; where the run found it if None.
        device: that of the run if None.

    Raises:
        ValueError: the folder holds no run, or its checkpoint is of another configuration or
            another graph.
        DataUnavailable: the dataset cannot be read.
    """
    home = RunFolder(folder)
    settings = home.settings()
    checkpoint = home.load(home.checkpoint)
    _check(home, settings, checkpoint)
    settings = Settings(
        **{**settings.as_dict(), "peer": False, "device": check_device(device or settings.device)}
    )
    check_protocol(entry(settings.dataset), settings.split)
    dataset = load(settings.dataset, root or home.root(), settings.split)
    model, contender = _model(home, settings, dataset, checkpoint)
    with torch.no_grad(), on_backend(settings):
        shares = model.eval()(contender.x, contender.structure).softmax(-1).cpu()
    probability, classes = shares.max(-1)
    test = make_split(dataset.data, settings.split, checkpoint["seed"]).test
    return Predictions(
        settings,
        checkpoint["seed"],
        classes,
        probability,
        accuracy(classes[test], dataset.data.y[test]),
        checkpoint["test_accuracy"],
    )


def _check(home: RunFolder, settings: Settings, checkpoint: dict[str, Any]) -> None:
    whole = set(checkpoint) == set(_PARTS) and all(
        isinstance(checkpoint[part], kind) for part, kind in _PARTS.items()
    )
    fits = whole and checkpoint["format"] == FORMAT and checkpoint["seed"] in range(settings.seeds)
    if not fits:
        raise RefusedValue(
            refusal(
                f"{home.checkpoint} must be written by outerconv train",
                f"format {FORMAT}",
                f"another, with {sorted(checkpoint)}",
            )
        )
    other = settings_from(checkpoint["settings"], str(home.checkpoint))
    if differing := settings.differing(other):
        raise RefusedValue(
            refusal(
                f"the checkpoint must be of the configuration in {home.config}",
                settings.tell(differing),
                other.tell(differing),
            )
        )


def _model(
    home: RunFolder, settings: Settings, dataset: Dataset, checkpoint: dict[str, Any]
) -> tuple[NodeClassifier, Any]:
    contender = ours(dataset, settings)
    expected = checkpoint["in_channels"], checkpoint["num_classes"]
    got = contender.in_channels, dataset.num_classes
    if expected != got:
        raise RefusedValue(
            refusal(
                f"the checkpoint does not fit {settings.dataset} in "
                f"{dataset.root}: its channels and classes must agree",
                expected,
                got,
            )
        )
    if checkpoint["fingerprint"] != dataset.fingerprint:
        raise RefusedValue(
            refusal(
                "the checkpoint must be of this graph",
                f"the {settings.dataset} that it was trained on",
                f"another one in {dataset.root}",
            )
        )
    model = contender.model(dataset.num_classes, settings)
    try:
        model.load_state_dict(checkpoint["parameters"])
    except RuntimeError as error:  # torch lists every parameter, on many lines
        first = " ".join(str(error).splitlines()[1].split())
        raise RefusedValue(
            refusal(
                f"the parameters in {home.checkpoint} must fit the model of {home.config}",
                settings.family,
                first,
            )
        ) from error
    return model, contender
