"""Epochs: on citation graphs, whose features are nearly all zeros, and over many small graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from ....families import GCN
from ....nn import OuterConv, SparseFeatures, dropout_features
from ...data.graph import MASKS
from ...train.peers import begin_as
from ..case import EPOCH, LOADING, OURS, PYG, Contender, Context, Setup, case
from ..graphs import CITATION, CLASSES, FEATURES, citation_graph, proteins
from ..targets import faster
from .layers import LAYERS

DROPOUT = 0.5
OURS_DENSE = "outerconv, dense features"
OURS_WHOLE = "outerconv, no input dropout"
PYG_WHOLE = "PyG, no input dropout"
PYG_SPARSE = "PyG, CSR features, dropout on their values"
PYG_SPARSE_WHOLE = "PyG, CSR features, no input dropout"

Drop = Callable[[Any, float, bool], Any]


def _dropout_of_values(x: Tensor, share: float, training: bool) -> Tensor:
    """Of a CSR matrix, as its law is on the dense one: zeros stay zeros."""
    if not training:
        return x
    value = F.dropout(x.values(), share)
    places = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(*places, value, x.shape, check_invariants=False)


def _no_dropout(x: Any, share: float, training: bool) -> Any:
    return x


class Model(Module):
    """Convolutions with ReLU between them, and what is done to their inputs."""

    def __init__(self, layers: Iterable[Module], dropouts: Iterable[Drop] = ()) -> None:
        super().__init__()
        self.layers, self.dropouts = torch.nn.ModuleList(layers), list(dropouts)

    def forward(self, x: Any, structure: Any) -> Tensor:
        """(N, Q) of features (N, P)."""
        for place, layer in enumerate(self.layers):
            x = x.relu() if place else x
            if self.dropouts:
                x = self.dropouts[place](x, DROPOUT, self.training)
            x = layer(x, structure)
        out: Tensor = x
        return out


class OfGraphs(Model):
    """Convolutions with ReLU, the mean over each graph, and one linear map."""

    def __init__(self, layers: Iterable[Module], channels: int) -> None:
        super().__init__(layers)
        self.head = torch.nn.Linear(channels, CLASSES)

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        """Logits (graphs, C)."""
        x = super().forward(batch.x, batch.edge_index).relu()
        out: Tensor = self.head(global_mean_pool(x, batch.batch, batch.num_graphs))
        return out


# Citation graphs ----------------------------------------------------------------------------------


def _on_nodes(
    name: str, model: Module, x: Tensor | SparseFeatures, structure: Any, graph: Data, weight: str
) -> Contender:
    """An epoch: an update, then losses and accuracies of all three parts without dropout.

    ``weight`` names the first layer's, whose gradient is compared, without dropout.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    y, masks = graph.y, [graph[key] for key in MASKS]
    train = masks[0]

    def epoch() -> list[float]:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, structure)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        numbers = []
        with torch.no_grad():
            logits = model(x, structure)
            for mask in masks:
                there, wanted = logits[mask], y[mask]
                numbers.append(float(F.cross_entropy(there, wanted)))
                numbers.append(float((there.argmax(-1) == wanted).float().mean()))
        return numbers

    def check() -> tuple[Tensor, Tensor]:
        model.eval()
        out = model(x, structure)
        loss = F.cross_entropy(out[train], y[train])
        (gradient,) = torch.autograd.grad(loss, model.get_parameter(weight))
        # Our Θ is (1, P, Q), PyG's weight (Q, P).
        return out.detach(), gradient[0] if gradient.dim() == 3 else gradient.t()

    return Contender(name, {EPOCH: epoch}, check)


_EPOCH = (
    "update and evaluation, two GCN layers of 16, dropout 0.5; ours has sparse features, PyG dense "
    "ones, of which dropout takes most of its time: see the contenders without it, and with CSR"
)


