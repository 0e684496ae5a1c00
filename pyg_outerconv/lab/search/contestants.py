"""Who takes part in a search: our basis, and layers of PyG that are tuned with the same budget."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from optuna import Trial
from torch import Tensor
from torch.nn import Linear, Module
from torch_geometric.nn import DirGNNConv, GATConv, GCNConv, SAGEConv
from torch_geometric.utils import is_undirected

from ...errors import RefusedValue, unknown
from ..data import Dataset
from ..train import Settings, Split, make_split
from ..train.inputs import WholeGraph, kept_features
from ..train.model import PEER, Contender, ours
from ..train.peers import PeerLayer
from .space import Bounds, draw_model, draw_ours, start_models, starts

OURS = "outerconv"


@dataclass(frozen=True)
class Candidate:
    """What a trial drew.

    Attributes:
        settings: of the model and its training.
        heads: of an attention layer of PyG, 1 for others.
    """

    settings: Settings
    heads: int = 1


@dataclass(frozen=True)
class Contestant:
    """A kind of model, with a study of its own.

    Attributes:
        name: ``'outerconv'``, or that of a peer.
        shown: its name in tables.
        draw: a candidate from a trial.
        make: the contender of a candidate, on a graph without labels.
        starts: the parameters of its first trials; as many for every contestant.
    """

    name: str
    shown: str
    draw: Callable[[Trial, Bounds], Candidate]
    make: Callable[[Unlabelled, Candidate], Contender]
    starts: Callable[[Bounds], list[dict[str, Any]]]


# Those without options; attention is made by `_layer`.
_LAYERS: dict[str, Callable[[int, int], Module]] = {
    "mlp": Linear,
    "gcn": GCNConv,
    "sage": SAGEConv,
    "dir-gcn": lambda p, q: DirGNNConv(GCNConv(p, q)),
}


def _layer(name: str, p: int, q: int, candidate: Candidate, num_classes: int) -> Module:
    if name in _LAYERS:
        return _LAYERS[name](p, q)
    heads, dropout = candidate.heads, candidate.settings.dropout  # of attention, too
    if q == num_classes or q % heads:
        return GATConv(p, q, heads=heads, dropout=dropout, concat=False)
    return GATConv(p, q // heads, heads=heads, dropout=dropout)


# Layers that multiply x by their weights before anything else take it sparse.
_TAKES_SPARSE = ("mlp", "gcn", "gat", "dir-gcn")


def _make_peer(name: str) -> Callable[[Unlabelled, Candidate], Contender]:
    def make(graph: Unlabelled, candidate: Candidate) -> Contender:
        dataset, settings = graph.dataset, candidate.settings
        x = kept_features(dataset, settings)
        if x is not None and x.layout != torch.strided and name not in _TAKES_SPARSE:
            x = x.to_dense()
        num_nodes = int(dataset.data.num_nodes or 0)
        instead = torch.eye(num_nodes, device=settings.device) if x is None else None

        def make_layer(p: int, q: int) -> Module:
            return PeerLayer(_layer(name, p, q, candidate, graph.num_classes), instead)

        edges = dataset.data.edge_index.to(settings.device)
        inputs = WholeGraph(x, {} if name == "mlp" else {"edge_index": edges})
        in_channels = num_nodes if x is None else x.size(1)
        return Contender(PEER, PEERS[name].shown, make_layer, inputs, in_channels)

    return make


def _draw_ours(trial: Trial, bounds: Bounds) -> Candidate:
    return Candidate(draw_ours(trial, bounds))


def _make_ours(graph: Unlabelled, candidate: Candidate) -> Contender:
    return ours(graph.dataset, candidate.settings)


def _draw_peer(name: str) -> Callable[[Trial, Bounds], Candidate]:
    def draw(trial: Trial, bounds: Bounds) -> Candidate:
        values: dict[str, Any] = {**bounds.fixed, **draw_model(trial, bounds), "family": name}
        heads = trial.suggest_categorical("heads", (1, 4, 8)) if name == "gat" else 1
        return Candidate(Settings(**values), heads)

    return draw


def _start_peer(bounds: Bounds) -> list[dict[str, Any]]:
    return [{**model, "heads": 8} for model in start_models(bounds)]


OUR_BASIS = Contestant(OURS, "OuterConv, basis searched", _draw_ours, _make_ours, starts)
_SHOWN = {
    "mlp": "MLP, no graph",
    "gcn": "PyG GCNConv",
    "gat": "PyG GATConv",
    "sage": "PyG SAGEConv",
    "dir-gcn": "PyG DirGNNConv(GCNConv)",
}
PEERS = {
    name: Contestant(name, shown, _draw_peer(name), _make_peer(name), _start_peer)
    for name, shown in _SHOWN.items()
}


def contestants(peers: list[str]) -> list[Contestant]:
    """Our basis, then the named peers."""
    for name in peers:
        if name not in PEERS:
            raise RefusedValue(unknown("peer", name, PEERS))
    if len(set(peers)) < len(peers):
        raise RefusedValue("a peer is named once", "different peers", ", ".join(peers))
    return [OUR_BASIS, *(PEERS[name] for name in peers)]


def default_peers(is_directed: bool) -> list[str]:
    """PyG's layers that are tuned beside ours unless others are named."""
    return ["mlp", "gcn", "gat", *(["dir-gcn"] if is_directed else [])]


WITHHELD = -1


@dataclass(frozen=True)
class Unlabelled:
    """A dataset whose ``y`` is −1 at every node, as models are built on.

    Attributes:
        dataset: the graph and its features.
        num_classes: C, a fact of the dataset.
    """

    dataset: Dataset
    num_classes: int

    @property
    def has_features(self) -> bool:
        """Whether nodes have features."""
        x = self.dataset.data.get("x")
        return x is not None and x.numel() > 0

    @property
    def is_directed(self) -> bool:
        """Whether the edges and the reversed edges differ."""
        data = self.dataset.data
        return not is_undirected(data.edge_index, num_nodes=data.num_nodes)


@dataclass(frozen=True)
class Labels:
    """What a seed may see.

    Attributes:
        y: (N,) classes of the training and validation nodes, −1 at all others.
        split: training, validation and test nodes.
    """

    y: Tensor
    split: Split


def without_labels(dataset: Dataset) -> Unlabelled:
    """The dataset without labels."""
    data = copy.copy(dataset.data)
    data.y = torch.full_like(dataset.data.y, WITHHELD)
    return Unlabelled(replace(dataset, data=data), dataset.num_classes)


def visible_labels(dataset: Dataset, protocol: str, seeds: Sequence[int]) -> dict[int, Labels]:
    """The labels of each seed's training and validation nodes; all others are withheld."""
    found = {}
    for seed in seeds:
        split = make_split(dataset.data, protocol, seed)
        seen = (split.train | split.validation) & ~split.test
        found[seed] = Labels(torch.where(seen, dataset.data.y, WITHHELD), split)
    return found
