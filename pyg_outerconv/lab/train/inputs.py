"""What a model is called with: features, the whole graph or batches of it, or sets of graphs."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from ...basis import Basis
from ...basis.edge_sets import reached
from ...basis.subpattern import spread_runs
from ...errors import RefusedValue
from ...families import Cluster
from ...graph.sparse_matrix import replace_values
from ...nn import predicted_share, sparse_pays
from ...nn.models import evaluating
from ...scale.layerwise import rows_of
from ...scale.samples import stream
from ..data import Dataset, Entry
from ..settings import Settings


@dataclass(frozen=True)
class Batch:
    """One call of a model in training.

    Attributes:
        x: (M, P) features, dense or sparse; None where the graph has none.
        structure: the argument of the layers beside the features.
        rows: (B,) the rows of the model's output that the loss is made of.
        nodes: (B,) the nodes of the dataset that these rows are of.
        number: its place in the epoch.
    """

    x: Tensor | None
    structure: Any
    rows: Tensor
    nodes: Tensor
    number: int = 0


Batches = Iterator[Batch | None]


@dataclass(frozen=True)
class Share:
    """The batches of an epoch that one process computes.

    An update adds up the gradients of ``together`` batches, which all processes have in equal
    parts, in turns.
    """

    together: int = 1
    rank: int = 0
    size: int = 1

    @property
    def each(self) -> int:
        """Number of batches of an update that a process computes."""
        return self.together // self.size

    def numbers(self, count: int) -> list[int | None]:
        """The batches of this process out of ``count``, ``each`` of them for every update.

        None stands for those that the last update lacks, so that all processes have as many.
        """
        padded = math.ceil(count / self.together) * self.together
        mine = range(self.rank, padded, self.size)
        return [number if number < count else None for number in mine]


WHOLE = Share()


class Inputs(ABC):
    """The features and the structure of a dataset, as a model of one kind of layer reads them."""

    @abstractmethod
    def batches(self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE) -> Batches:
        """The batches of an epoch: each of the training nodes (T,) is in exactly one.

        They depend on nothing but the arguments, so that a resumed run gets the same. None stands
        for a batch that the last update lacks, see :meth:`Share.numbers`.
        """

    @abstractmethod
    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """(B, C) of the nodes (B,), or of all, by a model in evaluation mode, with the weights of
        the whole graph.
        """

    def with_classes(self, nodes: Tensor, classes: Tensor, num_classes: int) -> Inputs:
        """The inputs of a seed, whose training nodes (T,) have these classes (T,): these, if
        classes are no features.
        """
        return self

    def try_out(self, model: Module) -> None:
        """Call a model in evaluation mode once, as training does."""
        self.logits(model)

    def predicted(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """:meth:`logits` in evaluation mode, without gradients; the model's mode is restored."""
        with evaluating(model):
            return self.logits(model, nodes)


@dataclass(frozen=True)
class WholeGraph(Inputs):
    """All of the graph at every call: one batch an epoch."""

    x: Tensor | None
    structure: Any

    def batches(self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE) -> Batches:
        yield Batch(self.x, self.structure, nodes, nodes)

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        out: Tensor = model(self.x, self.structure)
        return out if nodes is None else out[nodes]


