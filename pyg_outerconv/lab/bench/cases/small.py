"""Layers on small graphs: a new one at each call, or the same again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from ...train.peers import begin_as
from ..case import FORWARD, OURS, PYG, PYG_CACHED, TRAINING, Contender, Context, Setup, case
from ..graphs import Fresh, Graph, karate, sampled_block, small_graphs, uniform_types
from ..targets import Target, faster
from .layers import LAYERS, RELATIONS

GRAPHS = 8
NAMES = ("gcn", "sage", "chebyshev", "rgcn", "gat")


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
    generator, graphs = context.generator(), list[Graph]()
    _, draw, channels, _ = KINDS[kind]
    for _ in range(GRAPHS):
        edge_index, nodes = draw(context, generator)
        types = uniform_types(edge_index.size(1), RELATIONS, generator)
        x, direction = (context.randn(nodes, channels, generator=generator) for _ in range(2))
        edges = edge_index.to(context.device), types.to(context.device)
        graphs.append((x.requires_grad_(), *edges, direction))
    return graphs


def _contender(
    name: str, layer: Any, typed: bool, graphs: list[Graph], supply: Fresh | None
) -> Contender:
    """A layer on a new graph at each call, or always on the first one.

    Its forward pass without gradients, and with those of x and the parameters.
    """
    parameters = list(layer.parameters())
    take = supply.take if supply is not None else partial(graphs.__getitem__, 0)

    def forward(x: Tensor, edge_index: Tensor, types: Tensor, _: Tensor) -> Tensor:
        out: Tensor = layer(x, edge_index, edge_type=types) if typed else layer(x, edge_index)
        return out

    def training() -> tuple[Tensor, ...]:
        graph = take()
        return torch.autograd.grad(forward(*graph), [graph[0], *parameters], graph[-1])

    def check() -> list[Tensor]:
        results = []
        for graph in graphs:
            out = forward(*graph)
            results += [out.detach(), *torch.autograd.grad(out, graph[0], graph[-1])]
        return results

    steps = {FORWARD: torch.no_grad()(lambda: forward(*take())), TRAINING: training}
    return Contender(name, steps, check, ready=None if supply is None else supply.ready)


def layers(context: Context, layer: str, kind: str, new: bool) -> Setup:
    """Ours and PyG's, on new graphs or on the same one with ``cached=True``."""
    _, _, channels, inner = KINDS[kind]
    graphs = _draw(context, kind)
    edgeless = Data(torch.empty(0, channels), torch.empty(2, 0, dtype=torch.long))
    ours, theirs, _ = LAYERS[layer].pair(edgeless, channels, channels, cached=not new)
    running = {OURS: ours, PYG: theirs}
    if not new and layer == "gcn":
        running[PYG_CACHED] = GCNConv(channels, channels, cached=True)
        begin_as(running[PYG_CACHED], ours)
        graphs = graphs[:1]  # it keeps the first graph that it sees
    contenders = []
    for name, one in running.items():
        placed, supply = one.to(context.device, context.dtype), Fresh(graphs) if new else None
        contenders.append(_contender(name, placed, layer == "rgcn", graphs, supply))
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


for _layer in NAMES:
    for _kind, (_words, *_) in KINDS.items():
        case(
            f"new-{_kind}-{_layer}",
            "small",
            f"{LAYERS[_layer].words}, a new graph at each call: {_words}",
            targets=_targets((PYG,), _asked(_kind, _layer)),
            quick=False,
            layer=_layer,
            kind=_kind,
            new=True,
        )(layers)
    for _kind, _ratio in (("karate", 1.0), ("molecules", 1.5)):
        case(
            f"again-{_kind}-{_layer}",
            "small",
            f"{LAYERS[_layer].words}, the same graph again, ours cached: {KINDS[_kind][0]}",
            targets=_targets((PYG, PYG_CACHED) if _layer == "gcn" else (PYG,), _ratio),
            quick=False,
            layer=_layer,
            kind=_kind,
            new=False,
        )(layers)
