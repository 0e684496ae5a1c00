"""PyG's convolutions under their names, run as contractions over the same parameters."""

from .accelerate import Report, accelerate, restore
from .adjacency import GraphConv, SAGEConv
from .attention import GATConv
from .gcn import GCNConv
from .layer import DropIn

__all__ = [
    "DropIn",
    "GATConv",
    "GCNConv",
    "GraphConv",
    "Report",
    "SAGEConv",
    "accelerate",
    "restore",
]