@dataclass(frozen=True)
class WithClasses(WholeGraph):
    """The whole graph with the classes of training nodes among the features, in C more columns.

    No node is predicted from its own class, and none from that of a validation or test node, which
    these inputs are not given. In training a share of the training nodes, drawn by seed and epoch,
    shows its classes, and the others are the rows of the loss. In evaluation all training nodes
    show theirs; they themselves are predicted in two halves, each from the classes of the other.

    Attributes:
        x: (N, P) features, dense or CSR; of a seed (N, P + C), with a 1 for the class of each
            training node.
        share: the share that shows its classes.
        columns: C.
        shown: (T,) the training nodes.
        places: (T,) of CSR the places of these ones among the values of x.
    """

    x: Tensor
    share: float
    columns: int = 0
    shown: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    places: Tensor | None = None

    def with_classes(self, nodes: Tensor, classes: Tensor, num_classes: int) -> WithClasses:
        """The same with C columns, and the classes in them; called once for a seed."""
        count, width = self.x.shape
        inputs = replace(self, columns=num_classes, shown=nodes)
        if self.x.layout == torch.strided:
            x = torch.cat([self.x, self.x.new_zeros(count, num_classes)], dim=-1)
            x[nodes, width + classes] = 1.0
            return replace(inputs, x=x)
        places, ones = torch.stack([nodes, classes]), torch.ones_like(classes, dtype=self.x.dtype)
        size = count, num_classes
        own = torch.sparse_coo_tensor(places, ones, size, check_invariants=False)
        x = as_csr(torch.cat([self.x.to_sparse_coo(), own], dim=-1))
        return replace(inputs, x=x, places=(x.col_indices() >= width).nonzero().view(-1))

    def batches(self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE) -> Batches:
        """The training nodes (T,) that show no class."""
        count = self.shown.numel()
        order = torch.randperm(count, generator=stream(seed, epoch, 0, 3))
        hidden = order[min(round(self.share * count), count - 1) :].sort().values
        rows = self.shown[hidden.to(nodes.device)]
        yield Batch(self._without(hidden), self.structure, rows, rows)

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        out: Tensor = model(self.x, self.structure)
        wanted = self.shown if nodes is None else nodes
        if bool(torch.isin(self.shown, wanted).any()):
            out = out.clone()
            for half in torch.arange(self.shown.numel()).chunk(2):
                own = self.shown[half.to(out.device)]
                out[own] = model(self._without(half), self.structure)[own]
        return out if nodes is None else out[nodes]

    def _without(self, hidden: Tensor) -> Tensor:
        """The features without the classes of some training nodes, by their places among them."""
        hidden = hidden.to(self.x.device)
        if self.places is None:
            x = self.x.clone()
            x[self.shown[hidden], x.size(1) - self.columns :] = 0.0
            return x
        values = self.x.values().clone()
        values[self.places[hidden]] = 0.0
        return replace_values(self.x, values)


def whole_graph(x: Tensor | None, structure: Any, settings: Settings) -> WholeGraph:
    """The inputs of models that are trained on the whole graph."""
    share = settings.labels_as_features
    if share and x is None:
        rule = "classes of training nodes are features beside others"
        raise RefusedValue(rule, "a graph with features, or labels_as_features=0", "none")
    return WholeGraph(x, structure) if x is None or not share else WithClasses(x, structure, share)


# Features, stored sparse or dense -----------------------------------------------------------------


@dataclass(frozen=True)
class FeatureChoice:
    """How a run stores features X (N, P), and why."""

    kept: str
    shape: tuple[int, int]
    num_entries: int
    because: str = ""

    def __str__(self) -> str:
        count = max(1, self.shape[0] * self.shape[1])
        reason = self.because
        if self.kept == "sparse":
            predicted = 100 * predicted_share(self.num_entries, self.shape)
            reason = f"X·Θ is predicted to take {predicted:.2g} % of the time of a dense product"
        percent = float(f"{100 * self.num_entries / count:.2g}")
        density = f"{percent:g} % non-zero"
        return f"features: {density}, stored {self.kept}" + (f": {reason}" if reason else "")


def features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """Dense X (N, P) as float, rows normalised if the settings say so; None without features."""
    data = dataset.data
    if not _has_features(dataset):
        return None
    x: Tensor = data.x.float()
    if settings.normalize_features:
        x = NormalizeFeatures()(Data(x=x)).x
    return x.to(settings.device)


def kept_features(dataset: Dataset, settings: Settings) -> Tensor | None:
    """X (N, P) as :func:`features` makes it, in CSR where the settings store it sparse."""
    choice, x = choose_features(dataset, settings), features(dataset, settings)
    if choice is None or x is None or choice.kept == "dense":
        return x
    return as_csr(x)


