"""The trained model of a run: what it predicts, and what each label of its layers contributes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from ...errors import RefusedValue, refusal
from ...nn import LabelTerms, OuterConv, label_terms
from ...nn.models import evaluating
from ..data import Dataset, Source
from ..settings import Settings
from .classifiers import Classifier
from .folder import RunFolder, dataset_of
from .inputs import Inputs, WholeGraph
from .loop import smoothing_on
from .model import Contender, check_device, on_backend, ours
from .results import METRICS, accuracy
from .splits import Split, make_split

_ROWS = 2**16  # of predictions that are made, or written, at once


@dataclass(frozen=True)
class Trained:
    """A trained model, with the parameters of the checkpoint of a run.

    Attributes:
        settings: those of the run, on the device that was asked for, without a peer.
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

    @property
    def inputs(self) -> Inputs:
        """What the model is called with, with the classes of training nodes if it reads them."""
        inputs = self.contender.inputs
        return inputs.with_classes(*self._training(), self.dataset.num_classes)

    def _training(self) -> tuple[Tensor, Tensor]:
        """The training nodes and their classes."""
        nodes = self.split.train.nonzero().view(-1)
        device = self.settings.device
        return nodes.to(device), self.dataset.data.y[nodes].to(device)

    def whole_graph(self) -> tuple[Tensor | None, Any]:
        """The features (N, P), or None, and the structure of all of the graph."""
        self.dataset.require_memory("a call on the whole graph", "predict, which goes by layers")
        inputs = self.inputs
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
        """(N, C) the probability of each class for every node, corrected and smoothed if the
        settings say so, on the CPU; of a graph in mapped files they are in a file, too.
        """
        with on_backend(self.settings):
            shares = self.inputs.predicted(self.model)
            smoothing = smoothing_on(self.dataset.data, self.settings)
            if smoothing is not None:
                shares = smoothing(shares, *self._training())
        for part in shares.split(_ROWS):
            part.copy_(part.softmax(-1))
        shares = shares.cpu()
        _require_finite(self.folder, "what the model says", {"probabilities": shares})
        return shares

    def predictions(self) -> Predictions:
        """The class of every node, or of every graph of a set."""
        shares, test = self.probabilities(), self.split.test
        probability, classes = shares.max(-1)
        metric = METRICS[self.settings.metric]
        reached = metric(shares[test].log(), self.dataset.data.y[test])
        return Predictions(self, classes, probability, reached)


def load_trained(
    folder: str | Path,
    root: str | Path | None = None,
    device: str | None = None,
    source: Source | None = None,
) -> Trained:
    """The trained model of a run folder.

    A folder without a run is refused, and a checkpoint of another configuration or another graph,
    or with NaN in it.

    Args:
        folder: the run folder.
        root: folder of the data; None for that which the run used or, if it is gone, the default.
        device: that of the run if None.
        source: where a graph of one's own is; None for where the run found it.
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


# Predictions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predictions:
    """The predictions of a trained model: the most probable class of every node (N,), or of every
    graph of a set, its probability (N,), and the metric on the test nodes of the model's seed.
    """

    trained: Trained
    classes: Tensor
    probability: Tensor
    test_metric: float

    @property
    def task(self) -> str:
        """Whatever is classified, ``'nodes'`` or ``'graphs'``."""
        return self.trained.dataset.entry.task

    def write(self, file: IO[str]) -> None:
        """As CSV: node (or graph), class, probability."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((self.task.removesuffix("s"), "class", "probability"))
        dataset = self.trained.dataset
        node, label = dataset.node_name, dataset.class_name
        number = 0
        for classes, shares in zip(
            self.classes.split(_ROWS), self.probability.split(_ROWS), strict=True
        ):
            for place, share in zip(classes.tolist(), shares.tolist(), strict=True):
                writer.writerow((node(number), label(place), f"{share:.6f}"))
                number += 1


# Contributions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contribution:
    """The contribution of label k in a layer of a model.

    Attributes:
        layer: the name of the layer in the model, such as ``'convs.0'``.
        label: k.
        name: of the label, as its family calls it.
        norm: ‖A_kᵀ X Θ_k‖, the Frobenius norm over all nodes and channels; over all calls of a
            layer that the model calls several times.
        metric: the metric on the chosen nodes without this label in this layer.
        change: ``metric`` minus the metric of the whole model; negative where the label helps.
        loss: the mean cross entropy on the chosen nodes without this label.
        loss_change: ``loss`` minus that of the whole model; positive where the label helps.
    """

    layer: str
    label: int
    name: str
    norm: float
    metric: float
    change: float
    loss: float
    loss_change: float


def contributions(
    model: Module,
    x: Any,
    structure: Any,
    y: Tensor,
    mask: Tensor,
    metric: Callable[[Tensor, Tensor], float] = accuracy,
) -> list[Contribution]:
    """The contribution of every label of every ``OuterConv`` in a trained model.

    A label is taken out of one layer at a time, in evaluation mode: its matrix A_k has no edge then
    and all else is as it was, attention shares of other heads too. The model runs once for each
    layer and label. One term (N, Q) is held at a time, and no tensor of edges × channels.

    Args:
        model: called as ``model(x, structure)``, it returns logits (N, C).
        x: the features, or None.
        structure: the second argument of the model.
        y: (N,) classes.
        mask: (N,) booleans or node indices, those on which the metric is evaluated, such as the
            validation nodes.
        metric: of logits (n, C) and classes (n,); the larger, the better.

    Returns:
        By layers in the order of the model's modules, then by labels. Layers of other classes, and
        layers that the model does not call, have none.

    Raises:
        ValueError: no node is chosen; or a layer has no terms, see :func:`.nn.label_terms`.
    """
    wanted = y[mask]
    if not wanted.numel():
        raise RefusedValue("contributions are measured on nodes", "at least one", "none")

    def measured() -> tuple[float, float]:
        logits = model(x, structure)[mask]
        return metric(logits, wanted), float(F.cross_entropy(logits, wanted))

    layers = {name: part for name, part in model.named_modules() if isinstance(part, OuterConv)}
    squares: dict[str, list[float]] = {}

    def add_squares(name: str, terms: LabelTerms, out: Any) -> None:
        sums = squares.setdefault(name, [0.0] * terms.num_labels)
        for label in range(terms.num_labels):
            sums[label] += float(terms.term(label).double().square().sum())

    label_contributions = []
    with evaluating(model):
        with watching(layers, add_squares):
            whole, whole_loss = measured()
        for name, layer in layers.items():
            for label, square in enumerate(squares.get(name, ())):

                def without(name: str, terms: LabelTerms, out: Any, label: int = label) -> Any:
                    if isinstance(out, tuple):  # with attention weights
                        return terms.without(label, out[0]), *out[1:]
                    return terms.without(label, out)

                with watching({name: layer}, without):
                    value, loss = measured()
                title, changes = layer.family.labels[label], (value - whole, loss - whole_loss)
                row = name, label, title, square**0.5, value, changes[0], loss, changes[1]
                label_contributions.append(Contribution(*row))
    return label_contributions


@contextmanager
def watching(
    layers: dict[str, OuterConv], see: Callable[[str, LabelTerms, Any], Any]
) -> Iterator[None]:
    """A block in which each call of some layers is seen: its name, the terms of its labels, its
    output, whose place is taken by what is returned, but for None.
    """

    def hook(name: str, layer: OuterConv, args: Any, kwargs: Any, out: Any) -> Any:
        return see(name, label_terms(layer, *args, **kwargs), out)

    handles = [
        layer.register_forward_hook(partial(hook, name), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