@case(
    "train-citeseer",
    "citation",
    f"an epoch on CiteSeer: {_EPOCH}",
    targets=(faster(PYG, 25, EPOCH),),
    graph_name="CiteSeer",
)
@case(
    "train-cora",
    "citation",
    f"an epoch on Cora: {_EPOCH}",
    targets=(faster(PYG, 10, EPOCH),),
    graph_name="Cora",
)
def on_citations(context: Context, graph_name: str) -> Setup:
    """The same model, weights and loop, over OuterConv and over PyG's GCNConv."""
    graph, origin = citation_graph(context, graph_name)
    graph = graph.to(context.device)
    graph.x = graph.x.to(context.dtype)
    (nodes, width), classes = graph.x.shape, CITATION[graph_name][-1]
    channels = (width, 16), (16, classes)
    basis = GCN().basis(graph.edge_index, size=(nodes, nodes), dtype=context.dtype)
    matrix = graph.x.to_sparse_csr()
    sparse, ours = SparseFeatures.of(matrix), [OuterConv(p, q, GCN()) for p, q in channels]
    contenders = []
    for title, x, drop in (
        (OURS, sparse, dropout_features),
        (PYG, graph.x, F.dropout),
        (OURS_DENSE, graph.x, F.dropout),
        (OURS_WHOLE, sparse, _no_dropout),
        (PYG_WHOLE, graph.x, _no_dropout),
        (PYG_SPARSE, matrix, _dropout_of_values),
        (PYG_SPARSE_WHOLE, matrix, _no_dropout),
    ):
        layers: list[Any] = deepcopy(ours)
        structure, weight = basis, "theta"
        if title not in (OURS, OURS_DENSE, OURS_WHOLE):
            layers = [GCNConv(p, q, cached=True) for p, q in channels]
            structure, weight = graph.edge_index, "lin"
            for layer, first in zip(layers, ours, strict=True):
                begin_as(layer, first)
        model = Model(layers, (drop, F.dropout)).to(context.device, context.dtype)
        place = f"layers.0.{weight}.weight"
        contenders.append(_on_nodes(title, model, x, structure, graph, place))
    sizes = {"nodes": nodes, "edges": graph.num_edges, "features": width}
    density = round(sparse.value.numel() / graph.x.numel(), 5)
    sizes = {**sizes, "density": density, "graph": origin}
    return Setup(contenders, sizes, inner=2 if context.quick else 20)


# Many small graphs, which a loader shuffles, collates and delivers --------------------------------


def _over_graphs(name: str, model: Module, graphs: list[Data], size: int, seed: int) -> Contender:
    """An epoch of updates; the loader shuffles alike for all."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = _loader(graphs, size, seed)

    def epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()

    def check() -> list[Tensor]:
        batch = Batch.from_data_list(graphs[:size])
        out = model(batch)
        head: Any = model.get_parameter("head.weight")
        return [out.detach(), *torch.autograd.grad(F.cross_entropy(out, batch.y), head)]

    return Contender(name, {EPOCH: epoch}, check)


def _loader(graphs: list[Data], size: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(graphs, batch_size=size, shuffle=True, generator=generator)


def on_proteins(context: Context, layer: str, size: int, channels: int = 64) -> Setup:
    """The same model, weights and batches, over layers of ours and PyG's."""
    graphs, origin = proteins(context)
    widths = FEATURES, channels, channels
    pairs = [LAYERS[layer].pair(graphs[0], p, channels)[:2] for p in widths]
    ours, theirs = (OfGraphs(layers, channels) for layers in zip(*pairs, strict=True))
    theirs.head.load_state_dict(ours.head.state_dict())
    contenders = [
        _over_graphs(name, model.to(context.device, context.dtype), graphs, size, context.seed)
        for name, model in ((OURS, ours), (PYG, theirs))
    ]
    loader = _loader(graphs, size, context.seed)
    contenders.append(Contender(LOADING, {EPOCH: lambda: [None for _ in loader]}))
    nodes = sum(int(graph.num_nodes or 0) for graph in graphs)
    sizes = {"graphs": len(graphs), "nodes": nodes, "edges": sum(one.num_edges for one in graphs)}
    sizes = {**sizes, "batch": size, "channels": channels, "data": origin}
    return Setup(contenders, sizes, inner=1)


for _layer in ("gcn", "sage", "gat"):
    for _size in (32, 128):
        case(
            f"epoch-{_layer}-{_size}",
            "small",
            f"an epoch on PROTEINS, batches of {_size}: three layers of {LAYERS[_layer].words}",
            targets=(faster(PYG, 1.3, EPOCH, floor=LOADING),),
            quick=False,
            layer=_layer,
            size=_size,
        )(on_proteins)
