"""The settings of a run: every choice that its numbers depend on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RefusedValue
from .fields import check_settings, read_toml, read_values, setting
from .own_code import imported

if TYPE_CHECKING:
    from .data import Entry

# The settings of training -------------------------------------------------------------------------

MOST_PARAMETERS = 2**30
"""The most parameters between hidden layers."""
WHOLE: dict[str, tuple[Any, ...]] = {
    "architecture": ("layers", "blocks"),
    "labels_as_features": (0.0,),
    "correct_and_smooth": ("",),
}
"""The values of settings that training on samples can have, of those where not all are."""
_CLUSTERS, _PARTS = ("clusters", "blocks"), ("random-nodes", "clusters", "blocks")


@dataclass(frozen=True)
class Settings:
    """The configuration of a run; two runs with equal settings give equal numbers.

    ``docs/train.md`` has a table of what each means, which is made from the fields below. There is
    also a maximum of depth × hidden². ``dataset`` is a name in the registry, ``family`` as its
    ``repr`` prints it; ``features='auto'``, ``device='auto'`` and ``accumulate=0`` are replaced
    when a run begins. ``imports`` are the names of the modules of one's own that were imported
    then, with commas between them, see :mod:`pyg_outerconv.lab.own_code`.
    """

    dataset: str
    family: str = setting(
        help='A family with its options, such as "walk(3)" or "stack(gcn, identity)"; see '
        "outerconv families",
        said="gcn",
        section="Model",
    )
    split: str = setting(
        help="The split protocol: public, geom-gcn, random, per-class-20-30 (nodes of each class "
        "that train and validate), ten-fold, or shares such as random-60-20-20",
        said="that of the data set",
        section="Training",
    )
    undirected: bool = setting(
        False,
        "Edges go both ways: add the reverse of each edge that is listed one way only",
        said="",
        section="A graph of your own",
    )
    theta: str = setting(
        "full",
        "Form of Θ: full, basis-decomposed:30, block-diagonal:4, low-rank:8, grouped:4, depthwise, "
        "channelwise, columns, shared or identity",
        section="Model",
    )
    aggr: str = setting(
        "sum", "Reduction over the edges of one A_k into a node: sum, mean, max or min"
    )
    label_aggr: str = setting("sum", "Reduction over the matrices A_k: sum, mean, max or min")
    depth: int = setting(2, "Number of convolutions", at_least=1, at_most=256)
    hidden: int = setting(
        64,
        "Channels between convolutions, those of all heads together where heads are concatenated",
        at_least=1,
        at_most=16_384,
    )
    out_heads: int = setting(
        0,
        "Heads of the last convolution, which are averaged",
        at_least=0,
        at_most=16_384,
        said="as many as in others",
    )
    activation: str = setting(
        "relu", "After hidden convolutions", words=("relu", "elu", "gelu", "leaky_relu", "none")
    )
    architecture: str = setting(
        "layers",
        "How convolutions are put together",
        words={
            "layers": "one after another",
            "blocks": "in residual blocks between linear layers",
            "gcnii": "after a linear layer, each with initial residual and identity mapping",
            "linkx": "one of the nodes themselves, beside a linear layer of the features, before "
            "linear layers",
        },
    )
    initial_residual: float = setting(
        0.1, "Share α of the first hidden features in each layer of gcnii", above=0, at_most=1
    )
    identity_mapping: float = setting(
        0.5,
        "λ of gcnii, whose layer l has the matrix (1 − β) I + β Θ with β = log(λ/l + 1)",
        above=0,
        at_most=10,
    )
    input_layer: str = setting(
        "none",
        "Layer before the first convolution",
        words={"none": "", "linear": "", "activated": "linear, activation"},
    )
    propagation: str = setting(
        "",
        'Propagate the logits by a family of one label, such as "diffusion(ppr, alpha=0.1)": APPNP '
        "with --family identity",
        said="not at all",
        metavar="FAMILY",
    )
    dropout: float = setting(0.5, "Dropout of hidden features", at_least=0, below=1)
    input_dropout: float = setting(0.0, "Dropout of input features", at_least=0, below=1)
    layer_norm: str = setting(
        "none", "Normalisation after hidden convolutions", words=("none", "batch", "layer")
    )
    update: str = setting(
        "none",
        "Network after each hidden convolution",
        words={"none": "", "mlp": "norm, activation, linear, as in GIN"},
    )
    pool: str = setting(
        "none", "Readout of a set of graphs", words=("none", "sum", "mean", "max"), said=""
    )
    skip: str = setting(
        "none",
        "Skip connections",
        words={
            "none": "",
            "residual": "hidden layers of equal width add their input",
            "concat": "a linear layer reads the outputs of all layers",
            "max": "it reads the largest of each channel",
            "sum": "it reads their sum",
            "last": "it reads the last one alone",
        },
    )
    root_weight: bool = setting(False, "Add the transformed features of the node itself")
    labels_as_features: float = setting(
        0.0,
        "Share of the training nodes whose classes are input features in an epoch, whose loss is "
        "that of the others",
        at_least=0,
        below=1,
        said="none",
    )
    correct_and_smooth: str = setting(
        "",
        "Correct and smooth the predictions along the edges when training has ended: steps and α "
        "of both, such as 50,0.8,50,0.8, and γ if it is fixed",
        said="not at all",
    )
    lr: float = setting(0.01, "Learning rate of Adam", above=0, at_most=1e30, section="Training")
    weight_decay: float = setting(5e-4, "Weight decay of Adam", at_least=0, at_most=1e30)
    decay: str = setting(
        "all", "Which parameters decay", words={"all": "", "first": "those of the first layer"}
    )
    metric: str = setting(
        "accuracy",
        "What is measured",
        words={"accuracy": "", "auroc": "area under the ROC curve", "f1": "macro"},
    )
    class_weights: str = setting(
        "none",
        "Weights of the classes in the loss",
        words={"none": "", "balanced": "by the inverse of their numbers of training nodes"},
    )
    select: str = setting(
        "loss",
        "The epoch that counts, by validation",
        words={"loss": "the lowest", "metric": "the best"},
    )
    epochs: int = setting(200, "Largest number of epochs", at_least=1, at_most=1_000_000)
    patience: int = setting(
        100,
        "Stop when this many epochs in a row brought no better one by --select; 0: never",
        at_least=0,
        at_most=1_000_000,
    )
    evaluate_every: int = setting(
        1,
        "Evaluate after every so many epochs, and after the last one; no other epoch counts",
        at_least=1,
        at_most=1_000_000,
        metavar="EPOCHS",
    )
    seeds: int = setting(10, "Number of seeds, which are 0, 1, …", at_least=1, at_most=10_000)
    features: str = setting(
        "auto",
        "How our model stores features",
        words={"auto": "the faster one", "sparse": "", "dense": ""},
        option="feature-storage",
    )
    device: str = setting(
        "cpu", "Device: auto (CUDA where there is a GPU), cpu, cuda, cuda:1 or mps", said="auto"
    )
    backend: str = setting("auto", "Kernel backend; see outerconv backends")
    normalize_features: bool = setting(False, "Divide each row of features by its sum")
    peer: bool = setting(False, "Train PyG's own layer too, on the same seeds and splits", said="")
    peer_seeds: int = setting(0, "PyG's layer on the first so many seeds", at_least=0, said="all")
    batches: str = setting(
        "none",
        "Train on samples, with exact evaluation",
        words={
            "none": "the whole graph",
            "random-nodes": "",
            "clusters": "by pymetis",
            "blocks": "of nodes whose numbers follow one another",
            "neighbor": "by pyg-lib or torch-sparse",
        },
        section="Samples of a large graph",
    )
    parts: int = setting(
        8, "Number of random parts, of clusters or of blocks", at_least=1, samples=_PARTS
    )
    parts_per_batch: int = setting(
        1, "Clusters or blocks that make a sample", at_least=1, samples=_CLUSTERS
    )
    batch_size: int = setting(
        1024,
        "Graphs of an update, where graphs are classified; or training nodes of a sampled "
        "neighbourhood (--batches neighbor)",
        at_least=1,
        at_most=1_000_000,
    )
    fan_outs: str = setting(
        "10,10", "Edges drawn into a node at each step, -1 for all", samples=("neighbor",)
    )
    accumulate: int = setting(
        0,
        "Samples whose gradients make an update, over all processes",
        at_least=0,
        said="one of each",
    )
    precision: str = setting(
        "float32", "Precision of products in training", words=("float32", "bfloat16")
    )
    imports: str = field(default_factory=imported)

    def __post_init__(self) -> None:
        check_settings(self)
        fan_outs_of(self.fan_outs)
        smoothing_of(self.correct_and_smooth)
        self._check_model()
        self._check_samples()
        if self.depth * self.hidden**2 > MOST_PARAMETERS:
            raise RefusedValue(
                "depth and hidden make a model that can be trained",
                f"depth × hidden² <= {MOST_PARAMETERS}",
                f"{self.depth} × {self.hidden}²",
            )
        peers = self.seeds if self.peer else 0
        for rule, fits, expected, got in (
            ("PyG's layer is trained on seeds that ours is trained on", self.peer_seeds <= peers,
             f"peer=True and peer_seeds <= {self.seeds}",
             f"peer={self.peer} and peer_seeds={self.peer_seeds}"),
            ("gradients are added up over samples", self.batches != "none" or self.accumulate <= 1,
             "--batches random-nodes", "--batches none"),
            ("PyG's layer is compared on the whole graph", self.batches == "none" or not self.peer,
             "--batches none", self.batches),
        ):  # fmt: skip
            if not fits:
                raise RefusedValue(rule, expected, got)

    def _check_model(self) -> None:
        """Refuse what the architecture does not have."""
        is_layers, model = self.architecture == "layers", f"architecture {self.architecture!r}"
        least = 3 if self.input_layer == "none" else 2
        for rule, fits, expected, got in (
            ("residual skips need a hidden layer of equal width on both sides",
             self.skip != "residual" or self.depth >= least, f"depth >= {least}", self.depth),
            (f"{model} has skips of its own", is_layers or self.skip == "none", "skip='none'",
             self.skip),
            (f"{model} has linear layers of its own", is_layers or self.update == "none",
             "update='none'", self.update),
            (f"{model} has a first layer of its own", is_layers or self.input_layer == "none",
             "input_layer='none'", self.input_layer),
            ("layers of gcnii have one Θ and no root weight",
             self.architecture != "gcnii" or (self.theta == "full" and not self.root_weight),
             "theta='full', root_weight=False", f"{self.theta!r}, {self.root_weight}"),
        ):  # fmt: skip
            if not fits:
                raise RefusedValue(rule, expected, got)
        for name in ("initial_residual", "identity_mapping"):
            if self.architecture != "gcnii" and getattr(self, name) != getattr(Settings, name):
                raise RefusedValue(f"{name} is of one model", "--architecture gcnii", model)

    def _check_samples(self) -> None:
        """Refuse what samples do not have, and what needs them where there are none."""
        for name, of_samples in WHOLE.items():
            if self.batches != "none" and getattr(self, name) not in of_samples:
                value = getattr(self, name)
                rule = f"{name} {value} needs the whole graph at once"
                raise RefusedValue(rule, "--batches none", f"--batches {self.batches}")
        for one in fields(self):
            used = one.metadata.get("samples")
            if used and self.batches not in used and getattr(self, one.name) != one.default:
                rule = f"{one.name} needs samples that are made with it"
                expected = f"--batches {' or '.join(used)}"
                raise RefusedValue(rule, expected, f"--batches {self.batches}")

    def seeds_of(self, is_peer: bool) -> range:
        """The seeds of our model, or of PyG's layer."""
        if not is_peer:
            return range(self.seeds)
        return range((self.peer_seeds or self.seeds) if self.peer else 0)

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
        of_samples = [one.name for one in fields(self) if one.metadata.get("samples")]
        plain = ("batches", "accumulate", *of_samples)
        return self.with_values(**{name: getattr(Settings, name) for name in plain})

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
    """Numbers of edges drawn into a node, from text such as ``'10,10'``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if not all(number == -1 or number > 0 for number in numbers):
        raise RefusedValue("fan_outs are numbers of edges", "such as 10,10, or -1 for all", text)
    return numbers


# What PyG's ``CorrectAndSmooth`` takes, and the largest that it may be.
_SMOOTHING = {
    "num_correction_layers": 10_000,
    "correction_alpha": 1,
    "num_smoothing_layers": 10_000,
    "smoothing_alpha": 1,
    "scale": 1e6,
}


def smoothing_of(text: str) -> dict[str, Any] | None:
    """The arguments of ``CorrectAndSmooth`` in text such as ``'50,0.8,50,0.8'``; None of ''."""
    if not text:
        return None
    try:
        one, first, other, second, *scale = text.split(",")
        numbers = [int(one), float(first), int(other), float(second), *map(float, scale)]
    except ValueError:
        numbers = [-1]
    arguments = dict(zip(_SMOOTHING, numbers, strict=False))
    in_range = all(0 <= number <= _SMOOTHING[name] for name, number in arguments.items())
    if not in_range or len(numbers) > len(arguments):
        rule = "predictions are corrected and smoothed in steps, each with α in [0, 1]"
        raise RefusedValue(rule, "such as 50,0.8,50,0.8, or 50,0.8,50,0.8,1.0 with γ", text)
    return {**arguments, "autoscale": "scale" not in arguments}


def resolve(entry: Entry, explicit: dict[str, Any]) -> Settings:
    """The settings of a run: explicit ones, else the defaults of the dataset, else our defaults."""
    asked = {name: value for name, value in explicit.items() if value is not None}
    settings = Settings(**{"dataset": entry.name, **entry.defaults, **asked})
    of_batches = entry.task == "graphs" or settings.batches == "neighbor"
    if settings.batch_size != Settings.batch_size and not of_batches:
        rule = "batch_size counts graphs in sets of graphs, and nodes whose neighbours are sampled"
        raise RefusedValue(rule, "--batches neighbor", f"--batches {settings.batches}")
    return settings


# Settings in files --------------------------------------------------------------------------------


def settings_from(values: dict[str, Any], origin: str) -> Settings:
    """Settings that were written by :meth:`Settings.as_dict`."""
    names = {one.name for one in fields(Settings)}
    odd: Any = type(values).__name__
    if isinstance(values, dict):
        odd = sorted(names ^ set(values))
    if odd:
        raise RefusedValue(
            f"{origin} must hold the settings of a run",
            f"{len(names)} settings of this version",
            f"other ones: {odd}",
        )
    return Settings(**values)


def read_settings(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, which ``outerconv train --config`` reads, by name."""
    return read_values({one.name: one for one in fields(Settings)}, read_toml(path), f"{path}")
