"""Epochs over many small graphs that a loader shuffles, collates and delivers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool

from ...data import data_root
from ..case import Contender, Setup, case
from ..context import Context
from ..graphs import small_graphs
from ..names import EPOCH, LOADING, OURS, PYG
from ..pairs import PAIRS
from ..targets import Faster
from .small import GROUP, WORDS

HIDDEN, CLASSES, FEATURES, COUNT = 64, 2, 3, 1113
FILES = ("A", "graph_indicator", "graph_labels", "node_labels")


def proteins(context: Context) -> tuple[list[Data], str]:
    """PROTEINS if its raw files are below the root, else as many random graphs; and which."""
    raw = data_root(context.root) / "TUDataset" / "PROTEINS" / "raw"
    files = {name: raw / f"PROTEINS_{name}.txt" for name in FILES}
    if context.scale == 1 and all(file.is_file() for file in files.values()):
        graphs, origin = _read(files), "real"
    else:
        graphs, origin = _random(context), "random, as many as PROTEINS has"
    for graph in graphs:
        graph.x = graph.x.to(context.dtype)
    return [graph.to(context.device) for graph in graphs], origin


def _read(files: dict[str, Any]) -> list[Data]:
    """The graphs of a TU data set: numbers from 1, one line for each edge, node or graph."""
    columns = {
        name: torch.tensor(
            [[int(part) for part in line.split(",")] for line in path.read_text().splitlines()]
        )
        for name, path in files.items()
    }
    edges = columns["A"].t() - 1
    graph_of = columns["graph_indicator"][:, 0] - 1
    sizes = graph_of.bincount()
    first = sizes.cumsum(0) - sizes
    x = F.one_hot(columns["node_labels"][:, 0], FEATURES).float().split(sizes.tolist())
    owner = graph_of[edges[0]]
    keys = edges[0] * graph_of.numel() + edges[1]
    order = keys.argsort()
    edges = (edges - first[owner])[:, order]
    parts = edges.split(owner.bincount(minlength=sizes.numel()).tolist(), dim=1)
    labels = columns["graph_labels"][:, 0] - 1
    return [
        Data(x=x[number], edge_index=part.contiguous(), y=labels[number : number + 1])
        for number, part in enumerate(parts)
    ]


def _random(context: Context) -> list[Data]:
    generator = context.generator()
    found = []
    for _ in range(context.size(COUNT, 8, quick=False)):
        edge_index, graph = small_graphs(1, generator)
        label = torch.randint(CLASSES, (1,), generator=generator)
        kinds = torch.randint(FEATURES, graph.shape, generator=generator)
        found.append(Data(x=F.one_hot(kinds, FEATURES).float(), edge_index=edge_index, y=label))
    return found


class ThreeLayers(Module):
    """Three convolutions with ReLU, the mean over each graph, one linear map."""

    def __init__(self, layers: list[Module]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.head = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, batch: Batch) -> Tensor:
        """Logits, (graphs, C)."""
        x = batch.x
        for layer in self.layers:
            x = layer(x, batch.edge_index).relu()
        out: Tensor = self.head(global_mean_pool(x, batch.batch, batch.num_graphs))
        return out


def _contender(name: str, model: Module, graphs: list[Data], size: int, seed: int) -> Contender:
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


def training(context: Context, layer: str, size: int) -> Setup:
    """The same model, weights and batches, over layers of ours and PyG's."""
    graphs, origin = proteins(context)
    pairs = [PAIRS[layer](p, HIDDEN, False) for p in (FEATURES, HIDDEN, HIDDEN)]
    ours = ThreeLayers([pair.ours for pair in pairs])
    theirs = ThreeLayers([pair.theirs for pair in pairs])
    theirs.head.load_state_dict(ours.head.state_dict())
    contenders = [
        _contender(name, model.to(context.device, context.dtype), graphs, size, context.seed)
        for name, model in ((OURS, ours), (PYG, theirs))
    ]
    loader = _loader(graphs, size, context.seed)
    contenders.append(Contender(LOADING, {EPOCH: lambda: [None for _ in loader]}))
    sizes: dict[str, float | int | str] = {
        "graphs": len(graphs),
        "nodes": sum(int(graph.num_nodes or 0) for graph in graphs),
        "edges": sum(graph.num_edges for graph in graphs),
        "batch": size,
        "channels": HIDDEN,
        "data": origin,
    }
    return Setup(contenders, sizes, inner=1)


for _layer in ("gcn", "sage", "gat"):
    for _size in (32, 128):
        case(
            f"epoch-{_layer}-{_size}",
            GROUP,
            f"an epoch on PROTEINS, batches of {_size}: three layers of {WORDS[_layer]}",
            targets=(Faster(PYG, 1.3, EPOCH, floor=LOADING),),
            quick=False,
            layer=_layer,
            size=_size,
        )(training)
