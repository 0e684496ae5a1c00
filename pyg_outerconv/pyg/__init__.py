"""PyG's convolutions under their names, run as contractions over the same parameters."""

from .accelerate import Report, accelerate, restore
from .adjacency import GraphConv, SAGEConv
from .attention import GATConv
from .convert import from_pyg, outer_conv, to_pyg
from .explain import Explanation, explain
from .gcn import GCNConv
from .layer import DropIn
from .relational import FastRGCNConv, RGCNConv, SignedConv

__all__ = [
    "DropIn",
    "Explanation",
    "FastRGCNConv",
    "GATConv",
    "GCNConv",
    "GraphConv",
    "RGCNConv",
    "Report",
    "SAGEConv",
    "SignedConv",
    "accelerate",
    "explain",
    "from_pyg",
    "outer_conv",
    "restore",
    "to_pyg",
]
