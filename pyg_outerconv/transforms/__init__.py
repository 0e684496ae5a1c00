"""Transforms of PyG that store bases on a graph, turn one into a heterogeneous graph, or store features sparse."""

from .add_basis import AddBasis, basis_of
from .basis_to_hetero import BasisToHetero
from .to_sparse_features import ToSparseFeatures

__all__ = ["AddBasis", "BasisToHetero", "ToSparseFeatures", "basis_of"]
