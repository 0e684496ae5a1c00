"""Bases: patterns, values, the algebra, and the families that make bases out of structure.

To add a family: one file here, in ``grid/`` or in ``support/``; by its name it is known at once.
"""

from ..found import import_files
from . import grid, support
from .algebra import (
    Composed,
    Kronecker,
    Mixed,
    Repeated,
    Restricted,
    Scaled,
    Selected,
    Stacked,
    Transposed,
)
from .any_structure import AnyStructure
from .base import Basis
from .cache import IdentityCache, clear_caches
from .chebyshev import Chebyshev
from .cluster import Cluster
from .compose import Compose
from .diffusion import Diffusion
from .directed import Directed
from .doors import from_hetero, from_networkx, from_scipy, structure_of
from .edge_dropout import drop_edges
from .edges import EdgeBasis
from .explicit import Explicit, edge_basis
from .export import to_edge_index, to_networkx, to_scipy, to_torch_sparse
from .eye import Eye
from .family import FAMILIES, Family
from .full import Full
from .gcn import GCN
from .grid.cells import Cells
from .grid.grid import Grid
from .grid.images import flatten_grid, unflatten_grid
from .grid.modes import fold, unfold
from .grid.pool import Pool
from .identity import Identity
from .kernel import EdgeFunction, Kernel
from .mean import Mean
from .membership import Memberships
from .pattern import Pattern
from .polynomial import CHEBYSHEV, MONOMIAL, Polynomial, Recurrence
from .registry import parse_family
from .relation import Relation
from .stack import Stack
from .structure import Structure, structure
from .support.band import Band
from .support.blocks import Blocks
from .support.causal import Causal
from .support.cliques import Cliques
from .support.complete import Complete
from .support.global_tokens import GlobalTokens
from .support.hops import Hops
from .support.nearest import Nearest
from .support.part import Part
from .support.random_links import RandomLinks
from .support.sliding_window import SlidingWindow
from .support.strided import Strided
from .support.union import Union
from .units import Units
from .unstructured import Unstructured
from .walk import Walk

__all__ = [
    "CHEBYSHEV",
    "FAMILIES",
    "GCN",
    "MONOMIAL",
    "AnyStructure",
    "Band",
    "Basis",
    "Blocks",
    "Causal",
    "Cells",
    "Chebyshev",
    "Cliques",
    "Cluster",
    "Complete",
    "Compose",
    "Composed",
    "Diffusion",
    "Directed",
    "EdgeBasis",
    "EdgeFunction",
    "Explicit",
    "Eye",
    "Family",
    "Full",
    "GlobalTokens",
    "Grid",
    "Hops",
    "Identity",
    "IdentityCache",
    "Kernel",
    "Kronecker",
    "Mean",
    "Memberships",
    "Mixed",
    "Nearest",
    "Part",
    "Pattern",
    "Polynomial",
    "Pool",
    "RandomLinks",
    "Recurrence",
    "Relation",
    "Repeated",
    "Restricted",
    "Scaled",
    "Selected",
    "SlidingWindow",
    "Stack",
    "Stacked",
    "Strided",
    "Structure",
    "Transposed",
    "Union",
    "Units",
    "Unstructured",
    "Walk",
    "clear_caches",
    "drop_edges",
    "edge_basis",
    "flatten_grid",
    "fold",
    "from_hetero",
    "from_networkx",
    "from_scipy",
    "parse_family",
    "structure",
    "structure_of",
    "to_edge_index",
    "to_networkx",
    "to_scipy",
    "to_torch_sparse",
    "unflatten_grid",
    "unfold",
]

import_files(__name__, __path__, but=("picture",))  # which needs matplotlib, where one is drawn
import_files(grid.__name__, grid.__path__)
import_files(support.__name__, support.__path__)
