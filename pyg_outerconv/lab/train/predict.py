"""Classes from a checkpoint, and the command ``outerconv predict``."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from ...errors import RefusedValue
from ...files import as_path, write_out
from ..data import Dataset, Source, source_of
from .metrics import METRICS
from .run_folder import CONFIG, NAMES
from .settings import Settings
from .trained import load_trained

_ROWS = 2**16  # that are written at once


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
        number = 0
        for classes, shares in zip(
            self.classes.split(_ROWS), self.probability.split(_ROWS), strict=True
        ):
            for place, share in zip(classes.tolist(), shares.tolist(), strict=True):
                writer.writerow((node(number), label(place), f"{share:.6f}"))
                number += 1


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
    trained = load_trained(folder, root, device, source)
    shares = trained.probabilities()
    probability, classes = shares.max(-1)
    test = trained.split.test
    metric = METRICS[trained.settings.metric]
    return Predictions(
        trained.settings,
        trained.seed,
        classes,
        probability,
        metric(shares[test].log(), trained.dataset.data.y[test]),
        trained.recorded,
        trained.dataset,
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
    path, source = _where_to_write(run_dir, out), source_of(own)
    if own:
        rule = "a run knows whether its edges go both ways"
        raise RefusedValue(rule, "--undirected beside --edges or --data", "--undirected alone")
    predictions = predict(run_dir, root, device, source)
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
