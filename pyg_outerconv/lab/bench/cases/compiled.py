"""Models under torch.compile: our drop-in layers compiled and not, beside PyG's compiled."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList

from ....pyg import from_pyg
from ..case import OURS, PYG, PYG_COMPILED, Context, Setup, case
from ..graphs import uniform_types
from ..sides import QUICK, Sides
from ..targets import faster
from .layers import CHANNELS, LAYERS, RELATIONS

EAGER = "outerconv, not compiled"
SIZES = {"small": (500, 2_500), "middle": (5_000, 50_000), "large": (20_000, 200_000)}
NAMES = ("gcn", "sage", "gat", "gatv2", "transformer", "rgcn")


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
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    types = uniform_types(edges, RELATIONS, generator) if layer == "rgcn" else None
    sides = Sides(context, (nodes, CHANNELS), edge_index, types)
    given = [part for part in (sides.edge_index, sides.types) if part is not None]
    pairs = [LAYERS[layer].pair(sides.data, CHANNELS, CHANNELS) for _ in range(2)]
    theirs = sides.placed(TwoLayers([one for _, one, _ in pairs]))
    ours = from_pyg(theirs)
    running = {OURS: (ours, True), EAGER: (ours, False), PYG_COMPILED: (theirs, True)}
    if context.quick:
        sides.absent[PYG_COMPILED] = QUICK
        running[PYG] = running.pop(PYG_COMPILED)
    else:
        torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    for name, (model, compiles) in running.items():
        step: Any = torch.compile(model) if compiles and not context.quick else model
        sides.layer(name, step, *given, own=model is ours)
    return sides.setup({"channels": CHANNELS})


for _layer in NAMES:
    for _size in SIZES:
        case(
            f"compiled-{_layer}-{_size}",
            "compiled",
            f"two layers of {LAYERS[_layer].words}, compiled",
            targets=(faster(EAGER, 1.0), faster(PYG_COMPILED, 1.0)),
            quick=False,
            layer=_layer,
            size=_size,
        )(two_layers)
