"""Training on citation graphs, whose features are bags of words: nearly all of them zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import GCNConv

from ....families import GCN
from ....nn import OuterConv, SparseFeatures, dropout_features
from ... import data
from ...train.peers import begin_as
from ..case import EPOCH, OURS, PYG, Contender, Context, Setup, case
from ..graphs import random_graph
from ..targets import faster

HIDDEN, DROPOUT = 16, 0.5
OURS_DENSE = "outerconv, dense features"
OURS_WHOLE = "outerconv, no input dropout"
PYG_WHOLE = "PyG, no input dropout"
PYG_SPARSE = "PyG, CSR features, dropout on their values"
PYG_SPARSE_WHOLE = "PyG, CSR features, no input dropout"

Drop = Callable[[Any, float, bool], Any]


def _dropout(x: Tensor, share: float, training: bool) -> Tensor:
    return F.dropout(x, share, training)


def _dropout_of_values(x: Tensor, share: float, training: bool) -> Tensor:
    """Of a CSR matrix, as its law is on the dense one: zeros stay zeros."""
    if not training:
        return x
    value = F.dropout(x.values(), share)
    places = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(*places, value, x.shape, check_invariants=False)


def _no_dropout(x: Any, share: float, training: bool) -> Any:
    return x


# What a graph is made of where the real one is not here: nodes, edges, features, the share of these
# that is not zero, classes.
COUNTS = {"Cora": (2708, 10556, 1433, 0.0127, 7), "CiteSeer": (3327, 9104, 3703, 0.0086, 6)}


@dataclass(frozen=True)
class Graph:
    """Features (N, P), edges, classes, and which nodes train, validate and test."""

    x: Tensor
    edge_index: Tensor
    y: Tensor
    masks: tuple[Tensor, ...]
    origin: str


def citation_graph(context: Context, name: str) -> Graph:
    """The real graph if its files are below the root, else a random one of its counts."""
    if context.scale == 1 and data.is_here(name, context.root):
        found = data.load(name, context.root).data
        parts = (found.train_mask, found.val_mask, found.test_mask)
        return Graph(found.x.float(), found.edge_index, found.y, parts, "real")
    nodes, edges, width, density, classes = COUNTS[name]
    nodes, edges, width = (context.size(count, 16, quick=False) for count in (nodes, edges, width))
    generator = context.generator()
    x = (torch.rand(nodes, width, generator=generator) < density).float()
    edge_index = random_graph(nodes, edges, generator)
    y = torch.randint(classes, (nodes,), generator=generator)
    order = torch.randperm(nodes, generator=generator)
    bounds = (0, nodes // 20, nodes // 4, nodes)
    masks = tuple(
        torch.zeros(nodes, dtype=torch.bool).index_fill(0, order[low:high], True)
        for low, high in pairwise(bounds)
    )
    return Graph(x, edge_index, y, masks, f"random, with the counts of {name}")


class TwoLayers(Module):
    """Dropout, convolution, ReLU, dropout, convolution."""

    def __init__(self, first: Any, second: Any, drop_input: Drop) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([first, second])
        self.drop_input = drop_input

    def forward(self, x: Tensor | SparseFeatures, structure: Any) -> Tensor:
        """Logits (N, C)."""
        first, second = self.layers
        hidden = first(self.drop_input(x, DROPOUT, self.training), structure).relu()
        out: Tensor = second(F.dropout(hidden, DROPOUT, self.training), structure)
        return out


def _contender(
    name: str, model: Module, x: Tensor | SparseFeatures, structure: Any, graph: Graph, weight: str
) -> Contender:
    """An epoch: an update, then losses and accuracies of all three parts without dropout.

    ``weight`` names the first layer's, whose gradient is compared, without dropout.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    train = graph.masks[0]

    def epoch() -> list[float]:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, structure)[train], graph.y[train]).backward()
        optimizer.step()
        model.eval()
        numbers = []
        with torch.no_grad():
            logits = model(x, structure)
            for mask in graph.masks:
                there, wanted = logits[mask], graph.y[mask]
                numbers.append(float(F.cross_entropy(there, wanted)))
                numbers.append(float((there.argmax(-1) == wanted).float().mean()))
        return numbers

    def check() -> tuple[Tensor, Tensor]:
        model.eval()
        out = model(x, structure)
        loss = F.cross_entropy(out[train], graph.y[train])
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
def training(context: Context, graph_name: str) -> Setup:
    """The same model, weights and loop, over OuterConv and over PyG's GCNConv."""
    graph = citation_graph(context, graph_name)
    graph = Graph(
        graph.x.to(context.device, context.dtype),
        graph.edge_index.to(context.device),
        graph.y.to(context.device),
        tuple(mask.to(context.device) for mask in graph.masks),
        graph.origin,
    )
    (nodes, width), classes = graph.x.shape, COUNTS[graph_name][-1]
    basis = GCN().basis(graph.edge_index, size=(nodes, nodes), dtype=context.dtype)
    matrix = graph.x.to_sparse_csr()
    sparse = SparseFeatures.of(matrix)
    first: TwoLayers | None = None
    contenders = []
    for name, x, drop in (
        (OURS, sparse, dropout_features),
        (PYG, graph.x, _dropout),
        (OURS_DENSE, graph.x, _dropout),
        (OURS_WHOLE, sparse, _no_dropout),
        (PYG_WHOLE, graph.x, _no_dropout),
        (PYG_SPARSE, matrix, _dropout_of_values),
        (PYG_SPARSE_WHOLE, matrix, _no_dropout),
    ):
        mine = name in (OURS, OURS_DENSE, OURS_WHOLE)
        below, above = (
            OuterConv(p, q, GCN()) if mine else GCNConv(p, q, cached=True)
            for p, q in ((width, HIDDEN), (HIDDEN, classes))
        )
        model = TwoLayers(below, above, drop).to(context.device, context.dtype)
        first = model if first is None else first
        known: Any
        for layer, known in zip(model.layers, first.layers, strict=True):
            if mine:
                layer.load_state_dict(known.state_dict())
            else:
                begin_as(layer, known)
        structure, weight = (basis, "theta") if mine else (graph.edge_index, "lin")
        contenders.append(_contender(name, model, x, structure, graph, f"layers.0.{weight}.weight"))
    density = sparse.value.numel() / graph.x.numel()
    sizes: dict[str, float | int | str] = {
        "nodes": nodes,
        "edges": graph.edge_index.size(1),
        "features": width,
        "density": round(density, 5),
        "graph": graph.origin,
    }
    return Setup(contenders, sizes, inner=2 if context.quick else 20)
