"""Transforms of PyG that store bases on a graph, or turn one into a heterogeneous graph."""

from .add_basis import AddBasis, basis_of
from .basis_to_hetero import BasisToHetero

__all__ = ["AddBasis", "BasisToHetero", "basis_of"]
