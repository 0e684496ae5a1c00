"""Recipes from a graph to a basis, and combinations of them.

To add a family: one file here, or in ``support/``; by its name it is known at once.
"""

from ..basis.edges import edge_basis
from ..registry import import_files
from . import support
from .attention import Attention
from .channel_polynomials import Favard, OptBasis
from .chebyshev import Chebyshev
from .cluster import Cluster
from .combinators import Compose, Directed, Explicit, Mean, Reverse, Stack, Union
from .content_family import ContentFamily
from .family import Family
from .gcn import GCN
from .grid import Grid, Pool
from .kernel import EdgeFunction, Kernel
from .linear_attention import LinearAttention
from .multi_head import GAT, GATv2, MultiHead, Transformer
from .nodes import Full, Identity, Part
from .polynomials import (
    Bernstein,
    ChebyshevFirst,
    ChebyshevNodes,
    ChebyshevSecond,
    Gegenbauer,
    Jacobi,
    Legendre,
    Monomial,
)
from .registry import FAMILIES, parse_family
from .relation import Relation
from .sums import Add, Scale, Select, Sub
from .support.neighbours import Hops, Nearest
from .support.sequences import (
    Blocks,
    Causal,
    Complete,
    GlobalTokens,
    RandomLinks,
    SlidingWindow,
    Strided,
)
from .walk import Diffusion, HighPass, Walk

__all__ = [
    "FAMILIES",
    "GAT",
    "GCN",
    "Add",
    "Attention",
    "Bernstein",
    "Blocks",
    "Causal",
    "Chebyshev",
    "ChebyshevFirst",
    "ChebyshevNodes",
    "ChebyshevSecond",
    "Cluster",
    "Complete",
    "Compose",
    "ContentFamily",
    "Diffusion",
    "Directed",
    "EdgeFunction",
    "Explicit",
    "Family",
    "Favard",
    "Full",
    "GATv2",
    "Gegenbauer",
    "GlobalTokens",
    "Grid",
    "HighPass",
    "Hops",
    "Identity",
    "Jacobi",
    "Kernel",
    "Legendre",
    "LinearAttention",
    "Mean",
    "Monomial",
    "MultiHead",
    "Nearest",
    "OptBasis",
    "Part",
    "Pool",
    "RandomLinks",
    "Relation",
    "Reverse",
    "Scale",
    "Select",
    "SlidingWindow",
    "Stack",
    "Strided",
    "Sub",
    "Transformer",
    "Union",
    "Walk",
    "edge_basis",
    "parse_family",
]

import_files(__name__, __path__)
import_files(support.__name__, support.__path__)
