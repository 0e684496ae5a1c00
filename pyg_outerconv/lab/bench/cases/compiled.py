"""Models under torch.compile: our drop-in layers compiled and not, beside PyG's compiled."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import nn as theirs

from .... import pyg as ours
from ..case import OURS, PYG, PYG_COMPILED, Context, Setup, case
from ..graphs import uniform_types
from ..sides import Sides
from ..targets import faster
from .small import HEADS, RELATIONS

GROUP = "compiled"
CHANNELS = 64
EAGER = "outerconv, not compiled"
SIZES = {"small": (500, 2_500), "middle": (5_000, 50_000), "large": (20_000, 200_000)}

# The layer in words, its class in both libraries, and its arguments.
LAYERS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "gcn": ("GCN", "GCNConv", (CHANNELS, CHANNELS)),
    "sage": ("GraphSAGE (mean and root)", "SAGEConv", (CHANNELS, CHANNELS)),
    "gat": (f"GAT of {HEADS} heads", "GATConv", (CHANNELS, CHANNELS // HEADS, HEADS)),
    "gatv2": (f"GATv2 of {HEADS} heads", "GATv2Conv", (CHANNELS, CHANNELS // HEADS, HEADS)),
    "transformer": (
        f"TransformerConv of {HEADS} heads",
        "TransformerConv",
        (CHANNELS, CHANNELS // HEADS, HEADS),
    ),
    "rgcn": (f"R-GCN of {RELATIONS} relations", "RGCNConv", (CHANNELS, CHANNELS, RELATIONS)),
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


def two_layers(context: Context, layer: str, size: str) -> Setup:
    """Ours compiled, ours as it is, and PyG's compiled; a quick run compiles nothing."""
    generator, (nodes, edges) = context.generator(), SIZES[size]
    nodes, edges = context.size(nodes, 8), context.size(edges, 16)
    edge_index = torch.randint(nodes, (2, edges), generator=generator).to(context.device)
    given: tuple[Tensor, ...] = (edge_index,)
    if layer == "rgcn":
        given = edge_index, uniform_types(edges, RELATIONS, generator).to(context.device)
    x, direction = (context.randn(nodes, CHANNELS, generator=generator) for _ in range(2))
    sides, (_, kind, arguments) = Sides(context, x, direction, edge_index), LAYERS[layer]
    running = {OURS: (ours, True), EAGER: (ours, False), PYG_COMPILED: (theirs, True)}
    if context.quick:
        sides.absent[PYG_COMPILED] = "left out of a quick run, which compiling would take most of"
        running[PYG] = running.pop(PYG_COMPILED)
    else:
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    for name, (library, compiles) in running.items():
        torch.manual_seed(context.seed)  # the same weights for each library
        model = TwoLayers([getattr(library, kind)(*arguments) for _ in range(2)])
        found = sides.placed(model)
        step: Any = torch.compile(found) if compiles and not context.quick else found
        sides.layer(name, step, *given, own=library is ours)
    return sides.setup({"channels": CHANNELS})


for _layer, (_what, *_) in LAYERS.items():
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
