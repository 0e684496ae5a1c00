"""PyG's convolutions under their names, run as contractions over the same parameters."""

from .accelerate import Report, accelerate, restore
from .adjacency import GraphConv, SAGEConv
from .attention import GATConv, GATv2Conv, TransformerConv
from .convert import from_pyg, outer_conv, to_pyg
from .explain import Explanation, explain
from .frequency_adaptive import FAConv
from .gcn import GCNConv
from .layer import DropIn
from .relational import FastRGCNConv, RGCNConv, SignedConv
from .relational_attention import RGATConv
from .similarity import AGNNConv, SuperGATConv

__all__ = [
    "AGNNConv",
    "DropIn",
    "Explanation",
    "FAConv",
    "FastRGCNConv",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GraphConv",
    "RGATConv",
    "RGCNConv",
    "Report",
    "SAGEConv",
    "SignedConv",
    "SuperGATConv",
    "TransformerConv",
    "accelerate",
    "explain",
    "from_pyg",
    "outer_conv",
    "restore",
    "to_pyg",
]