def as_csr(x: Tensor) -> Tensor:
    """A matrix in CSR."""
    with warnings.catch_warnings():  # torch says once that this layout may change
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def choose_features(dataset: Dataset, settings: Settings) -> FeatureChoice | None:
    """How the settings store the features; None for a graph without features.

    ``'auto'`` stores them sparse where :func:`sparse_pays` predicts a gain, and torch has sparse
    kernels for the device. The choice counts non-zeros and measures no time, so that equal settings
    give equal numbers.
    """
    if dataset.mapped is not None:  # whose features are not read
        return None
    if not _has_features(dataset):
        if settings.features == "sparse":
            raise RefusedValue(
                "features='sparse' needs a graph with features",
                "features='auto' or 'dense'",
                f"{dataset.entry.name}, whose nodes have none",
            )
        return None
    x: Tensor = dataset.data.x
    shape, num_entries = (x.size(0), x.size(1)), int(torch.count_nonzero(x))
    kept, because = settings.features, ""
    if kept == "auto":
        kept = "dense"
        if settings.device.split(":")[0] not in ("cpu", "cuda"):
            because = f"torch has no sparse kernels on {settings.device}"
        elif predicted_share(num_entries, shape) >= 1:
            because = "X·Θ would take longer with sparse features"
        elif not sparse_pays(num_entries, shape):
            because = f"{shape[0]} × {shape[1]} numbers are too few for a sparse product to pay"
        else:
            kept = "sparse"
    return FeatureChoice(kept, shape, num_entries, because)


def settle_features(dataset: Dataset, settings: Settings) -> Settings:
    """The settings with ``features='auto'`` replaced by the choice for this graph."""
    choice = choose_features(dataset, settings)
    return replace(settings, features="dense" if choice is None else choice.kept)


def _has_features(dataset: Dataset) -> bool:
    return dataset.data.get("x") is not None and dataset.data.x.numel() > 0


# Sets of graphs -----------------------------------------------------------------------------------

Part = Callable[[Tensor], Any]
Members = Callable[[Tensor, int], Any]


@dataclass(frozen=True)
class OfGraphs:
    """The argument of a classifier of graphs beside the features."""

    layers: Any
    members: Any


def clusters(batch: Tensor, num_graphs: int) -> Basis:
    """The pooling basis (1, N, G) from nodes to their graphs."""
    return Cluster().basis(batch, size=(batch.numel(), num_graphs))


class Graphs(Inputs):
    """The disjoint union of G graphs, of which an update reads some.

    The layers get the diagonal block of these graphs, with the weights that it has in the union.

    Args:
        x: (N, P) features, dense or CSR.
        layers: the argument of the layers for all graphs.
        batch: (N,) the graph of each node, ascending.
        batch_size: number of graphs of an update.
        part: the argument of the layers for some nodes (N',), ascending and of whole graphs.
        members: the argument of the readout, from the graph of each node and the number of graphs.
    """

    def __init__(
        self,
        x: Tensor,
        layers: Any,
        batch: Tensor,
        batch_size: int,
        part: Part,
        members: Members = clusters,
    ) -> None:
        self.x, self.batch_size, self.part, self.members = x, batch_size, part, members
        self.counts = torch.bincount(batch)
        self.begins = self.counts.cumsum(0) - self.counts
        self.whole = OfGraphs(layers, members(batch, self.counts.numel()))

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        settings: Settings,
        x: Tensor | None,
        layers: Any,
        part: Part,
        members: Members = clusters,
    ) -> Graphs:
        """The inputs of a dataset of graphs, with its features as the settings keep them."""
        if x is None:
            raise RefusedValue(
                "graphs are classified by the features of their nodes", "features", "none"
            )
        batch = dataset.data.batch.to(settings.device)
        if isinstance(layers, Basis):
            check_block_diagonal(layers, batch)
        return cls(x, layers, batch, settings.batch_size, part, members)

    def batches(self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE) -> Batches:
        """The graphs ``nodes`` (T,) in an order that seed and epoch determine."""
        generator = torch.Generator().manual_seed(1_000_003 * epoch + seed)
        order = torch.randperm(nodes.numel(), generator=generator).to(nodes.device)
        parts = nodes[order].split(self.batch_size)
        for number in share.numbers(len(parts)):
            yield None if number is None else self.some(parts[number].sort().values, number)

    def some(self, graphs: Tensor, number: int = 0) -> Batch:
        """Some graphs (B,), ascending, as the batch of this number."""
        of, within = spread_runs(self.counts[graphs])
        nodes = self.begins[graphs][of] + within
        structure = OfGraphs(self.part(nodes), self.members(of, graphs.numel()))
        rows = torch.arange(graphs.numel(), device=graphs.device)
        return Batch(rows_of(self.x, nodes, self.x.dtype), structure, rows, graphs, number)

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """(B, C) of the graphs ``nodes`` (B,), or of all."""
        out: Tensor = model(self.x, self.whole)
        return out if nodes is None else out[nodes]


