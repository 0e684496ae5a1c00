"""Transforms of PyG: bases stored on a graph or as edge types, and features stored sparse."""

from .add_basis import AddBasis, basis_of
from .basis_to_hetero import BasisToHetero
from .to_sparse_features import ToSparseFeatures

__all__ = ["AddBasis", "BasisToHetero", "ToSparseFeatures", "basis_of"]
