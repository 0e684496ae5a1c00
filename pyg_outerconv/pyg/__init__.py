"""PyG's convolutions under their names, run as contractions over the same parameters."""

from .accelerate import Report, accelerate, restore
from .adjacency import GraphConv, SAGEConv
from .attention import GATConv
from .gcn import GCNConv
from .layer import DropIn
from .relational import FastRGCNConv, RGCNConv, SignedConv

__all__ = [
    "DropIn",
    "FastRGCNConv",
    "GATConv",
    "GCNConv",
    "GraphConv",
    "RGCNConv",
    "Report",
    "SAGEConv",
    "SignedConv",
    "accelerate",
    "restore",
]
