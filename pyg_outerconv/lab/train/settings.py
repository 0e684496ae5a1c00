"""The settings of a run: every choice that its numbers depend on, with checks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import RefusedType, RefusedValue, unknown
from ..data import Entry
from ..own_code import imported
from .limits import LEAST, MOST, MOST_PARAMETERS, SAMPLES_WITH, WORDS


@dataclass(frozen=True)
class Settings:
    """The configuration of a run; two runs with equal settings give equal numbers.

    Attributes:
        dataset: a name in the registry.
        family: the family as its ``repr`` prints it.
        split: the split protocol, see :mod:`.splits`.
        undirected: edges of a dataset by name go both ways: the reverse of each edge that is listed
            one way only is added. A graph of one's own says so in its source.
        theta, aggr, label_aggr, root_weight: see :class:`OuterConv`.
        depth: number of convolutions.
        hidden: channels between them, those of all heads together where heads are concatenated.
        out_heads: number of heads of the last convolution, which are averaged (0: as many as in
            other layers); for families with heads, such as ``gat(heads=8)``.
        activation: after hidden convolutions: ``'relu'``, ``'elu'``, ``'gelu'``, ``'leaky_relu'``
            or ``'none'``.
        architecture: ``'layers'``, one convolution after another; ``'blocks'``, residual blocks
            between two linear layers, see :class:`.blocks.BlockClassifier`.
        propagation: a family of one label that propagates the logits, or an empty text; with
            ``family='Identity()'`` and ``'diffusion(ppr, alpha=0.1)'`` this is APPNP.
        dropout: on hidden features; ``input_dropout`` on those of the dataset.
        layer_norm: ``'none'``, ``'batch'`` or ``'layer'``, after each hidden convolution.
        update: ``'mlp'`` continues each hidden convolution, whose Θ is its first matrix, as a
            network of two layers: norm, ReLU, a linear layer. GIN is ``gcn(norm=None)`` with it.
        pool: how a classifier of graphs sums up nodes: ``'sum'``, ``'mean'`` or ``'max'``;
            ``'none'`` where nodes are classified.
        skip: ``'none'``; ``'residual'``, hidden layers of equal width add their input;
            ``'concat'``, a linear layer reads the outputs of all layers (jumping knowledge).
        lr, weight_decay: of Adam; ``decay`` says whether all parameters decay or those of the
            first convolution.
        metric: ``'accuracy'``, ``'auroc'`` or ``'f1'``, see :mod:`.metrics`.
        class_weights: ``'balanced'`` weighs the loss of a node by N / (C · nodes of its class),
            over the N training nodes; ``'none'`` weighs all nodes alike.
        select: the epoch that counts is the one with the lowest validation ``'loss'``, or with the
            best validation ``'metric'`` (of equal ones that with the lower loss).
        epochs: at most; ``patience``: stop when this many epochs in a row brought no better one
            (0: never).
        evaluate_every: the model is evaluated after every so many epochs, and after the last one;
            the others have no numbers, and no epoch among them counts.
        seeds: how many; they are 0, 1, ….
        normalize_features: rows of features sum to one.
        features: our model keeps them ``'sparse'`` or ``'dense'``; ``'auto'`` is replaced by one of
            these when a run begins.
        device: as torch names it.
        backend: a kernel backend, or ``'auto'``.
        peer: whether PyG's own layer is trained beside, on the same seeds and splits, or on the
            first ``peer_seeds`` of them (0: on all).
        batches: what an update is made of: ``'none'``, the whole graph; ``'random-nodes'``, random
            parts; ``'clusters'``, unions of clusters by METIS; ``'blocks'``, unions of blocks of
            nodes whose numbers follow one another; ``'neighbor'``, sampled neighbourhoods of
            training nodes. See :mod:`pyg_outerconv.scale`.
        parts: number of random parts, of clusters or of blocks; ``parts_per_batch`` clusters or
            blocks make a sample.
        batch_size: number of graphs of an update, or training nodes of a sampled neighbourhood;
            ``fan_outs`` the numbers of edges
            drawn into a node at each step away from these, such as ``'10,10'``; -1 for all.
        accumulate: number of samples whose gradients an update adds up, over all processes; 0 is
            replaced by the number of processes when a run begins.
        precision: of the products in training, ``'bfloat16'`` by torch's autocast; parameters and
            evaluation are float32.
        imports: names of the modules of one's own that were imported when the run began, with
            commas between them; see :mod:`pyg_outerconv.lab.own_code`.

    Numbers have the maxima of ``MOST``, and depth × hidden² that of ``MOST_PARAMETERS``.

    Raises:
        ValueError: a value is out of range or unknown.
        TypeError: a value is of another type.
    """

    dataset: str
    family: str
    split: str
    undirected: bool = False
    theta: str = "full"
    aggr: str = "sum"
    label_aggr: str = "sum"
    root_weight: bool = False
    depth: int = 2
    hidden: int = 64
    out_heads: int = 0
    activation: str = "relu"
    architecture: str = "layers"
    propagation: str = ""
    dropout: float = 0.5
    input_dropout: float = 0.0
    layer_norm: str = "none"
    update: str = "none"
    pool: str = "none"
    skip: str = "none"
    lr: float = 0.01
    weight_decay: float = 5e-4
    decay: str = "all"
    metric: str = "accuracy"
    class_weights: str = "none"
    select: str = "loss"
    epochs: int = 200
    evaluate_every: int = 1
    patience: int = 100
    seeds: int = 10
    normalize_features: bool = False
    features: str = "auto"
    device: str = "cpu"
    backend: str = "auto"
    peer: bool = False
    peer_seeds: int = 0
    batches: str = "none"
    parts: int = 8
    parts_per_batch: int = 1
    batch_size: int = 1024
    fan_outs: str = "10,10"
    accumulate: int = 0
    precision: str = "float32"
    imports: str = field(default_factory=imported)

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check_type(setting.name, getattr(self, setting.name), str(setting.type))
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                rule = f"{name} must {'be positive' if least else 'not be negative'}"
                raise RefusedValue(rule, f">= {least}", getattr(self, name))
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise RefusedValue(f"{name} has a maximum", f"<= {most}", "more")
        if self.depth * self.hidden**2 > MOST_PARAMETERS:
            raise RefusedValue(
                "depth and hidden make a model that can be trained",
                f"depth × hidden² <= {MOST_PARAMETERS}",
                f"{self.depth} × {self.hidden}²",
            )
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise RefusedValue(f"{name} must be a share", "[0, 1)", getattr(self, name))
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise RefusedValue("lr must be positive", "> 0", self.lr)
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise RefusedValue("weight_decay must not be negative", ">= 0", self.weight_decay)
        for name, known in WORDS.items():
            if getattr(self, name) not in known:
                raise RefusedValue(unknown(name, getattr(self, name), known))
        if self.skip == "residual" and self.depth < 3:
            raise RefusedValue(
                "residual skips need a hidden layer of equal width on both sides",
                "depth >= 3",
                self.depth,
            )
        if self.architecture == "blocks" and self.skip != "none":
            raise RefusedValue("residual blocks have skips of their own", "skip='none'", self.skip)
        if self.architecture == "blocks" and self.update != "none":
            rule = "residual blocks have a linear layer of their own"
            raise RefusedValue(rule, "update='none'", self.update)
        if self.peer_seeds > (self.seeds if self.peer else 0):
            raise RefusedValue(
                "PyG's layer is trained on seeds that ours is trained on",
                f"peer=True and peer_seeds <= {self.seeds}",
                f"peer={self.peer} and peer_seeds={self.peer_seeds}",
            )
        self._check_batches()

    def seeds_of(self, is_peer: bool) -> range:
        """The seeds of our model, or of PyG's layer."""
        if not is_peer:
            return range(self.seeds)
        return range((self.peer_seeds or self.seeds) if self.peer else 0)

    def _check_batches(self) -> None:
        fan_outs_of(self.fan_outs)
        if self.batches == "none" and self.accumulate > 1:
            raise RefusedValue(
                "gradients are added up over samples", "--batches random-nodes", "--batches none"
            )
        for name, used in SAMPLES_WITH.items():
            if self.batches not in used and getattr(self, name) != getattr(Settings, name):
                rule = f"{name} needs samples that are made with it"
                expected = f"--batches {' or '.join(used)}"
                raise RefusedValue(rule, expected, f"--batches {self.batches}")
        if self.batches != "none" and self.peer:
            raise RefusedValue(
                "PyG's layer is compared on the whole graph", "--batches none", self.batches
            )

    def evaluates(self, epoch: int) -> bool:
        """Whether the model is evaluated after an epoch, counted from 1."""
        return epoch == self.epochs or (epoch > 0 and epoch % self.evaluate_every == 0)

    def evaluated(self, done: int) -> list[int]:
        """The epochs after which the model was evaluated, when so many are done."""
        return [epoch for epoch in range(1, done + 1) if self.evaluates(epoch)]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``config.json`` holds them."""
        return asdict(self)

    def with_values(self, **values: Any) -> Settings:
        """The same settings but for some."""
        return Settings(**(self.as_dict() | values))

    def on_whole_graph(self) -> Settings:
        """The same settings without those of samples."""
        of_samples = ("batches", "accumulate", *SAMPLES_WITH)
        return self.with_values(**{name: getattr(Settings, name) for name in of_samples})

    def settled_as(self, began: Settings) -> Settings:
        """The same settings, with what a run that began chose in the place of ``'auto'`` and 0."""
        features = began.features if self.features == "auto" else self.features
        return self.with_values(features=features, accumulate=self.accumulate or began.accumulate)

    def differing(self, other: Settings) -> list[str]:
        """The names of the settings in which two runs differ."""
        mine, theirs = self.as_dict(), other.as_dict()
        return [name for name in mine if mine[name] != theirs[name]]

    def tell(self, names: list[str]) -> str:
        """Some settings with their values, for a message."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


