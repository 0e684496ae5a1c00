"""Small graphs: a new one at each call, the same again, and epochs over many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.data.separate import separate
from torch_geometric.io import read_tu_data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from ....nn.recipes import layer_of
from ...data import data_root
from ...train.peers import begin_as, peer_of
from ..case import (
    EPOCH,
    FORWARD,
    LOADING,
    OURS,
    PYG,
    PYG_CACHED,
    TRAINING,
    Contender,
    Context,
    Setup,
    case,
)
from ..graphs import Fresh, Graph, karate, sampled_block, small_graphs, uniform_types
from ..targets import Target, faster

GROUP = "small"
GRAPHS = 8
HEADS, RELATIONS = 4, 3
WORDS = {
    "gcn": "GCN",
    "sage": "GraphSAGE (mean and root)",
    "chebyshev": "Chebyshev of 3 terms",
    "rgcn": f"R-GCN of {RELATIONS} relations",
    "gat": f"GAT of {HEADS} heads",
}
FAMILIES = {
    "gcn": "gcn",
    "sage": "relation(1)",
    "chebyshev": "chebyshev(3)",
    "rgcn": f"relation({RELATIONS})",
    "gat": f"gat({HEADS})",
}


def pair(layer: str, p: int, q: int, cached: bool = False) -> tuple[Any, Any]:
    """A layer of ours, and PyG's with its weights."""
    options: dict[str, Any] = {"root_weight": True} if layer in ("sage", "rgcn") else {}
    ours = layer_of(p, q, FAMILIES[layer], cached=cached or None, **options)
    edgeless = Data(x=torch.empty(0, p), edge_index=torch.empty(2, 0, dtype=torch.long))
    return ours, peer_of(FAMILIES[layer], edgeless, **options).layer(ours, p, q)


def _club(context: Context, generator: torch.Generator) -> tuple[Tensor, int]:
    return karate(generator), 34


def _molecules(context: Context, generator: torch.Generator) -> tuple[Tensor, int]:
    edge_index, graph = small_graphs(context.size(64, 2, quick=False), generator)
    return edge_index, graph.numel()


