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
    """What a trial drew."""

    settings: Settings
    heads: int = 1


@dataclass(frozen=True)
class Contestant:
    """A kind of model, with a study of its own: ours, whose basis is searched."""

    name: str = OURS
    shown: str = "OuterConv, basis searched"

    def draw(self, trial: Trial, bounds: Bounds) -> Candidate:
        """A candidate from a trial."""
        return Candidate(draw_ours(trial, bounds))

    def make(self, graph: Unlabelled, candidate: Candidate) -> Contender:
        """The contender of a candidate, on a graph without labels."""
        return ours(graph.dataset, candidate.settings)

    def starts(self, bounds: Bounds) -> list[dict[str, Any]]:
        """The parameters of its first trials; as many for every contestant."""
        return starts(bounds)


@dataclass(frozen=True)
class Peer(Contestant):
    """A layer of PyG's; ``takes_sparse`` if it multiplies x by its weights before all else."""

    layer: Callable[[int, int], Module] | None = None
    takes_sparse: bool = True

    def draw(self, trial: Trial, bounds: Bounds) -> Candidate:
        values: dict[str, Any] = {**bounds.fixed, **draw_model(trial, bounds), "family": self.name}
        heads = trial.suggest_categorical("heads", (1, 4, 8)) if self.layer is None else 1
        return Candidate(Settings(**values), heads)

    def make(self, graph: Unlabelled, candidate: Candidate) -> Contender:
        dataset, settings = graph.dataset, candidate.settings
        x = kept_features(dataset, settings)
        if x is not None and x.layout != torch.strided and not self.takes_sparse:
            x = x.to_dense()
        num_nodes = int(dataset.data.num_nodes or 0)
        instead = torch.eye(num_nodes, device=settings.device) if x is None else None

        def make_layer(p: int, q: int) -> Module:
            if self.layer is not None:
                return PeerLayer(self.layer(p, q), instead)
            heads, is_last = candidate.heads, q == graph.num_classes or q % candidate.heads
            width = q if is_last else q // heads
            options = {"heads": heads, "dropout": settings.dropout, "concat": not is_last}
            return PeerLayer(GATConv(p, width, **options), instead)

        edges = dataset.data.edge_index.to(settings.device)
        inputs = WholeGraph(x, {} if self.layer is Linear else {"edge_index": edges})
        in_channels = num_nodes if x is None else x.size(1)
        return Contender(PEER, self.shown, make_layer, inputs, in_channels)

    def starts(self, bounds: Bounds) -> list[dict[str, Any]]:
        return [{**model, "heads": 8} for model in start_models(bounds)]


PEERS = {
    peer.name: peer
    for peer in (
        Peer("mlp", "MLP, no graph", Linear),
        Peer("gcn", "PyG GCNConv", GCNConv),
        Peer("gat", "PyG GATConv"),  # whose heads are drawn
        Peer("sage", "PyG SAGEConv", SAGEConv, takes_sparse=False),
        Peer("dir-gcn", "PyG DirGNNConv(GCNConv)", lambda p, q: DirGNNConv(GCNConv(p, q))),
    )
}


def contestants(peers: str) -> list[Contestant]:
    """Our basis, then the peers that a text names, with commas; or ``'none'``."""
    names = [] if peers == "none" else [name.strip() for name in peers.split(",")]
    for name in names:
        if name not in PEERS:
            raise RefusedValue(unknown("peer", name, PEERS))
    if len(set(names)) < len(names):
        raise RefusedValue("a peer is named once", "different peers", peers)
    return [Contestant(), *(PEERS[name] for name in names)]


def default_peers(is_directed: bool) -> str:
    """PyG's layers that are tuned beside ours unless others are named."""
    return "mlp,gcn,gat" + (",dir-gcn" if is_directed else "")


# What a search may see of the labels --------------------------------------------------------------

WITHHELD = -1


@dataclass(frozen=True)
class Unlabelled:
    """A dataset whose ``y`` is −1 at every node, as models are built on."""

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
    """What a seed may see."""

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
