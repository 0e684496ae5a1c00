"""The trained model of a run, from its checkpoint, with the data that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import RefusedValue, refusal
from ..data import Dataset, Source
from .contributions import Contribution, contributions
from .inputs import WholeGraph
from .metrics import METRICS
from .model import Classifier, Contender, check_device, on_backend, ours
from .run_data import dataset_of
from .run_folder import RunFolder
from .settings import Settings
from .splits import Split, make_split

_ROWS = 2**16  # of probabilities that are computed at once


@dataclass(frozen=True)
class Trained:
    """A trained model.

    Attributes:
        folder: the run that it is of.
        settings: those of the run, on the device that was asked for, without a peer.
        dataset: the data.
        contender: the layer with what it is called with.
        model: with the parameters of the checkpoint.
        seed: the seed that the checkpoint is of, that of the best validation.
        recorded: the test metric that training recorded for it.
    """

    folder: RunFolder
    settings: Settings
    dataset: Dataset
    contender: Contender
    model: Classifier
    seed: int
    recorded: float

    @property
    def split(self) -> Split:
        """The split of the checkpoint's seed."""
        return make_split(self.dataset.data, self.settings.split, self.seed)

    def whole_graph(self) -> tuple[Tensor | None, Any]:
        """The features (N, P), or None, and the structure of all of the graph.

        Raises:
            ValueError: the graph is in mapped files.
        """
        self.dataset.require_memory("a call on the whole graph", "predict, which goes by layers")
        inputs = self.contender.inputs
        if not isinstance(inputs, WholeGraph):  # sampled in training: the same layers, all at once
            inputs = ours(self.dataset, self.settings.on_whole_graph()).inputs
        assert isinstance(inputs, WholeGraph)
        return inputs.x, inputs.structure

    def contributions(self) -> list[Contribution]:
        """What each label contributes on the validation nodes; see :func:`.contributions`."""
        y, settings = self.dataset.data.y.to(self.settings.device), self.settings
        nodes = self.split.validation.to(settings.device)
        with on_backend(settings):
            x, structure = self.whole_graph()
            return contributions(self.model, x, structure, y, nodes, METRICS[settings.metric])

    def probabilities(self) -> Tensor:
        """(N, C) the probability of each class for every node, on the CPU; of a graph in mapped
        files they are in a file, too.

        Raises:
            ValueError: there is NaN among them.
        """
        with on_backend(self.settings):
            shares = self.contender.inputs.predicted(self.model)
        for part in shares.split(_ROWS):
            part.copy_(part.softmax(-1))
        shares = shares.cpu()
        _require_finite(self.folder, "what the model says", {"probabilities": shares})
        return shares


def load_trained(
    folder: str | Path,
    root: str | Path | None = None,
    device: str | None = None,
    source: Source | None = None,
) -> Trained:
    """The trained model of a run folder.

    Args:
        folder: the run folder.
        root: folder of the data; None for the folder that the run used.
        device: that of the run if None.
        source: where a graph of one's own is; None for where the run found it.

    Raises:
        ValueError: the folder holds no run, or its checkpoint is of another configuration or
            another graph, or has NaN in it.
        DataUnavailable: the dataset cannot be read.
    """
    home = RunFolder(folder)
    settings = home.settings()
    checkpoint = home.load_checkpoint()
    settings = Settings(
        **{**settings.as_dict(), "peer": False, "device": check_device(device or settings.device)}
    )
    dataset = dataset_of(home, root, source)
    contender = ours(dataset, settings)
    model = _model(home, settings, dataset, contender, checkpoint)
    return Trained(
        home, settings, dataset, contender, model, checkpoint["seed"], checkpoint["test_metric"]
    )


def _model(
    home: RunFolder,
    settings: Settings,
    dataset: Dataset,
    contender: Contender,
    checkpoint: dict[str, Any],
) -> Classifier:
    """The model with the parameters of a checkpoint, if that is of this graph."""
    expected = checkpoint["in_channels"], checkpoint["num_classes"]
    got = contender.in_channels, dataset.num_classes
    if expected != got:
        raise RefusedValue(
            f"the checkpoint does not fit {settings.dataset} in "
            f"{dataset.place}: its channels and classes must agree",
            expected,
            got,
        )
    if checkpoint["fingerprint"] != dataset.fingerprint:
        raise RefusedValue(
            "the checkpoint must be of this graph",
            f"the {settings.dataset} that it was trained on",
            f"another one in {dataset.place}",
        )
    model = contender.model(dataset.num_classes, settings)
    try:
        model.load_state_dict(checkpoint["parameters"])
    except (RuntimeError, TypeError, AttributeError) as error:  # torch lists all, on many lines
        first = " ".join((str(error).splitlines()[1:] or [str(error)])[0].split())
        raise RefusedValue(
            f"the parameters in {home.checkpoint} must fit the model of {home.config}",
            settings.family,
            first,
        ) from error
    _require_finite(home, "the parameters", model.state_dict())
    return model


def _require_finite(home: RunFolder, what: str, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RefusedValue(
                refusal(f"{what} must be finite", "numbers", f"NaN or infinity in {name}")
                + f", by {home.checkpoint}"
            )