def check_task(entry: Entry, settings: Settings) -> str:
    """``'nodes'`` or ``'graphs'``, whatever the dataset has classes of."""
    of_graphs, pool = entry.task == "graphs", settings.pool
    if of_graphs == (pool == "none"):
        raise RefusedValue(
            f"{entry.name} has classes of {entry.task}",
            "pool sum, mean or max" if of_graphs else "pool none",
            f"pool {pool}",
        )
    of_nodes = ("architecture", "propagation", "out_heads", "batches")
    for name in (*of_nodes, "labels_as_features", "correct_and_smooth"):
        plain, asked = getattr(Settings, name), getattr(settings, name)
        if of_graphs and asked != plain:
            raise RefusedValue(f"{name} is of classifiers of nodes", repr(plain), repr(asked))
    if of_graphs and settings.skip == "last":
        raise RefusedValue("a readout reads the last layer", "skip 'none'", "'last'")
    return entry.task


def some_graphs(data: Data, nodes: Tensor) -> Data:
    """The structure of some nodes of whole graphs: edges, their types, and numbers of graphs."""
    structure = {name: data.get(name) for name in ("edge_index", "edge_type", "batch")}
    kept = Data(**structure, num_nodes=data.num_nodes).subgraph(nodes.to(data.edge_index.device))
    kept.batch = kept.batch.unique(return_inverse=True)[1]
    return kept


def induced(arguments: dict[str, Any], nodes: Tensor) -> dict[str, Any]:
    """The arguments of a PyG layer for the subgraph of some nodes.

    Args:
        arguments: ``edge_index`` (2, E), tensors (E, *), which are those of edges, and others; or
            none, for a layer without edges.
        nodes: (N',), ascending.
    """
    if not arguments:
        return {}
    edges = arguments["edge_index"]
    count = 1 + max((int(part.max()) for part in (edges, nodes) if part.numel()), default=0)
    kept = Data(**arguments, num_nodes=count).subgraph(nodes)
    return {name: kept.get(name) for name in arguments}


def check_block_diagonal(basis: Basis, batch: Tensor) -> None:
    """Refuse a basis with an edge between nodes of different graphs, under any label.

    The numbers of two graphs differ in a bit: a target whose graph has this bit must have no source
    whose graph has not, and the other way round.
    """
    labels = range(basis.num_bases)
    for bit in range(int(batch.max()).bit_length() if batch.numel() else 0):
        has = (batch >> bit & 1).bool()
        for seen in (has, ~has):
            if bool((reached(basis, seen, labels) & ~seen).any()):
                raise RefusedValue(
                    "graphs are classified one by one",
                    "a family without edges between them",
                    repr(basis),
                )
