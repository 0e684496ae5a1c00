"""Classes from a checkpoint, and the command ``outerconv predict``."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ..data import Dataset, Source, source_of
from ..errors import RefusedValue, refusal
from ..files import as_path, write_out
from .metrics import METRICS
from .model import Classifier, check_device, on_backend, ours
from .run_data import dataset_of
from .run_folder import CONFIG, NAMES, RunFolder
from .settings import Settings
from .splits import make_split


@dataclass(frozen=True)
class Predictions:
    """The predictions of a checkpoint for every node, or for every graph of a set.

    Attributes:
        classes: (N,) the most probable class; ``probability`` (N,) is its probability.
        test_metric: the metric of the settings, on the test nodes of the seed that the
            checkpoint is of.
        recorded: the same as training recorded it.
        dataset: the graph, with the names of its nodes and classes.
    """

    settings: Settings
    seed: int
    classes: Tensor
    probability: Tensor
    test_metric: float
    recorded: float
    dataset: Dataset

    @property
    def task(self) -> str:
        """Whatever is classified, ``'nodes'`` or ``'graphs'``."""
        return self.dataset.entry.task

    def write(self, file: IO[str]) -> None:
        """As CSV: node (or graph), class, probability."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((self.task.removesuffix("s"), "class", "probability"))
        node, label = self.dataset.node_name, self.dataset.class_name
        for number, (place, share) in enumerate(
            zip(self.classes.tolist(), self.probability.tolist(), strict=True)
        ):
            writer.writerow((node(number), label(place), f"{share:.6f}"))


def predict(
    folder: str | Path,
    root: str | Path | None = None,
    device: str | None = None,
    source: Source | None = None,
) -> Predictions:
    """Classify every node, or every graph of a set, with the checkpoint of a run.

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
    model, contender = _model(home, settings, dataset, checkpoint)
    with torch.no_grad(), on_backend(settings):
        nodes = torch.arange(dataset.data.y.numel(), device=settings.device)
        shares = contender.inputs.predicted(model, nodes).softmax(-1).cpu()
    _require_finite(home, "what the model says", {"probabilities": shares})
    probability, classes = shares.max(-1)
    test = make_split(dataset.data, settings.split, checkpoint["seed"]).test
    return Predictions(
        settings,
        checkpoint["seed"],
        classes,
        probability,
        METRICS[settings.metric](shares[test].log(), dataset.data.y[test]),
        checkpoint["test_metric"],
        dataset,
    )


def _model(
    home: RunFolder, settings: Settings, dataset: Dataset, checkpoint: dict[str, Any]
) -> tuple[Classifier, Any]:
    contender = ours(dataset, settings)
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
    return model, contender


def _require_finite(home: RunFolder, what: str, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RefusedValue(
                refusal(f"{what} must be finite", "numbers", f"NaN or infinity in {name}")
                + f", by {home.checkpoint}"
            )


def write_predictions(
    run_dir: str, out: str | None, root: str | None, device: str | None, **own: Any
) -> int:
    """Run ``outerconv predict`` and return its exit code.

    Args:
        run_dir, out, root, device: the options of the command.
        own: those of a graph of one's own, which :func:`data.source_of` takes.

    Raises:
        ValueError: the run folder or the output is refused.
    """
    path = _where_to_write(run_dir, out)
    predictions = predict(run_dir, root, device, source_of(own))
    summary = (
        f"test {predictions.settings.metric} {100 * predictions.test_metric:.2f} % on the split of "
        f"seed {predictions.seed} (recorded in training: {100 * predictions.recorded:.2f} %)"
    )
    if out == "-":
        predictions.write(sys.stdout)
        print(summary, file=sys.stderr)
        return 0
    text = StringIO()
    predictions.write(text)
    try:
        write_out(path, text.getvalue().encode())
    except OSError as error:
        raise RefusedValue(
            f"--out must be writable: expected a file, got {path} ({error.strerror})"
        ) from error
    print(f"{summary}\nclasses of {predictions.classes.numel()} {predictions.task}: {path}")
    return 0


def _where_to_write(run_dir: str, out: str | None) -> Path:
    """The file for the predictions, which must not be a file of a run."""
    folder = as_path(run_dir, "a run folder")
    if not out or out == "-":
        return folder / "predictions.csv"
    path = as_path(out, "--out").resolve()  # through links, to the file itself
    own = [folder / name for name in NAMES]
    linked = path.exists() and any(file.exists() and path.samefile(file) for file in own)
    if linked or (path.name in NAMES and (path.parent / CONFIG).exists()):
        raise RefusedValue("--out must not be a file of a run", "another file", out)
    return path
