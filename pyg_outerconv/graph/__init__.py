"""Structures that a basis is built from, sparse features, positions, and readers of graphs."""

from . import sparse_rules as sparse_rules
from .assignment import Assignment
from .cells import Cells
from .graph import Graph
from .images import flatten_grid, fold, unflatten_grid, unfold
from .interop import edge_list_of, from_hetero, from_networkx, from_scipy
from .node_set import NodeSet
from .positions import places_within, positions_of, relative_positions
from .sparse_features import BecameDense, SparseFeatures
from .sparse_matrix import Features, SparseMatrix
from .structure import Structure

__all__ = [
    "Assignment",
    "BecameDense",
    "Cells",
    "Features",
    "Graph",
    "NodeSet",
    "SparseFeatures",
    "SparseMatrix",
    "Structure",
    "edge_list_of",
    "flatten_grid",
    "fold",
    "from_hetero",
    "from_networkx",
    "from_scipy",
    "places_within",
    "positions_of",
    "relative_positions",
    "unflatten_grid",
    "unfold",
]
