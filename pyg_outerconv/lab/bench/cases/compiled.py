"""Models under torch.compile: our drop-in layers compiled and not, beside PyG's compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import nn as theirs

from .... import pyg as ours
from ..case import OURS, PYG, PYG_COMPILED, Contender, Context, Setup, case, of_layer
from ..graphs import uniform_types
from ..targets import faster
from .small import HEADS, RELATIONS

GROUP = "compiled"
CHANNELS = 64
EAGER = "outerconv, not compiled"
SIZES = {"small": (500, 2_500), "middle": (5_000, 50_000), "large": (20_000, 200_000)}

Make = Callable[[Any], Module]
LAYERS: dict[str, tuple[str, Make]] = {
    "gcn": ("GCN", lambda library: library.GCNConv(CHANNELS, CHANNELS)),
    "sage": ("GraphSAGE (mean and root)", lambda library: library.SAGEConv(CHANNELS, CHANNELS)),
    "gat": (
        f"GAT of {HEADS} heads",
        lambda library: library.GATConv(CHANNELS, CHANNELS // HEADS, HEADS),
    ),
    "gatv2": (
        f"GATv2 of {HEADS} heads",
        lambda library: library.GATv2Conv(CHANNELS, CHANNELS // HEADS, HEADS),
    ),
    "transformer": (
        f"TransformerConv of {HEADS} heads",
        lambda library: library.TransformerConv(CHANNELS, CHANNELS // HEADS, HEADS),
    ),
    "rgcn": (
        f"R-GCN of {RELATIONS} relations",
        lambda library: library.RGCNConv(CHANNELS, CHANNELS, RELATIONS),
    ),
}


class TwoLayers(Module):
    """Two layers with an ELU between them.

    No ReLU: torch's compiled one is slow on some CPUs, where it stores a boolean for each number
    (12 ms instead of 2 for 20,000 x 64 on an AMD EPYC with torch 2.13).
    """

    def __init__(self, layers: list[Module]) -> None:
        super().__init__()
        self.layers = ModuleList(layers)

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        first, second = self.layers
        out: Tensor = second(F.elu(first(x, *edges)), *edges)
        return out


def model(library: Any, make: Make, context: Context) -> TwoLayers:
    """The same weights for each library."""
    torch.manual_seed(context.seed)
    return TwoLayers([make(library), make(library)]).to(context.device, context.dtype)


def two_layers(context: Context, layer: str, size: str) -> Setup:
    """Ours compiled, ours as it is, and PyG's compiled; a quick run compiles nothing."""
    generator, (nodes, edges) = context.generator(), SIZES[size]
    nodes, edges = context.size(nodes, 8), context.size(edges, 16)
    edge_index = torch.randint(nodes, (2, edges), generator=generator).to(context.device)
    given: tuple[Tensor, ...] = (edge_index,)
    if layer == "rgcn":
        given = edge_index, uniform_types(edges, RELATIONS, generator).to(context.device)
    x, direction = (context.randn(nodes, CHANNELS, generator=generator) for _ in range(2))
    x.requires_grad_()
    absent = {}
    running = {OURS: (ours, True), EAGER: (ours, False), PYG_COMPILED: (theirs, True)}
    if context.quick:
        absent[PYG_COMPILED] = "left out of a quick run, which compiling would take most of"
        running[PYG] = running.pop(PYG_COMPILED)
    else:
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    contenders: list[Contender] = []
    for name, (library, compiles) in running.items():
        found = model(library, LAYERS[layer][1], context)
        step = torch.compile(found) if compiles and not context.quick else found
        contenders.append(of_layer(name, step, x, direction, *given, own=library is ours))
    sizes = {"nodes": nodes, "edges": edges, "channels": CHANNELS}
    return Setup(contenders, sizes, absent)


for _layer, (_what, _) in LAYERS.items():
    for _size in SIZES:
        case(
            f"compiled-{_layer}-{_size}",
            GROUP,
            f"two layers of {_what}, compiled",
            targets=(faster(EAGER, 1.0), faster(PYG_COMPILED, 1.0)),
            quick=False,
            layer=_layer,
            size=_size,
        )(two_layers)