def _block(context: Context, generator: torch.Generator) -> tuple[Tensor, int]:
    nodes = context.size(10_000, 16, quick=False)
    nodes += int(torch.randint(max(1, nodes // 50), (1,), generator=generator))
    return sampled_block(nodes, 10, generator), nodes


# What it is, how to draw one, channels, and calls in a sample.
Kind = tuple[str, Callable[[Context, torch.Generator], tuple[Tensor, int]], int, int]
KINDS: dict[str, Kind] = {
    "karate": ("Zachary's karate club, nodes renamed", _club, 16, 50),
    "molecules": ("64 small graphs side by side", _molecules, 64, 10),
    "block": ("a sampled block, 10 neighbours each", _block, 64, 3),
}


def _draw(context: Context, kind: str) -> list[Graph]:
    """Some graphs: x, ``edge_index``, types of edges, and the gradient of the result."""
    generator = context.generator()
    _, draw, channels, _ = KINDS[kind]
    found: list[Graph] = []
    for _ in range(GRAPHS):
        edge_index, nodes = draw(context, generator)
        types = uniform_types(edge_index.size(1), RELATIONS, generator)
        x, direction = (context.randn(nodes, channels, generator=generator) for _ in range(2))
        edges = edge_index.to(context.device), types.to(context.device)
        found.append((x.requires_grad_(), *edges, direction))
    return found


def _contender(
    name: str, layer: Any, typed: bool, graphs: list[Graph], supply: Fresh | None
) -> Contender:
    """A layer on a new graph at each call, or always on the first one.

    Its forward pass without gradients, and with those of x and the parameters.
    """
    parameters = list(layer.parameters())
    take = supply.take if supply is not None else partial(graphs.__getitem__, 0)

    def forward(x: Tensor, edge_index: Tensor, types: Tensor) -> Tensor:
        out: Tensor = layer(x, edge_index, edge_type=types) if typed else layer(x, edge_index)
        return out

    def without() -> Tensor:
        x, edge_index, types, _ = take()
        with torch.no_grad():
            return forward(x, edge_index, types)

    def training() -> tuple[Tensor, ...]:
        x, edge_index, types, direction = take()
        out = forward(x, edge_index, types)
        return torch.autograd.grad(out, [x, *parameters], direction)

    def check() -> list[Tensor]:
        results = []
        for x, edge_index, types, direction in graphs:
            out = forward(x, edge_index, types)
            results += [out.detach(), *torch.autograd.grad(out, x, direction)]
        return results

    ready = None if supply is None else supply.ready
    return Contender(name, {FORWARD: without, TRAINING: training}, check, ready=ready)


def layers(context: Context, layer: str, kind: str, new: bool) -> Setup:
    """Ours and PyG's, on new graphs or on the same one with ``cached=True``."""
    _, _, channels, inner = KINDS[kind]
    graphs = _draw(context, kind)
    ours, theirs = pair(layer, channels, channels, not new)
    running = {OURS: ours, PYG: theirs}
    if not new and layer == "gcn":
        running[PYG_CACHED] = GCNConv(channels, channels, cached=True)
        begin_as(running[PYG_CACHED], ours)
        graphs = graphs[:1]  # it keeps the first graph that it sees
    contenders = [
        _contender(
            name,
            found.to(context.device, context.dtype),
            layer == "rgcn",
            graphs,
            Fresh(graphs) if new else None,
        )
        for name, found in running.items()
    ]
    x, edge_index, _, _ = graphs[0]
    sizes = {"nodes": x.size(0), "edges": edge_index.size(1), "channels": channels}
    return Setup(contenders, sizes, inner=2 if context.quick else inner)


def _targets(peers: tuple[str, ...], ratio: float) -> tuple[Target, ...]:
    return tuple(faster(peer, ratio, mode) for peer in peers for mode in (FORWARD, TRAINING))


def _asked(kind: str, layer: str) -> float:
    """What a layer on a new graph must reach."""
    if kind == "block" and layer in ("gcn", "chebyshev"):
        return 2.5
    if kind == "molecules" and layer == "gat":
        return 1.0
    return {"karate": 0.8, "molecules": 1.3, "block": 1.5}[kind]


for _layer, _what in WORDS.items():
    for _kind, (_words, *_) in KINDS.items():
        case(
            f"new-{_kind}-{_layer}",
            GROUP,
            f"{_what}, a new graph at each call: {_words}",
            targets=_targets((PYG,), _asked(_kind, _layer)),
            quick=False,
            layer=_layer,
            kind=_kind,
            new=True,
        )(layers)
    for _kind, _ratio in (("karate", 1.0), ("molecules", 1.5)):
        case(
            f"again-{_kind}-{_layer}",
            GROUP,
            f"{_what}, the same graph again, ours cached: {KINDS[_kind][0]}",
            targets=_targets((PYG, PYG_CACHED) if _layer == "gcn" else (PYG,), _ratio),
            quick=False,
            layer=_layer,
            kind=_kind,
            new=False,
        )(layers)


# Epochs over many small graphs that a loader shuffles, collates and delivers.

HIDDEN, CLASSES, FEATURES, COUNT = 64, 2, 3, 1113
FILES = ("A", "graph_indicator", "graph_labels", "node_labels")


def proteins(context: Context) -> tuple[list[Data], str]:
    """PROTEINS if its raw files are below the root, else as many random graphs; and which."""
    raw = data_root(context.root) / "TUDataset" / "PROTEINS" / "raw"
    if context.scale == 1 and all((raw / f"PROTEINS_{name}.txt").is_file() for name in FILES):
        graphs, origin = _read(raw), "real"
    else:
        graphs, origin = _random(context), "random, as many as PROTEINS has"
    for graph in graphs:
        graph.x = graph.x.to(context.dtype)
    return [graph.to(context.device) for graph in graphs], origin


def _read(raw: Path) -> list[Data]:
    together, slices, _ = read_tu_data(str(raw), "PROTEINS")
    together.x = together.x[:, -FEATURES:]  # labels of nodes, without their attribute
    count = slices["x"].numel() - 1
    return [separate(Data, together, number, slices, decrement=False) for number in range(count)]


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


def _epoch_contender(
    name: str, model: Module, graphs: list[Data], size: int, seed: int
) -> Contender:
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
    pairs = [pair(layer, p, HIDDEN) for p in (FEATURES, HIDDEN, HIDDEN)]
    ours, theirs = (ThreeLayers(list(layers)) for layers in zip(*pairs, strict=True))
    theirs.head.load_state_dict(ours.head.state_dict())
    contenders = [
        _epoch_contender(name, model.to(context.device, context.dtype), graphs, size, context.seed)
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
            targets=(faster(PYG, 1.3, EPOCH, floor=LOADING),),
            quick=False,
            layer=_layer,
            size=_size,
        )(training)
