"""PyG's convolutions without an equal form here, and the term of each that no basis has."""

from __future__ import annotations

from torch.nn import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Module,
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from torch_geometric import nn as pyg

_OF_PAIR = "a message is a network of both ends of an edge, not a matrix times x_j"
_CUDA = "is CUDA's own kernel of an equal layer, which is here"

ABSENT = {
    "AntiSymmetricConv": "tanh of a sum around another layer, which is replaced by itself",
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
    "GPSConv": "a convolution, attention and a network; its convolution is replaced by itself",
    "GeneralConv": "message, attention and reduction are options of a design space, not one layer",
    "GravNetConv": "edges are nearest neighbours in a learned space; several reductions",
    "HANConv": "attention over meta-paths after attention over the edges of each",
    "HEATConv": "attention over types, edge features and both ends, concatenated",
    "HGTConv": "a transform for each type of node before and after attention over all relations",
    "HeteroConv": "a container; its convolutions are replaced by themselves",
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

_POOLED = "calls the kernel of torch that a grid basis is lowered to: nothing to gain"
_OF_TORCH: dict[type[Module], str] = {
    **dict.fromkeys((Conv1d, Conv2d, Conv3d), _POOLED),
    **dict.fromkeys((ConvTranspose1d, ConvTranspose2d, ConvTranspose3d), _POOLED),
    **dict.fromkeys((MaxPool1d, MaxPool2d, MaxPool3d), _POOLED),
    **dict.fromkeys((AvgPool1d, AvgPool2d, AvgPool3d), _POOLED),
    **dict.fromkeys(
        (MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer),
        "calls torch's own attention: nothing to gain on complete supports",
    ),
}


def why_absent(kind: type[Module]) -> str | None:
    """Why a class has no faster equal here; None if it is neither a layer of PyG nor of torch."""
    if kind in _OF_TORCH:
        return f"{_OF_TORCH[kind]}; nn.from_torch converts it"
    return ABSENT.get(kind.__name__) if getattr(pyg, kind.__name__, None) is kind else None
