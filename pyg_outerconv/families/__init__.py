"""Recipes from a graph to a basis, one a file, and combinations of them.

To add a family: one file here, or in ``support/``; by its name it is known at once.
"""

from ..found import import_files
from . import support
from .attention import Attention
from .chebyshev import Chebyshev
from .cluster import Cluster
from .compose import Compose
from .content_family import ContentFamily
from .diffusion import Diffusion
from .directed import Directed
from .explicit import Explicit, edge_basis
from .family import FAMILIES, Family
from .full import Full
from .gcn import GCN
from .grid import Grid
from .identity import Identity
from .kernel import EdgeFunction, Kernel
from .linear_attention import LinearAttention
from .mean import Mean
from .pool import Pool
from .registry import parse_family
from .relation import Relation
from .stack import Stack
from .support.blocks import Blocks
from .support.causal import Causal
from .support.complete import Complete
from .support.global_tokens import GlobalTokens
from .support.hops import Hops
from .support.nearest import Nearest
from .support.part import Part
from .support.random_links import RandomLinks
from .support.sliding_window import SlidingWindow
from .support.strided import Strided
from .support.union import Union
from .walk import Walk

__all__ = [
    "FAMILIES",
    "GCN",
    "Attention",
    "Blocks",
    "Causal",
    "Chebyshev",
    "Cluster",
    "Complete",
    "Compose",
    "ContentFamily",
    "Diffusion",
    "Directed",
    "EdgeFunction",
    "Explicit",
    "Family",
    "Full",
    "GlobalTokens",
    "Grid",
    "Hops",
    "Identity",
    "Kernel",
    "LinearAttention",
    "Mean",
    "Nearest",
    "Part",
    "Pool",
    "RandomLinks",
    "Relation",
    "SlidingWindow",
    "Stack",
    "Strided",
    "Union",
    "Walk",
    "edge_basis",
    "parse_family",
]

import_files(__name__, __path__)
import_files(support.__name__, support.__path__)