def fan_outs_of(text: str) -> list[int]:
    """Numbers of edges drawn into a node, from text such as ``'10,10'``.

    Raises:
        ValueError: the text is no list of positive integers or -1.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if not all(number == -1 or number > 0 for number in numbers):
        raise RefusedValue("fan_outs are numbers of edges", "such as 10,10, or -1 for all", text)
    return numbers


def _check_type(name: str, value: Any, kind: str) -> None:
    fits = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if not fits[kind]:
        raise RefusedType(f"{name} has a type", kind, repr(value))


def settings_from(values: dict[str, Any], origin: str) -> Settings:
    """Settings that were written by :meth:`Settings.as_dict`; those of ``NEWER`` may be absent.

    Raises:
        ValueError: they are not those of this version.
    """
    names = {setting.name for setting in fields(Settings)}
    odd: Any = type(values).__name__
    if isinstance(values, dict):
        odd = sorted((names ^ set(values)) - set(NEWER))
    if odd:
        raise RefusedValue(
            f"{origin} must hold the settings of a run",
            f"{len(names)} settings of this version",
            f"other ones: {odd}",
        )
    return Settings(**values)


NEWER = ("peer_seeds", "undirected")
"""Settings that older runs do not say; their defaults are what those runs did."""


def resolve(entry: Entry, explicit: dict[str, Any]) -> Settings:
    """The settings of a run: explicit ones, else the defaults of the dataset, else our defaults.

    Args:
        entry: the dataset, as its split protocol reads it.
        explicit: settings by name, with ``family`` and ``split``; None for a default.

    Raises:
        ValueError, TypeError: a setting is refused.
    """
    asked = {name: value for name, value in explicit.items() if value is not None}
    settings = Settings(**{"dataset": entry.name, **entry.defaults, **asked})
    of_batches = entry.task == "graphs" or settings.batches == "neighbor"
    if settings.batch_size != Settings.batch_size and not of_batches:
        rule = "batch_size counts graphs in sets of graphs, and nodes whose neighbours are sampled"
        raise RefusedValue(rule, "--batches neighbor", f"--batches {settings.batches}")
    return settings
