"""What a basis is made of: edges, nodes, cells of a grid, assignments to clusters, features."""

from .assignment import Memberships
from .cells import Cells
from .edge_list import Structure, structure
from .images import flatten_grid, unflatten_grid
from .interop import from_hetero, from_networkx, from_scipy, structure_of
from .modes import fold, unfold
from .node_set import Unstructured
from .places import places_within, positions_of, relative_positions
from .sparse_features import Features, SparseFeatures
from .structure import AnyStructure

__all__ = [
    "AnyStructure",
    "Cells",
    "Features",
    "Memberships",
    "SparseFeatures",
    "Structure",
    "Unstructured",
    "flatten_grid",
    "fold",
    "from_hetero",
    "from_networkx",
    "from_scipy",
    "places_within",
    "positions_of",
    "relative_positions",
    "structure",
    "structure_of",
    "unflatten_grid",
    "unfold",
]
