"""PyG's convolutions under their names, run as contractions over the same parameters."""

from .accelerate import Report, accelerate, restore
from .adjacency import GatedGraphConv, GINConv, GraphConv, SAGEConv, SimpleConv
from .attention import AGNNConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv
from .convert import from_pyg, outer_conv, to_pyg
from .degrees import ClusterGCNConv, LEConv, MFConv
from .directed import DirGNNConv
from .edge_functions import GMMConv, NNConv, PDNConv, SplineConv
from .explain import Explanation, explain
from .gcn import ARMAConv, FAConv, GCN2Conv, GCNConv, LGConv
from .hypergraph import HypergraphConv
from .layer import DropIn
from .polynomials import APPNP, ChebConv, MixHopConv, SGConv, SSGConv, TAGConv
from .relational import FastRGCNConv, RGATConv, RGCNConv, SignedConv
from .tiles import FiLMConv, GINEConv

__all__ = [
    "APPNP",
    "AGNNConv",
    "ARMAConv",
    "ChebConv",
    "ClusterGCNConv",
    "DirGNNConv",
    "DropIn",
    "Explanation",
    "FAConv",
    "FastRGCNConv",
    "FiLMConv",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GatedGraphConv",
    "GraphConv",
    "HypergraphConv",
    "LEConv",
    "LGConv",
    "MFConv",
    "MixHopConv",
    "NNConv",
    "PDNConv",
    "RGATConv",
    "RGCNConv",
    "Report",
    "SAGEConv",
    "SGConv",
    "SSGConv",
    "SignedConv",
    "SimpleConv",
    "SplineConv",
    "SuperGATConv",
    "TAGConv",
    "TransformerConv",
    "accelerate",
    "explain",
    "from_pyg",
    "outer_conv",
    "restore",
    "to_pyg",
]
