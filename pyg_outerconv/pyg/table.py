"""All of PyG's convolutions: which are equal to a class here, and what the others have."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn import Module
from torch_geometric import nn as pyg
from torch_geometric.nn import conv as convolutions

from ..errors import RefusedValue, unknown
from .layer import OURS, THEIRS

EQUAL, TRICK, NONE = "equal", "equal with a trick", "no equal form"


@dataclass(frozen=True)
class Entry:
    """A convolution of PyG.

    Attributes:
        name: its class.
        kind: ``'equal'``, ``'equal with a trick'`` or ``'no equal form'``.
        text: its equation and the trick, or the term that has no counterpart.
    """

    name: str
    kind: str
    text: str


def entries() -> list[Entry]:
    """Every class of ``torch_geometric.nn.conv``, in PyG's order."""
    return [_entry(name) for name in convolutions.__all__ if name != "MessagePassing"]


def _entry(name: str) -> Entry:
    ours = OURS.get(getattr(pyg, name, Module))
    if ours is None:
        return Entry(name, NONE, ABSENT.get(name, "not known to this version"))
    trick = getattr(ours, "trick", "")
    text = (inspect.getdoc(ours) or "").split("\n\n")[0].replace("\n", " ")
    text = re.sub(r":class:`([^`]+)`", r"\1", text).replace("``", "")
    return Entry(name, TRICK if trick else EQUAL, f"{text} {trick}".strip())


_ARGUMENTS: dict[str, Any] = {
    "in_channels": 16,
    "out_channels": 8,
    "channels": 16,
    "num_relations": 3,
    "K": 3,
    "alpha": 0.1,
    "dim": 2,
    "kernel_size": 3,
    "edge_dim": 4,
    "hidden_channels": 8,
    "num_layers": 2,
    "first_aggr": True,
}


def example(name: str) -> Module:
    """A layer of ours of that class, with small numbers for the arguments it needs."""
    kinds = {kind.__name__: kind for kind in THEIRS}
    if name not in kinds:
        if name in ABSENT:
            raise RefusedValue(f"{name} has no equal form: {ABSENT[name]}")
        raise RefusedValue(unknown("convolution of PyG", name, sorted({*kinds, *ABSENT})))
    arguments = dict(_ARGUMENTS)
    arguments["nn"] = nn.Linear(4 if name == "NNConv" else 16, 128 if name == "NNConv" else 8)
    if name == "DirGNNConv":
        arguments["conv"] = pyg.GCNConv(16, 8)
    parameters = inspect.signature(kinds[name]).parameters.values()
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    return kinds[name](**{one: arguments[one] for one in needed})


_OF_PAIR = "a message is a network of both ends of an edge, not a matrix times x_j"
_CUDA = "is CUDA's own kernel of an equal layer, which is here"

ABSENT = {
    "AntiSymmetricConv": "tanh of a sum around another layer, which is replaced on its own",
    "CGConv": f"σ(z W_f) · softplus(z W_s), z of both ends: {_OF_PAIR}",
    "CuGraphGATConv": f"{_CUDA}: GATConv",
    "CuGraphRGCNConv": f"{_CUDA}: RGCNConv",
    "CuGraphSAGEConv": f"{_CUDA}: SAGEConv",
    "DNAConv": "attention is over the layers that a node has passed, not over edges",
    "DynamicEdgeConv": f"{_OF_PAIR}; its edges are nearest neighbours of x itself",
    "EGConv": "the weights of heads are a function of the target, applied after several reductions",
    "EdgeConv": f"{_OF_PAIR}",
    "FeaStConv": "softmax over heads at each edge, not over edges at each target",
    "FusedGATConv": f"{_CUDA}: GATConv",
    "GENConv": "relu of x_j plus edge features within a softmax over each channel",
    "GPSConv": "a convolution, attention and a network; its convolution is replaced on its own",
    "GeneralConv": "message, attention and reduction are options of a design space, not one layer",
    "GravNetConv": "edges are nearest neighbours in a learned space; several reductions",
    "HANConv": "attention over meta-paths after attention over the edges of each",
    "HEATConv": "attention over types, edge features and both ends, concatenated",
    "HGTConv": "a transform for each type of node before and after attention over all relations",
    "HeteroConv": "a container; each convolution in it is replaced on its own",
    "MeshCNNConv": "a fixed number of neighbours in symmetric pairs, |a - c| + |b - d|",
    "PANConv": "powers of the adjacency without loops weigh each other before GCN's norm",
    "PNAConv": f"several reductions, scaled by logarithms of degrees; {_OF_PAIR}",
    "PPFConv": f"{_OF_PAIR}: of point pair features",
    "PointGNNConv": f"{_OF_PAIR}; a shift of the target's position is learned",
    "PointNetConv": f"{_OF_PAIR}: of features and relative positions",
    "PointTransformerConv": "softmax over each channel of a network of both ends",
    "ResGatedGraphConv": "a gate σ(x_i W + x_j V) for each channel of an edge",
    "WLConv": "colours of nodes are hashed, not multiplied",
    "WLConvContinuous": "½ (x + A D⁻¹ x) without parameters: SimpleConv(aggr='mean') says it",
    "XConv": "a matrix learned for each neighbourhood permutes its points",
}
"""Why a convolution of PyG has no equal class here."""

_OF_TORCH: dict[type[Module], str] = {
    **{
        getattr(nn, f"{kind}{dims}d"): "calls the kernel of torch that a grid basis is lowered to: "
        "nothing to gain"
        for kind in ("Conv", "ConvTranspose", "MaxPool", "AvgPool")
        for dims in (1, 2, 3)
    },
    **dict.fromkeys(
        (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
        "calls torch's own attention: nothing to gain on complete supports",
    ),
}


def why_absent(kind: type[Module]) -> str | None:
    """Why a class has no faster equal here; None if it is neither a layer of PyG nor of torch."""
    if kind in _OF_TORCH:
        return f"{_OF_TORCH[kind]}; nn.from_torch converts it"
    return ABSENT.get(kind.__name__) if getattr(pyg, kind.__name__, None) is kind else None
